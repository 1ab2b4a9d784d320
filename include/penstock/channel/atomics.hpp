// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#else
#include <thread>
#endif

#include <penstock/sample/config.hpp>

namespace penstock {

/// Distance that keeps two variables out of each other's cache lines, prefetched pairs of lines included.
inline constexpr std::size_t cache_line = 128;

/// The point in time that never comes.
inline constexpr auto no_deadline = std::chrono::steady_clock::time_point::max();

/// `limit` from now; never, if that is further than a clock can count.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds limit) noexcept {
  const auto now = std::chrono::steady_clock::now();
  return limit > no_deadline - now ? no_deadline
                                   : now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
}

/// The primitives under the channel's protocol. Every shared word of `gate` and `ring` goes through such a policy, so
/// that a checker can put instrumented atomics, a scheduler of its own and modelled sleeping in their place.
struct std_atomics {
  template <class T>
  using atomic = std::atomic<T>;
  /// How often threads sleep at a gate before its fences are paid for by both sides.
  static constexpr std::uint32_t sleeps_before_both_pay() noexcept { return 4; }

  /// A store-load fence in two halves: the frequent side calls `light`, the rare side `heavy`. With the system's
  /// expedited membarrier the light half costs nothing; where the call is refused both are full fences. (A sandbox that
  /// refuses it has to be entered before the first feed is made.)
  class asymmetric_fence {
   public:
    asymmetric_fence() noexcept : expedited_(register_process()) {}

    /// Whether `light` is nothing but a compiler's matter.
    bool is_free() const noexcept { return expedited_; }
    /// Both halves in one, for this thread.
    void full() const noexcept {
#if !PENSTOCK_THREAD_SANITIZER
      std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    }
    void light() const noexcept {
      if (expedited_)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      else
        full();
    }
    void heavy() const noexcept {
#if defined(__linux__) && defined(__NR_membarrier)
      if (expedited_ && syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
#endif
      full();
    }

   private:
    static bool register_process() noexcept {
#if defined(__linux__) && defined(__NR_membarrier) && !PENSTOCK_THREAD_SANITIZER
      return syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#else
      return false;
#endif
    }

    bool expedited_;
  };

  /// Tells the core that this thread spins.
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  /// Sleeps until `wake`, as exactly as the system can: nobody needs to wake it, or can.
  static void nap(std::chrono::steady_clock::time_point wake) noexcept {
#if defined(__linux__)
    // How late the timer may be is the thread's own setting, which is the application's.
    const int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1);
    const timespec until = monotonic(wake);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    if (slack > 0) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
#else
    std::this_thread::sleep_until(wake);
#endif
  }

  /// Sleeps while `word` is `expected`, until woken or `deadline`; may return early.
  static void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                    std::chrono::steady_clock::time_point deadline) noexcept {
#if defined(__linux__)
    const timespec until = monotonic(deadline);
    syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
            deadline == no_deadline ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
#else
    if (word.load(std::memory_order_relaxed) == expected) std::this_thread::sleep_for(std::chrono::microseconds(50));
    (void)deadline;
#endif
  }

  static void wake_all(std::atomic<std::uint32_t>& word) noexcept {
#if defined(__linux__)
    syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, nullptr, nullptr, 0);
#else
    (void)word;
#endif
  }

#if defined(__linux__)
 private:
  // libstdc++'s and libc++'s steady_clock is CLOCK_MONOTONIC, which the system's calls take as an absolute time.
  static timespec monotonic(std::chrono::steady_clock::time_point time) noexcept {
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
    timespec result{};
    result.tv_sec = static_cast<time_t>(nanoseconds / 1'000'000'000);
    result.tv_nsec = static_cast<long>(nanoseconds % 1'000'000'000);
    return result;
  }
#endif
};

namespace detail {

template <class Device>
struct atomics_for {
  using type = std_atomics;
};
template <class Device>
  requires requires { typename Device::atomics; }
struct atomics_for<Device> {
  using type = typename Device::atomics;
};
template <class Policy>
struct pool_atomics_for {
  using type = Policy;
};
template <class Policy>
  requires requires { typename Policy::pool_atomics; }
struct pool_atomics_for<Policy> {
  using type = typename Policy::pool_atomics;
};

}  // namespace detail

/// The policy of the channels to a device: `std_atomics`, unless the device brings one that watches (see
/// `tests/cuda_double`).
template <class Device>
using atomics_of = typename detail::atomics_for<Device>::type;
/// The policy of the gate where the readers of several rings sleep. It carries no data, so it need not be watched.
template <class Policy>
using pool_atomics_of = typename detail::pool_atomics_for<Policy>::type;

}  // namespace penstock
