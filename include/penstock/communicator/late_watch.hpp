// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include <penstock/channel/wait_schedule.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/late_event.hpp>

namespace penstock {

/// Who is told that a rank has waited for the others for long: `tell(whom, event, speaks)`, on the rank's own thread,
/// which holds no lock. It throws nothing, and the rank waits on when it returns. `speaks`: no lower rank that this one
/// knows of waits for the same ones, so that it is this one that tells of it where nobody hears.
struct late_hook {
  void (*tell)(void* whom, const late_event& event, bool speaks) noexcept = nullptr;
  void* whom = nullptr;
};

namespace detail {

/// "; rank 1 came last in epoch 0, step 3", or nothing where that is not known.
inline std::string last_text(const missing_rank& one) {
  if (one.never_came) return concat("; rank ", one.rank, " has never come");
  if (!one.epoch || !one.step) return {};
  return concat("; rank ", one.rank, " came last in epoch ", *one.epoch, ", step ", *one.step);
}
/// "rank 1, rank 3".
inline std::string ranks_text(std::span<const missing_rank> ranks) {
  std::string text;
  for (const missing_rank& one : ranks) text += concat(text.empty() ? "rank " : ", rank ", one.rank);
  return text;
}
/// "; rank 1 came last in epoch 0, step 3; rank 3 has never come".
inline std::string last_text(std::span<const missing_rank> ranks) {
  std::string text;
  for (const missing_rank& one : ranks) text += last_text(one);
  return text;
}
/// "rank 0 has waited for rank 1, rank 3 for 31 s; rank 1 came last in epoch 0, step 3; rank 3 has never come".
inline std::string late_text(std::uint64_t rank, std::chrono::nanoseconds waited, std::span<const missing_rank> missing,
                             std::string_view note) {
  std::string text = concat("rank ", rank, " has waited for ", missing.empty() ? "others" : ranks_text(missing),
                            " for ", rough_text(waited));
  if (!note.empty()) text += concat("; ", note);
  return text + last_text(missing);
}

/// What a rank's communicator knows of warnings: after how long, and whom to tell. One thread, the rank's.
class late_watch {
 public:
  /// `after`: 0 is never. Without a hook it is told on standard error.
  explicit late_watch(std::uint64_t rank = 0, std::chrono::nanoseconds after = {}) noexcept
      : rank_(rank), after_(after) {}

  void warn_by(late_hook hook) noexcept { hook_ = hook; }
  std::chrono::nanoseconds after() const noexcept { return after_; }
  /// How long one may wait, at most for `limit`, before there is anything to say.
  std::chrono::nanoseconds quiet(std::chrono::nanoseconds limit) const noexcept {
    return after_.count() != 0 && after_ < limit ? after_ : limit;
  }
  /// `note` is what else is known, mostly why it is not known who is `missing`.
  [[gnu::noinline, gnu::cold]] void tell(const provenance& where, std::chrono::nanoseconds waited,
                                         std::span<const missing_rank> missing, bool speaks,
                                         std::string_view note = {}) const noexcept {
    try {
      const std::string message = concat(where.text(), ": ", late_text(rank_, waited, missing, note));
      late_event event;
      event.message = message;
      event.where = where;
      event.waited = waited;
      event.rank = rank_;
      event.missing = missing;
      if (hook_.tell != nullptr)
        hook_.tell(hook_.whom, event, speaks);
      else if (speaks)
        say_late(message);
    } catch (const std::exception&) {
      // No memory to tell of it.
    }
  }

 private:
  std::uint64_t rank_;
  std::chrono::nanoseconds after_;
  late_hook hook_;
};

}  // namespace detail
}  // namespace penstock
