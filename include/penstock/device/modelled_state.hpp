// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <penstock/device/clock.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/modelled_options.hpp>
#include <penstock/device/timeline.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// A modelled stream: when what was enqueued so far has ended.
struct modelled_queue {
  modelled_clock::time_point tail{};
};

/// What a modelled event knows of its last record; the default of one that was never recorded.
struct modelled_record {
  modelled_clock::time_point at{};
  const modelled_queue* on = nullptr;
};

/// What all handles on a modelled device share. One mutex guards everything, queues and records included.
class modelled_state {
 public:
  using time_point = modelled_clock::time_point;
  using duration = std::chrono::nanoseconds;
  struct failure {
    std::size_t countdown = 0;
    std::string message;
  };
  failure copy_failure;
  failure record_failure;

  explicit modelled_state(modelled_options options)
      : options_(checked(std::move(options))), timeline_(options_.poison) {
    kept_.reserve(options_.keep_operations);
  }

  void adopt(std::byte* data, std::size_t bytes, bool on_device) {
    const std::scoped_lock lock(mutex_);
    blocks_.push_back({data, bytes, on_device});
    if (on_device && options_.poison) std::memset(data, poison_byte, bytes);
  }
  void release(std::byte* data, std::size_t bytes) noexcept {
    const std::scoped_lock lock(mutex_);
    timeline_.advance(options_.clock->now());
    counts_.freed_in_use += timeline_.cancel(data, bytes);
    for (block& candidate : blocks_) {
      if (candidate.data != data) continue;
      if (candidate.on_device && options_.poison) std::memset(data, poison_byte, bytes);
      candidate = blocks_.back();
      blocks_.pop_back();
      return;
    }
  }

  void copy(timeline::engine on, void* to, const void* from, std::size_t bytes, modelled_queue& stream) {
    const std::scoped_lock lock(mutex_);
    const time_point now = tick();
    maybe_fail(copy_failure);
    const bool upwards = on == timeline::to_device;
    const void* const device_side = upwards ? to : from;
    if (bytes > 0 && !allocated(device_side, bytes, true)) reject_copy(upwards, device_side, bytes);
    const duration length = options_.copy_latency + (options_.copy_time ? *options_.copy_time : travel_time(bytes));
    stream.tail = timeline_.add_copy(on, later(now, stream.tail), length, to, from, bytes);
    keep(upwards ? modelled_engine::copy_to_device : modelled_engine::copy_to_host, stream.tail, length);
    ++(upwards ? counts_.copies_to_device : counts_.copies_to_host);
    (upwards ? counts_.bytes_to_device : counts_.bytes_to_host) += bytes;
    if (bytes > 0 && !allocated(upwards ? from : to, bytes, false)) ++counts_.pageable_copies;
    timeline_.advance(now);
  }
  template <class Work>
  void launch(modelled_queue& stream, duration length, Work&& work) {
    if (length < duration{0}) reject_option("modelled_device", "kernel duration", duration_text(length), "0 or more");
    const std::scoped_lock lock(mutex_);
    const time_point now = tick();
    stream.tail = timeline_.add_kernel(later(now, stream.tail), length, std::forward<Work>(work));
    keep(modelled_engine::compute, stream.tail, length);
    ++counts_.kernels;
    timeline_.advance(now);
  }
  void record(modelled_record& event, const modelled_queue& stream) {
    const std::scoped_lock lock(mutex_);
    const time_point now = tick();
    maybe_fail(record_failure);
    event = {later(now, stream.tail), &stream};
    ++counts_.records;
  }
  void wait(modelled_queue& stream, const modelled_record& event) {
    const std::scoped_lock lock(mutex_);
    check_kernels();  // what has ended by now makes no difference
    ++counts_.stream_waits;
    // A stream's own events are past whatever it does next.
    if (event.on != nullptr && event.on != &stream) stream.tail = later(stream.tail, event.at + options_.event_latency);
  }
  bool ready(const modelled_record& event) {
    const std::scoped_lock lock(mutex_);
    return event.at <= tick();
  }
  time_point completion(const modelled_record& event) const {
    const std::scoped_lock lock(mutex_);
    return event.at;
  }
  time_point tail(const modelled_queue& stream) const {
    const std::scoped_lock lock(mutex_);
    return stream.tail;
  }

  /// Blocks until `target`. Polls `interrupted()` at least every millisecond.
  template <class Interrupt>
  wait_result wait(time_point target, const Interrupt& interrupted, std::chrono::steady_clock::time_point deadline) {
    {
      const std::scoped_lock lock(mutex_);
      ++counts_.host_waits;
      if (target <= tick()) return wait_result::complete;
      ++counts_.blocked_waits;
    }
    const modelled_wait blocked(*this);
    target += options_.notice;
    for (;;) {
      if (interrupted()) return wait_result::interrupted;
      const auto real = std::chrono::steady_clock::now();
      if (real >= deadline) return wait_result::timed_out;
      const auto poll = real + std::chrono::milliseconds(1);
      options_.clock->sleep_until(target, poll < deadline ? poll : deadline);
      const std::scoped_lock lock(mutex_);
      if (target <= tick()) return wait_result::complete;
    }
  }

