// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include <penstock/observe/observer.hpp>
#include <penstock/observe/rate.hpp>

namespace penstock {

/// What bounds a run whose compute waits for data in this share of its time. Batches are read ahead, so a share that is
/// more than chance means that reading is the slower side. On a device that computes while the loop goes on, a loop
/// that is held up by a full device waits, too.
constexpr std::string_view bound_by(double wait_share) {
  return wait_share >= 0.05 ? "bound by data" : "bound by compute";
}

/// How far a run is, how fast, and how long it will take: the arithmetic of a progress display, fed with a run's events
/// and the time of each. It reads no clock, so a display of one's own can use it, and a test can invent the time.
///
/// If the number of epochs is known, fraction and time left are the whole run's, else the present epoch's. Work
/// restored by a resume is in the fraction but not in the speed. A batch counts as done when the next one is asked for.
/// Pauses between epochs (validation, checkpoints) are no part of the speed, but of the time left.
class progress_estimate {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using seconds = rate_estimate::seconds;

  /// `memory` is that of the speeds.
  explicit progress_estimate(seconds memory = seconds{30}) : steps_(memory), samples_(memory), waits_(memory) {}

  void begin(const run_begin& event, time_point now) {
    epochs_known_ = event.epochs.has_value();
    epochs_ = epochs_known_ ? *event.epochs : 1;
    steps_per_epoch_ = event.steps_per_epoch;
    epoch_ = first_epoch_ = event.first_epoch;
    step_ = first_step_ = event.first_step;
    begun_at_ = mark_ = now;
    begun_ = true;
    computing_ = between_epochs_ = false;
    total_steps_ = total_samples_ = 0;
    total_wait_ = seconds{0};
  }

  /// Where the caller knows more than the event.
  void expect_epochs(std::uint64_t epochs) {
    epochs_known_ = true;
    epochs_ = epochs;
  }
  void expect_steps(std::uint64_t per_epoch) { steps_per_epoch_ = per_epoch; }

  void batch(const batch_event& event, time_point now) {
    if (!begun_) begin({.first_epoch = event.epoch, .first_step = event.step}, now);
    const seconds passed = now - mark_;
    const seconds wait = std::min<seconds>(event.wait, passed);
    if (between_epochs_) {
      add(0, 0, wait, wait);
      pauses_ += passed - wait;
      ++pause_count_;
    } else if (computing_) {  // else it is the first: how long the pipeline took to fill says nothing about its speed
      add(event.epoch == epoch_ && event.step > step_ ? event.step - step_ : 1, in_hand_, wait, passed);
    }
    epoch_ = event.epoch;
    step_ = event.step;
    if (event.steps_in_epoch) steps_per_epoch_ = event.steps_in_epoch;
    in_hand_ = event.samples;
    total_samples_ += event.samples;
    ++total_steps_;
    total_wait_ += event.wait;
    computing_ = true;
    between_epochs_ = false;
    mark_ = now;
  }

  void epoch(const epoch_event& event, time_point now) {
    if (!computing_ || event.epoch != epoch_) return;
    add(1, in_hand_, seconds{0}, now - mark_);
    step_ = (epoch_ == first_epoch_ ? first_step_ : 0) + event.steps;
    computing_ = false;
    between_epochs_ = true;
    mark_ = now;
  }

  std::uint64_t current_epoch() const noexcept { return epoch_; }
  std::uint64_t steps_done() const noexcept { return step_; }  ///< of the current epoch
  std::optional<std::uint64_t> epochs() const noexcept { return epochs_known_ ? std::optional(epochs_) : std::nullopt; }
  std::optional<std::uint64_t> steps_per_epoch() const noexcept { return steps_per_epoch_; }

  std::optional<double> batches_per_second() const { return steps_.per_second(); }
  std::optional<double> samples_per_second() const { return samples_.per_second(); }
  /// Of the time, from 0 to 1, in which the consumer waited for data.
  std::optional<double> wait_share() const { return waits_.per_second(); }

  /// From 0 to 1.
  std::optional<double> fraction() const {
    if (!steps_per_epoch_) return std::nullopt;
    const double total = total_steps();
    return total > 0 ? std::min(done_steps() / total, 1.0) : 1.0;
  }

  std::optional<seconds> time_left() const {
    if (!steps_per_epoch_) return std::nullopt;
    auto left = steps_.time_for(std::max(total_steps() - done_steps(), 0.0));
    if (left && epochs_known_ && pause_count_ > 0 && epoch_ + 1 < epochs_) {
      *left += pauses_ * (static_cast<double>(epochs_ - epoch_ - 1) / static_cast<double>(pause_count_));
    }
    return left;
  }

  // Sums over this run, without restored work.
  std::uint64_t batches() const noexcept { return total_steps_; }
  std::uint64_t samples() const noexcept { return total_samples_; }
  seconds waited() const noexcept { return total_wait_; }
  seconds elapsed(time_point now) const noexcept { return begun_ ? now - begun_at_ : seconds{0}; }

 private:
  void add(std::uint64_t steps, std::uint64_t samples, seconds wait, seconds passed) {
    steps_.add(static_cast<double>(steps), passed);
    samples_.add(static_cast<double>(samples), passed);
    waits_.add(wait.count(), passed);
  }

  // In floating point: epochs times steps may be more than an integer holds.
  double total_steps() const { return static_cast<double>(*steps_per_epoch_) * static_cast<double>(epochs_); }
  double done_steps() const {
    const double before = epochs_known_ ? static_cast<double>(epoch_) * static_cast<double>(*steps_per_epoch_) : 0.0;
    return before + static_cast<double>(step_);
  }

  rate_estimate steps_, samples_, waits_;
  std::optional<std::uint64_t> steps_per_epoch_;
  std::uint64_t epochs_ = 1;  // a number and a flag: g++ 12 warns falsely about an optional here
  bool epochs_known_ = false;
  std::uint64_t first_epoch_ = 0, first_step_ = 0, epoch_ = 0, step_ = 0;
  std::uint64_t in_hand_ = 0;  // samples of the batch that is being computed on
  bool begun_ = false, computing_ = false, between_epochs_ = false;
  time_point begun_at_{}, mark_{};
  seconds pauses_{0};
  std::uint64_t pause_count_ = 0, total_steps_ = 0, total_samples_ = 0;
  seconds total_wait_{0};
};

}  // namespace penstock
