// SPDX-License-Identifier: Apache-2.0
// The three stages that are overlapped, and what is known of them beforehand: how long each takes alone, and what no
// schedule can beat.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <penstock/channel/atomics.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/sample/schema.hpp>

namespace overlap {

using clock_type = std::chrono::steady_clock;
using std::chrono::nanoseconds;

inline double microseconds(nanoseconds time) { return static_cast<double>(time.count()) * 1e-3; }
inline nanoseconds from_microseconds(double time) { return nanoseconds(static_cast<nanoseconds::rep>(time * 1e3)); }

/// Reading is work of a processor, as decoding is: it takes its CPU until it is done.
inline void work_until(clock_type::time_point end) {
  while (clock_type::now() < end) penstock::std_atomics::pause();
}

/// What one batch takes in each stage, and how many batches a run has.
struct stage_times {
  nanoseconds read, copy, kernel;
  std::uint64_t batches;
};

struct sizes {
  std::size_t batch, row;  // samples, bytes
  int readers;             // 0: inline, by the consumer's own thread
  int threads() const { return std::max(readers, 1); }
  std::size_t bytes() const { return batch * row; }
  /// A batch takes `stage_times::read` with all readers at work, so a sample this.
  double nanoseconds_a_sample(const stage_times& times) const {
    return static_cast<double>(times.read.count()) * threads() / static_cast<double>(batch);
  }
};

/// For the calling thread and those that it starts: whether sleeps end when they were asked to, as far as the system
/// can, or when it suits the system, which is how a program begins.
inline void fine_timers(bool fine) { prctl(PR_SET_TIMERSLACK, fine ? 1 : 0); }

/// How late a sleep of 50 us returns: what the end of an operation is noticed late by where a thread sleeps for it.
inline nanoseconds measured_notice() {
  fine_timers(true);
  std::vector<nanoseconds> late(300);
  for (auto& one : late) {
    const auto end = clock_type::now() + std::chrono::microseconds(50);
    std::this_thread::sleep_until(end);
    one = clock_type::now() - end;
  }
  fine_timers(false);
  std::nth_element(late.begin(), late.begin() + 150, late.end());
  return late[150];
}

inline penstock::modelled_device make_device(const stage_times& times, nanoseconds notice) {
  return penstock::modelled_device(
      {.event_latency = std::chrono::microseconds(3), .notice = notice, .copy_time = times.copy, .poison = false});
}

/// Samples of one field, whose first word is the sample's number.
class dataset {
 public:
  using schema_type = penstock::schema<penstock::field<std::uint64_t, 1>>;

  dataset(const stage_times& times, const overlap::sizes& of)
      : samples_(times.batches * of.batch), words_(of.row / 8), per_sample_(of.nanoseconds_a_sample(times)) {}

  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    const auto begin = clock_type::now();
    const auto& rows = std::get<0>(to);
    for (std::size_t row = 0; row < indices.size(); ++row) rows(row, 0) = indices[row];
    work_until(begin + nanoseconds(static_cast<nanoseconds::rep>(per_sample_ * static_cast<double>(indices.size()))));
  }
  std::uint64_t size() const { return samples_; }
  schema_type schema() const { return schema_type{{"x", {words_}}}; }

 private:
  std::uint64_t samples_;
  std::size_t words_;
  double per_sample_;
};

/// A kernel's work: that the batches have arrived whole, each once, is checked by the sum of their samples' numbers.
class checksum {
 public:
  explicit checksum(const overlap::sizes& of) : rows_(of.batch), words_a_row_(of.row / 8) {}

  auto kernel(const void* batch) {
    return [this, words = static_cast<const std::uint64_t*>(batch)] {
      for (std::size_t row = 0; row < rows_; ++row) sum_ += words[row * words_a_row_];
    };
  }
  void forget() { sum_ = 0; }
  /// Throws unless samples 0 to `samples` - 1 were there.
  void check(std::uint64_t samples) const {
    const std::uint64_t wanted = samples % 2 == 0 ? samples / 2 * (samples - 1) : (samples - 1) / 2 * samples;
    if (sum_ != wanted)
      throw std::runtime_error("the samples' numbers add up to " + std::to_string(sum_) + ", wanted " +
                               std::to_string(wanted));
  }

 private:
  std::size_t rows_, words_a_row_;
  std::uint64_t sum_ = 0;
};

/// What one batch takes where the readers do nothing but read.
inline nanoseconds read_alone(const stage_times& times, const overlap::sizes& of) {
  const int rounds = std::max(3, static_cast<int>(std::chrono::milliseconds(4) / std::max(times.read, nanoseconds(1))));
  std::vector<nanoseconds> medians(static_cast<std::size_t>(of.threads()));
  const auto body = [&](std::size_t reader) {
    const dataset data(times, of);
    const std::size_t rows = of.batch / static_cast<std::size_t>(of.threads());
    std::vector<std::uint64_t> words(rows * of.row / 8), indices(rows);
    std::vector<nanoseconds> each;
    for (int round = 0; round < rounds; ++round) {
      const auto begin = clock_type::now();
      data.read_range(indices, {penstock::tensor_view<std::uint64_t, 2>(words.data(), {rows, of.row / 8})});
      each.push_back(clock_type::now() - begin);
    }
    std::nth_element(each.begin(), each.begin() + rounds / 2, each.end());
    medians[reader] = each[static_cast<std::size_t>(rounds / 2)];
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < medians.size(); ++i) others.emplace_back(body, i);
  body(0);
  for (auto& other : others) other.join();
  return *std::max_element(medians.begin(), medians.end());
}

/// The same of the engines, by the device's own time: copies, or kernels, and nothing else.
inline nanoseconds engine_alone(const stage_times& times, const overlap::sizes& of, bool copies) {
  const auto device = make_device(times, nanoseconds(0));
  const auto host = device.allocate_host(of.bytes());
  const auto memory = device.allocate(of.bytes());
  const auto stream = device.make_stream();
  auto first = device.make_event(), last = device.make_event();
  const int rounds = 5;
  for (int i = 0; i <= rounds; ++i) {
    if (copies)
      device.copy_to_device(memory.data(), host.data(), of.bytes(), stream.view());
    else
      stream.view().launch(times.kernel);
    if (i == 0) device.record(first, stream.view());
  }
  device.record(last, stream.view());
  stream.view().synchronize();
  return (device.completion(last) - device.completion(first)) / rounds;
}

/// The longest stage, measured alone.
inline nanoseconds longest_alone(const stage_times& times, const overlap::sizes& of) {
  return std::max({read_alone(times, of), engine_alone(times, of, true), engine_alone(times, of, false)});
}

/// No schedule with `depth` buffers on either side ends sooner: the first batch passes all stages, the others come one
/// by one as fast as the longest stage and the way of a buffer through its stages and back allow, and the end is
/// noticed late.
inline nanoseconds least_time(const stage_times& times, nanoseconds longest, nanoseconds notice, int depth) {
  const nanoseconds event = std::chrono::microseconds(3);
  const nanoseconds device_buffer = (times.copy + times.kernel + 2 * event) / depth;
  const nanoseconds host_buffer = (times.read + times.copy) / depth;
  const nanoseconds period = std::max({longest, device_buffer, host_buffer});
  return times.read + times.copy + event + times.kernel + notice +
         period * static_cast<nanoseconds::rep>(times.batches - 1);
}

}  // namespace overlap
