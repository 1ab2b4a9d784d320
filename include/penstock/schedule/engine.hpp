// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <penstock/channel/channel.hpp>
#include <penstock/device/cpu.hpp>
#include <penstock/schedule/epochs.hpp>
#include <penstock/schedule/readers.hpp>
#include <penstock/schedule/rereads.hpp>
#include <penstock/schedule/source.hpp>
#include <penstock/schedule/watchdog.hpp>

namespace penstock {

/// Of samples that took long, since the feed began: see `late_reads::reread`.
struct reread_counts {
  std::uint64_t issued = 0;  ///< reads that were issued again
  std::uint64_t won = 0;     ///< of them, those that came first
};

}  // namespace penstock

namespace penstock::detail {

/// What a feed's readers and its consumer share: the channel, the source, and which samples make which step. Held by
/// both sides, so that a reader that is stuck in a user's `read` keeps all that it touches.
template <class Schema, class Device>
class engine final : public reader_client {
 public:
  engine(std::shared_ptr<channel<Schema, Device>> to, std::shared_ptr<source<Schema>> from, epoch_map shape, bool pad)
      : to_(std::move(to)),
        from_(std::move(from)),
        map_(shape),
        pad_(pad),
        streams_(from_->is_stream()),
        varies_(from_->leaves_out()),
        share_((to_->layout().capacity() + to_->turns.shape().ranges - 1) / to_->turns.shape().ranges),
        readers_(to_->turns.shape().readers) {
    for (std::uint32_t i = 0; i < readers_.size(); ++i) {
      readers_[i].request.progress = {to_->turns.sample_word(i), to_->turns.interrupt_word()};
      readers_[i].request.readers = &to_->turns.readers();
      readers_[i].request.faults = &readers_[i];
      readers_[i].owner = this;
    }
  }

  channel<Schema, Device>& to() noexcept { return *to_; }
  const channel<Schema, Device>& to() const noexcept { return *to_; }
  source<Schema>& from() noexcept { return *from_; }
  const epoch_map& map() const noexcept { return map_; }
  bool is_stream() const noexcept { return streams_; }
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
  /// Rows that take longer than `limits` are read by another reader, too. Before any reader comes.
  void read_again(const late_limits& limits) {
    const ring_shape& shape = to_->turns.shape();
    claims_ = std::make_unique<row_claims>(shape.host, shape.ranges, shape.readers, limits);
    one_row_ = batch_layout<Schema>(to_->layout().schema(), 1);
  }
  reread_counts rereads() const noexcept {
    return {issued_.load(std::memory_order_relaxed), won_.load(std::memory_order_relaxed)};
  }
  /// What takes how long is to be told by `busy`; before the first reader.
  void count_busy() noexcept { counts_busy_ = true; }
  /// How long all readers have read, since the feed was made, in the time of `now`.
  std::chrono::nanoseconds busy() const noexcept {
    std::chrono::nanoseconds::rep sum = 0;
    for (const auto& one : readers_) sum += one.busy.load(std::memory_order_relaxed);
    return std::chrono::nanoseconds(sum);
  }
  /// The device's time where it has one, so that modelled time counts.
  std::chrono::nanoseconds now() const {
    if constexpr (requires(const Device& device) { device.now().time_since_epoch(); })
      return to_->device().now().time_since_epoch();
    else
      return std::chrono::steady_clock::now().time_since_epoch();
  }
  /// Readers have threads of their own, whose numbers errors may name.
  void has_threads() noexcept { threads_ = true; }

  /// While no reader is busy: steps from the ring's next one on are of `epoch`, from `position` on.
  void begin(std::uint64_t epoch, std::uint64_t position) {
    from_->begin(to_->turns.next_step(), epoch, position, stop_.get_token());
    map_.begin(to_->turns.next_step(), epoch, position);
    base_.store(map_.base(), std::memory_order_relaxed);
    for (auto& one : readers_) one.steps.reset();
    if (claims_) claims_->forget();
  }

  // ---- readers

