// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include <penstock/observe/observer.hpp>

namespace penstock {

/// What was done between two moments of a run.
struct run_interval {
  using seconds = std::chrono::duration<double>;

  std::uint64_t epoch = 0;  ///< of the last step
  std::uint64_t step = 0;   ///< the last one, of its epoch, from 0
  std::uint64_t steps = 0;  ///< completed
  std::uint64_t samples = 0;
  seconds elapsed{0};  ///< without pauses between epochs
  seconds waited{0};   ///< the part of it in which the consumer waited for data

  std::optional<double> samples_per_second() const {
    return elapsed.count() > 0 ? std::optional(static_cast<double>(samples) / elapsed.count()) : std::nullopt;
  }
  /// Of the time, from 0 to 1.
  std::optional<double> wait_share() const {
    if (!(elapsed.count() > 0)) return std::nullopt;
    return std::clamp(waited / elapsed, 0.0, 1.0);
  }
};

/// Cuts a run into intervals, for logs of its speed. A step lasts from when its batch was asked for to when the next
/// one was, or to the end of the epoch: the wait is the step's own. It reads no clock.
class interval_meter {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// The batch before, if any, is completed by this.
  void batch(const batch_event& event, time_point now) {
    const time_point asked = now - event.wait;
    complete(asked);
    in_hand_ = true;
    asked_ = std::max(asked, completed_at_);
    step_ = event;
  }
  /// The epoch, or the run, has ended: so has the step in hand.
  void end(time_point now) { complete(now); }

  bool is_in_hand() const noexcept { return in_hand_; }
  /// The batch given last.
  const batch_event& last() const noexcept { return step_; }
  /// Of the steps completed since the last `take`.
  const run_interval& so_far() const noexcept { return sum_; }
  run_interval take() {
    const run_interval result = sum_;
    sum_ = {};
    return result;
  }

 private:
  void complete(time_point now) {
    if (!in_hand_) return;
    in_hand_ = false;
    const time_point end = std::max(now, asked_);
    sum_.epoch = step_.epoch;
    sum_.step = step_.step;
    sum_.steps += 1;
    sum_.samples += step_.samples;
    sum_.elapsed += end - asked_;
    sum_.waited += step_.wait;
    completed_at_ = end;
  }

  bool in_hand_ = false;
  time_point asked_{}, completed_at_{};
  batch_event step_{};
  run_interval sum_{};
};

/// Numbers steps over epochs, from 0. Where an epoch's steps are not known beforehand (streams), they are counted, and
/// those of epochs before this run are unknown: a resumed run's first epoch then begins at `steps_before`.
class step_numbering {
 public:
  void begin(const run_begin& event, std::optional<std::uint64_t> steps_before = std::nullopt) {
    epoch_ = event.first_epoch;
    if (event.steps_per_epoch) per_epoch_ = event.steps_per_epoch;
    before_ = steps_before ? *steps_before : event.first_epoch * per_epoch_.value_or(0);
    next_ = event.first_step;
  }
  /// The number of an event's step; epochs do not go back.
  std::uint64_t of(std::uint64_t epoch, std::uint64_t step) {
    if (epoch != epoch_) {
      before_ += per_epoch_ ? *per_epoch_ * (epoch - epoch_) : next_;
      epoch_ = epoch;
      next_ = 0;
    }
    next_ = std::max(next_, step + 1);
    return before_ + step;
  }
  /// The number of the step that follows all so far.
  std::uint64_t next() const noexcept { return before_ + next_; }
  void expect_steps(std::optional<std::uint64_t> per_epoch) {
    if (per_epoch) per_epoch_ = per_epoch;
  }

 private:
  std::uint64_t epoch_ = 0, before_ = 0, next_ = 0;
  std::optional<std::uint64_t> per_epoch_;
};

}  // namespace penstock
