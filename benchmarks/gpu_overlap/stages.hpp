// SPDX-License-Identifier: Apache-2.0
// The three stages that are overlapped: what is read, how long each takes alone, and how a run is timed.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>

#include <machine.hpp>
#include <penstock/channel/atomics.hpp>
#include <penstock/device/cuda.hpp>
#include <penstock/sample/schema.hpp>

#include "kernels.hpp"

namespace gpu_overlap {

using clock_type = std::chrono::steady_clock;
using penstock::detail::cuda_check;
using std::chrono::nanoseconds;

inline double microseconds(nanoseconds time) { return static_cast<double>(time.count()) * 1e-3; }
inline nanoseconds from_microseconds(double time) { return nanoseconds(static_cast<nanoseconds::rep>(time * 1e3)); }

/// Reading is work of a processor, as decoding is: it takes its CPU until it is done.
inline void work_until(clock_type::time_point end) {
  while (clock_type::now() < end) penstock::std_atomics::pause();
}

/// What a step is. The copy's time is set by its bytes.
struct step_kind {
  static constexpr std::size_t rows = 16;

  std::size_t bytes;         // of a batch: whole rows of whole words
  nanoseconds read, kernel;  // 0: as little as there can be

  std::size_t words_a_row() const { return bytes / rows / sizeof(std::uint64_t); }
  /// `bytes`, rounded to whole rows of 256 bytes.
  static std::size_t round(double bytes) {
    return std::max<std::size_t>(static_cast<std::size_t>(bytes) / (rows * 256), 1) * rows * 256;
  }
};

/// A dataset whose samples are one row each; its first word is the sample's number, the others stay as they are. The
/// pages were touched before: what a read takes is `step_kind::read`, whatever the bytes.
class dataset {
 public:
  using schema_type = penstock::schema<penstock::field<std::uint64_t, 1>>;

  dataset(const step_kind& kind, std::uint64_t steps) : kind_(kind), steps_(steps) {}

  std::uint64_t size() const { return steps_ * step_kind::rows; }
  schema_type schema() const { return schema_type{{"x", {kind_.words_a_row()}}}; }
  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    const auto begin = clock_type::now();
    const auto& rows = std::get<0>(to);
    for (std::size_t row = 0; row < indices.size(); ++row) rows(row, 0) = indices[row];
    const auto share = static_cast<nanoseconds::rep>(indices.size());
    if (kind_.read.count() != 0)
      work_until(begin + kind_.read * share / static_cast<nanoseconds::rep>(step_kind::rows));
  }

 private:
  step_kind kind_;
  std::uint64_t steps_;
};

/// An event that knows its time.
class timed_event {
 public:
  timed_event() { cuda_check(cudaEventCreate(&event_), "cudaEventCreate"); }
  timed_event(const timed_event&) = delete;
  timed_event& operator=(const timed_event&) = delete;
  ~timed_event() { cudaEventDestroy(event_); }

  void record(cudaStream_t stream) { cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Both have completed.
  static nanoseconds between(const timed_event& first, const timed_event& last) {
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, first.event_, last.event_), "cudaEventElapsedTime");
    return nanoseconds(static_cast<nanoseconds::rep>(static_cast<double>(milliseconds) * 1e6));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// The sum of the samples' numbers, taken by the kernels: that the batches have arrived whole and in time, each once.
class checksum {
 public:
  explicit checksum(const penstock::cuda_device& device) : memory_(device.allocate(sizeof(unsigned long long))) {}

  unsigned long long* data() const { return reinterpret_cast<unsigned long long*>(memory_.data()); }
  void forget(cudaStream_t stream) {
    cuda_check(cudaMemsetAsync(data(), 0, sizeof(unsigned long long), stream), "cudaMemsetAsync");
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  /// After the kernels have completed. Throws unless samples 0 to `samples` - 1 were there.
  void check(std::uint64_t samples) const {
    unsigned long long found = 0;
    cuda_check(cudaMemcpy(&found, data(), sizeof(found), cudaMemcpyDeviceToHost), "cudaMemcpy");
    const std::uint64_t wanted = samples % 2 == 0 ? samples / 2 * (samples - 1) : (samples - 1) / 2 * samples;
    if (found != wanted)
      throw std::runtime_error("the samples' numbers add up to " + std::to_string(found) + ", wanted " +
                               std::to_string(wanted));
  }

 private:
  penstock::cuda_memory memory_;
};

struct outcome {
  nanoseconds period{};  // from the end of a step's kernel to that of the next one's, once the pipeline is full
  nanoseconds wall{};    // of a step, all told: filling and draining is in it
  double cores = 0;      // CPU time over time
};

/// Times a run of `steps` steps. The period is the device's own time, over the steps after the first `warm` ones.
class stopwatch {
 public:
  stopwatch(std::uint64_t warm, std::uint64_t steps) : warm_(warm), steps_(steps) {}

  void start() {
    used_ = contest::usage::now();
    begin_ = clock_type::now();
  }
  /// Step `k`'s kernel is enqueued.
  void step(std::uint64_t k, cudaStream_t stream) {
    if (k + 1 == warm_) first_.record(stream);
    if (k + 1 == steps_) last_.record(stream);
  }
  /// The last kernel has completed.
  outcome stop() const {
    const nanoseconds wall = clock_type::now() - begin_;
    const double cpu = (contest::usage::now() - used_).cpu_seconds;
    return {timed_event::between(first_, last_) / static_cast<nanoseconds::rep>(steps_ - warm_),
            wall / static_cast<nanoseconds::rep>(steps_), cpu / (static_cast<double>(wall.count()) * 1e-9)};
  }

 private:
  std::uint64_t warm_, steps_;
  timed_event first_, last_;
  contest::usage used_;
  clock_type::time_point begin_;
};

/// What `work()`, enqueued again and again on `stream`, takes each time where nothing else runs.
template <class Work>
nanoseconds engine_alone(Work work, int rounds, cudaStream_t stream) {
  timed_event first, last;
  for (int i = 0; i <= rounds; ++i) {
    work(i);
    if (i == 0) first.record(stream);
  }
  last.record(stream);
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return timed_event::between(first, last) / rounds;
}

}  // namespace gpu_overlap
