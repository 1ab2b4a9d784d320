// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <memory>

#include <penstock/channel/admission.hpp>
#include <penstock/channel/atomics.hpp>
#include <penstock/channel/copy_cursor.hpp>
#include <penstock/channel/gate.hpp>
#include <penstock/channel/words.hpp>

namespace penstock {

/// Leave to fill one range of one step's slot.
struct ticket {
  std::uint64_t step = 0;
  std::uint32_t range = 0;
  std::uint32_t slot = 0;
};

enum class take_result {
  taken,   ///< the ticket is yours
  none,    ///< nothing to do now
  fenced,  ///< the slot is ours again once its last copy has completed; `ticket::slot` names it
};

/// Depths and ranges of a ring. `device == 0`: the host slots themselves are handed to the consumer.
struct ring_shape {
  std::uint32_t host = 2;
  std::uint32_t device = 0;
  std::uint32_t ranges = 1;  ///< per step; a power of two
  std::uint32_t readers = 1;
  std::uint32_t in_use = 0;  ///< of slots and of twins, the first ones: the others are withheld (`widen`); 0: all
};

/// The synchronisation of a channel, and all of it: who may touch which buffer when. It owns no data.
///
/// Steps are numbered from 0 over the ring's life and never come back. The reader that takes the first range of a step
/// binds a *slot* that is free to it; the slot is filled range by range, and published by whoever fills the last one.
/// Then either the slot itself goes to the consumer, and is free when released; or a copy into a free *twin* is
/// enqueued, in step order, by one cursor that is advanced by whoever filled a slot or released a twin, and the slot is
/// free at once, behind the copy's event.
///
/// Readers take a ticket only when they can use it, so none ever waits with a ticket in hand. Parking closes a door
/// before them; a restart then needs no reset, it skips the steps that nobody will ask for.
///
/// With one reader, and slots handed over and taken back, no operation here is an atomic read-modify-write. Each side's
/// words lie in lines of their own, asked for once for all that is in them: the further apart the two sides are, the
/// fewer lines travel.
///
/// Threads: `try_take`, `arrive`, `publish` and `leave` by readers, `release` by any thread, the rest by the consumer.
template <class Policy = std_atomics>
class ring {
  template <class T>
  using atomic = typename Policy::template atomic<T>;

  static constexpr std::uint32_t index_bits = 8;
  static constexpr std::uint64_t all_returned = std::uint64_t{1} << 63;
  static constexpr std::uint64_t nothing = ~std::uint64_t{0};

