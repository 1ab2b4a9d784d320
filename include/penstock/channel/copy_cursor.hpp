// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include <penstock/channel/atomics.hpp>

namespace penstock {

/// Which step is copied next, and into which twin: in place of a thread that would forward full slots.
///
/// Whoever has filled a slot or released a twin pokes. The one that finds nobody at it moves on as long as there is a
/// full slot for the next step and a free twin; the others leave word, so that it goes round once more. So copies are
/// enqueued in step order, never two at a time, and a twin's release starts the next copy at once.
template <class Policy = std_atomics>
class copy_cursor {
  template <class T>
  using atomic = typename Policy::template atomic<T>;

 public:
  static constexpr std::uint32_t most_twins = 64;
  static constexpr std::uint32_t none = most_twins;

  /// `in_use`: so many, the first ones, are free; the others come by `give_back`. 0: all.
  explicit copy_cursor(std::uint32_t twins, std::uint32_t in_use = 0) : twins_(twins) {
    const std::uint32_t free = in_use != 0 && in_use < twins ? in_use : twins;
    free_.store(free == most_twins ? ~std::uint64_t{0} : (std::uint64_t{1} << free) - 1, std::memory_order_relaxed);
  }

  /// By any thread; a poke has to follow.
  void give_back(std::uint32_t twin) noexcept { free_.fetch_or(std::uint64_t{1} << twin, std::memory_order_acq_rel); }
  /// By any thread. `full(step)` gives the step's slot if it is full, else `none`; `copy(step, slot, twin)` enqueues,
  /// and passes the twin on.
  template <class Full, class Copy>
  void poke(Full&& full, Copy&& copy) noexcept {
    if (pending_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
    std::uint32_t seen = 0;
    do {
      seen = pending_.load(std::memory_order_acquire);
      while (advance(full, copy)) {
      }
    } while (pending_.fetch_sub(seen, std::memory_order_acq_rel) != seen);
  }
  /// Goes on at step `base`, while no slot is full, and gives back the twins of copies from step `from` on, which
  /// nobody will ask for; `twin_of(step)` names them. Those who poke meanwhile have nothing to be done for them.
  template <class TwinOf>
  void skip(std::uint64_t from, std::uint64_t base, TwinOf&& twin_of) noexcept {
    std::uint32_t idle = 0;
    while (!pending_.compare_exchange_weak(idle, 1, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      idle = 0;
      Policy::pause();
    }
    for (std::uint64_t step = from; step < next_; ++step) give_back(twin_of(step));
    next_ = base;
    pending_.store(0, std::memory_order_release);
  }

 private:
  template <class Full, class Copy>
  bool advance(Full& full, Copy& copy) noexcept {
    const std::uint64_t step = next_;
    const std::uint32_t slot = full(step);
    if (slot == none) return false;
    const std::uint64_t free = free_.load(std::memory_order_acquire);
    if (free == 0) return false;
    // Round about: work on the twin that was released last is mostly still to come, and the copy would wait for it.
    const auto after = static_cast<std::uint32_t>(std::countr_zero(std::rotr(free, static_cast<int>(next_twin_))));
    const std::uint32_t twin = (next_twin_ + after) % most_twins;
    next_twin_ = twin + 1 == twins_ ? 0 : twin + 1;
    free_.fetch_and(~(std::uint64_t{1} << twin), std::memory_order_acq_rel);
    next_ = step + 1;
    copy(step, slot, twin);
    return true;
  }

  alignas(cache_line) atomic<std::uint64_t> free_{0};
  alignas(cache_line) atomic<std::uint32_t> pending_{0};
  // Written by whoever brought pending_ up from 0.
  std::uint64_t next_ = 0;
  std::uint32_t next_twin_ = 0;
  std::uint32_t twins_;
};

}  // namespace penstock
