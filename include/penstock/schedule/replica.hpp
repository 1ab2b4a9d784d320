// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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

#include <penstock/communicator/communicator.hpp>
#include <penstock/schedule/cpu_share.hpp>
#include <penstock/schedule/lockstep.hpp>
#include <penstock/schedule/pipeline.hpp>
#include <penstock/stage/plan.hpp>

namespace penstock {

/// One of several that train alike, each with a device and data of its own: what the body of `replicas` is given.
///
/// It keeps all ranks' loops in step. Every `all_reduce` carries, beside the values, how many samples they are of and
/// whether the rank goes on; all ranks see the same, and leave at the same step: the loop over the feed's epoch ends by
/// itself. A rank that leaves its loop, returns or throws releases the others: leaving a loop early ends that epoch on
/// all ranks, a stop ends the run, an error reaches all as a `replica_error`. The step at which that is noticed is void
/// on all ranks.
///
/// One thread, the one that runs the body; `stop` from any.
template <communicator Communicator>
class replica {
  using words = control_words;

 public:
  using device_type = typename Communicator::device_type;
  using stream_view = typename Communicator::stream_view;

  replica(Communicator communicator, const replica_options& options) : steps_(std::move(communicator), options) {
    if (options.stop.stop_possible()) token_.emplace(options.stop, stopper{this});
  }
  replica(const replica&) = delete;
  replica& operator=(const replica&) = delete;
  ~replica() = default;

  std::uint64_t rank() const noexcept { return communicator().rank(); }
  std::uint64_t size() const noexcept { return communicator().size(); }
  const device_type& device() const noexcept { return communicator().device(); }
  const Communicator& communicator() const noexcept { return steps_.communicator(); }
  /// For `partition({.world = replica})`.
  operator penstock::world() const noexcept { return {rank(), size()}; }

  /// A feed that is kept in step with the other ranks': that of the loop which calls `all_reduce`. One at a time; feeds
  /// for other purposes are started as usual. All ranks call it, and are held to the same data, seed, plan and global
  /// batch.
  ///
  /// A stream whose `partition` names no world is the rank's own, and may be longer or shorter than others': a rank
  /// that has run dry gets empty batches until all have (or, by `replica_options::uneven`, the epoch ends for all).
  ///
  /// Throws `std::invalid_argument` if the pipeline's `partition` is of another world.
  template <class Dataset, class... Stages>
  auto start(const pipeline<Dataset, Stages...>& work) {
    const penstock::world planned = std::get<0>(work.stages()).options.world;
    const bool own_stream = detail::is_stream<std::remove_const_t<Dataset>> && planned == penstock::world{};
    if (planned != penstock::world(*this) && !own_stream)
      detail::reject_option(
          "partition", "world", detail::concat("rank ", planned.rank, " of ", planned.size),
          detail::concat("rank ", rank(), " of ", size(), ", the replica's: partition({.world = replica})"));
    if (steps_.has_feed()) throw error("replica: it has a feed already, which has not ended");
    auto feed = work.start(readers_of(work));
    const auto all = gather(feed.identity());
    for (std::uint64_t r = 0; r < size(); ++r)
      if (all[r] != all[0])
        throw error(detail::concat("replicas have different data, plans or batches: rank 0 has ", all[0], ", rank ", r,
                                   " ", all[r]));
    steps_.keep(feed.keep_in_step_with(steps_));
    return feed;
  }

  /// Reduces values over all ranks, in place, in the order of the batch's stream, and ends the step. `values` are
  /// vectors, spans, tensor_views, ... in the device's memory, or `buffer(values, how)`; each becomes its weighted mean
  /// unless `how` says otherwise. The same ones in the same order on all ranks.
  ///
  /// If the result is false, values are what they were, or zeros, or what `ready` made of them, and the update is to be
  /// left out: the run or the epoch ends here, or no rank had a sample.
  template <class Batch, class... Values>
  step_result all_reduce(const Batch& batch, const step_options& options, Values&&... values) {
    const std::array<reduce_buffer, sizeof...(Values)> buffers{buffer(std::forward<Values>(values))...};
    return steps_.step(batch.info(), options, buffers, batch.stream());
  }
  template <class Batch, class... Values>
    requires(!(std::same_as<std::remove_cvref_t<Values>, step_options> || ...))
  step_result all_reduce(const Batch& batch, Values&&... values) {
    return all_reduce(batch, step_options{}, std::forward<Values>(values)...);
  }
  /// The same for any number of buffers.
  template <class Batch>
  step_result all_reduce_buffers(const Batch& batch, const step_options& options,
                                 std::span<const reduce_buffer> buffers) {
    return steps_.step(batch.info(), options, buffers, batch.stream());
  }
  /// Begins to reduce values that are ready in the order of the batch's stream, while the rest of the step is computed:
  /// layer by layer, last first. In the same order on all ranks and in each step; they are reduced for what is enqueued
  /// after the step's `all_reduce`, which ends it. Of weighted means the weight is the batch's samples, or `options`'.
  template <class Batch, class... Values>
  void ready(const Batch& batch, const step_options& options, Values&&... values) {
    const std::array<reduce_buffer, sizeof...(Values)> buffers{buffer(std::forward<Values>(values))...};
    steps_.begin_early(batch.info(), options, buffers, batch.stream());
  }
  template <class Batch, class... Values>
    requires(!(std::same_as<std::remove_cvref_t<Values>, step_options> || ...))
  void ready(const Batch& batch, Values&&... values) {
    ready(batch, step_options{}, std::forward<Values>(values)...);
  }

