// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
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

/// Real time. A sleep returns late; so it is begun earlier by what sleeps here were late of late, and the rest, mostly
/// some microseconds, is passed awake: a stated time is neither exceeded by the system's own latency nor burnt.
class real_clock final : public modelled_clock {
 public:
  time_point now() const override { return std::chrono::steady_clock::now(); }
  void sleep_until(time_point target, time_point limit) override {
    if (limit <= target) return std::this_thread::sleep_until(limit);
    const duration margin(margin_.load(std::memory_order_relaxed));
    if (const time_point wake = target - margin; now() < wake) {
      std::this_thread::sleep_until(wake);
      learn(margin, now() - wake);
    } else if (now() < target) {
      // Passed awake as a whole: so that this does not become a habit, one is slept through now and then.
      margin_.store((margin - margin / 1024).count(), std::memory_order_relaxed);
    }
    // No yield: where threads outnumber CPUs it may give away a whole time slice.
    while (now() < target) {
    }
  }

 private:
  // Rises fast and falls slowly, so that most sleeps end before their target. Never far: one late by a millisecond was
  // disturbed.
  void learn(duration margin, duration late) noexcept {
    const duration most = std::chrono::microseconds(100);
    const duration seen = late < most ? late : most;
    const duration next = margin + (seen - margin) / (seen > margin ? 4 : 16);
    margin_.store(next.count(), std::memory_order_relaxed);
  }

  std::atomic<duration::rep> margin_{30'000};
};

}  // namespace detail
}  // namespace penstock
