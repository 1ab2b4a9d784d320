// SPDX-License-Identifier: Apache-2.0
// What all questions share: contestants are run interleaved, several times each; a table of medians and spread, and one
// closing line of ratios.
#pragma once

#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace contest {

/// Collects the samples of each contestant and prints the table in place of Google Benchmark's own lines.
class table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      const std::string name = run.run_name.function_name;
      if (!samples_.contains(name)) order_.push_back(name);
      samples_[name].push_back(run.GetAdjustedRealTime());
    }
  }
  void Finalize() override {
    std::printf("%-28s %12s %12s %12s %6s\n", "ns per item", "median", "lowest", "highest", "runs");
    for (const std::string& name : order_) {
      auto all = samples_[name];
      std::sort(all.begin(), all.end());
      std::printf("%-28s %12.1f %12.1f %12.1f %6zu\n", name.c_str(), median(name), all.front(), all.back(), all.size());
    }
  }

  double median(const std::string& name) const {
    const auto found = samples_.find(name);
    if (found == samples_.end()) return 0;
    auto all = found->second;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
  }
  /// The fastest of those that ran.
  double best(const std::vector<std::string>& names) const {
    double result = 0;
    for (const std::string& name : names) {
      const double one = median(name);
      if (one > 0 && (result == 0 || one < result)) result = one;
    }
    return result;
  }

 private:
  std::map<std::string, std::vector<double>> samples_;
  std::vector<std::string> order_;
};

inline std::string ratio(double ours, double theirs) {
  if (ours <= 0 || theirs <= 0) return "none";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", ours / theirs);
  return text;
}

/// The CPUs that the program was started with; asked for before any thread is pinned, since threads inherit the pin.
inline const cpu_set_t& allowed() {
  static const cpu_set_t mask = [] {
    cpu_set_t now;
    CPU_ZERO(&now);
    sched_getaffinity(0, sizeof(now), &now);
    return now;
  }();
  return mask;
}

/// Puts the calling thread on the n-th CPU that the program may run on, if there is one.
inline void pin(int n) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed()) || n-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    return;
  }
}

/// Runs everything that was registered, interleaved; `close(table)` prints the closing line.
template <class Close>
int run(int argc, char** argv, Close close) {
  allowed();
  std::vector<char*> arguments(argv, argv + argc);
  std::string interleaved = "--benchmark_enable_random_interleaving=true";
  std::string repetitions = "--benchmark_repetitions=7";
  arguments.insert(arguments.begin() + 1,
                   {interleaved.data(), repetitions.data()});  // the user's own come later, and count
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  table report;
  benchmark::RunSpecifiedBenchmarks(&report);
  close(report);
  return 0;
}

}  // namespace contest
