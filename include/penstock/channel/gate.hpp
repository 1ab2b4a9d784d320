// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <penstock/channel/atomics.hpp>
#include <penstock/channel/patience.hpp>

namespace penstock {

/// Where threads sleep until a condition on other atomics may have become true (an event count).
///
/// Whoever makes a condition true stores it with release order and calls `notify()`, which costs one load while nobody
/// sleeps: the sleeper pays, by a heavy fence between announcing itself and looking at the condition once more. So
/// either the sleeper sees the store, or the notifier sees the sleeper. Where sleeping is frequent, or the heavy fence
/// is not to be had, each pays a full fence instead. Every wake is wake-all.
template <class Policy = std_atomics>
class gate {
  using clock = std::chrono::steady_clock;

 public:
  /// `spins`: how often the condition is looked at, with pauses, before sleeping; 0 where threads outnumber CPUs.
  explicit gate(std::uint32_t spins = 0) noexcept
      : sleepers_(fence_.is_free() ? 0 : both_pay), both_pay_(fence_.is_free() ? 0 : 1), spins_(spins) {}
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  void set_spins(std::uint32_t spins) noexcept { spins_.store(spins, std::memory_order_relaxed); }
  /// For a gate where one thread waits: it learns how long, and sleeps by the clock where that is likely to do.
  void set_patient() noexcept { learns_ = true; }

  /// Waits until `ready()`; false when `deadline` passed first. `ready` is called several times and may have effects
  /// only when it returns true.
  template <class Ready>
  bool wait(Ready&& ready, clock::time_point deadline = no_deadline) {
    return ready() || wait_longer(ready, deadline);
  }

  /// Wakes all who wait, if anyone does. The condition must have been stored before.
  void notify() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  // Counted among the sleepers where the notifier pays, too: so that a single look tells that there is something to do.
  static constexpr std::uint32_t both_pay = std::uint32_t{1} << 31;
  [[gnu::noinline]] void wake() noexcept {
    fence_.full();
#if PENSTOCK_THREAD_SANITIZER
    // A locked instruction in place of the fence, which this sanitizer does not know; relaxed, so that it orders
    // nothing in the sanitizer's eyes that the gate does not order.
    if (sleepers_.fetch_add(0, std::memory_order_relaxed) == both_pay) return;
#else
    if ((sleepers_.load(std::memory_order_relaxed) & ~both_pay) == 0) return;
#endif
    turns_.fetch_add(1, std::memory_order_release);
    Policy::wake_all(turns_);
  }

  template <class Ready>
  [[gnu::noinline]] bool wait_longer(Ready& ready, clock::time_point deadline) {
    if constexpr (requires { Policy::nap(deadline); })
      if (learns_) return wait_patiently(ready, deadline);
    for (std::uint32_t i = spins_.load(std::memory_order_relaxed); i != 0; --i) {
      Policy::pause();
      if (ready()) return true;
    }
    return sleep(ready, deadline);
  }
  template <class Ready>
  bool wait_patiently(Ready& ready, clock::time_point deadline) {
    const auto begin = clock::now();
    auto now = begin;
    if (!habit_.is_short()) {
      const auto end = begin + habit_.to_sleep();
      do {
        auto wake = end - now < patience::longest_nap ? end : now + patience::longest_nap;
        Policy::nap(wake < deadline ? wake : deadline);
        if (ready()) return habit_.slept_over(), true;
        now = clock::now();
      } while (now < end && now < deadline);
    }
    if (spins_.load(std::memory_order_relaxed) != 0) {
      // The clock is looked at between some pauses, which take longer than it does.
      for (const auto until = now + patience::shortly; clock::now() < until;)
        for (int i = 0; i < 8; ++i) {
          Policy::pause();
          if (ready()) return habit_.lasted(clock::now() - begin), true;
        }
    }
    const bool result = sleep(ready, deadline);
    habit_.lasted(clock::now() - begin);
    return result;
  }
  template <class Ready>
  bool sleep(Ready& ready, clock::time_point deadline) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    // Leaves the count right also when ready() throws.
    struct leave {
      typename Policy::template atomic<std::uint32_t>& sleepers;
      ~leave() { sleepers.fetch_sub(1, std::memory_order_relaxed); }
    } const leave{sleepers_};
    for (;;) {
      order();
      const std::uint32_t seen = turns_.load(std::memory_order_acquire);
      if (ready()) return true;
      if (deadline != no_deadline && clock::now() >= deadline) return false;
      Policy::sleep(turns_, seen, deadline);
    }
  }
  // Between having announced oneself and looking again. A heavy fence interrupts whoever is at work: where threads
  // sleep often, both sides pay instead. Notifiers are told first, and once a heavy fence has passed, the ones that
  // were not told have stored what they notify of.
  void order() noexcept {
    if (both_pay_.load(std::memory_order_acquire) != 0) return fence_.full();
    const bool settles = sleeps_.fetch_add(1, std::memory_order_relaxed) + 1 == Policy::sleeps_before_both_pay();
    if (settles) sleepers_.fetch_add(both_pay, std::memory_order_seq_cst);
    fence_.heavy();
    if (settles) both_pay_.fetch_add(1, std::memory_order_release);
  }

  alignas(cache_line) typename Policy::asymmetric_fence fence_;
  typename Policy::template atomic<std::uint32_t> sleepers_;
  typename Policy::template atomic<std::uint32_t> turns_{0};
  typename Policy::template atomic<std::uint32_t> sleeps_{0};
  typename Policy::template atomic<std::uint32_t> both_pay_;
  std::atomic<std::uint32_t> spins_;
  bool learns_ = false;
  patience habit_;
};

}  // namespace penstock
