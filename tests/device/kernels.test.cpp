// SPDX-License-Identifier: Apache-2.0
// What kernels compute, on the host: thread by thread as the kernels do and, where CUDA's headers are, by Thrust's host
// backend and of half floats.
// ctest: no tsan: one thread
#if __has_include(<thrust/execution_policy.h>) && __has_include(<cuda_fp16.h>)
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <cuda_fp16.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/transform_reduce.h>
#define HAS_THRUST 1
#else
#define HAS_THRUST 0
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <ranges>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/device/cast_normalise.hpp>
#include <penstock/device/fold_rows.hpp>
#include <penstock/penstock.hpp>

namespace {

using penstock::detail::fold_shape;

/// The squared error of a line, a row's part of a loss.
struct squared_error {
  const float* x;
  const float* y;
  float slope, offset;
  PENSTOCK_HOST_DEVICE float operator()(std::size_t row) const {
    const float error = slope * x[row] + offset - y[row];
    return error * error;
  }
};
struct maximum {
  PENSTOCK_HOST_DEVICE float operator()(float a, float b) const { return a < b ? b : a; }
};

struct points {
  std::vector<float> x, y;
  explicit points(std::size_t n) : x(n), y(n) {
    for (std::size_t i = 0; i < n; ++i) {
      penstock::philox random(11, 0, i);
      x[i] = random.uniform();
      y[i] = 2 * x[i] + 1 + random.normal();
    }
  }
  squared_error errors() const { return {x.data(), y.data(), 1.5f, 0.25f}; }
  double reference() const {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(1.5 * double{x[i]} + 0.25 - double{y[i]}, 2);
    return sum;
  }
};

/// What the fold's kernels do with one epoch of batches, in their order of blocks and threads.
template <class Operation>
float as_on_device(const std::vector<points>& batches, float initial, const Operation& operation) {
  std::vector<float> accumulators;
  for (const points& batch : batches) {
    const std::size_t rows = batch.x.size();
    const unsigned blocks = fold_shape::blocks(rows);
    const std::size_t threads = std::size_t{blocks} * fold_shape::threads;
    for (unsigned block = 0; block < blocks; ++block) {
      std::vector<float> values;
      for (unsigned thread = 0; thread < fold_shape::busy(rows, block); ++thread)
        values.push_back(penstock::detail::fold_rows(batch.errors(), std::size_t{block} * fold_shape::threads + thread,
                                                     threads, rows, operation));
      const float value = std::accumulate(values.begin() + 1, values.end(), values.front(), operation);
      if (block < accumulators.size())
        accumulators[block] = operation(accumulators[block], value);
      else
        accumulators.push_back(value);
    }
  }
  return std::accumulate(accumulators.begin(), accumulators.end(), initial, operation);
}

TEST(FoldRows, deals_every_row_to_one_thread) {
  for (const std::size_t rows : {1UL, 255UL, 256UL, 257UL, 262143UL, 262144UL, 262145UL, 700001UL}) {
    const unsigned blocks = fold_shape::blocks(rows);
    const std::size_t threads = std::size_t{blocks} * fold_shape::threads;
    EXPECT_LE(blocks, fold_shape::most_blocks);
    std::size_t seen = 0;
    for (unsigned block = 0; block < blocks; ++block) {
      EXPECT_GE(fold_shape::busy(rows, block), 1U) << "a block of " << rows << " rows has nothing to do";
      for (unsigned thread = 0; thread < fold_shape::busy(rows, block); ++thread)
        seen += penstock::detail::fold_rows([](std::size_t) { return std::size_t{1}; },
                                            std::size_t{block} * fold_shape::threads + thread, threads, rows,
                                            penstock::plus{});
    }
    EXPECT_EQ(seen, rows);
  }
}

TEST(FoldRows, equals_the_reference_over_batches_of_any_size) {
  std::vector<points> batches;
  double reference = 100;
  float largest = 0;
  for (const std::size_t rows : {300UL, 5000UL, 1UL, 5000UL, 300000UL, 17UL}) {
    batches.emplace_back(rows);
    reference += batches.back().reference();
    for (std::size_t i = 0; i < rows; ++i) largest = std::max(largest, batches.back().errors()(i));
  }
  EXPECT_NEAR(as_on_device(batches, 100, penstock::plus{}), reference, 1e-5 * reference);
  EXPECT_EQ(as_on_device(batches, 0, maximum{}), largest);
  EXPECT_EQ(as_on_device(batches, 1e9f, maximum{}), 1e9f) << "what the fold begins with is part of it";
}

#if HAS_THRUST
TEST(FoldRows, functions_and_operations_run_on_thrust_s_host_backend) {
  const points batch(5000);
  const thrust::counting_iterator<std::size_t> first(0);
  const auto last = first + 5000;
  EXPECT_NEAR(thrust::transform_reduce(thrust::host, first, last, batch.errors(), 0.0f, penstock::plus{}),
              batch.reference(), 1e-4 * batch.reference());
  EXPECT_EQ(thrust::transform_reduce(thrust::host, first, last, batch.errors(), 0.0f, maximum{}),
            as_on_device({batch}, 0, maximum{}));
}

/// The fold of each batch by Thrust, as an operation of `reduce` that `run` drives.
struct thrust_fold {
  double* scale;
  template <class Batch>
  void operator()(float& sum, Batch& batch) const {
    auto [x, y] = batch.fields();
    const thrust::counting_iterator<std::size_t> first(0);
    sum = thrust::transform_reduce(thrust::host, first, first + static_cast<std::ptrdiff_t>(batch.size()),
                                   squared_error{x.data(), y.data(), 1.5f, 0.25f}, sum, penstock::plus{});
  }
  double finish(float sum) const { return double{sum} * *scale; }
};

TEST(FoldRows, reduce_runs_on_thrust_s_host_backend) {
  const points all(1000);
  const auto rows = std::views::iota(std::size_t{0}, all.x.size()) |
                    std::views::transform([&](std::size_t i) { return std::tuple{all.x[i], all.y[i]}; });
  double scale = 1.0 / 1000;
  const auto result =
      penstock::run(rows | penstock::partition({.seed = 5}) | penstock::read({.readers = 1}) | penstock::batch(96) |
                        penstock::transfer(penstock::cpu_device{}) | penstock::reduce(0.0f, thrust_fold{&scale}),
                    {.epochs = 2});
  ASSERT_EQ(result.epochs.size(), 2U);
  const double mean = all.reference() / 1000;
  for (const double value : result.epochs) EXPECT_NEAR(value, mean, 1e-5 * mean);
}

#endif

template <class From>
class CastNormalise : public testing::Test {};
#if HAS_THRUST
using element_types = testing::Types<std::uint8_t, __half, float>;
#else
using element_types = testing::Types<std::uint8_t, float>;
#endif
TYPED_TEST_SUITE(CastNormalise, element_types);

/// All threads' parts, and the reference of the largest error in units of the reference's last place.
template <std::size_t Width, class From>
void check(penstock::channel_order order, std::size_t samples, std::size_t threads) {
  const std::size_t n = samples * order.sample();
  std::vector<float> mean, scale;
  for (std::uint32_t channel = 0; channel < order.channels; ++channel) {
    mean.push_back(100 + 7.25f * static_cast<float>(channel));
    scale.push_back(1 / (50 + 3.5f * static_cast<float>(channel)));
  }
  // Aligned as a batch's fields are.
  std::vector<penstock::detail::neighbours<From, 4>> from((n + 3) / 4);
  std::vector<penstock::detail::neighbours<float, 4>> to(from.size());
  From* const in = from.data()->element;
  float* const out = to.data()->element;
  penstock::philox random(3, 0, n);
  for (std::size_t i = 0; i < from.size() * 4; ++i) {
    from[i / 4].element[i % 4] = static_cast<From>(static_cast<float>(random.below(256)));
    to[i / 4].element[i % 4] = -1e9f;
  }
  const penstock::cast_normalise convert{mean.data(), scale.data(), order};
  for (std::size_t thread = 0; thread < threads; ++thread)
    convert.template part<Width>(in, out, n, thread, threads, {order, Width * threads});
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t channel = i / order.inner % order.channels;
    const double x = static_cast<double>(static_cast<float>(from[i / 4].element[i % 4]));
    const double reference = (x - double{mean[channel]}) * double{scale[channel]};
    ASSERT_NEAR(to[i / 4].element[i % 4], reference, 1e-6 * (1 + std::abs(reference)))
        << "element " << i << " of " << n << ", " << order.channels << " channels in runs of " << order.inner << ", "
        << threads << " threads";
  }
  for (std::size_t i = n; i < to.size() * 4; ++i) EXPECT_EQ(to[i / 4].element[i % 4], -1e9f) << "beyond the end";
}

