// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <penstock/channel/channel.hpp>
#include <penstock/schedule/epochs.hpp>
#include <penstock/schedule/readers.hpp>
#include <penstock/schedule/source.hpp>

namespace penstock::detail {

/// What a feed's readers and its consumer share: the channel, the source, and which samples make which step. Held by
/// both sides, so that a reader that is stuck in a user's `read` keeps all that it touches.
template <class Schema, class Device>
class engine final : public reader_client {
 public:
  engine(std::shared_ptr<channel<Schema, Device>> to, std::shared_ptr<source<Schema>> from, epoch_map shape, bool pad)
      : to_(std::move(to)), from_(std::move(from)), map_(shape), pad_(pad), readers_(to_->turns.shape().readers) {}

  channel<Schema, Device>& to() noexcept { return *to_; }
  const channel<Schema, Device>& to() const noexcept { return *to_; }
  source<Schema>& from() noexcept { return *from_; }
  const epoch_map& map() const noexcept { return map_; }
  bool is_stream() const noexcept { return from_->is_stream(); }
  /// Tells reads in progress that their result is not wanted; from any thread.
  void stop_reads() noexcept {
    const std::scoped_lock lock(stopping_);
    stop_.request_stop();
  }
  /// While no reader is busy: what is read from here on has not been told to stop.
  void renew_stop() {
    const std::scoped_lock lock(stopping_);
    if (!stop_.stop_requested()) return;
    stop_ = {};
    for (auto& one : readers_)
      if (one.state) one.state->stop = stop_.get_token();
  }
  /// Readers have threads of their own, whose numbers errors may name.
  void has_threads() noexcept { threads_ = true; }

  /// While no reader is busy: steps from the ring's next one on are of `epoch`, from `position` on.
  void begin(std::uint64_t epoch, std::uint64_t position) {
    from_->begin(to_->turns.next_step(), epoch, position, stop_.get_token());
    map_.begin(to_->turns.next_step(), epoch, position);
    base_.store(map_.base(), std::memory_order_relaxed);
  }

  // ---- readers

  void prepare(std::uint32_t reader) noexcept override {
    try {
      if constexpr (separate_device<Device>) to_->device().bind_thread();
      auto state = from_->open();
      const std::scoped_lock lock(stopping_);
      state->stop = stop_.get_token();
      readers_[reader].state = std::move(state);
    } catch (...) {
      readers_[reader].failure = std::current_exception();
    }
    prepared_.fetch_add(1, std::memory_order_release);
    to_->turns.consumer.notify();
  }
  take_result try_take(std::uint32_t reader) noexcept override {
    return to_->try_take(reader, readers_[reader].held, [this](std::uint64_t step) { return from_->has_turn(step); });
  }
  std::uint64_t ahead() const noexcept override {
    return to_->turns.ticket_step() - base_.load(std::memory_order_relaxed);
  }
  void await_fence(std::uint32_t reader) noexcept override {
    to_->await_fence(readers_[reader].held.slot, [this] { return to_->turns.interrupted(); });
  }

  template <class Interrupt>
  wait_result await_inline(const Interrupt& interrupt, std::chrono::steady_clock::time_point deadline) {
    return to_->await_fence(readers_[0].held.slot, interrupt, deadline);
  }

  void work(std::uint32_t reader) noexcept override {
    auto& turns = to_->turns;
    const ticket held = readers_[reader].held;
    if (fill(reader, held) && turns.arrive(held)) {
      finish(held);
      to_->publish(held);
    }
    turns.leave(reader);
  }

  /// True once every reader has all that it needs to read.
  bool prepared() const noexcept { return prepared_.load(std::memory_order_acquire) == readers_.size(); }

  /// For messages: what each reader is at.
  std::string describe_readers() const {
    std::string out;
    const auto& turns = to_->turns;
    for (std::uint32_t i = 0; i < turns.shape().readers; ++i) {
      const auto at = turns.reader_activity(i);
      if (!out.empty()) out += ", ";
      out += concat("penstock:read", i);
      if (at.busy)
        out += concat(" reads sample ", at.sample, " of step ",
                      from_->is_stream() ? at.step - map_.base() : map_(at.step).step);
      else
        out += " waits";
    }
    return out;
  }