  static constexpr std::uint64_t pack(std::uint64_t step, std::uint32_t index) { return step << index_bits | index; }
  static constexpr std::uint64_t step_of(std::uint64_t word) { return word >> index_bits; }
  static constexpr std::uint32_t index_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word & ((1u << index_bits) - 1));
  }

 public:
  struct always {
    constexpr bool operator()(std::uint64_t) const noexcept { return true; }
  };

  static constexpr std::uint32_t most_buffers = 64;
  using pool_gate = gate<pool_atomics_of<Policy>>;

  /// Begins parked, at step 0. `pool`: where readers wait who serve other rings, too; by default a gate of the ring's
  /// own.
  explicit ring(const ring_shape& shape, pool_gate* pool = nullptr)
      : readers_gate_(pool == nullptr ? &own_readers_ : pool),
        shape_(shape),
        alone_(shape.readers == 1 && shape.ranges == 1),
        shift_(static_cast<std::uint32_t>(std::countr_zero(shape.ranges))),
        bound_(std::bit_ceil(shape.host), nothing),
        full_(shape.device == 0 ? 1 : std::bit_ceil(shape.host), nothing),
        ready_(std::bit_ceil(shape.device == 0 ? shape.host : shape.device), nothing),
        returns_(std::bit_ceil(shape.host), std::uint8_t{0}),
        turns_(std::bit_ceil(shape.host), std::uint8_t{0}),
        remaining_(std::make_unique<counter[]>(shape.host)),
        readers_(shape.readers),
        copies_(shape.device, shape.in_use),
        in_use_(shape.in_use) {
    for (std::uint32_t i = 0; i < shape.host; ++i) remaining_[i].value.store(shape.ranges, std::memory_order_relaxed);
    // As if the consumer held them: bound and given once, and not back yet.
    for (std::uint32_t i = in_use_; in_use_ != 0 && i < shape.host; ++i) {
      turns_[i].store(1, std::memory_order_relaxed);
      given_[i] = 1;
    }
  }

  const ring_shape& shape() const noexcept { return shape_; }
  bool hands_over_slots() const noexcept { return shape_.device == 0; }

  // ---- readers

  /// Takes the next ticket if its slot is free now. `fence_passed(slot)` tells whether the last copy out of the slot
  /// has completed, `has_turn(step)` whether there is something to be done for the step at all.
  template <class FencePassed, class HasTurn = always>
  [[gnu::always_inline]] inline take_result try_take(std::uint32_t reader, ticket& out, FencePassed&& fence_passed,
                                                     HasTurn&& has_turn = {}) {
    return alone_ ? take_alone(reader, out, fence_passed, has_turn) : take_shared(reader, out, fence_passed, has_turn);
  }

  /// For a reader alone: the slot that it will have after that of `held`, if one is known to be free; else
  /// `most_buffers`.
  std::uint32_t slot_after(const ticket& held) const noexcept {
    if (!alone_ || held.step + 1 >= free_until_.load(std::memory_order_relaxed)) return most_buffers;
    return static_cast<std::uint32_t>(free_.load(std::memory_order_relaxed));
  }

  /// True while readers should give up what they do: parked or closed.
  bool interrupted() const noexcept { return readers_.closed(); }

  /// One range is in. True for the caller that brought the last one, who must then `publish`.
  bool arrive(const ticket& ticket) noexcept {
    if (shape_.ranges == 1) return true;
    auto& remaining = remaining_[ticket.slot].value;
    if (remaining.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
    remaining.store(shape_.ranges, std::memory_order_relaxed);
    return true;
  }

  /// The slot is full: hands it over, or starts its copy. `enqueue(step, slot, twin)` enqueues a copy and the two
  /// records of its events; it does not throw.
  template <class Enqueue>
  void publish(const ticket& ticket, Enqueue&& enqueue) noexcept {
    if (hands_over_slots()) {
      ready_[ticket.step].store(pack(ticket.step, ticket.slot), std::memory_order_release);
      consumer.notify();
    } else {
      full_[ticket.step].store(pack(ticket.step, ticket.slot), std::memory_order_release);
      poke(enqueue);
    }
  }

  /// A reader that has no ticket takes part in the work on a step that others have begun: parking waits for it, too,
  /// until it leaves. False if that is not allowed; what it has seen before must be looked at again.
  bool join(std::uint32_t reader, std::uint64_t step) noexcept {
    if (readers_.enter(reader, step)) return true;
    leave(reader);
    return false;
  }

  /// The reader no longer touches any slot.
  void leave(std::uint32_t reader) noexcept {
    readers_.leave(reader);
    control.notify();
  }

  /// For messages: the step that a reader works on and the sample it reads.
  struct activity {
    bool busy;
    std::uint64_t step, sample;
  };
  activity reader_activity(std::uint32_t reader) const noexcept {
    const std::uint64_t busy = readers_.busy(reader);
    return {busy != 0, busy - 1, readers_.note(reader).load(std::memory_order_relaxed)};
  }
  /// Where a reader notes the sample that it reads.
  atomic<std::uint64_t>& sample_word(std::uint32_t reader) noexcept { return readers_.note(reader); }
  /// The word that is 0 while readers should give up what they do.
  const atomic<std::uint64_t>& interrupt_word() const noexcept { return readers_.door(); }

  /// The step of the next ticket.
  std::uint64_t ticket_step() const noexcept { return tickets_.load(std::memory_order_relaxed) >> shift_; }

  // ---- consumer

  /// The step that `receive` gives next.
  std::uint64_t next_step() const noexcept { return consumed_; }
  /// The most buffers that the consumer can hold.
  std::uint32_t buffers() const noexcept {
    return in_use_ != 0 ? in_use_ : hands_over_slots() ? shape_.host : shape_.device;
  }
  /// Gives in withheld slots and twins, so that `count` are in use, of a ring that began with fewer; as many slots as
  /// twins were made. Nothing to do where all are in use from the beginning.
  template <class Enqueue>
  void widen(std::uint32_t count, Enqueue&& enqueue) noexcept {
    if (in_use_ == 0) return;
    for (; in_use_ < count && in_use_ < shape_.host; ++in_use_) {
      if (!hands_over_slots()) copies_.give_back(in_use_);
      free_slot(in_use_);
    }
    if (!hands_over_slots()) poke(enqueue);
  }
  bool is_ready() noexcept { return known_ready_ != 0 || look_ahead(); }
  /// The buffer (slot or twin) of the next step; `is_ready()` must hold.
  std::uint32_t receive() noexcept {
    if (known_ready_ == 0) look_ahead();
    const std::uint32_t index = upcoming_[consumed_ % most_buffers];
    --known_ready_;
    ++consumed_;
    ++issued_;
    if (hands_over_slots()) ++given_[index];
    return index;
  }
  /// The buffer after the one that was received last, if it is known to be ready; else `most_buffers`.
  std::uint32_t upcoming() const noexcept {
    return known_ready_ != 0 ? upcoming_[consumed_ % most_buffers] : most_buffers;
  }
  /// For a consumer that reads by itself, in a ring that hands over slots and that no reader thread is in: takes the
  /// next step's only range and receives its slot, to be filled, at once. False if no slot is free.
  bool take_and_receive(ticket& out) noexcept {
    std::uint32_t slot = next(last_inline_);
    if (!is_free(slot)) {
      const found_slot found = search(slot);
      if (found.run == 0) return false;
      slot = found.slot;
    }
    last_inline_ = slot;
    turn(slot);
    ++given_[slot];
    ++issued_;
    out = {consumed_++, 0, slot};
    tickets_.store(consumed_, std::memory_order_relaxed);
    return true;
  }
  /// Buffers received and not yet released.
  std::uint64_t outstanding() const noexcept {
    return issued_ - taken_back_ - returned_.load(std::memory_order_acquire);
  }

  /// Gives a received buffer back; by any thread. The caller has recorded the buffer's release event before. True if
  /// the ring was abandoned by its consumer and this was the last buffer out: the caller then owns it alone.
  template <class Enqueue>
  bool release(std::uint32_t index, Enqueue&& enqueue) noexcept {
    give_back(index, enqueue);
    return returned_.fetch_add(1, std::memory_order_acq_rel) + 1 == all_returned;
  }
  /// The same by the consumer, which has not gone: that needs no count of who is the last.
  template <class Enqueue>
  void take_back(std::uint32_t index, Enqueue&& enqueue) noexcept {
    give_back(index, enqueue);
    ++taken_back_;
  }
  /// The consumer will not come back. True if no buffer is out; else the last `release` returns true.
  bool abandon() noexcept {
    const std::uint64_t rest = all_returned - (issued_ - taken_back_);
    return returned_.fetch_add(rest, std::memory_order_acq_rel) + rest == all_returned;
  }

  /// For messages: batches ready for the consumer, and slots that nobody has.
  std::uint32_t ready_ahead() const noexcept {
    std::uint32_t count = 0;
    while (count < buffers() && holds(ready_[consumed_ + count], consumed_ + count)) ++count;
    return count;
  }
  std::uint32_t free_slots() const noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t slot = 0; slot < shape_.host; ++slot) count += is_free(slot) ? 1 : 0;
    return count;
  }

  // ---- control

  /// No ticket is given out from here on, and busy readers leave at their next sample.
  void park() noexcept {
    readers_.close();
    readers_gate_->notify();
  }
  bool parked() const noexcept { return interrupted(); }
  /// True once no reader is busy; meaningful while parked.
  bool quiet() const noexcept { return readers_.empty(); }
  /// Skips every step that was begun and not received; all but the consumer's own buffers are free again. Needs a
  /// parked and quiet ring; leaves it parked. `renew(slot)` is called for each slot that was not the consumer's.
  /// Returns the next step.
  template <class Renew>
  std::uint64_t restart(Renew&& renew) noexcept {
    const std::uint64_t base = (tickets_.load(std::memory_order_relaxed) + shape_.ranges - 1) >> shift_;
    if (!hands_over_slots()) skip_copies(base);
    for (std::uint32_t slot = 0; slot < shape_.host; ++slot) {
      const std::uint8_t turn = turns_[slot].load(std::memory_order_relaxed);
      // Given as often as bound: it is the consumer's, or has come back from it.
      if ((hands_over_slots() && given_[slot] == turn) || is_withheld(slot)) continue;
      given_[slot] = turn;
      remaining_[slot].value.store(shape_.ranges, std::memory_order_relaxed);
      renew(slot);
      returns_[slot].store(turn, std::memory_order_relaxed);
    }
    known_ready_ = 0;
    consumed_ = base;
    // Which step is bound next, and from which slot, stays as it is: a reader may be looking at it.
    tickets_.store(base << shift_, std::memory_order_relaxed);
    return base;
  }
  /// Lets readers work on steps below `limit`; also raises the limit of a ring that is open.
  void open(std::uint64_t limit) noexcept {
    readers_.open(limit);
    readers_gate_->notify();
  }

  pool_gate& readers() noexcept { return *readers_gate_; }  ///< readers wait here for a ticket
  gate<Policy> consumer;                                    ///< the consumer waits here for a batch
  gate<Policy> control;                                     ///< the consumer waits here for readers to leave

 private:
  struct alignas(cache_line) counter {
    atomic<std::uint32_t> value{0};
  };
  using step_words = words<atomic<std::uint64_t>>;
  using slot_words = words<atomic<std::uint8_t>>;

  static bool holds(const atomic<std::uint64_t>& packed, std::uint64_t step) noexcept {
    return step_of(packed.load(std::memory_order_acquire)) == step;
  }

  // ---- Tickets and free slots. From which slot on to look for a free one is remembered, and how many from there on
  // are known to be, so that the line of `returns_` is asked for once for all of them.

  // Between the first look and `enter` there may have been a restart, between `enter` and leaving there is none. It
  // does not move the counter of a reader alone, and what was known to be free is free.
  template <class FencePassed, class HasTurn>
  [[gnu::always_inline]] inline take_result take_alone(std::uint32_t reader, ticket& out, FencePassed& fence_passed,
                                                       HasTurn& has_turn) {
    const std::uint64_t step = tickets_.load(std::memory_order_relaxed);
    if (!readers_.admits(step)) return take_result::none;
    found_slot at{static_cast<std::uint32_t>(free_.load(std::memory_order_relaxed)), 0};
    const bool known = step < free_until_.load(std::memory_order_relaxed);
    if (!known && (at = search(at.slot)).run == 0) return take_result::none;
    if (!has_turn(step)) return take_result::none;
    out.slot = at.slot;
    if (!fence_passed(at.slot)) return take_result::fenced;
    if (!readers_.enter(reader, step)) {
      leave(reader);
      return take_result::none;
    }
    tickets_.store(step + 1, std::memory_order_relaxed);
    turn(at.slot);
    free_.store(next(at.slot), std::memory_order_relaxed);
    if (!known) free_until_.store(step + at.run, std::memory_order_relaxed);
    out.step = step;
    out.range = 0;
    return take_result::taken;
  }
  // Those who take the first range of a step follow each other: each begins when the one before has bound its slot, and
  // said so in `free_`, which names the step that is next. Others may look meanwhile; they fail to claim.
  template <class FencePassed, class HasTurn>
  [[gnu::noinline]] take_result take_shared(std::uint32_t reader, ticket& out, FencePassed& fence_passed,
                                            HasTurn& has_turn) {
    std::uint64_t now = tickets_.load(std::memory_order_acquire);
    for (;;) {
      const std::uint64_t step = now >> shift_;
      if (!readers_.admits(step)) return take_result::none;
      const bool first = (now & (shape_.ranges - 1)) == 0;
      found_slot at{};
      if (first) {
        const std::uint64_t known = free_.load(std::memory_order_acquire);
        if (!is_next(known, step)) return take_result::none;
        at = {slot_of(known), run_of(known)};
        if (at.run == 0 && (at = search(at.slot)).run == 0) return take_result::none;
      } else {
        const std::uint64_t bound = bound_[step].load(std::memory_order_acquire);
        if (step_of(bound) != step) return take_result::none;
        at.slot = index_of(bound);
      }
      if (!has_turn(step)) return take_result::none;
      out.slot = at.slot;
      if (!fence_passed(at.slot)) return take_result::fenced;
      if (!readers_.enter(reader, step)) {
        leave(reader);
        return take_result::none;
      }
      const std::uint64_t seen = now;
      if (tickets_.compare_exchange_weak(now, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        if (first) {
          turn(at.slot);
          bound_[step].store(pack(step, at.slot), std::memory_order_release);
          free_.store(pack_free(step + 1, next(at.slot), at.run - 1), std::memory_order_release);
          readers_gate_->notify();
        }
        out.step = step;
        out.range = static_cast<std::uint32_t>(seen & (shape_.ranges - 1));
        return take_result::taken;
      }
      leave(reader);
    }
  }

  struct found_slot {
    std::uint32_t slot = 0;
    std::uint32_t run = 0;  // known to be free from this one on
  };
  static constexpr std::uint64_t pack_free(std::uint64_t step, std::uint32_t slot, std::uint32_t run) {
    return step << 16 | slot << 8 | run;
  }
  static constexpr bool is_next(std::uint64_t known, std::uint64_t step) { return known >> 16 == step << 16 >> 16; }
  static constexpr std::uint32_t slot_of(std::uint64_t known) { return static_cast<std::uint32_t>(known >> 8 & 0xFF); }
  static constexpr std::uint32_t run_of(std::uint64_t known) { return static_cast<std::uint32_t>(known & 0xFF); }

  [[gnu::noinline]] found_slot search(std::uint32_t slot) const noexcept {
    std::uint32_t run = 0;
    for (std::uint32_t at = slot; run < shape_.host && is_free(at); at = next(at)) ++run;
    if (run != 0) return {slot, run};
    // Not in order: buffers are held, or come back from other threads.
    for (std::uint32_t i = 1; i < shape_.host; ++i) {
      slot = next(slot);
      if (is_free(slot)) return {slot, 1};
    }
    return {slot, 0};
  }
  bool is_free(std::uint32_t slot) const noexcept {
    return returns_[slot].load(std::memory_order_acquire) == turns_[slot].load(std::memory_order_relaxed);
  }
  bool is_withheld(std::uint32_t slot) const noexcept { return in_use_ != 0 && slot >= in_use_; }
  void turn(std::uint32_t slot) noexcept { count(turns_[slot], std::memory_order_relaxed); }
  // By the one who has the slot: the consumer, or the cursor.
  void free_slot(std::uint32_t slot) noexcept {
    count(returns_[slot], std::memory_order_release);
    readers_gate_->notify();
  }
  std::uint32_t next(std::uint32_t slot) const noexcept { return slot + 1 == shape_.host ? 0 : slot + 1; }

  // Of words that have one writer at a time.
  static void count(atomic<std::uint8_t>& word, std::memory_order order) noexcept {
    word.store(static_cast<std::uint8_t>(word.load(std::memory_order_relaxed) + 1), order);
  }

  // ---- The consumer's side

  // Takes note of what is ready, so that a line of `ready_` is asked for once for all that it holds.
  bool look_ahead() noexcept {
    std::uint64_t step = consumed_;
    for (;;) {
      const std::uint64_t word = ready_[step].load(std::memory_order_acquire);
      if (step_of(word) != step) break;
      upcoming_[step % most_buffers] = static_cast<std::uint8_t>(index_of(word));
      if (++step % 8 == 0) break;
    }
    known_ready_ = static_cast<std::uint32_t>(step - consumed_);
    return known_ready_ != 0;
  }
  template <class Enqueue>
  void give_back(std::uint32_t index, Enqueue& enqueue) noexcept {
    if (hands_over_slots()) return free_slot(index);
    copies_.give_back(index);
    poke(enqueue);
  }

  // ---- Copies

  template <class Enqueue>
  void poke(Enqueue& enqueue) noexcept {
    copies_.poke(
        [this](std::uint64_t step) {
          const std::uint64_t full = full_[step].load(std::memory_order_acquire);
          return step_of(full) == step ? index_of(full) : copy_cursor<Policy>::none;
        },
        [&](std::uint64_t step, std::uint32_t slot, std::uint32_t twin) {
          enqueue(step, slot, twin);
          free_slot(slot);
          ready_[step].store(pack(step, twin), std::memory_order_release);
          consumer.notify();
        });
  }
  // The slots' and twins' events stay: what is in flight still fences them.
  void skip_copies(std::uint64_t base) noexcept {
    copies_.skip(consumed_, base,
                 [this](std::uint64_t step) { return index_of(ready_[step].load(std::memory_order_acquire)); });
  }

  pool_gate own_readers_;
  pool_gate* readers_gate_;
  ring_shape shape_;
  bool alone_;  // one reader, one range: nobody to share with
  std::uint32_t shift_;
  step_words bound_;    // by readers, for readers: the step and its slot
  step_words full_;     // by readers, for the cursor: the step and its slot
  step_words ready_;    // by readers or the cursor, for the consumer: the step and its buffer
  slot_words returns_;  // by the consumer or the cursor, for readers: how often the slot was given back
  slot_words turns_;    // by readers: how often it was bound
  std::unique_ptr<counter[]> remaining_;  // of the slot: ranges not yet in
  admission<Policy> readers_;             // inside for a step; the note is the sample that is read

  alignas(cache_line) atomic<std::uint64_t> tickets_{0};  // next ticket = step * ranges + range
  atomic<std::uint64_t> free_until_{0};                   // a reader alone: for steps below, slots are known to be free
  atomic<std::uint64_t> free_{0};                         // the step to be bound next, and where to look for a slot
  copy_cursor<Policy> copies_;
  alignas(cache_line) atomic<std::uint64_t> returned_{0};
  // The consumer's own.
  alignas(cache_line) std::uint64_t consumed_ = 0;
  std::uint64_t issued_ = 0;
  std::uint64_t taken_back_ = 0;  // the others come back by `release`
  std::uint32_t known_ready_ = 0;
  std::uint32_t last_inline_ = 0;
  std::uint32_t in_use_;                   // 0: all, from the beginning
  std::uint8_t upcoming_[most_buffers]{};  // the buffers of the steps known to be ready
  std::uint8_t given_[most_buffers]{};     // how often each slot was received, or skipped
};

}  // namespace penstock
