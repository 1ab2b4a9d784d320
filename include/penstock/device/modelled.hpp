// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <penstock/device/clock.hpp>
#include <penstock/device/cpu.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/modelled_options.hpp>
#include <penstock/device/modelled_state.hpp>
#include <penstock/device/timeline.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// Memory of a modelled device, or host memory that it copies from at full speed ("pinned"). Move-only; frees what it
/// holds. Freeing memory under a copy cancels the copy and counts it (`modelled_counts::freed_in_use`): no wild write,
/// but the bug shows.
class modelled_memory {
 public:
  modelled_memory() = default;
  modelled_memory(modelled_memory&&) noexcept = default;
  modelled_memory& operator=(modelled_memory&&) noexcept = default;
  ~modelled_memory() {
    if (data() != nullptr) part_.state()->release(data(), size());
  }

  std::byte* data() const noexcept { return memory_.data(); }
  std::size_t size() const noexcept { return memory_.size(); }

 private:
  friend class modelled_device;
  modelled_memory(detail::modelled_part part, std::size_t bytes, bool on_device)
      : part_(std::move(part)), memory_(bytes) {
    if (bytes > 0) part_.state()->adopt(memory_.data(), bytes, on_device);
  }

  detail::modelled_part part_;
  detail::aligned_memory memory_;
};

/// A handle on a `modelled_stream`, which must outlive it. One made by default is no stream: using it throws.
class modelled_stream_view {
 public:
  modelled_stream_view() = default;

  /// Enqueues a kernel that takes `duration` of the compute engine. `work()`, if given, is called at its end by
  /// whichever thread then asks the device for something, never by two at a time; it must neither call the device nor
  /// own parts of it. If it throws, every later call on the device throws, with that as the cause. Callables of up to
  /// 64 bytes are kept without allocation.
  template <std::invocable Work>
  void launch(std::chrono::nanoseconds duration, Work&& work) const {
    state().launch(*stream_, duration, std::forward<Work>(work));
  }
  void launch(std::chrono::nanoseconds duration) const {
    launch(duration, [] {});
  }
  /// A kernel that takes no time.
  template <std::invocable Work>
  void launch(Work&& work) const {
    launch(std::chrono::nanoseconds{0}, std::forward<Work>(work));
  }

  /// Blocks the calling thread until everything enqueued before has completed.
  void synchronize() const {
    synchronize([] { return false; }, std::chrono::steady_clock::time_point::max());
  }
  /// The same, ended early by `interrupted()` or the deadline, as the wait on an event.
  template <interrupt Interrupt>
  wait_result synchronize(const Interrupt& interrupted, std::chrono::steady_clock::time_point deadline) const {
    return state().wait(state().tail(*stream_), interrupted, deadline);
  }
  bool operator==(const modelled_stream_view&) const = default;

 private:
  friend class modelled_device;
  friend class modelled_stream;
  modelled_stream_view(detail::modelled_state* state, detail::modelled_queue* stream)
      : state_(state), stream_(stream) {}

  detail::modelled_state& state() const {
    if (state_ == nullptr) throw error("modelled device: a stream_view that refers to no stream");
    return *state_;
  }

  detail::modelled_state* state_ = nullptr;
  detail::modelled_queue* stream_ = nullptr;
};

/// Operations that run one after the other. Move-only. What was enqueued still runs after its destruction.
class modelled_stream {
 public:
  using stream_view = modelled_stream_view;
  modelled_stream() = default;
  stream_view view() const noexcept { return {part_.state(), queue_.get()}; }

 private:
  friend class modelled_device;
  explicit modelled_stream(detail::modelled_part part)
      : part_(std::move(part)), queue_(std::make_unique<detail::modelled_queue>()) {}

  detail::modelled_part part_;
  std::unique_ptr<detail::modelled_queue> queue_;
};

/// A point in a stream. Move-only; may be recorded again and again. Belongs to the device that made it.
class modelled_event {
 public:
  modelled_event() = default;

 private:
  friend class modelled_device;
  explicit modelled_event(detail::modelled_part part) : part_(std::move(part)) {}

  detail::modelled_part part_;
  detail::modelled_record record_;
};

