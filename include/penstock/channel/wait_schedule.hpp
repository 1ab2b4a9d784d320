// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include <penstock/channel/atomics.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// Of something measured: "26 s", "1.2 s", "40 ms".
inline std::string rough_text(std::chrono::nanoseconds time) {
  const auto ms = time.count() / 1'000'000;
  if (ms >= 10'000) return concat(ms / 1000, " s");
  if (ms >= 1'000) return concat(ms / 1000, '.', ms / 100 % 10, " s");
  return concat(ms, " ms");
}

/// When one who waits is to look, to warn and to give up. Warns after `warn`, and at twice the time again and again;
/// 0 never.
class wait_schedule {
  using clock = std::chrono::steady_clock;

 public:
  wait_schedule(clock::time_point begin, std::chrono::nanoseconds limit, std::chrono::nanoseconds warn) noexcept
      : begin_(begin), end_(after(limit)), next_warning_(warn) {
    const auto first = warn.count() == 0 ? limit : std::min(warn, limit);
    pause_ = std::max<std::chrono::nanoseconds>(first / 8, std::chrono::milliseconds(1));
  }

  /// Until when there is nothing to say.
  clock::time_point due() const noexcept {
    return next_warning_.count() != 0 ? std::min(end_, after(next_warning_)) : end_;
  }
  /// Until when to sleep, for one who looks now and then meanwhile.
  clock::time_point next(clock::time_point now) const noexcept {
    const clock::time_point at = due();
    return at - now > pause_ ? now + std::chrono::duration_cast<clock::duration>(pause_) : at;
  }
  bool is_over(clock::time_point now) const noexcept { return now >= end_; }
  /// Whether a warning is due; the next is then at twice the time.
  bool warns(clock::time_point now) noexcept {
    if (next_warning_.count() == 0 || now < after(next_warning_)) return false;
    while (next_warning_.count() != 0 && now >= after(next_warning_))
      next_warning_ = next_warning_ > std::chrono::hours(24 * 365) ? std::chrono::nanoseconds(0) : 2 * next_warning_;
    return true;
  }
  clock::time_point begin() const noexcept { return begin_; }

 private:
  clock::time_point after(std::chrono::nanoseconds time) const noexcept {
    return time > no_deadline - begin_ ? no_deadline : begin_ + std::chrono::duration_cast<clock::duration>(time);
  }

  clock::time_point begin_;
  clock::time_point end_;
  std::chrono::nanoseconds next_warning_;
  std::chrono::nanoseconds pause_{};
};

/// `wait(until)`, again and again, until it says that what is waited for has come: true; or time is over: false.
/// `warn(waited)` where that is due meanwhile. Who sleeps past both warns first, all the same.
template <class Wait, class Warn>
bool wait_and_warn(wait_schedule times, const Wait& wait, const Warn& warn) {
  while (!wait(times.due())) {
    const auto now = std::chrono::steady_clock::now();
    if (times.warns(now))
      warn(now - times.begin());
    else if (times.is_over(now))
      return false;
  }
  return true;
}

}  // namespace penstock::detail
