// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace penstock {

/// The time of a modelled device.
///
/// `now` never goes back and may be called from any thread. Its time points are comparable with each other alone: only
/// the clock that a device has by default shares its origin with `std::chrono::steady_clock`.
class modelled_clock {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::nanoseconds;

  virtual ~modelled_clock() = default;
  virtual time_point now() const = 0;
  /// Blocks the calling thread until `now() >= target`, or until the real time `limit`; may return before either.
  virtual void sleep_until(time_point target, time_point limit) = 0;
};

/// Time that passes only when told to: tests decide with it what has completed, without sleeping.
///
/// Starts at the epoch of its time points. A thread that waits for a device blocks until another one has moved time far
/// enough.
class manual_clock : public modelled_clock {
 public:
  time_point now() const override {
    const std::scoped_lock lock(mutex_);
    return now_;
  }
  void sleep_until(time_point target, time_point limit) override {
    std::unique_lock lock(mutex_);
    moved_.wait_until(lock, limit, [&] { return now_ >= target; });
  }
  /// Since the start.
  duration elapsed() const { return now().time_since_epoch(); }

  void advance(duration step) {
    const std::scoped_lock lock(mutex_);
    now_ += step;
    moved_.notify_all();
  }
  /// Moves to `target` unless that has passed.
  void advance_to(time_point target) {
    const std::scoped_lock lock(mutex_);
    if (now_ < target) now_ = target;
    moved_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable moved_;
  time_point now_{};
};

/// A manual clock that jumps to whatever its thread waits for: a schedule is computed, not lived through.
///
/// For programs with one host thread, which states its own work by `advance`. Further threads would see time jump ahead
/// of what they are about to enqueue.
class simulated_clock final : public manual_clock {
 public:
  void sleep_until(time_point target, time_point /*limit*/) override { advance_to(target); }
};

namespace detail {

/// Real time. Sleeps, and yields instead for the last few microseconds, which no sleep would hit.
class real_clock final : public modelled_clock {
 public:
  time_point now() const override { return std::chrono::steady_clock::now(); }
  void sleep_until(time_point target, time_point limit) override {
    constexpr duration tiny = std::chrono::microseconds(5);
    const time_point wake = target < limit ? target : limit;
    if (wake - now() <= tiny) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_until(wake - tiny);
    }
  }
};

}  // namespace detail
}  // namespace penstock