  /// Rank `root`'s values replace those of all others, such as initial parameters. On `on`, in its order.
  template <class... Values>
  void broadcast(std::uint64_t root, stream_view on, Values&&... values) {
    if (root >= size())
      detail::reject_option("broadcast", "root", detail::concat("rank ", root), detail::concat("less than ", size()));
    std::array<reduce_buffer, sizeof...(Values)> buffers{buffer(std::forward<Values>(values))...};
    for (auto& one : buffers) one.how = reduction::sum;
    words mine;
    mine.sums[words::weight] = rank() == root ? 1 : 0;
    steps_.meet(mine, meeting::broadcast, root, buffers, on, 1);
  }
  /// Adds numbers on the host over all ranks, in place, in the order of the ranks: results of a validation. Waits.
  void sum(std::span<double> numbers) {
    for (std::size_t at = 0; at < numbers.size(); at += words::most_metrics) {
      const std::size_t left = numbers.size() - at;
      const auto part = numbers.subspan(at, left < words::most_metrics ? left : words::most_metrics);
      words mine;
      for (std::size_t i = 0; i < part.size(); ++i) mine.sums[words::first_metric + i] = part[i];
      const words all = steps_.meet(mine, meeting::sum, left, {}, steps_.any_stream(), 0);
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = all.sums[words::first_metric + i];
    }
  }
  /// Returns when all ranks have come. Like all that is outside the steps it needs them at the same place: where one
  /// may leave its loop, not between a batch and its `all_reduce`.
  void barrier() { steps_.meet({}, meeting::barrier, 0, {}, steps_.any_stream(), 0); }
  /// Every rank's text, by rank.
  std::vector<std::string> gather(std::string text) {
    barrier();
    return steps_.all_gather(std::move(text));
  }

  /// Where words come back behind the host: the last step's, in the device's memory, for the kernels of its update.
  /// `gate()->counts()` is whether it is to be made. As who ends a loop says so until all ranks have left it, the steps
  /// behind it are void, too.
  auto gate() const noexcept
    requires requires(const Communicator& one) { one.gate(); }
  {
    return communicator().gate();
  }

  /// Ends the run on all ranks, at the step that they are at next.
  void stop() noexcept { steps_.request_stop(); }
  /// The run was stopped, here or elsewhere, and all ranks know.
  bool stopped() const noexcept { return steps_.over(); }
  /// Behind the last step whose update is in the model on every rank, as far as is known: what a checkpoint has to
  /// keep. At the end of an epoch that is known.
  const feed_state& state() const noexcept { return steps_.confirmed(); }
  std::uint64_t steps() const noexcept { return steps_.steps(); }

  /// For `start` and `describe`, by all ranks: what automatic readers are at the most, as ranks of a host that have
  /// CPUs in common share them.
  template <class Dataset, class... Stages>
  detail::reader_limit readers_of(const pipeline<Dataset, Stages...>& work) {
    if constexpr (sizeof...(Stages) < 2) {
      return {};
    } else {
      const auto& reads = std::get<1>(work.stages());
      reads.validate();
      const auto all = gather(detail::reader_cpus(reads.options));
      return detail::share_of_cpus(all, static_cast<std::size_t>(rank()), reads.least_readers(reads.options));
    }
  }

  // ---- for `replicas`

  replica_summary finish() { return steps_.finish(); }
  void fail(const std::exception_ptr& cause) noexcept { steps_.fail(cause); }
  provenance where() const { return steps_.where(); }
  const std::exception_ptr& cause() const noexcept { return steps_.cause(); }
  bool failed_by_itself() const noexcept { return steps_.failed_by_itself(); }

 private:
  using lockstep = detail::lockstep<Communicator>;
  using meeting = typename lockstep::meeting;

  struct stopper {
    replica* of;
    void operator()() const noexcept { of->stop(); }
  };

  lockstep steps_;
  std::optional<std::stop_callback<stopper>> token_;
};

}  // namespace penstock
