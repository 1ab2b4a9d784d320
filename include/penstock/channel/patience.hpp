// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace penstock {

/// How long one thread's waits at one place tend to last, learnt from those before.
///
/// Waking a thread costs the one who wakes it several microseconds, and the other as many to fall asleep. A wait that
/// is likely to be short is better spun through; through most of a longer one that is like those before a thread sleeps
/// by the clock, so that nobody has to wake it. Both are guesses, and what they cost when they are wrong is bounded.
class patience {
 public:
  using clock = std::chrono::steady_clock;
  using duration = std::chrono::nanoseconds;

  /// Up to this long a wait is spun through, where there is a CPU for it.
  static constexpr duration shortly = std::chrono::microseconds(40);
  /// What happens meanwhile (a stop) is seen after a nap of this length at most.
  static constexpr duration longest_nap = std::chrono::milliseconds(1);

  bool is_short() const noexcept { return typical_ <= shortly; }
  /// How long to sleep by the clock at the beginning of a wait, in naps.
  duration to_sleep() const noexcept { return typical_; }

  /// The wait was over when the last nap ended, who knows for how long.
  void slept_over() noexcept {
    typical_ -= typical_ / (overslept_ ? 4 : 8);
    overslept_ = true;
  }
  /// It was seen to end after this time. One that lasts much longer than others is an accident, and hardly counts.
  void lasted(duration time) noexcept {
    const duration more = (time - typical_) / 4;
    const duration most = typical_ / 4 + shortly / 8;
    typical_ += more < most ? more : most;
    if (typical_ > longest) typical_ = longest;
    overslept_ = false;
  }

 private:
  // A wake costs nothing beside waits longer than that.
  static constexpr duration longest = std::chrono::milliseconds(10);

  duration typical_{};
  bool overslept_ = false;
};

}  // namespace penstock
