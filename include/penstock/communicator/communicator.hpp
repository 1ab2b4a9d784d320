// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <penstock/communicator/control_words.hpp>
#include <penstock/communicator/reduce_buffer.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// A replicated run that ended because of one rank: which, at which step, and why. `rethrow_cause()` throws the
/// original exception where that rank is in this process.
class replica_error : public error {
 public:
  replica_error(std::uint64_t rank, std::string problem, provenance where = {}, std::exception_ptr cause = nullptr)
      : error(std::move(problem), std::move(where), std::move(cause)), rank_(rank) {}
  std::uint64_t rank() const noexcept { return rank_; }

 private:
  std::uint64_t rank_;
};

/// How replicas do with streams that end at different steps.
enum class uneven {
  join,  ///< who has run dry takes part with zeros until all have
  stop   ///< the epoch ends on all ranks where the first one ends, before that step
};

/// How replicas run. Equal on all ranks, `stop` aside.
struct replica_options {
  /// How long a rank waits for the others, in one exchange, before the run ends with an error that names who is
  /// missing. More than the longest that ranks may differ, such as one rank's validation.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  /// How long a rank waits for the others before its feed's observers get a `late_event` that names who is missing;
  /// where none has `on_late`, a line on standard error, by the lowest of the ranks that wait (with NCCL of each
  /// process). Again at twice the time, and so on, until `timeout` ends it. 0 is never. 30 seconds unless given.
  std::optional<std::chrono::nanoseconds> warn_after{};
  /// On devices that bring the control words back behind the host: after how many further steps they are acted on. At
  /// least what the host runs ahead; 0: the host waits in each step.
  std::uint32_t lag = 8;
  penstock::uneven uneven = penstock::uneven::join;
  std::stop_token stop{};  ///< ends the run on all ranks at the same step

  void validate() const {
    if (timeout.count() <= 0)
      detail::reject_option("replicas", "timeout", detail::concat(timeout.count(), " ns"), "more than 0");
    if (warn_after && (warn_after->count() < 0 || *warn_after >= timeout))
      detail::reject_option("replicas", "warn_after", detail::concat(warn_after->count(), " ns"),
                            "0 or more, and less than the timeout");
    if (lag > 1024) detail::reject_option("replicas", "lag", std::to_string(lag), "0 to 1024");
  }
  std::chrono::nanoseconds warns_after() const { return warn_after.value_or(std::chrono::seconds(30)); }
};

/// One meeting of all ranks, as one of them enters it. Ranks enter the same ones in the same order.
template <class StreamView>
struct exchange {
  std::uint64_t number = 0;  ///< of this rank's exchanges, from 0
  std::uint64_t epoch = 0;   ///< for messages
  std::uint64_t step = 0;
  control_words words{};
  std::span<const reduce_buffer> buffers{};  ///< in the same order on all ranks
  /// This rank contributes zeros; its buffers, if it names any, are overwritten.
  bool joins = false;
  /// Of all ranks' values, where it is known without asking them (a planned step, weighed by samples); else 0.
  double total_weight = 0;
  /// Without words to be read back: buffers that were ready before the rest of their step.
  bool early = false;
  /// Who may not come for long, as its body has not ended: there is no time-out.
  bool patient = false;
  StreamView stream;  ///< values are ready in its order, and reduced for what is enqueued on it afterwards
};

/// What combines the ranks' values. One object for each rank, used by one thread, that rank's; `abort` may come from
/// any.
///
/// - `post(exchange)` combines, or begins to. With `immediate` communicators all ranks' words are known when it
/// returns,
///   and values are exchanged only if `!words.ends()`; else both come later, in the order of `exchange::stream`.
/// - `words_of(number)` gives the reduced words of an exchange that was not `early`, waiting if it must. Those are
/// asked
///   for in order, each once, and at most `lag + 1` later ones have been posted before.
/// - `all_gather(text)` gives every rank's text, by rank; for a few short ones outside the steps.
/// - `abort(rank, where, problem)`: no rank waits any longer; all that wait or come get a `replica_error`. The first
///   call counts.
/// - `warn_by(late_hook)`, which it need not have: who is told where a wait takes longer than
///   `replica_options::warn_after`.
///
/// Ranks that do not come, or come with something else, end in a `replica_error` on every rank, within the time-out.
template <class C>
concept communicator = requires(C& one, const C& view, const exchange<typename C::stream_view>& step, std::string text,
                                std::uint64_t number, provenance where) {
  typename C::device_type;
  { C::immediate } -> std::convertible_to<bool>;
  { view.rank() } -> std::same_as<std::uint64_t>;
  { view.size() } -> std::same_as<std::uint64_t>;
  { view.device() } -> std::convertible_to<const typename C::device_type&>;
  one.post(step);
  { one.words_of(number) } -> std::same_as<control_words>;
  { one.all_gather(std::move(text)) } -> std::same_as<std::vector<std::string>>;
  one.abort(number, where, text);
};

namespace detail {

/// What differs, for the error of ranks that do not agree on an exchange. `what` is told where sizes do not differ.
inline std::string describe_disagreement(const control_words& words) {
  const std::uint64_t most = words.maxima[control_words::elements];
  const std::uint64_t least = ~words.maxima[control_words::not_elements];
  if (most != least)
    return concat("ranks bring values of different sizes: ", least, " and ", most,
                  " elements, wanted the same on all ranks");
  return "ranks are at different steps, or bring their values in another order, of other types or for another "
         "reduction; wanted the same calls on all ranks";
}

/// Which rank is told of, and what, where ranks do not agree on an exchange; `words_of(rank)` is what each brought.
struct disagreement {
  std::uint64_t rank = 0;
  std::string problem;
};
template <class WordsOf>
disagreement find_disagreement(std::uint64_t size, const control_words& all, WordsOf&& words_of) {
  const auto elements = [&](std::uint64_t r) { return words_of(r).maxima[control_words::elements]; };
  const auto call = [&](std::uint64_t r) { return words_of(r).maxima[control_words::call]; };
  std::uint64_t other = 0, others = 0;
  for (std::uint64_t r = 1; r < size; ++r) {
    const bool differs = elements(r) != elements(0) || call(r) != call(0);
    if (words_of(r).has(control_words::not_call) && differs && others++ == 0) other = r;
  }
  // Where most bring something else than rank 0 does, it is that one.
  return {2 * others > size ? 0 : other, concat(describe_disagreement(all), " (rank 0 brings ", elements(0), ", rank ",
                                                other, " ", elements(other), " elements)")};
}

}  // namespace detail
}  // namespace penstock
