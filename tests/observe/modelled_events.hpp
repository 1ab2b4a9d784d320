// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include <penstock/observe/observer.hpp>

namespace penstock_test {

inline std::chrono::steady_clock::time_point modelled_now{};
inline std::chrono::steady_clock::time_point modelled_clock() { return modelled_now; }
inline std::chrono::system_clock::time_point modelled_wall_clock() {
  return std::chrono::system_clock::time_point{std::chrono::seconds{1'767'323'045}} +  // 2026-01-02 03:04:05 UTC
         std::chrono::duration_cast<std::chrono::system_clock::duration>(modelled_now.time_since_epoch());
}

/// Tells an observer of batches of 10 samples: each waited for, then computed on; then its loss is reported.
template <class Observer>
struct modelled_events {
  Observer& observer;
  std::chrono::nanoseconds wait{std::chrono::milliseconds{25}}, compute{std::chrono::milliseconds{75}};

  void batch(std::uint64_t epoch, std::uint64_t step) {
    modelled_now += wait;
    observer.on_batch({.epoch = epoch, .step = step, .samples = 10, .wait = wait});
    modelled_now += compute;
  }
  void report(std::uint64_t epoch, std::uint64_t step, double value, const char* name = "loss") {
    observer.on_metric({.name = name, .value = value, .epoch = epoch, .step = step});
  }
  /// The loss of a step is its number through all epochs of 4 steps.
  void steps(std::uint64_t epoch, std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step <= last; ++step) {
      batch(epoch, step);
      report(epoch, step, static_cast<double>(4 * epoch + step));
    }
  }
  void end_epoch(std::uint64_t epoch) { observer.on_epoch({.epoch = epoch}); }
};

inline std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace penstock_test
