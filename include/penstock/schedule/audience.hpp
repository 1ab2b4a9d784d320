// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/observe/observer.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// The observers of a feed, and what they are told when: one beginning, batches and epochs, one end. Nothing is counted
/// while there are none.
class audience {
  using clock = std::chrono::steady_clock;

 public:
  template <class Observer>
  void add(Observer&& observer) {
    observers_.add(std::forward<Observer>(observer));
  }
  bool empty() const noexcept { return observers_.empty(); }
  bool hears_steps() const noexcept { return observers_.hears_steps() || observers_.hears_stages(); }
  bool hears_stages() const noexcept { return observers_.hears_stages(); }
  void step(const step_record& event) const { observers_.notify(event); }
  static void stage(const void* whom, const stage_event& event) noexcept {
    static_cast<const audience*>(whom)->observers_.notify(event);
  }
  /// True once, if anybody hears of streams.
  bool asks_for_streams() noexcept { return observers_.hears_streams() && !std::exchange(told_streams_, true); }
  void stream(const stream_event& event) const { observers_.notify(event); }
  void describe_as(std::string text) { description_ = std::move(text); }

  /// The first time also that the run begins.
  void epoch_begins(run_begin event) {
    event.description = description_;
    if (!std::exchange(begun_, true) && !observers_.empty()) observers_.notify(event);
    epoch_ = event.first_epoch;
    steps_ = samples_ = 0;
    waited_ = {};
    begun_at_ = clock::now();
  }
  void batch(batch_event event) {
    steps_ += 1;
    samples_ += event.samples;
    waited_ += event.wait;
    step_ = event.step;
    observers_.notify(event);
  }
  void metric(std::string_view name, double value) {
    if (!observers_.empty()) observers_.notify(metric_event{name, value, epoch_, step_});
  }
  void epoch_ends(std::span<const sample_fault> faults) {
    if (!observers_.empty())
      observers_.notify(epoch_event{epoch_, steps_, samples_, clock::now() - begun_at_, waited_, faults});
  }
  /// On standard error, if nobody hears it and it is to be said.
  void late(const late_event& event, bool speaks = true) {
    struct told {
      bool& now;
      ~told() { now = false; }
    } const until{tells_late_};
    tells_late_ = true;
    observers_.notify(event);
    if (speaks && !observers_.hears_late()) say_late(event.message);
  }
  /// The feed is in the midst of a wait.
  bool tells_late() const noexcept { return tells_late_; }
  void error(std::string_view message, const provenance& where) noexcept {
    observers_.notify(error_event{message, where});
  }
  bool ended() const noexcept { return finished_; }
  /// Only the first time, and only if there was a beginning.
  void run_ends(std::string_view reason) {
    if (std::exchange(finished_, true) || !begun_) return;
    observers_.notify(run_end{reason});
  }

 private:
  observer_list observers_;
  std::string description_;
  bool begun_ = false;
  bool finished_ = false;
  bool told_streams_ = false;
  bool tells_late_ = false;
  std::uint64_t epoch_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t samples_ = 0;
  std::chrono::nanoseconds waited_{};
  clock::time_point begun_at_{};
};

}  // namespace penstock::detail
