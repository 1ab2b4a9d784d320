// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <penstock/channel/ring.hpp>

#include "checked_atomics.hpp"

namespace penstock::checker {

/// Where a slot that is full and a twin that is free meet, in place of the cursor: a counter of arrivals that starts
/// the copy at two.
enum class meeting { per_slot, per_twin, per_larger_depth, per_step };

/// ring's protocol as one may first think of it, without restarts: step k goes to twin k % device, and its copy is
/// started by whichever of "slot full" and "twin released" comes second. With a ticket in hand, a reader takes its
/// ticket first and then waits for the slot. It is here to be found wrong.
template <meeting Meeting, bool TicketInHand = false>
class variant_ring {
 public:
  explicit variant_ring(const ring_shape& shape)
      : shape_(shape), slots_(std::make_unique<slot_words[]>(most)), ready_(std::make_unique<word[]>(shape.device)) {
    for (std::uint32_t i = 0; i < shape.host; ++i) {
      slots_[i].bound.store(i);
      slots_[i].remaining.store(shape.ranges);
    }
    for (std::uint32_t step = 0; step < shape.device; ++step) slots_[place(step)].arrivals.fetch_add(1);
    auto& x = explorer::get();
    object next = consumer.which();
    for (const auto* name : {"consumer_gate", "control_gate", "readers_gate"}) x.rename(next++, name);
    for (std::uint32_t i = 0; i < most; ++i)
      for (const auto* name : {"bound", "remaining", "arrivals"}) x.rename(next++, name + std::to_string(i));
    for (std::uint32_t i = 0; i < shape.device; ++i) x.rename(next++, "ready" + std::to_string(i));
    for (const auto* name : {"tickets", "parked", "limit", "returned", "in_hand0", "in_hand1"}) x.rename(next++, name);
  }

  bool hands_over_slots() const { return false; }

  template <class FencePassed>
  take_result try_take(std::uint32_t reader, ticket& out, FencePassed&& fence_passed) {
    std::uint64_t now = tickets_.load();
    if constexpr (TicketInHand) {
      if (in_hand_[reader].load() == 0) {
        if (parked_.load() || now / shape_.ranges >= limit_.load()) return take_result::none;
        in_hand_[reader].store(tickets_.fetch_add(1) + 1);
      }
      now = in_hand_[reader].load() - 1;
    }
    do {
      out.step = now / shape_.ranges;
      out.range = static_cast<std::uint32_t>(now % shape_.ranges);
      out.slot = static_cast<std::uint32_t>(out.step % shape_.host);
      if (parked_.load() || out.step >= limit_.load() || slots_[out.slot].bound.load() != out.step)
        return take_result::none;
      if (!fence_passed(out.slot)) return take_result::fenced;
      if (TicketInHand) break;
    } while (!tickets_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    if (TicketInHand) in_hand_[reader].store(0);
    return take_result::taken;
  }
  bool interrupted() const { return parked_.load() != 0; }
  bool arrive(const ticket& ticket) {
    if (slots_[ticket.slot].remaining.fetch_sub(1) != 1) return false;
    slots_[ticket.slot].remaining.store(shape_.ranges);
    return true;
  }
  template <class Enqueue>
  void publish(const ticket& ticket, Enqueue&& enqueue) {
    meet(ticket.step, enqueue);
  }
  void leave(std::uint32_t) {}

  std::uint64_t next_step() const { return consumed_; }
  bool is_ready() const { return ready_[consumed_ % shape_.device].value.load() == consumed_ + 1; }
  std::uint32_t receive() { return static_cast<std::uint32_t>(consumed_++ % shape_.device); }
  template <class Enqueue>
  bool release(std::uint32_t index, Enqueue&& enqueue) {
    const std::uint64_t released = ready_[index].value.load() - 1;
    meet(released + shape_.device, enqueue);
    return returned_.fetch_add(1) + 1 == abandoned;
  }
  template <class Enqueue>
  void take_back(std::uint32_t index, Enqueue&& enqueue) {
    release(index, enqueue);
  }
  bool abandon() { return returned_.fetch_add(abandoned - consumed_) + abandoned - consumed_ == abandoned; }

  void park() {
    parked_.store(1);
    readers_gate_.notify();
  }
  bool quiet() const { return true; }
  template <class Renew>
  std::uint64_t restart(Renew&&) {
    return 0;
  }
  void open(std::uint64_t limit) {
    limit_.store(limit);
    parked_.store(0);
    readers_gate_.notify();
  }
  gate<checked_atomics>& readers() { return readers_gate_; }
  gate<checked_atomics> consumer, control;

  friend void add_plain_members(explorer& to, variant_ring& of) { to.add_memory(&of.consumed_, sizeof(of.consumed_)); }

 private:
  static constexpr std::uint32_t most = 4;
  static constexpr std::uint64_t abandoned = 1000;
  using word64 = checked_atomic<std::uint64_t>;
  struct slot_words {
    word64 bound, remaining, arrivals;  // the last by place(), not by slot
  };
  struct word {
    word64 value;
  };

  std::uint64_t place(std::uint64_t step) const {
    switch (Meeting) {
      case meeting::per_slot: return step % shape_.host;
      case meeting::per_twin: return step % shape_.device;
      case meeting::per_larger_depth: return step % std::max(shape_.host, shape_.device);
      case meeting::per_step: return step % most;
    }
    return 0;
  }
  template <class Enqueue>
  void meet(std::uint64_t step, Enqueue& enqueue) {
    auto& arrivals = slots_[place(step)].arrivals;
    if (arrivals.fetch_add(1) + 1 != 2) return;
    arrivals.store(0);
    const auto slot = static_cast<std::uint32_t>(step % shape_.host);
    enqueue(step, slot, static_cast<std::uint32_t>(step % shape_.device));
    slots_[slot].bound.store(step + shape_.host);
    readers_gate_.notify();
    ready_[step % shape_.device].value.store(step + 1);
    consumer.notify();
  }

  gate<checked_atomics> readers_gate_;
  ring_shape shape_;
  std::unique_ptr<slot_words[]> slots_;
  std::unique_ptr<word[]> ready_;
  word64 tickets_, parked_{1}, limit_, returned_, in_hand_[2];
  std::uint64_t consumed_ = 0;
};

}  // namespace penstock::checker
