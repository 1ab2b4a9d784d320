// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <penstock/sample/error.hpp>
#include <penstock/stage/cpu_set.hpp>

namespace penstock::detail {

/// Looks at a condition before sleeping: longer than a hand-over takes, shorter than a wake by the system costs.
inline constexpr std::uint32_t spins_before_sleep = 400;

/// The CPUs that this thread may run on: the affinity mask's, not the machine's. At least one.
inline cpu_set allowed_cpus() {
  cpu_set result;
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mask)) result.add(cpu);
#endif
  if (result.size() == 0) {
    const unsigned known = std::thread::hardware_concurrency();
    for (unsigned cpu = 0; cpu < (known == 0 ? 1 : known); ++cpu) result.add(static_cast<int>(cpu));
  }
  return result;
}

/// Where threads are kept: all that are allowed if `wanted` is empty. Throws `std::invalid_argument`, in the name of
/// `stage`, for one that is not.
inline cpu_set placed_on(std::string_view stage, const cpu_set& wanted) {
  const cpu_set allowed = allowed_cpus();
  if (wanted.empty()) return allowed;
#if defined(__linux__)
  if (!wanted.within(allowed))
    reject_option(stage, "cpus", wanted.text(),
                  concat("some of ", allowed.text(), ", which this thread may run on: ", wanted.one_not_in(allowed),
                         " is none of them"));
  return wanted;
#else
  reject_option(stage, "cpus", wanted.text(), "none: threads are kept on CPUs on Linux alone");
#endif
}
/// Looks of those who wait, where `threads` on `cpus` serve one more that may run anywhere: a thread more than there
/// are CPUs, and the one that is waited for does not run while others spin.
inline std::uint32_t spins_of(std::uint32_t threads, const cpu_set& cpus) {
  return threads <= cpus.size() && threads < allowed_cpus().size() ? spins_before_sleep : 0;
}

#if defined(__linux__)
/// Asks for long turns on the CPU: a consumer that wakes where readers have all CPUs then gets its turn at once, since
/// its own are shorter. Kernels before 6.12 take no notice, and it does not matter if it is refused.
inline void ask_for_long_turns() noexcept {
  struct {  // sched_attr, which older headers of the C library do not have
    std::uint32_t size = 48, policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 20'000'000, deadline = 0, period = 0;  // the first is the turn's length, in nanoseconds
  } attributes;
  if (sched_getscheduler(0) != SCHED_OTHER) return;  // the application has chosen one
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}
#endif

/// Starts a thread of ours: named, deaf to signals (they are the application's), with fine timers, and begun on a CPU
/// of its own where there are enough, since fresh threads tend to stay with their creator for milliseconds.
template <class Body>
std::thread start_thread(std::string name, const cpu_set& cpus, std::size_t number, Body body) {
#if defined(__linux__)
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // What a thread's own fault raises must reach its handler, a debugger's or a sanitizer's, and profilers sample us,
  // too.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int here = sched_getcpu();
  std::size_t next = 0;  // of `cpus`, from here
  for (int cpu = 0; cpu <= here; ++cpu) next += cpus.contains(cpu) ? 1 : 0;
  const int first = cpus[(next + number) % cpus.size()];
  try {
    std::thread result([name = std::move(name), cpus, first, body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      prctl(PR_SET_TIMERSLACK, 1);
      ask_for_long_turns();
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(first, &one);
      sched_setaffinity(0, sizeof(one), &one);
      cpu_set_t any;
      CPU_ZERO(&any);
      for (int cpu = 0; cpu < cpu_set::most; ++cpu)
        if (cpus.contains(cpu)) CPU_SET(cpu, &any);
      sched_setaffinity(0, sizeof(any), &any);
      body();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return result;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
#else
  (void)name, (void)cpus, (void)number;
  return std::thread(std::move(body));
#endif
}

}  // namespace penstock::detail
