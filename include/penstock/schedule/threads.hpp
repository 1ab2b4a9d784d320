// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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

namespace penstock::detail {

/// Looks at a condition before sleeping: longer than a hand-over takes, shorter than a wake by the system costs.
inline constexpr std::uint32_t spins_before_sleep = 400;

/// Numbers of CPUs, as many as a mask holds: a vector would take longer to compile than all the rest here.
struct cpu_list {
  static constexpr std::size_t most = 1024;

  int numbers[most] = {};
  std::size_t count = 0;

  void add(int cpu) noexcept {
    if (count < most) numbers[count++] = cpu;
  }
  std::size_t size() const noexcept { return count; }
  int operator[](std::size_t n) const noexcept { return numbers[n]; }
  const int* begin() const noexcept { return numbers; }
  const int* end() const noexcept { return numbers + count; }
};

/// The CPUs that this thread may run on: the affinity mask's, not the machine's. At least one.
inline cpu_list allowed_cpus() {
  cpu_list result;
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
std::thread start_thread(std::string name, const cpu_list& cpus, std::size_t number, Body body) {
#if defined(__linux__)
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // What a thread's own fault raises must reach its handler, a debugger's or a sanitizer's, and profilers sample us,
  // too.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int here = sched_getcpu();
  std::size_t place = 0;
  while (place < cpus.size() && cpus[place] != here) ++place;
  const int first = cpus[(place + 1 + number) % cpus.size()];
  try {
    std::thread result([name = std::move(name), cpus, first, body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      prctl(PR_SET_TIMERSLACK, 1);
      ask_for_long_turns();
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(first, &one);
      if (sched_setaffinity(0, sizeof(one), &one) == 0) {
        cpu_set_t any;
        CPU_ZERO(&any);
        for (int cpu : cpus) CPU_SET(cpu, &any);
        sched_setaffinity(0, sizeof(any), &any);
      }
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
