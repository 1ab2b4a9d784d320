// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <penstock/channel/atomics.hpp>

namespace penstock {

/// Where threads sleep until a condition on other atomics may have become true (an event count).
///
/// Whoever makes a condition true stores it with release order and calls `notify()`, which costs one load while nobody
/// sleeps: the sleeper pays, by a heavy fence between announcing itself and looking at the condition once more. So
/// either the sleeper sees the store, or the notifier sees the sleeper. Every wake is wake-all.
template <class Policy = std_atomics>
class gate {
 public:
  /// `spins`: how often the condition is looked at, with pauses, before sleeping; 0 where threads outnumber CPUs.
  explicit gate(std::uint32_t spins = 0) noexcept : sleepers_(fence_.is_free() ? 0 : fences_to_pay), spins_(spins) {}
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  void set_spins(std::uint32_t spins) noexcept { spins_ = spins; }

  /// Waits until `ready()`; false when `deadline` passed first. `ready` is called several times and may have effects
  /// only when it returns true.
  template <class Ready>
  bool wait(Ready&& ready, std::chrono::steady_clock::time_point deadline = no_deadline) {
    return ready() || wait_longer(ready, deadline);
  }

  /// Wakes all who wait, if anyone does. The condition must have been stored before.
  void notify() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  // Counted as sleepers where the light fence is not free: so that a single look tells that there is something to do.
  static constexpr std::uint32_t fences_to_pay = std::uint32_t{1} << 31;

  [[gnu::noinline]] void wake() noexcept {
    fence_.light();
#if PENSTOCK_THREAD_SANITIZER
    // An exchange on one word orders the two sides without a fence, which this sanitizer does not know.
    if (sleepers_.fetch_add(0, std::memory_order_seq_cst) == fences_to_pay) return;
#else
    if ((sleepers_.load(std::memory_order_relaxed) & ~fences_to_pay) == 0) return;
#endif
    turns_.fetch_add(1, std::memory_order_release);
    Policy::wake_all(turns_);
  }
  template <class Ready>
  [[gnu::noinline]] bool wait_longer(Ready& ready, std::chrono::steady_clock::time_point deadline) {
    for (std::uint32_t i = 0; i < spins_; ++i) {
      Policy::pause();
      if (ready()) return true;
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    // Leaves the count right also when ready() throws.
    struct leave {
      typename Policy::template atomic<std::uint32_t>& sleepers;
      ~leave() { sleepers.fetch_sub(1, std::memory_order_relaxed); }
    } const leave{sleepers_};
    for (;;) {
      fence_.heavy();
      const std::uint32_t seen = turns_.load(std::memory_order_acquire);
      if (ready()) return true;
      if (deadline != no_deadline && std::chrono::steady_clock::now() >= deadline) return false;
      Policy::sleep(turns_, seen, deadline);
    }
  }

  alignas(cache_line) typename Policy::asymmetric_fence fence_;
  typename Policy::template atomic<std::uint32_t> sleepers_;
  typename Policy::template atomic<std::uint32_t> turns_{0};
  std::uint32_t spins_;
};

}  // namespace penstock
