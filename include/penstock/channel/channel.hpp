// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/channel/buffers.hpp>
#include <penstock/channel/layout.hpp>
#include <penstock/channel/record.hpp>
#include <penstock/channel/ring.hpp>
#include <penstock/channel/step_header.hpp>
#include <penstock/channel/step_recorder.hpp>
#include <penstock/device/device.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

template <class Schema, class Device>
class lease;

/// The typed channel between the readers of one replica and its consumer: slots, twins, streams, and the ring that says
/// whose they are. Everything is allocated by the constructor.
///
/// Held by shared ownership: by the feed, by reader threads, and by the channel itself while leases outlive the feed.
template <class Schema, class Device>
class channel : public std::enable_shared_from_this<channel<Schema, Device>> {
  static constexpr bool separate = separate_device<Device>;
  using clock = std::chrono::steady_clock;
  using host_slot = detail::host_slot<Device>;
  using device_twin = detail::device_twin<Device>;

 public:
  using stream_view = typename Device::stream_view;
  using ring_type = ring<atomics_of<Device>>;

  channel(Device device, batch_layout<Schema> layout, const ring_shape& shape,
          std::optional<stream_view> consumer_stream, std::shared_ptr<gate<>> pool, step_scalars scalars = {})
      : device_(std::move(device)),
        layout_(std::move(layout)),
        pool_(std::move(pool)),
        turns(shape, pool_.get()),
        work_(device_.make_stream()),
        work_view_(consumer_stream ? *consumer_stream : work_.view()),
        scalars_(std::move(scalars)) {
    slots_.reserve(shape.host);
    for (std::uint32_t i = 0; i < shape.host; ++i) slots_.emplace_back(device_, layout_, shape.ranges);
    if constexpr (separate) {
      copies_.emplace(device_.make_stream());
      std::size_t small = 0;
      for (std::size_t i = 0; i < Schema::size; ++i) {
        small_offset_[i] = small;
        if (kept_on_host[i]) small += layout_.row_bytes(i) * layout_.capacity();
      }
      twins_.reserve(shape.device);
      for (std::uint32_t i = 0; i < shape.device; ++i) twins_.emplace_back(device_, layout_, shape.ranges, small);
    }
  }
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  ~channel() {
    if constexpr (separate) {
      tell_failed_releases();
      // The last copies and release events end before their memory goes; under a device that does not answer it stays.
      if (!drained()) {
        std::fputs("penstock: nobody can tell whether the device has done its last copies; their memory is not freed\n",
                   stderr);
        new std::vector<host_slot>(std::move(slots_));
        new std::vector<device_twin>(std::move(twins_));
      }
    }
  }

  const Device& device() const noexcept { return device_; }
  const batch_layout<Schema>& layout() const noexcept { return layout_; }
  /// While no reader is at work: what happens to steps from here on is written down.
  void record_steps() {
    if (recorder_) return;
    const ring_shape& shape = turns.shape();
    recorder_ = std::make_unique<detail::step_recorder<Device>>(device_, shape.host + shape.device, shape.ranges,
                                                                shape.readers, work_view_);
  }
  /// Nothing unless steps are recorded.
  detail::step_recorder<Device>* recorder() const noexcept { return recorder_.get(); }
  void set_drain_limit(std::chrono::nanoseconds limit) noexcept { drain_limit_ = limit; }

  // ---- readers

  detail::batch_record& record(std::uint32_t slot) noexcept { return slots_[slot].record; }
  batch_view<Schema> views(std::uint32_t slot, std::size_t rows, std::size_t first) const {
    return layout_.views(slots_[slot].data(), rows, first);
  }
  std::byte* data(std::uint32_t slot) const noexcept { return slots_[slot].data(); }

