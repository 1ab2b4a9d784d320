// SPDX-License-Identifier: Apache-2.0
// What a step costs the host, and how late the end of a copy is noticed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "contestants.hpp"

namespace gpu_overlap {

inline double middle(std::vector<double> of) {
  const auto half = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), half, of.end());
  return *half;
}

/// CPU time of the calling thread.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct host_cost {
  double step_us = 0;    // outside of the loop's body, the median of steps
  double mean_us = 0;    // the same on average
  double cpu_us = 0;     // the thread's CPU time, the body's left out
  double launch_us = 0;  // the body: the launch of a kernel that does nothing
};

/// Times what lies between the bodies of a loop. Now and then a body waits until the device has done all: so the host
/// has nothing to wait for in between, and what is timed is work.
class host_watch {
 public:
  static constexpr std::uint64_t burst = 24;

  explicit host_watch(std::uint64_t steps) { between_.reserve(steps); }

  void body(cudaStream_t stream) {
    const auto begin = clock_type::now();
    const double cpu_begin = thread_seconds();
    if (step_ > 1) {  // not what the beginning took
      between_.push_back(microseconds(begin - left_));
      cpu_ += cpu_begin - cpu_left_;
    }
    const auto before = clock_type::now();
    launch_nothing(stream);
    launches_ += microseconds(clock_type::now() - before);
    if (++step_ % burst == 0) cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    cpu_left_ = thread_seconds();
    left_ = clock_type::now();
  }
  host_cost result() const {
    const auto steps = static_cast<double>(between_.size());
    double sum = 0;
    for (const double one : between_) sum += one;
    return {middle(between_), sum / steps, cpu_ * 1e6 / steps, launches_ / static_cast<double>(step_)};
  }

 private:
  std::vector<double> between_;
  std::uint64_t step_ = 0;
  double cpu_ = 0, cpu_left_ = 0, launches_ = 0;
  clock_type::time_point left_;
};

/// Waits of `length` for a copy of one word to the host, whose arrival a second thread watches: how much later than
/// that `wait(event)` returns.
class notice {
 public:
  explicit notice(const penstock::cuda_device& device)
      : device_(device),
        stream_(device.make_stream()),
        from_(device.allocate(sizeof(std::uint64_t))),
        to_(device.allocate_host(sizeof(std::uint64_t))) {}

  /// Microseconds, the median of `rounds`.
  template <class Record, class Wait>
  double measure(nanoseconds length, int rounds, Record record, Wait wait) {
    std::atomic_ref<std::uint64_t> arrived(*reinterpret_cast<std::uint64_t*>(to_.data()));
    std::atomic<std::uint64_t> asked{0}, seen{0};
    clock_type::time_point when;
    std::thread watching([&] {
      for (std::uint64_t round = 1; round <= static_cast<std::uint64_t>(rounds); ++round) {
        while (asked.load(std::memory_order_acquire) < round) penstock::std_atomics::pause();
        while (arrived.load(std::memory_order_acquire) != base_ + round) {
        }
        when = clock_type::now();
        seen.store(round, std::memory_order_release);
      }
    });
    std::vector<double> late;
    for (std::uint64_t round = 1; round <= static_cast<std::uint64_t>(rounds); ++round) {
      asked.store(round, std::memory_order_release);
      launch_signal(reinterpret_cast<std::uint64_t*>(from_.data()), base_ + round, length, stream_.view());
      device_.copy_to_host(to_.data(), from_.data(), sizeof(std::uint64_t), stream_.view());
      record(cudaStream_t{stream_.view()});
      wait();
      const auto returned = clock_type::now();
      while (seen.load(std::memory_order_acquire) < round) penstock::std_atomics::pause();
      late.push_back(microseconds(returned - when));
    }
    watching.join();
    base_ += static_cast<std::uint64_t>(rounds);
    return middle(std::move(late));
  }

  double by_us(nanoseconds length, int rounds) {
    auto event = device_.make_event();
    return measure(
        length, rounds, [&](cudaStream_t stream) { device_.record(event, stream); },
        [&] { device_.wait(event, [] { return false; }, clock_type::time_point::max()); });
  }
  /// Awake all the time: the least that there is.
  double awake(nanoseconds length, int rounds) {
    auto event = device_.make_event();
    return measure(
        length, rounds, [&](cudaStream_t stream) { device_.record(event, stream); },
        [&] {
          while (!device_.ready(event)) penstock::std_atomics::pause();
        });
  }
  /// As the driver lets a thread sleep.
  double blocking(nanoseconds length, int rounds) {
    cudaEvent_t event = nullptr;
    cuda_check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
    const double result = measure(
        length, rounds, [&](cudaStream_t stream) { cuda_check(cudaEventRecord(event, stream), "cudaEventRecord"); },
        [&] { cuda_check(cudaEventSynchronize(event), "cudaEventSynchronize"); });
    cuda_check(cudaEventDestroy(event), "cudaEventDestroy");
    return result;
  }

 private:
  penstock::cuda_device device_;
  penstock::cuda_stream stream_;
  penstock::cuda_memory from_;
  penstock::cuda_host_memory to_;
  std::uint64_t base_ = 0;
};

}  // namespace gpu_overlap