  void bind_thread() {
    const std::scoped_lock lock(mutex_);
    ++counts_.bound_threads;
  }
  void count_part(std::size_t modelled_counts::* live, bool more) noexcept {
    const std::scoped_lock lock(mutex_);
    more ? ++(counts_.*live) : --(counts_.*live);
  }
  void fail(failure modelled_state::* which, std::size_t n, std::string message) {
    if (n == 0) reject_option("modelled_device", "n of the call that is to fail", "0", "1 or more");
    const std::scoped_lock lock(mutex_);
    this->*which = {n, std::move(message)};
  }
  time_point now() const { return options_.clock->now(); }
  modelled_counts counts() {
    const std::scoped_lock lock(mutex_);
    timeline_.advance(options_.clock->now());
    modelled_counts result = counts_;
    result.pending = timeline_.pending();
    result.busy_to_device = timeline_.busy(timeline::to_device);
    result.busy_to_host = timeline_.busy(timeline::to_host);
    result.busy_compute = timeline_.busy(timeline::compute);
    return result;
  }
  std::vector<modelled_operation> operations() const {
    const std::scoped_lock lock(mutex_);
    return kept_;
  }
  std::string describe() const { return text_of(options_); }

 private:
  struct block {
    std::byte* data;
    std::size_t bytes;
    bool on_device;
  };
  /// Counts a thread as waiting, however its wait ends.
  class modelled_wait {
   public:
    explicit modelled_wait(modelled_state& state) : state_(state) {
      state_.count_part(&modelled_counts::waiting, true);
    }
    modelled_wait(modelled_wait&&) = delete;
    ~modelled_wait() { state_.count_part(&modelled_counts::waiting, false); }

   private:
    modelled_state& state_;
  };

  static time_point later(time_point a, time_point b) noexcept { return a < b ? b : a; }
  duration travel_time(std::size_t bytes) const noexcept {
    if (options_.bandwidth == 0) return duration{0};
    return duration(static_cast<duration::rep>(static_cast<double>(bytes) / options_.bandwidth * 1e9 + 0.5));
  }

  /// Brings the effects up to date; returns the time now.
  time_point tick() {
    const time_point now = options_.clock->now();
    timeline_.advance(now);
    check_kernels();
    return now;
  }
  void check_kernels() const {
    if (!timeline_.failure()) return;
    throw error(concat("modelled device: a kernel has failed: ", message_of(timeline_.failure())), {},
                timeline_.failure());
  }
  void keep(modelled_engine on, time_point end, duration length) {
    if (kept_.size() < options_.keep_operations) kept_.push_back({on, end - length, end});
  }
  static void maybe_fail(failure& armed) {
    if (armed.countdown > 0 && --armed.countdown == 0) throw error(armed.message);
  }
  bool allocated(const void* data, std::size_t bytes, bool on_device) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    for (const block& candidate : blocks_) {
      const auto block_begin = reinterpret_cast<std::uintptr_t>(candidate.data);
      if (candidate.on_device == on_device && begin >= block_begin && begin - block_begin <= candidate.bytes &&
          bytes <= candidate.bytes - (begin - block_begin)) {
        return true;
      }
    }
    return false;
  }
  [[noreturn]] void reject_copy(bool upwards, const void* data, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    std::string found = "which is in none of the device's allocations";
    for (const block& candidate : blocks_) {
      const auto block_begin = reinterpret_cast<std::uintptr_t>(candidate.data);
      if (begin < block_begin || begin - block_begin >= candidate.bytes) continue;
      found = candidate.on_device ? concat("which has ", candidate.bytes - (begin - block_begin), " bytes left of ",
                                           candidate.bytes, " allocated at ", address_text(candidate.data))
                                  : std::string("which is host memory");
    }
    throw error(concat("modelled device: copy of ", bytes, upwards ? " bytes to " : " bytes from ", address_text(data),
                       ", ", found));
  }
  static std::string address_text(const void* data) {
    std::string digits;
    for (auto rest = reinterpret_cast<std::uintptr_t>(data); rest != 0 || digits.empty(); rest /= 16) {
      digits.insert(digits.begin(), "0123456789abcdef"[rest % 16]);
    }
    return "0x" + digits;
  }

  mutable std::mutex mutex_;
  modelled_options options_;
  timeline timeline_;
  modelled_counts counts_;
  std::vector<block> blocks_;
  std::vector<modelled_operation> kept_;
};

/// A counted share in a modelled device, held by everything that was made by it.
class modelled_part {
 public:
  modelled_part() = default;
  modelled_part(std::shared_ptr<modelled_state> state, std::size_t modelled_counts::* live)
      : state_(std::move(state)), live_(live) {
    state_->count_part(live_, true);
  }
  modelled_part(modelled_part&& other) noexcept : state_(std::move(other.state_)), live_(other.live_) {}
  modelled_part& operator=(modelled_part&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(live_, other.live_);
    return *this;
  }
  ~modelled_part() {
    if (state_) state_->count_part(live_, false);
  }
  modelled_state* state() const noexcept { return state_.get(); }

 private:
  std::shared_ptr<modelled_state> state_;
  std::size_t modelled_counts::* live_ = nullptr;
};

}  // namespace penstock::detail