  /// How many readers there are to settle in; 1: whoever comes first does it for all. Before the first does.
  void set_settlers(std::uint32_t readers) noexcept { settlers_ = readers; }
  /// A reader, on its own thread, touches its part of the slots; when all parts are, the slots are pinned. Nothing is
  /// read before. Where a device takes any memory there is nothing to do. `ours`: the thread is not the consumer's.
  void settle(std::uint32_t reader, [[maybe_unused]] bool ours) noexcept {
    if constexpr (separate) {
      try {
        if (ours) device_.bind_thread();
      } catch (...) {
        return fail_for_good(std::current_exception());
      }
    }
    if constexpr (settles) {
      if (settlers_ == 1 && settling_.exchange(true, std::memory_order_relaxed)) return;
      for (auto& slot : slots_) slot.memory.touch(settlers_ == 1 ? 0 : reader, settlers_);
      if (settled_.fetch_add(1, std::memory_order_acq_rel) + 1 != settlers_) return;
      try {
        for (auto& slot : slots_) slot.memory.pin();
        is_settled_.store(true, std::memory_order_release);
        turns.readers().notify();
      } catch (...) {
        fail_for_good(std::current_exception());
      }
    } else {
      (void)reader;
    }
  }

  /// `has_turn(step)`: whether the source has anything for the step now.
  template <class HasTurn = typename ring_type::always>
  take_result try_take(std::uint32_t reader, ticket& out, const HasTurn& has_turn = {}) {
    if (is_broken()) return take_result::none;
    if constexpr (settles)
      if (!is_settled_.load(std::memory_order_acquire)) return take_result::none;
    return turns.try_take(reader, out, [this](std::uint32_t slot) { return fence_passed(slot); }, has_turn);
  }
  /// Waits for the last copy out of `slot`, without a ticket in hand.
  template <class Interrupt>
  wait_result await_fence([[maybe_unused]] std::uint32_t slot, [[maybe_unused]] const Interrupt& interrupt,
                          [[maybe_unused]] clock::time_point deadline = no_deadline) {
    if constexpr (separate) {
      try {
        return device_.wait(slots_[slot].copied, interrupt, deadline);
      } catch (...) {
        fail_for_good(std::current_exception());
        return wait_result::interrupted;
      }
    }
    return wait_result::complete;
  }
  /// Asks for the line that the reader of `held` writes next, and that the consumer has had.
  void prefetch_after(const ticket& held) const noexcept {
    const std::uint32_t slot = turns.slot_after(held);
    if (slot < slots_.size()) __builtin_prefetch(&slots_[slot].record.info, 1);
  }
  void fail(std::uint32_t slot, std::exception_ptr cause, provenance where, std::uint32_t row) {
    const std::scoped_lock lock(failures_);
    slots_[slot].record.failure.add(std::move(cause), std::move(where), row);
  }
  void note(std::uint32_t slot, sample_fault fault) {
    const std::scoped_lock lock(failures_);
    slots_[slot].record.faults.push_back(std::move(fault));
  }
  void publish(const ticket& ticket) noexcept { turns.publish(ticket, enqueue()); }

  // ---- consumer

  /// The next buffer, which must be ready, as a lease. Throws the step's failure, after which the buffer is free again.
  lease<Schema, Device> receive();
  /// The slot that was taken and received in one, see `ring::take_and_receive`, now that it is filled.
  lease<Schema, Device> receive(const ticket& filled);
  /// Lets a batch go, on the consumer's thread: cheaper than leaving it to the lease.
  void take_back(lease<Schema, Device>& batch) noexcept;
  /// Gives in withheld slots and twins; see `ring::widen`.
  void widen(std::uint32_t count) noexcept { turns.widen(count, enqueue()); }
  /// Skips all that was begun; see `ring::restart`.
  std::uint64_t restart() {
    const std::uint64_t base = turns.restart([this](std::uint32_t slot) { slots_[slot].record.clear(); });
    if (recorder_) recorder_->restart();
    return base;
  }
  /// Of a batch that is held: its step, counted over the feed's life.
  std::uint64_t turn_of(const lease<Schema, Device>& batch) const noexcept { return leased_record(batch.index_).turn; }
  /// True once a copy or a fence failed in a way that leaves a buffer out of use for good.
  bool is_broken() const noexcept { return is_broken_.load(std::memory_order_acquire); }
  std::exception_ptr broken() {
    const std::scoped_lock lock(failures_);
    return broken_;
  }
  stream_view stream() const noexcept { return work_view_; }
  bool stream_is_own() const noexcept { return work_view_ == work_.view(); }
  stream_view copies() const noexcept
    requires separate
  {
    return copies_->view();
  }
  /// Called once by the consumer's side when it goes: the channel lives until the last lease is let go.
  void abandon() {
    self_ = this->shared_from_this();
    if (turns.abandon()) self_.reset();
  }

