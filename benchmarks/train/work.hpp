// SPDX-License-Identifier: Apache-2.0
// What a training does here: reading and steps that take a stated time, as a wait or as work of the processor.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <tuple>
#include <vector>

#include <penstock/sample/schema.hpp>

namespace train {

using clock_type = std::chrono::steady_clock;
using std::chrono::nanoseconds;

inline nanoseconds from_microseconds(double time) { return nanoseconds(static_cast<nanoseconds::rep>(time * 1e3)); }
inline double microseconds(nanoseconds time) { return static_cast<double>(time.count()) * 1e-3; }
/// For the calling thread and those that it starts: sleeps end when they were asked to, as far as the system can.
inline void fine_timers() { prctl(PR_SET_TIMERSLACK, 1); }

/// How late a sleep of 50 us returns: what the end of an operation is noticed late by where a thread sleeps for it.
inline nanoseconds measured_notice() {
  std::vector<nanoseconds> late(300);
  for (auto& one : late) {
    const auto end = clock_type::now() + std::chrono::microseconds(50);
    std::this_thread::sleep_until(end);
    one = clock_type::now() - end;
  }
  std::nth_element(late.begin(), late.begin() + 150, late.end());
  return late[150];
}

/// Arithmetic on every value, `passes` times, as decoding and small networks are: one iteration of Newton's method for
/// a cube root, which vectorises and stays within the cache.
inline void grind(std::span<float> values, int passes) {
  for (int pass = 0; pass < passes; ++pass)
    for (float& value : values) value = value - 0.3333f * (value - 2.0f / (value * value + 0.5f));
}
/// How many passes over `values` take `time`: the fastest of several tries, since others can only slow it.
inline int passes_for(nanoseconds time, std::span<float> values) {
  nanoseconds best = nanoseconds::max();
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto begin = clock_type::now();
    grind(values, 10);
    best = std::min<nanoseconds>(best, clock_type::now() - begin);
  }
  return std::max(1, static_cast<int>(10 * time.count() / std::max<std::int64_t>(1, best.count())));
}

/// Rows of 256 numbers. Reading a batch of `batch` takes `wait`, during which no CPU is used, as of a disk or a server,
/// or `passes` of work.
class dataset {
 public:
  static constexpr std::size_t row = 256;
  using schema_type = penstock::schema<penstock::field<float, 1>>;

  dataset(std::uint64_t samples, std::size_t batch, nanoseconds wait, int passes)
      : samples_(samples), batch_(batch), wait_(wait), passes_(passes) {}

  std::uint64_t size() const { return samples_; }
  schema_type schema() const { return schema_type{{"x", {row}}}; }
  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    const auto begin = clock_type::now();
    const auto& rows = std::get<0>(to);
    for (std::size_t i = 0; i < indices.size(); ++i)
      std::fill_n(rows.data() + i * row, row, 1 + 1e-3f * static_cast<float>(indices[i] % 1000));
    grind({rows.data(), indices.size() * row}, passes_);
    const auto share = wait_ * static_cast<std::int64_t>(indices.size()) / static_cast<std::int64_t>(batch_);
    if (share.count() > 0) std::this_thread::sleep_until(begin + share);
  }

 private:
  std::uint64_t samples_;
  std::size_t batch_;
  nanoseconds wait_;
  int passes_;
};

}  // namespace train