TYPED_TEST(CastNormalise, equals_the_reference_for_any_order_of_channels_and_number_of_threads) {
  for (const std::size_t threads : {1UL, 3UL, 32UL, 1024UL})
    for (const std::size_t samples : {1UL, 2UL, 37UL}) {
      check<4, TypeParam>({3, 1}, samples, threads);
      check<1, TypeParam>({3, 1}, samples, threads);
      check<4, TypeParam>({3, 35}, samples, threads);
      check<1, TypeParam>({3, 35}, samples, threads);
      check<4, TypeParam>({1, 1}, samples, threads);
      check<4, TypeParam>({1, 5}, samples, threads);
      check<4, TypeParam>({17, 2}, samples, threads);
    }
}

TEST(ChannelCursor, agrees_with_the_divisions) {
  penstock::philox random(1, 0, 0);
  for (int i = 0; i < 20000; ++i) {
    const penstock::channel_order order{1 + random.below(9U), 1 + random.below(i % 2 == 0 ? 9U : 0xFFFFFFFEU)};
    const std::size_t from = random.below(std::size_t{1} << 50);
    const std::size_t by = random.below(std::size_t{1} << 50);
    penstock::detail::channel_cursor at(order, from);
    at.advance(order, {order, by});
    const penstock::detail::channel_cursor expected(order, from + by);
    ASSERT_EQ(at.channel, expected.channel) << from << " + " << by;
    ASSERT_EQ(at.within, expected.within) << from << " + " << by;
    at.next(order);
    const penstock::detail::channel_cursor after(order, from + by + 1);
    ASSERT_EQ(at.channel, after.channel);
    ASSERT_EQ(at.within, after.within);
  }
}

}  // namespace
