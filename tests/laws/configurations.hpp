// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/device/cpu.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/schedule/pipeline.hpp>

#if PENSTOCK_TEST_CUDA_DOUBLE
#include "../cuda_double/watch.hpp"
#elif PENSTOCK_TEST_CUDA
#include <penstock/device/cuda.hpp>
#endif

/// What the laws are run over: devices, and all that may not change which samples arrive.
namespace laws {

using penstock::last_batch;
using penstock::shuffle;

/// Slots are handed over, nothing is copied.
struct cpu {
  using device = penstock::cpu_device;
  static device make() { return {}; }
};
/// Slots are copied, in real time, so that copies are under way while others are read.
struct modelled {
  using device = penstock::modelled_device;
  static device make() {
    return device({.event_latency = std::chrono::microseconds(2), .copy_time = std::chrono::microseconds(20)});
  }
};

#if PENSTOCK_TEST_CUDA
/// An NVIDIA GPU, or what stands in for it.
struct cuda {
#if PENSTOCK_TEST_CUDA_DOUBLE
  using device = cuda_double::watched_device;
#else
  using device = penstock::cuda_device;
#endif
  static device make() { return device(0); }
};
#else
struct cuda;
#endif

/// The typed suites' types and how they are named.
#if PENSTOCK_TEST_CUDA_DOUBLE && defined(__SANITIZE_ADDRESS__)
using devices = testing::Types<cpu, cuda>;  // which takes the same ways as the modelled one
#elif PENSTOCK_TEST_CUDA_DOUBLE
using devices = testing::Types<cpu, modelled, cuda>;
#elif PENSTOCK_TEST_CUDA
using devices = testing::Types<cuda>;
#else
using devices = testing::Types<cpu, modelled>;
#endif
struct device_name {
  template <class Device>
  static std::string GetName(int) {
    return std::same_as<Device, cpu> ? "cpu" : std::same_as<Device, cuda> ? "cuda" : "modelled";
  }
};

/// A reader of the test's is stuck for good, and with it what it touches.
inline void leaves_a_reader_behind() {
#if PENSTOCK_TEST_CUDA_DOUBLE
  cuda_double::expect_some_alive();
#endif
}

/// The numbers at `data`, in the device's memory: there is a copy to read only on a GPU.
template <class T>
const T* readable(const T* data, [[maybe_unused]] std::size_t count) {
#if PENSTOCK_TEST_CUDA && !PENSTOCK_TEST_CUDA_DOUBLE
  thread_local std::vector<T> copy(1024);
  if (copy.size() < count) copy.resize(count);
  EXPECT_EQ(cudaMemcpy(copy.data(), data, count * sizeof(T), cudaMemcpyDefault), cudaSuccess);
  return copy.data();
#else
  return data;
#endif
}

struct configuration {
  int readers = 1;
  int depth = 2;
  shuffle how = shuffle::full;
  last_batch last = last_batch::keep;
  std::int64_t batch = 4;  ///< over all ranks
  penstock::world world{};
  std::uint64_t seed = 7;
};

inline std::string text(const configuration& of) {
  const char* const lasts[] = {"keep", "drop", "pad"};
  const std::string how = of.how.is_none() ? "none" : of.how.is_full() ? "full" : "blocks";
  return std::to_string(of.readers) + " readers, depth " + std::to_string(of.depth) + ", shuffle " + how +
         ", last batch " + lasts[static_cast<int>(of.last)] + ", rank " + std::to_string(of.world.rank) + " of " +
         std::to_string(of.world.size);
}

inline constexpr int all_readers[] = {0, 1, 2, 8};
inline constexpr int all_depths[] = {1, 2, 4};
inline constexpr shuffle all_shuffles[] = {shuffle::full, shuffle::none, shuffle::blocks(5)};
inline constexpr last_batch all_lasts[] = {last_batch::keep, last_batch::drop, last_batch::pad};

/// `body` for each number of readers and each depth, until something has failed.
template <class Body>
void for_each_schedule(Body&& body) {
  for (int readers : all_readers)
    for (int depth : all_depths) {
      configuration one{.readers = readers, .depth = depth};
      const testing::ScopedTrace trace(__FILE__, __LINE__, text(one));
      body(one);
      if (testing::Test::HasFailure()) return;
    }
}
/// The same, for each shuffle and policy, too.
template <class Body>
void for_each_configuration(Body&& body) {
  for (shuffle how : all_shuffles)
    for (last_batch last : all_lasts)
      for_each_schedule([&](configuration one) {
        one.how = how;
        one.last = last;
        const testing::ScopedTrace trace(__FILE__, __LINE__, text(one));
        body(one);
      });
}

/// Called for each sample that is read; does nothing.
struct no_hook {
  void operator()(std::uint64_t, penstock::read_context&) const {}
};

/// `n` samples, each its number and a row of three values that follow from it. `hook` is called before each is written.
template <class Hook = no_hook>
struct samples {
  using schema_type = penstock::schema<penstock::field<std::uint64_t>, penstock::field<float, 1>>;