  void prepare(std::uint32_t reader) noexcept override {
    try {
      // The thread of a reader is ours; the consumer's, where it reads by itself, is not.
      to_->settle(reader, threads_);
      auto state = from_->open();
      if (claims_) readers_[reader].scratch = aligned_memory(one_row_.bytes());
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
    if (claims_) [[unlikely]]
      return take_or_join(reader);
    if (!streams_) return to_->try_take(reader, readers_[reader].held);
    return to_->try_take(reader, readers_[reader].held, [this](std::uint64_t step) { return from_->has_turn(step); });
  }
  std::uint64_t ahead() const noexcept override {
    return to_->turns.ticket_step() - base_.load(std::memory_order_relaxed);
  }
  std::chrono::steady_clock::duration look_every() const noexcept override {
    return claims_ ? claims_->look_every() : std::chrono::steady_clock::duration::zero();
  }
  take_result try_help(std::uint32_t reader) noexcept override {
    return claims_ && join_late(reader) ? take_result::taken : take_result::none;
  }
  std::uint32_t stuck() const noexcept override { return claims_ ? claims_->surplus() : 0; }
  void await_fence(std::uint32_t reader) noexcept override {
    // Of late rows nothing tells: they are looked for between.
    to_->await_fence(
        readers_[reader].held.slot, [this] { return to_->turns.interrupted(); },
        claims_ ? std::chrono::steady_clock::now() + claims_->look_every() : no_deadline);
  }

  template <class Interrupt>
  wait_result await_inline(const Interrupt& interrupt, std::chrono::steady_clock::time_point deadline) {
    return to_->await_fence(readers_[0].held.slot, interrupt, deadline);
  }

  void work(std::uint32_t reader) noexcept override {
    auto& turns = to_->turns;
    reader_slot& own = readers_[reader];
    if (claims_) [[unlikely]]
      return work_by_claims(own, reader);
    if (counts_busy_) [[unlikely]]
      return work_counted(own, reader);
    if (to_->recorder() != nullptr) [[unlikely]]
      return work_recorded(own, reader);
    to_->prefetch_after(own.held);
    if (fill(own, own.held) && turns.arrive(own.held)) {
      finish(own.held);
      to_->publish(own.held);
    }
    turns.leave(reader);
  }
  /// Whether the consumer that reads by itself gets each batch straight from `read_now`: there is no copy between.
  bool reads_now() const noexcept { return !threads_ && to_->turns.hands_over_slots(); }
  /// Reads the next batch into `out`. False if all of them are held.
  bool read_now(lease<Schema, Device>& out) {
    reader_slot& own = readers_[0];
    if (!to_->turns.take_and_receive(own.held)) return false;
    const bool filled = to_->recorder() != nullptr ? fill_recorded(own, 0) : fill(own, own.held);
    finish(own.held);
    if (auto* const recorder = to_->recorder()) recorder->filled(own.held.step);
    out = to_->receive(own.held);
    if (!filled) throw error("the feed was begun anew by what it reads from");
    return true;
  }

  /// True once every reader has all that it needs to read.
  bool prepared() const noexcept { return prepared_.load(std::memory_order_acquire) == to_->turns.shape().readers; }

  /// What each reader is at, for those who wait.
  void look(reader_watch& watch, std::chrono::steady_clock::time_point now) const noexcept {
    for (std::uint32_t i = 0; i < readers_.size(); ++i) watch.look(i, to_->turns.reader_activity(i), now);
  }
  /// For messages: what each reader is at, and for how long at the least.
  std::string describe_readers(const reader_watch& watch, std::chrono::steady_clock::time_point now) const {
    std::string out;
    const auto& turns = to_->turns;
    for (std::uint32_t i = 0; i < turns.shape().readers; ++i) {
      const auto at = turns.reader_activity(i);
      if (!out.empty()) out += ", ";
      out += concat("penstock:read", i);
      if (!at.busy) {
        out += " waits";
        continue;
      }
      out += concat(" reads sample ", at.sample, " of step ", streams_ ? at.step - map_.base() : map_(at.step).step);
      if (const auto age = watch.age(i, at, now); age.count() != 0)
        out += concat(", for ", rough_text(age), " or more");
    }
    return out;
  }

 private:
  struct alignas(cache_line) reader_slot final : fault_notes {
    void note(sample_fault fault) override {
      if (fault.where.stage.empty()) fault.where.stage = "read";
      if (!fault.where.epoch) fault.where.epoch = request.epoch;
      fault.where.step = steps.at(owner->map_, held.step).step;
      if (owner->claims_)
        kept.emplace(std::move(fault));
      else
        owner->to_->note(held.slot, std::move(fault));
    }

    engine* owner = nullptr;
    std::unique_ptr<reader_state> state;
    std::exception_ptr failure;  // of `open`
    ticket held;
    fill_request<Schema> request;  // what does not change from one to the next is there from the beginning
    epoch_cursor steps;
    // Where rows are claimed: the row that is read, away from its place, and its fault, until it is claimed.
    aligned_memory scratch;
    std::uint64_t index = 0;
    std::optional<sample_fault> kept;
    bool joined = false;                                 // the range was another's ticket
    std::uint32_t row = 0;                               // of the range, to begin with
    std::atomic<std::chrono::nanoseconds::rep> busy{0};  // written by the reader alone
  };

  template <class Fill>
  bool counted(reader_slot& own, const Fill& fill) noexcept {
    const auto begin = now();
    const bool filled = fill();
    own.busy.store(own.busy.load(std::memory_order_relaxed) + (now() - begin).count(), std::memory_order_relaxed);
    return filled;
  }
  [[gnu::noinline]] void work_counted(reader_slot& own, std::uint32_t reader) noexcept {
    const bool filled =
        counted(own, [&] { return to_->recorder() != nullptr ? fill_recorded(own, reader) : fill(own, own.held); });
    if (filled && to_->turns.arrive(own.held)) {
      finish(own.held);
      if (auto* const recorder = to_->recorder()) recorder->filled(own.held.step);
      to_->publish(own.held);
    }
    to_->turns.leave(reader);
  }

  // ---- where late rows are read by another reader, too

  [[gnu::noinline]] take_result take_or_join(std::uint32_t reader) noexcept {
    reader_slot& own = readers_[reader];
    const take_result result = to_->try_take(reader, own.held);
    own.joined = false;
    own.row = 0;
    return result != take_result::taken && join_late(reader) ? take_result::taken : result;
  }
  bool join_late(std::uint32_t reader) noexcept {
    reader_slot& own = readers_[reader];
    if (own.failure) return false;
    const auto now = std::chrono::steady_clock::now();
    const auto late = claims_->find_late(reader, now);
    if (!late || !to_->turns.join(reader, late->step)) return false;
    if (!claims_->join(reader, *late, now)) {
      to_->turns.leave(reader);
      return false;
    }
    own.held = {late->step, late->range, late->slot};
    own.joined = true;
    own.row = late->row;
    issued_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  [[gnu::noinline]] void work_by_claims(reader_slot& own, std::uint32_t reader) noexcept {
    auto* const recorder = to_->recorder();
    read_span span;
    if (recorder != nullptr) {
      recorder->mark(stage_event::stage::read, true, own.held.step, reader);
      span.reader = reader;
      span.when.begin = recorder->now();
    }
    const auto fill = [&] { return fill_by_claims(own, reader); };
    const bool last = counts_busy_ ? counted(own, fill) : fill();
    if (recorder != nullptr) recorder->mark(stage_event::stage::read, false, own.held.step, reader);
    if (last) {
      if (recorder != nullptr) {
        span.when.end = recorder->now();
        span.samples = to_->record(own.held.slot).range_rows[own.held.range];
        recorder->read(own.held.step, own.held.range, span);
      }
      if (to_->turns.arrive(own.held)) {
        finish(own.held);
        if (recorder != nullptr) recorder->filled(own.held.step);
        to_->publish(own.held);
      }
    }
    claims_->leave(reader);
    to_->turns.leave(reader);
  }
  // True if this reader brought the range's last row; else it is another's, or void.
  bool fill_by_claims(reader_slot& own, std::uint32_t reader) noexcept {
    const ticket& held = own.held;
    auto& request = own.request;
    const epoch_map::place& place = own.steps.at(map_, held.step);
    const auto wanted = static_cast<std::size_t>(place.mine.count);
    const std::size_t first = least(share_ * held.range, wanted);
    const std::size_t rows = least(share_, wanted - first);
    auto begun = std::chrono::steady_clock::now();
    if (!own.joined) {
      auto& record = to_->record(held.slot);
      if (held.range == 0) {
        record.turn = held.step;
        note(record.info, place.epoch, place.step, place);
      }
      record.range_rows[held.range] = 0;
      if (rows == 0) return true;
      claims_->begin(reader, held.step, held.slot, held.range, begun);
    }
    request.epoch = place.epoch;
    request.step = held.step;
    request.range = held.range;
    request.indices = std::span(&own.index, 1);
    request.to = one_row_.views(own.scratch.data(), 1);
    for (std::uint32_t row = own.row;; ++row) {
      request.first_row = static_cast<std::uint32_t>(first + row);
      request.first = place.mine.first + first + row;
      own.kept.reset();
      std::exception_ptr failure;
      try {
        if (own.failure) std::rethrow_exception(own.failure);
        if (from_->fill(*own.state, request).interrupted) {
          if (to_->turns.interrupted()) return false;
          throw error("the dataset's read_range gave 0 samples, wanted 1");
        }
      } catch (...) {
        failure = std::current_exception();
      }
      const auto now = std::chrono::steady_clock::now();
      if (!own.failure) claims_->took(now - begun);
      // From here on, if it is another's, the step may have passed and its slot be of another.
      if (!claims_->claim(held.step, held.slot, held.range, row)) return false;
      if (own.joined && row == own.row) won_.fetch_add(1, std::memory_order_relaxed);
      try {
        if (failure) std::rethrow_exception(std::move(failure));
        put(own, held.slot, first + row);
      } catch (...) {
        fail(own, held, first + row);
        return true;
      }
      if (row + 1 == rows) {
        to_->record(held.slot).range_rows[held.range] = static_cast<std::uint32_t>(rows);
        return true;
      }
      begun = now;
      claims_->next(held.step, held.slot, held.range, row, now);
    }
  }
  void put(reader_slot& own, std::uint32_t slot, std::size_t row) {
    const auto& layout = to_->layout();
    for (std::size_t i = 0; i < Schema::size; ++i) {
      const std::size_t bytes = layout.row_bytes(i);
      if (bytes != 0)
        std::memcpy(to_->data(slot) + layout.offset(i) + bytes * row, own.scratch.data() + one_row_.offset(i), bytes);
    }
    to_->record(slot).indices[row] = own.index;
    if (own.kept) to_->note(slot, std::move(*own.kept));
  }

  [[gnu::noinline]] bool fill_recorded(reader_slot& own, std::uint32_t reader) noexcept {
    auto& recorder = *to_->recorder();
    const ticket& held = own.held;
    recorder.mark(stage_event::stage::read, true, held.step, reader);
    read_span span;
    span.reader = reader;
    span.when.begin = recorder.now();
    const bool filled = fill(own, held);
    span.when.end = recorder.now();
    span.samples = filled ? to_->record(held.slot).range_rows[held.range] : 0;
    recorder.mark(stage_event::stage::read, false, held.step, reader);
    if (filled) recorder.read(held.step, held.range, span);
    return filled;
  }
  [[gnu::noinline]] void work_recorded(reader_slot& own, std::uint32_t reader) noexcept {
    if (fill_recorded(own, reader) && to_->turns.arrive(own.held)) {
      finish(own.held);
      to_->recorder()->filled(own.held.step);
      to_->publish(own.held);
    }
    to_->turns.leave(reader);
  }

  static constexpr std::size_t least(std::size_t a, std::size_t b) noexcept { return a < b ? a : b; }

  // False if the range was given up: the feed is parked, and its ticket void.
  bool fill(reader_slot& own, const ticket& held) noexcept {
    auto& record = to_->record(held.slot);
    auto& request = own.request;
    std::size_t wanted = share_;
    if (held.range == 0) record.turn = held.step;
    if (streams_) {
      if (held.range == 0) note(record.info, map_.first_epoch(), held.step - map_.base(), {});
    } else {
      const epoch_map::place& place = own.steps.at(map_, held.step);
      wanted = static_cast<std::size_t>(place.mine.count);
      request.epoch = place.epoch;
      request.first = place.mine.first;
      if (held.range == 0) note(record.info, place.epoch, place.step, place);
    }
    const std::size_t first = least(share_ * held.range, wanted);
    const std::size_t rows = least(share_, wanted - first);
    record.range_rows[held.range] = 0;
    if (rows == 0) return true;

    request.step = held.step;
    request.range = held.range;
    request.first_row = static_cast<std::uint32_t>(first);
    request.first += first;
    request.indices = std::span(record.indices).subspan(first, rows);
    request.to = to_->views(held.slot, rows, first);
    try {
      if (own.failure) std::rethrow_exception(own.failure);
      const fill_result result = from_->fill(*own.state, request);
      if (result.interrupted) {
        if (to_->turns.interrupted()) return false;
        throw error(concat("the dataset's read_range gave ", result.rows, " samples, wanted ", rows));
      }
      record.range_rows[held.range] = static_cast<std::uint32_t>(result.rows);
      if (streams_) {
        record.info.end = result.end;
        record.info.drawn = result.drawn;
        record.info.bound = result.bound;
      }
    } catch (...) {
      fail(own, held, first);
    }
    return true;
  }
  [[gnu::noinline, gnu::cold]] void fail(reader_slot& own, const ticket& held, std::size_t first) noexcept {
    const auto reader = static_cast<std::uint32_t>(&own - readers_.data());
    provenance where;
    where.stage = "read";
    if (threads_) where.reader = reader;
    std::size_t row = 0;
    if (!own.failure) {
      const std::uint64_t sample = to_->turns.reader_activity(reader).sample;
      where.sample = sample;
      where.complete_from(from_->where(sample));
      while (row + 1 < own.request.indices.size() && own.request.indices[row] != sample) ++row;
    }
    to_->fail(held.slot, std::current_exception(), std::move(where), static_cast<std::uint32_t>(first + row));
  }

  // By the reader of the first range, before the others' last one is in.
  void note(batch_info& info, std::uint64_t epoch, std::uint64_t step, const epoch_map::place& place) const noexcept {
    info.epoch = epoch;
    info.step = step;
    info.first = place.mine.first;
    info.next = place.next;
    info.total = varies_ ? 0 : place.global;
  }
  // The last range is in: how many samples the batch has, and its padding.
  void finish(const ticket& held) noexcept {
    auto& record = to_->record(held.slot);
    std::uint32_t count = record.range_rows[0];
    for (std::uint32_t i = 1; i < to_->turns.shape().ranges; ++i) count += record.range_rows[i];
    if (!record.faults.empty() && !record.failure) count = close_gaps(held.slot, count, record);
    record.info.count = count;
    record.info.rows = count;
    if (pad_ && (count != 0 || !streams_)) pad(held.slot, count, record);
  }
  // The last samples take the rows of those that were left out; the same ones for any number of readers.
  [[gnu::noinline, gnu::cold]] std::uint32_t close_gaps(std::uint32_t slot, std::uint32_t count,
                                                        batch_record& record) noexcept {
    const auto& layout = to_->layout();
    auto& faults = record.faults;
    std::ranges::sort(faults, {}, &sample_fault::row);
    if (faults[0].substitute) return count;  // all of them were replaced
    for (std::size_t first = 0, last = faults.size();; ++first) {
      for (; last > first && faults[last - 1].row + 1 == count; --last) --count;  // those at the end go by themselves
      if (first == last) return count;
      const std::uint32_t row = faults[first].row;
      --count;
      record.indices[row] = record.indices[count];
      for (std::size_t i = 0; i < Schema::size; ++i) {
        std::byte* const data = to_->data(slot) + layout.offset(i);
        std::memcpy(data + layout.row_bytes(i) * row, data + layout.row_bytes(i) * count, layout.row_bytes(i));
      }
    }
  }
  void pad(std::uint32_t slot, std::uint32_t count, batch_record& record) noexcept {
    const auto& layout = to_->layout();
    for (std::size_t i = 0; i < Schema::size; ++i)
      std::memset(to_->data(slot) + layout.offset(i) + layout.row_bytes(i) * count, 0,
                  layout.row_bytes(i) * (layout.capacity() - count));
    record.info.rows = static_cast<std::uint32_t>(layout.capacity());
  }

  std::shared_ptr<channel<Schema, Device>> to_;
  std::shared_ptr<source<Schema>> from_;
  epoch_map map_;
  bool pad_;
  bool streams_;
  bool varies_;        // steps may have fewer samples than the plan says
  std::size_t share_;  // of a batch that one range is
  std::vector<reader_slot> readers_;
  std::mutex stopping_;
  std::stop_source stop_;
  bool threads_ = false;
  std::unique_ptr<row_claims> claims_;  // or null: each row is read once, in its place
  batch_layout<Schema> one_row_;
  std::atomic<std::uint64_t> issued_{0}, won_{0};
  bool counts_busy_ = false;
  std::atomic<std::size_t> prepared_{0};
  std::atomic<std::uint64_t> base_{0};  // the map's, for readers of several feeds, which look while it is replaced
};

}  // namespace penstock::detail
