// SPDX-License-Identifier: Apache-2.0
// The machine that a question is asked on: which CPUs, what else runs on them, and what to write above the figures.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace contest {

/// The CPUs that the program may run on; asked for first before any thread is pinned, since threads inherit the pin.
inline const std::vector<int>& cpus() {
  static const std::vector<int> allowed = [] {
    std::vector<int> result;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    sched_getaffinity(0, sizeof(mask), &mask);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mask)) result.push_back(cpu);
    return result;
  }();
  return allowed;
}

inline void run_on(const std::vector<int>& those) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (int cpu : those) CPU_SET(cpu, &mask);
  pthread_setaffinity_np(pthread_self(), sizeof(mask), &mask);
}
/// Puts the calling thread on the n-th of `cpus()`; the first ones are used again where there are fewer.
inline void pin(std::size_t n) { run_on({cpus()[n % cpus().size()]}); }
/// Lets it run on all of them again.
inline void unpin() { run_on(cpus()); }

/// What the process has used so far, all threads together.
struct usage {
  double cpu_seconds = 0;
  long voluntary = 0, involuntary = 0;  // context switches

  static usage now() { return of(RUSAGE_SELF); }
  /// Of programs that it started, and that have ended.
  static usage of_children() { return of(RUSAGE_CHILDREN); }
  friend usage operator-(usage a, usage b) {
    return {a.cpu_seconds - b.cpu_seconds, a.voluntary - b.voluntary, a.involuntary - b.involuntary};
  }

 private:
  static usage of(int whom) {
    rusage own{};
    getrusage(whom, &own);
    const auto seconds = [](timeval time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return {seconds(own.ru_utime) + seconds(own.ru_stime), own.ru_nvcsw, own.ru_nivcsw};
  }
};

/// CPU time that others took, of this machine's programs or, as "steal", of its host's, since the watch was made.
class watch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count(); }
  double foreign_seconds() const {
    const double own = (usage::now() - used_).cpu_seconds + (usage::of_children() - children_).cpu_seconds;
    const double all = busy() - busy_;
    return all > own ? all - own : 0;
  }
  /// More than a twentieth of the CPUs, and more than the clock ticks that busy time is counted in can tell.
  bool disturbed() const {
    const double limit = 0.05 * seconds() * static_cast<double>(cpus().size());
    return foreign_seconds() > (limit > 0.03 ? limit : 0.03);
  }

 private:
  static double busy() {
    std::ifstream stat("/proc/stat");
    std::string line;
    double sum = 0;
    while (std::getline(stat, line) && line.starts_with("cpu")) {
      const auto space = line.find(' ');
      const std::string number = line.substr(3, space - 3);
      bool ours = false;
      for (int cpu : cpus()) ours = ours || (!number.empty() && number == std::to_string(cpu));
      if (!ours) continue;
      // user, nice, system, idle, iowait, irq, softirq, steal
      const char* at = line.c_str() + space;
      for (int column = 0; column < 8; ++column) {
        char* end = nullptr;
        const double ticks = std::strtod(at, &end);
        at = end;
        if (column != 3 && column != 4) sum += ticks;
      }
    }
    return sum / 100;  // USER_HZ
  }

  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  usage used_ = usage::now(), children_ = usage::of_children();
  double busy_ = busy();
};

/// One line each: what figures hold for.
inline std::vector<std::pair<std::string, std::string>> machine() {
  std::string model = "unknown CPU";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  std::string allowed;
  for (int cpu : cpus()) allowed += (allowed.empty() ? "" : ",") + std::to_string(cpu);
  int nodes = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", none))
    nodes += entry.path().filename().string().starts_with("node") ? 1 : 0;
  utsname system{};
  uname(&system);
  const char* commit = std::getenv("PENSTOCK_COMMIT");
#ifndef CONTEST_FLAGS
#define CONTEST_FLAGS "unknown flags"
#endif
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  return {{"cpu", model},
          {"affinity", std::to_string(cpus().size()) + " CPUs: " + allowed},
          {"numa", std::to_string(nodes) + (nodes == 1 ? " node" : " nodes")},
          {"kernel", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"compiler", compiler},
          {"flags", CONTEST_FLAGS},
          {"commit", commit == nullptr ? "unknown" : commit}};
}

}  // namespace contest