  std::uint64_t n = 0;
  Hook hook{};

  std::uint64_t size() const { return n; }
  schema_type schema() const {
    return schema_type{penstock::field<std::uint64_t>{"id"}, penstock::field<float, 1>{"values", {3}}};
  }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to, penstock::read_context& context) const {
    hook(index, context);
    const auto& [id, values] = to;
    id() = index;
    for (std::size_t i = 0; i < 3; ++i) values[i] = value(index, i);
#if PENSTOCK_TEST_CUDA_DOUBLE
    cuda_double::host_access(cuda_double::writes(id.data(), sizeof(std::uint64_t)), "a reader");
    cuda_double::host_access(cuda_double::writes(values.data(), 3 * sizeof(float)), "a reader");
#endif
  }
  static float value(std::uint64_t index, std::size_t i) { return static_cast<float>(index * 3 + i) + 0.5F; }
};
template <class Hook>
samples(std::uint64_t, Hook) -> samples<Hook>;

using schema_type = samples<>::schema_type;

/// A pipeline up to `transfer`; `read` is a whole stage where its options matter.
template <class Dataset, class Device, class Read>
auto pipeline_of(const Dataset& data, const Device& device, const configuration& one, Read read) {
  read.options.readers = one.readers;
  return data | penstock::partition({.seed = one.seed, .shuffle = one.how, .world = one.world}) | std::move(read) |
         penstock::batch({.global = one.batch, .last = one.last}) | penstock::transfer(device, {.depth = one.depth});
}
template <class Dataset, class Device>
auto feed_of(const Dataset& data, const Device& device, const configuration& one, penstock::read_options options = {}) {
  return pipeline_of(data, device, one, penstock::read(std::move(options))).start();
}

/// What was received of one batch.
struct delivered {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::size_t rows = 0;
  std::vector<std::uint64_t> indices{};
  bool operator==(const delivered&) const = default;
};
inline void PrintTo(const delivered& one, std::ostream* out) {
  *out << "epoch " << one.epoch << " step " << one.step << ", " << one.rows << " rows:";
  for (std::uint64_t index : one.indices) *out << ' ' << index;
}

/// Receives: all work up to now on the batch's stream is done, and its fields hold the samples that it says.
template <class Batch>
delivered take(Batch& batch) {
  batch.stream().synchronize();
  const auto [id, values] = batch.fields();
  const auto held = batch.indices();
  EXPECT_EQ(id.extent(0), batch.rows());
  EXPECT_EQ(values.extent(1), 3U);
  const auto* const ids = readable(id.data(), id.size());
  const auto* const all = readable(values.data(), values.size());
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    const bool real = row < batch.size();
    EXPECT_EQ(ids[row], real ? held[row] : 0) << "row " << row;
    EXPECT_EQ(batch.template host<0>()[row], real ? held[row] : 0) << "row " << row;
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(all[row * 3 + i], real ? samples<>::value(held[row], i) : 0) << "row " << row << ", value " << i;
  }
  return {batch.epoch(), batch.step(), batch.rows(), {held.begin(), held.end()}};
}

/// All batches of one epoch.
template <class Feed>
std::vector<delivered> epoch_of(Feed& feed, std::uint64_t number) {
  std::vector<delivered> result;
  for (auto& batch : feed.epoch(number)) result.push_back(take(batch));
  return result;
}

/// What an epoch has to be, from the plan alone, which knows nothing of readers, depth and device.
inline std::vector<delivered> planned(std::uint64_t n, const configuration& one, std::uint64_t epoch) {
  std::vector<std::uint64_t> order(n);
  penstock::default_plan(n, one.how).order(one.seed, epoch, 0, order);
  const auto batch = static_cast<std::uint64_t>(one.batch);
  const std::uint64_t capacity = (batch + one.world.size - 1) / one.world.size;
  std::vector<delivered> result;
  for (std::uint64_t first = 0; first < n; first += batch) {
    const std::uint64_t count = n - first < batch ? n - first : batch;
    if (count < batch && one.last == last_batch::drop) break;
    const auto mine = penstock::rank_share(first, count, one.world);
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(mine.first);
    result.push_back({epoch,
                      first / batch,
                      static_cast<std::size_t>(one.last == last_batch::pad ? capacity : mine.count),
                      {begin, begin + static_cast<std::ptrdiff_t>(mine.count)}});
  }
  return result;
}

}  // namespace laws