 private:
  // False if the range was given up: the feed is parked, and its ticket void.
  bool fill(std::uint32_t reader, const ticket& held) noexcept {
    auto& turns = to_->turns;
    auto& record = to_->record(held.slot);
    const std::size_t capacity = to_->layout().capacity();
    epoch_map::place place;
    std::size_t wanted = capacity;
    if (!from_->is_stream()) {
      place = map_(held.step);
      wanted = static_cast<std::size_t>(place.mine.count);
    }
    const std::size_t share = (capacity + turns.shape().ranges - 1) / turns.shape().ranges;
    const std::size_t first = std::min(share * held.range, wanted);
    const std::size_t rows = std::min(share, wanted - first);
    record.range_rows[held.range] = 0;
    if (rows == 0) return true;

    fill_request<Schema> request;
    request.epoch = place.epoch;
    request.step = held.step;
    request.range = held.range;
    request.first = place.mine.first + first;
    request.indices = std::span(record.indices).subspan(first, rows);
    request.to = to_->views(held.slot, rows, first);
    request.readers = &turns.readers();
    request.progress = {turns.sample_word(reader), turns.interrupt_word()};
    try {
      auto& own = readers_[reader];
      if (own.failure) std::rethrow_exception(own.failure);
      const fill_result result = from_->fill(*own.state, request);
      if (result.interrupted) {
        if (turns.interrupted()) return false;
        throw error(concat("the dataset's read_range gave ", result.rows, " samples, wanted ", rows));
      }
      record.range_rows[held.range] = static_cast<std::uint32_t>(result.rows);
      if (from_->is_stream()) record.info.end = result.end;
    } catch (...) {
      provenance where;
      where.stage = "read";
      if (threads_) where.reader = reader;
      std::size_t row = 0;
      if (!readers_[reader].failure) {
        const std::uint64_t sample = turns.reader_activity(reader).sample;
        where.sample = sample;
        while (row + 1 < rows && request.indices[row] != sample) ++row;
      }
      to_->fail(held.slot, std::current_exception(), std::move(where), static_cast<std::uint32_t>(first + row));
    }
    return true;
  }

  // The last range is in: what the batch is, and its padding.
  void finish(const ticket& held) noexcept {
    auto& record = to_->record(held.slot);
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < to_->turns.shape().ranges; ++i) count += record.range_rows[i];
    if (from_->is_stream()) {
      record.info.epoch = map_.first_epoch();
      record.info.step = held.step - map_.base();
    } else {
      const epoch_map::place place = map_(held.step);
      record.info.epoch = place.epoch;
      record.info.step = place.step;
      record.info.first = place.mine.first;
      record.info.next = place.next;
    }
    record.info.count = count;
    record.info.rows = count;
    if (pad_ && (count != 0 || !from_->is_stream())) pad(held.slot, count, record);
  }
  void pad(std::uint32_t slot, std::uint32_t count, batch_record& record) noexcept {
    const auto& layout = to_->layout();
    for (std::size_t i = 0; i < Schema::size; ++i)
      std::memset(to_->data(slot) + layout.offset(i) + layout.row_bytes(i) * count, 0,
                  layout.row_bytes(i) * (layout.capacity() - count));
    record.info.rows = static_cast<std::uint32_t>(layout.capacity());
  }

  struct reader_slot {
    std::unique_ptr<reader_state> state;
    std::exception_ptr failure;  // of `open`
    ticket held;
  };

  std::shared_ptr<channel<Schema, Device>> to_;
  std::shared_ptr<source<Schema>> from_;
  epoch_map map_;
  bool pad_;
  std::vector<reader_slot> readers_;
  std::mutex stopping_;
  std::stop_source stop_;
  bool threads_ = false;
  std::atomic<std::size_t> prepared_{0};
  std::atomic<std::uint64_t> base_{0};  // the map's, for readers of several feeds, which look while it is replaced
};

}  // namespace penstock::detail
