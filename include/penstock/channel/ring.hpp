// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <memory>

#include <penstock/channel/atomics.hpp>
#include <penstock/channel/gate.hpp>

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
};

/// The synchronisation of a channel, and all of it: who may touch which buffer when. It owns no data.
///
/// Steps are numbered from 0 over the ring's life and never come back. A *slot* is bound to a step, filled by readers
/// range by range, and published by whoever fills the last range. Then either the slot itself goes to the consumer, and
/// is bound anew when released; or a copy into a free *twin* is enqueued, in step order, by one cursor that is advanced
/// by whoever filled a slot or released a twin, and the slot is bound to the step `host` further on at once.
///
/// Readers take a ticket only when they can use it, so none ever waits with a ticket in hand. Parking sets one bit in
/// the ticket counter; a restart then needs no reset, it skips the steps that nobody will ask for.
///
/// Threads: `try_take`, `arrive`, `publish` and `leave` by readers, `release` by any thread, the rest by the consumer.
template <class Policy = std_atomics>
class ring {
  template <class T>
  using atomic = typename Policy::template atomic<T>;

  static constexpr std::uint64_t parked_bit = std::uint64_t{1} << 63;
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

  /// Begins parked, at step 0. `pool`: where readers wait who serve other rings, too; by default a gate of the ring's
  /// own.
  explicit ring(const ring_shape& shape, gate<Policy>* pool = nullptr)
      : readers_gate_(pool == nullptr ? &own_readers_ : pool),
        shape_(shape),
        shift_(static_cast<std::uint32_t>(std::countr_zero(shape.ranges))),
        slots_(std::make_unique<slot_word[]>(shape.host)),
        ready_(std::make_unique<ready_word[]>(shape.device == 0 ? shape.host : shape.device)),
        readers_(std::make_unique<reader_word[]>(shape.readers)) {
    for (std::uint32_t i = 0; i < shape.host; ++i) {
      slots_[i].bound.store(pack(i, i), std::memory_order_relaxed);
      slots_[i].remaining.store(shape.ranges, std::memory_order_relaxed);
    }
    next_bind_.store(shape.host, std::memory_order_relaxed);
    const auto twins = shape.device;
    free_twins_.store(twins == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << twins) - 1, std::memory_order_relaxed);
    tickets_.store(parked_bit, std::memory_order_release);
  }

  const ring_shape& shape() const noexcept { return shape_; }
  bool hands_over_slots() const noexcept { return shape_.device == 0; }

  // ---- readers

  /// Takes the next ticket if its slot is free now. `fence_passed(slot)` tells whether the last copy out of the slot
  /// has completed, `has_turn(step)` whether there is something to be done for the step at all.
  template <class FencePassed, class HasTurn = always>
  take_result try_take(std::uint32_t reader, ticket& out, FencePassed&& fence_passed, HasTurn&& has_turn = {}) {
    std::uint64_t now = tickets_.load(std::memory_order_acquire);
    for (;;) {
      if (now & parked_bit) return take_result::none;
      const std::uint64_t step = now >> shift_;
      if (step >= limit_.load(std::memory_order_relaxed)) return take_result::none;
      const std::uint64_t bound = slots_[step % shape_.host].bound.load(std::memory_order_acquire);
      if (step_of(bound) != step || !has_turn(step)) return take_result::none;
      out.slot = index_of(bound);
      if (!fence_passed(out.slot)) return take_result::fenced;
      // The word is set before the ticket is taken: who sees the ticket counter parked sees every busy reader.
      readers_[reader].busy.store(step + 1, std::memory_order_relaxed);
      if (tickets_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        out.step = step;
        out.range = static_cast<std::uint32_t>(now & (shape_.ranges - 1));
        return take_result::taken;
      }
      leave(reader);
    }
  }

  /// True while readers should give up what they do: parked or closed.
  bool interrupted() const noexcept { return (tickets_.load(std::memory_order_relaxed) & parked_bit) != 0; }

  /// One range is in. True for the caller that brought the last one, who must then `publish`.
  bool arrive(const ticket& ticket) noexcept {
    if (shape_.ranges == 1) return true;
    auto& remaining = slots_[ticket.slot].remaining;
    if (remaining.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
    remaining.store(shape_.ranges, std::memory_order_relaxed);
    return true;
  }

  /// The slot is full: hands it over, or starts its copy. `enqueue(step, slot, twin)` enqueues a copy and the two
  /// records of its events; it does not throw.
  template <class Enqueue>
  void publish(const ticket& ticket, Enqueue&& enqueue) noexcept {
    if (hands_over_slots()) {
      ready_[ticket.step % shape_.host].value.store(pack(ticket.step, ticket.slot), std::memory_order_release);
      consumer.notify();
    } else {
      slots_[ticket.slot].full.store(ticket.step + 1, std::memory_order_release);
      poke(enqueue);
    }
  }

  /// The reader no longer touches any slot.
  void leave(std::uint32_t reader) noexcept {
    readers_[reader].busy.store(0, std::memory_order_release);
    control.notify();
  }

  /// For messages: the step that a reader works on and the sample it reads.
  struct activity {
    bool busy;
    std::uint64_t step, sample;
  };
  activity reader_activity(std::uint32_t reader) const noexcept {
    const std::uint64_t busy = readers_[reader].busy.load(std::memory_order_acquire);
    return {busy != 0, busy - 1, readers_[reader].sample.load(std::memory_order_relaxed)};
  }
  /// Where a reader notes the sample that it reads.
  atomic<std::uint64_t>& sample_word(std::uint32_t reader) noexcept { return readers_[reader].sample; }
  /// The word that has a bit of `interrupt_bit` while readers should give up what they do.
  const atomic<std::uint64_t>& interrupt_word() const noexcept { return tickets_; }
  static constexpr std::uint64_t interrupt_bit = parked_bit;

  /// The step of the next ticket.
  std::uint64_t ticket_step() const noexcept {
    return (tickets_.load(std::memory_order_relaxed) & ~parked_bit) >> shift_;
  }

  // ---- consumer

  /// The step that `receive` gives next.
  std::uint64_t next_step() const noexcept { return consumed_; }
  /// The most buffers that the consumer can hold.
  std::uint32_t buffers() const noexcept { return hands_over_slots() ? shape_.host : shape_.device; }
  bool is_ready() const noexcept {
    const auto depth = buffers();
    return step_of(ready_[consumed_ % depth].value.load(std::memory_order_acquire)) == consumed_;
  }
  /// The buffer (slot or twin) of the next step; `is_ready()` must hold.
  std::uint32_t receive() noexcept {
    const auto depth = buffers();
    const auto index = index_of(ready_[consumed_ % depth].value.load(std::memory_order_relaxed));
    ++consumed_;
    ++issued_;
    return index;
  }
  /// Buffers received and not yet released.
  std::uint64_t outstanding() const noexcept { return issued_ - returned_.load(std::memory_order_acquire); }

  /// Gives a received buffer back; by any thread. The caller has recorded the buffer's release event before. True if
  /// the ring was abandoned by its consumer and this was the last buffer out: the caller then owns it alone.
  template <class Enqueue>
  bool release(std::uint32_t index, Enqueue&& enqueue) noexcept {
    if (hands_over_slots()) {
      bind(index);
      readers_gate_->notify();
    } else {
      free_twins_.fetch_or(std::uint64_t{1} << index, std::memory_order_acq_rel);
      poke(enqueue);
    }
    return returned_.fetch_add(1, std::memory_order_acq_rel) + 1 == all_returned;
  }
  /// The consumer will not come back. True if no buffer is out; else the last `release` returns true.
  bool abandon() noexcept {
    const std::uint64_t rest = all_returned - issued_;
    return returned_.fetch_add(rest, std::memory_order_acq_rel) + rest == all_returned;
  }

  /// For messages: batches ready for the consumer, and slots that readers may fill or are filling.
  std::uint32_t ready_ahead() const noexcept {
    std::uint32_t count = 0;
    while (count < buffers() && holds(ready_[(consumed_ + count) % buffers()].value, consumed_ + count)) ++count;
    return count;
  }
  std::uint32_t bound_ahead() const noexcept {
    const std::uint64_t begin = ticket_step();
    std::uint32_t count = 0;
    while (count < shape_.host && holds(slots_[(begin + count) % shape_.host].bound, begin + count)) ++count;
    return count;
  }

  // ---- control

  /// No ticket is given out from here on, and busy readers leave at their next sample.
  void park() noexcept {
    tickets_.fetch_or(parked_bit, std::memory_order_acq_rel);
    readers_gate_->notify();
  }
  bool parked() const noexcept { return interrupted(); }
  /// True once no reader is busy; meaningful while parked.
  bool quiet() const noexcept {
    for (std::uint32_t i = 0; i < shape_.readers; ++i)
      if (readers_[i].busy.load(std::memory_order_acquire) != 0) return false;
    return true;
  }
  /// Skips every step that was begun and not received; all but the consumer's own buffers are free again. Needs a
  /// parked and quiet ring; leaves it parked. `renew(slot)` is called for each slot before it is bound anew. Returns
  /// the next step.
  template <class Renew>
  std::uint64_t restart(Renew&& renew) noexcept {
    const std::uint64_t base = hands_over_slots() ? rebind_slots(renew) : rebind_twins(renew);
    consumed_ = base;
    tickets_.store(base << shift_ | parked_bit, std::memory_order_relaxed);
    return base;
  }
  /// Lets readers work on steps below `limit`; also raises the limit of a ring that is open.
  void open(std::uint64_t limit) noexcept {
    limit_.store(limit, std::memory_order_relaxed);
    // A late reader may have found its step below an earlier limit, and the counter back at the value it saw: where
    // there is nothing to read the ring stays parked, so that the exchange fails.
    if (ticket_step() >= limit) return;
    tickets_.fetch_and(~parked_bit, std::memory_order_acq_rel);
    readers_gate_->notify();
  }

  gate<Policy>& readers() noexcept { return *readers_gate_; }  ///< readers wait here for a ticket
  gate<Policy> consumer;                                       ///< the consumer waits here for a batch
  gate<Policy> control;                                        ///< the consumer waits here for readers to leave

 private:
  struct alignas(cache_line) slot_word {
    atomic<std::uint64_t> bound{nothing};  // at step % host: the step that may be filled, and the slot to fill
    atomic<std::uint64_t> full{0};         // of the slot: 1 + the step that is in it
    atomic<std::uint32_t> remaining{0};    // of the slot: ranges not yet in
  };
  struct alignas(cache_line) ready_word {
    atomic<std::uint64_t> value{nothing};
  };
  struct alignas(cache_line) reader_word {
    atomic<std::uint64_t> busy{0};  // 1 + the step worked on
    atomic<std::uint64_t> sample{0};
  };

  static bool holds(const atomic<std::uint64_t>& packed, std::uint64_t step) noexcept {
    return step_of(packed.load(std::memory_order_acquire)) == step;
  }
  void bind(std::uint32_t slot) noexcept {
    const std::uint64_t step = next_bind_.fetch_add(1, std::memory_order_acq_rel);
    slots_[step % shape_.host].bound.store(pack(step, slot), std::memory_order_release);
  }

  // Advances the copy cursor as long as it can go, unless another thread is at it: that one then goes round once more.
  template <class Enqueue>
  void poke(Enqueue& enqueue) noexcept {
    if (pending_.fetch_add(1, std::memory_order_acq_rel) == 0) advance(enqueue);
  }
  template <class Enqueue>
  void advance(Enqueue& enqueue) noexcept {
    std::uint32_t seen = 0;
    do {
      seen = pending_.load(std::memory_order_acquire);
      while (copy_next(enqueue)) {
      }
    } while (pending_.fetch_sub(seen, std::memory_order_acq_rel) != seen);
  }
  template <class Enqueue>
  bool copy_next(Enqueue& enqueue) noexcept {
    const std::uint64_t step = cursor_;
    const auto slot = static_cast<std::uint32_t>(step % shape_.host);
    if (slots_[slot].full.load(std::memory_order_acquire) != step + 1) return false;
    const std::uint64_t free = free_twins_.load(std::memory_order_acquire);
    if (free == 0) return false;
    const auto twin = static_cast<std::uint32_t>(std::countr_zero(free));
    free_twins_.fetch_and(~(std::uint64_t{1} << twin), std::memory_order_acq_rel);
    cursor_ = step + 1;
    enqueue(step, slot, twin);
    slots_[slot].bound.store(pack(step + shape_.host, slot), std::memory_order_release);
    readers_gate_->notify();
    ready_[step % shape_.device].value.store(pack(step, twin), std::memory_order_release);
    consumer.notify();
    return true;
  }

  // Steps in [consumed, next_bind) hold one slot each, filled or not. A release on another thread may have counted up
  // and not yet stored its word; that is a matter of a few instructions.
  template <class Renew>
  std::uint64_t rebind_slots(Renew& renew) noexcept {
    const std::uint64_t base = next_bind_.load(std::memory_order_acquire);
    for (std::uint64_t step = consumed_; step < base; ++step) {
      auto& bound = slots_[step % shape_.host].bound;
      std::uint64_t held = bound.load(std::memory_order_acquire);
      while (step_of(held) != step) {
        Policy::pause();
        held = bound.load(std::memory_order_acquire);
      }
      slots_[index_of(held)].remaining.store(shape_.ranges, std::memory_order_relaxed);
      renew(index_of(held));
      bind(index_of(held));
    }
    return base;
  }

  // Takes the cursor, gives back the twins of copies that nobody will ask for, and moves every slot one turn on. The
  // slots' and twins' events stay: what is in flight still fences them.
  template <class Renew>
  std::uint64_t rebind_twins(Renew& renew) noexcept {
    std::uint32_t idle = 0;
    while (!pending_.compare_exchange_weak(idle, 1, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      idle = 0;
      Policy::pause();
    }
    for (std::uint64_t step = consumed_; step < cursor_; ++step) {
      const auto twin = index_of(ready_[step % shape_.device].value.load(std::memory_order_acquire));
      free_twins_.fetch_or(std::uint64_t{1} << twin, std::memory_order_acq_rel);
    }
    const std::uint64_t base = cursor_ + shape_.host;
    for (std::uint64_t step = base; step < base + shape_.host; ++step) {
      const auto slot = static_cast<std::uint32_t>(step % shape_.host);
      slots_[slot].remaining.store(shape_.ranges, std::memory_order_relaxed);
      renew(slot);
      slots_[slot].bound.store(pack(step, slot), std::memory_order_release);
    }
    cursor_ = base;
    // Nothing is full now, so those who poked meanwhile have nothing to be done for them.
    pending_.store(0, std::memory_order_release);
    return base;
  }

  gate<Policy> own_readers_;
  gate<Policy>* readers_gate_;
  ring_shape shape_;
  std::uint32_t shift_;
  std::unique_ptr<slot_word[]> slots_;
  std::unique_ptr<ready_word[]> ready_;
  std::unique_ptr<reader_word[]> readers_;

  alignas(cache_line) atomic<std::uint64_t> tickets_{parked_bit};  // next ticket = step * ranges + range
  atomic<std::uint64_t> limit_{0};
  alignas(cache_line) atomic<std::uint64_t> next_bind_{0};
  alignas(cache_line) atomic<std::uint64_t> free_twins_{0};
  alignas(cache_line) atomic<std::uint32_t> pending_{0};
  std::uint64_t cursor_ = 0;  // written by whoever brought pending_ up from 0
  alignas(cache_line) atomic<std::uint64_t> returned_{0};
  alignas(cache_line) std::uint64_t consumed_ = 0;
  std::uint64_t issued_ = 0;
};

}  // namespace penstock