 private:
  friend class lease<Schema, Device>;

  static constexpr bool settles = separate && detail::reserves_host_memory<Device>;

  static constexpr std::array<bool, Schema::size> kept_on_host = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<bool, Schema::size>{(field_t<I, Schema>::rank == 0)...};
  }(std::make_index_sequence<Schema::size>{});

  bool fence_passed([[maybe_unused]] std::uint32_t index) {
    if constexpr (separate) {
      const host_slot& from = slots_[index];
      try {
        return !from.lost.load(std::memory_order_relaxed) &&
               (!from.fenced.load(std::memory_order_relaxed) || device_.ready(from.copied));
      } catch (...) {
        fail_for_good(std::current_exception());
        return false;
      }
    }
    return true;
  }

  // Enqueues copies; called by whoever advances the ring's cursor, so never twice at a time.
  auto enqueue() noexcept {
    if constexpr (separate)
      return [this](std::uint64_t step, std::uint32_t from, std::uint32_t to) noexcept {
        copy(step, slots_[from], twins_[to]);
      };
    else
      return [](std::uint64_t, std::uint32_t, std::uint32_t) noexcept {};
  }
  void copy(std::uint64_t step, host_slot& from, device_twin& to) noexcept
    requires separate
  {
    std::swap(from.record, to.record);
    from.record.clear();
    bool enqueued = false;
    try {
      if (to.release_failure) std::rethrow_exception(to.release_failure);
      if (to.record.failure || to.record.info.rows == 0) return;
      const std::size_t rows = to.record.info.rows;
      for (std::size_t i = 0; i < Schema::size; ++i)
        if (kept_on_host[i])
          std::memcpy(to.small.data() + small_offset_[i], from.data() + layout_.offset(i), layout_.row_bytes(i) * rows);
      scalars_.write(to.record.info, from.header());
      const auto stream = copies_->view();
      device_.wait(stream, to.released);
      to.received = false;
      if (recorder_) recorder_->copy_begins(step, stream);
      device_.copy_to_device(to.memory.data(), from.memory.data(), from.front + layout_.bytes_of(rows), stream);
      enqueued = true;
      device_.record(from.copied, stream);
      from.fenced.store(true, std::memory_order_relaxed);
      enqueued = false;
      if (recorder_) recorder_->copy_ends(step, stream);
      device_.record(to.ready, stream);
    } catch (...) {
      if (recorder_) recorder_->copy_is_over(step);
      provenance where;
      where.stage = "transfer";
      to.record.failure.add(std::current_exception(), std::move(where), 0);
      if (enqueued) {
        // The end of this copy can no longer be told: its slot stays out of use.
        from.lost.store(true, std::memory_order_relaxed);
        fail_for_good(std::current_exception());
      }
    }
  }
  void fail_for_good(std::exception_ptr cause) {
    {
      const std::scoped_lock lock(failures_);
      if (!broken_) broken_ = std::move(cause);
      is_broken_.store(true, std::memory_order_release);
    }
    turns.consumer.notify();
  }

  // The buffer as a lease; throws the failure of its step.
  lease<Schema, Device> checked(std::uint32_t index);

  // ---- the lease's side; release by any thread

  const detail::batch_record& leased_record(std::uint32_t index) const noexcept {
    if constexpr (separate)
      return twins_[index].record;
    else
      return slots_[index].record;
  }
  std::byte* leased_data(std::uint32_t index) const noexcept {
    if constexpr (separate)
      return twins_[index].data();
    else
      return slots_[index].data();
  }
  void release(std::uint32_t index) noexcept {
    end_use(index);
    if (turns.release(index, enqueue())) {
      const auto last = std::move(self_);  // the channel ends here
    }
  }
  // What comes after the buffer's use is behind what was enqueued for it.
  void end_use(std::uint32_t index) noexcept {
    if constexpr (separate) {
      device_twin& back = twins_[index];
      try {
        if constexpr (requires { device_.check_not_captured(work_view_); }) device_.check_not_captured(work_view_);
        if (recorder_) recorder_->let_go(back.record.turn);
        for (auto& stream : back.streams) {
          if (!stream) break;
          device_.record(back.other, *stream);
          device_.wait(work_view_, back.other);
        }
        if constexpr (requires { device_.poison(back.memory.data(), std::size_t{1}, work_view_); })
          if (back.received) device_.poison(back.memory.data(), back.memory.size(), work_view_);
        device_.record(back.released, work_view_);
        for (auto& stream : back.streams) stream.reset();
        back.release_failure = nullptr;
      } catch (...) {
        if (recorder_) recorder_->let_go(back.record.turn, false);
        // The streams stay: the next release, or the end, waits for them, too.
        back.release_failure = std::current_exception();
      }
    } else {
      if (recorder_) recorder_->let_go(slots_[index].record.turn);
      slots_[index].record.clear();
    }
  }
  void used_on(std::uint32_t index, stream_view stream) {
    if constexpr (separate) {
      for (auto& known : twins_[index].streams) {
        if (!known) {
          known = stream;
          return;
        }
        if (*known == stream) return;
      }
      throw error(detail::concat("a batch can be used on ", device_twin::most_streams, " further streams at most"));
    } else {
      (void)index, (void)stream;
    }
  }

  // Of batches after which none came that could have told of it.
  void tell_failed_releases() const noexcept
    requires separate
  {
    try {
      for (const auto& twin : twins_)
        if (twin.release_failure)
          std::fprintf(stderr,
                       "penstock: when a batch was let go: %s; no later one was asked for, so this is only reported\n",
                       detail::message_of(twin.release_failure).c_str());
    } catch (...) {
    }
  }
  bool drained() noexcept
    requires separate
  {
    try {
      const auto deadline = deadline_after(drain_limit_);
      const auto never = [] { return false; };
      const auto done = [&](const auto& event) {
        return device_.wait(event, never, deadline) == wait_result::complete;
      };
      const auto empty = [&](stream_view of) { return of.synchronize(never, deadline) == wait_result::complete; };
      for (auto& slot : slots_)
        if (slot.lost ? !empty(copies_->view()) : !done(slot.copied)) return false;
      for (auto& twin : twins_) {
        if (!done(twin.ready) || !done(twin.released)) return false;
        if (!twin.release_failure) continue;
        for (auto& stream : twin.streams)
          if (stream && !empty(*stream)) return false;
        if (!empty(work_view_)) return false;
      }
      return true;
    } catch (...) {
      return false;
    }
  }

  Device device_;
  batch_layout<Schema> layout_;
  std::shared_ptr<gate<>> pool_;  // where readers sleep: leases that outlive them still notify it

 public:
  ring_type turns;

 private:
  typename Device::stream work_;
  stream_view work_view_;
  std::optional<typename Device::stream> copies_;
  std::vector<host_slot> slots_;
  std::vector<device_twin> twins_;
  std::array<std::size_t, Schema::size> small_offset_{};
  step_scalars scalars_;
  std::unique_ptr<detail::step_recorder<Device>> recorder_;
  std::uint32_t settlers_ = 1;
  std::atomic<std::uint32_t> settled_{0};
  std::atomic<bool> settling_{false};
  std::atomic<bool> is_settled_{false};
  std::mutex failures_;
  std::exception_ptr broken_;
  std::atomic<bool> is_broken_{false};
  std::chrono::nanoseconds drain_limit_{std::chrono::seconds(10)};
  std::shared_ptr<channel> self_;
};

}  // namespace penstock

#include <penstock/channel/lease.hpp>