/// A device that behaves like a GPU whose timings are stated: memory of its own, streams, events, and no thread.
///
/// A copy engine per direction and a compute engine run side by side, each taking its operations in the order they were
/// enqueued. An operation starts when its engine, the operation before it in its stream and the events its stream waits
/// for allow, at once at the earliest. Its effect comes at its end: a host slot that is overwritten before the end of
/// its copy arrives overwritten, memory read before the end of the copy to it shows poison. A wait for an event refers
/// to the record at the time of the call. Copies are value handles on one device; all calls may come from any thread.
/// Bad options throw `std::invalid_argument`; copies outside the device's allocations, and parts of another device,
/// `penstock::error`. Allocates only for memory, streams and events, and for more than 256 pending operations.
class modelled_device {
 public:
  using memory_space = device_memory;
  using memory = modelled_memory;
  using stream = modelled_stream;
  using stream_view = modelled_stream_view;
  using event = modelled_event;
  using time_point = modelled_clock::time_point;

  explicit modelled_device(modelled_options options = {})
      : state_(std::make_shared<detail::modelled_state>(std::move(options))) {}

  memory allocate_host(std::size_t bytes) const {
    return memory(part(&modelled_counts::live_host_allocations), bytes, false);
  }
  memory allocate(std::size_t bytes) const { return memory(part(&modelled_counts::live_allocations), bytes, true); }
  stream make_stream() const { return stream(part(&modelled_counts::live_streams)); }
  event make_event() const { return event(part(&modelled_counts::live_events)); }

  void copy_to_device(void* to, const void* from, std::size_t bytes, stream_view on) const {
    state_->copy(detail::timeline::to_device, to, from, bytes, own(on));
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, stream_view on) const {
    state_->copy(detail::timeline::to_host, to, from, bytes, own(on));
  }
  void record(event& recorded, stream_view on) const { state_->record(own(recorded), own(on)); }
  void wait(stream_view waiting, const event& recorded) const { state_->wait(own(waiting), own(recorded)); }
  bool ready(const event& recorded) const { return state_->ready(own(recorded)); }
  /// As the concept says; a wait that had to block completes `notice` late.
  template <interrupt Interrupt>
  wait_result wait(const event& recorded, const Interrupt& interrupted,
                   std::chrono::steady_clock::time_point deadline) const {
    return state_->wait(state_->completion(own(recorded)), interrupted, deadline);
  }
  /// Counts the call; there is nothing to bind.
  void bind_thread() const { state_->bind_thread(); }
  /// "modelled (copy 12.0 GB/s, latency 3 us)"
  std::string describe() const { return state_->describe(); }

  /// When the event's last record completes, in the clock's time; the clock's origin if there is none.
  time_point completion(const event& recorded) const { return state_->completion(own(recorded)); }
  time_point now() const { return state_->now(); }
  modelled_counts counts() const { return state_->counts(); }
  /// The first `keep_operations` operations in the order in which they were enqueued; those that are to come included.
  std::vector<modelled_operation> operations() const { return state_->operations(); }
  /// The n-th copy from now (1: the next) throws `penstock::error(message)` instead of being enqueued.
  void fail_next_copy(std::size_t n, std::string message) const {
    state_->fail(&detail::modelled_state::copy_failure, n, std::move(message));
  }
  /// The same for the n-th record of an event: the event keeps its earlier record.
  void fail_next_record(std::size_t n, std::string message) const {
    state_->fail(&detail::modelled_state::record_failure, n, std::move(message));
  }
  bool operator==(const modelled_device&) const = default;

 private:
  detail::modelled_part part(std::size_t modelled_counts::* live) const { return detail::modelled_part(state_, live); }
  detail::modelled_queue& own(stream_view of) const {
    if (&of.state() != state_.get()) throw error("modelled device: the stream belongs to another device");
    return *of.stream_;
  }
  detail::modelled_record& own(event& of) const {
    check(of);
    return of.record_;
  }
  const detail::modelled_record& own(const event& of) const {
    check(of);
    return of.record_;
  }
  void check(const event& of) const {
    if (of.part_.state() != state_.get()) throw error("modelled device: the event belongs to another device");
  }

  std::shared_ptr<detail::modelled_state> state_;
};

}  // namespace penstock
