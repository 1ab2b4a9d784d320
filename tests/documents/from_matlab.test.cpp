// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: what it calls is tested elsewhere
// ctest: no asan: what it calls is tested elsewhere
// The right-hand sides of the README's table "From MATLAB", compiled and run. tests/documents/check.cmake holds the two
// together: each code of the table stands here.
#include <array>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/zip.hpp>

#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

namespace {

using namespace penstock;

using row = std::tuple<std::array<double, 2>, float>;

std::vector<row> rows(std::size_t count) {
  std::vector<row> result;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(i);
    result.push_back({{x, 2 * x}, 3 * x});
  }
  return result;
}

std::size_t samples_of(auto&& feed) {
  std::size_t samples = 0;
  for (auto& batch : feed.epoch(0)) samples += batch.size();
  return samples;
}

const cpu_device device;

TEST(from_matlab, minibatchqueue_with_its_members) {
  const auto ds = rows(1000);
  auto f = (ds | partition() | read() | batch(256) | transfer(device)).start();
  std::size_t samples = 0;
  while (auto batch = f.next()) {
    auto [x, y] = batch.fields();
    EXPECT_EQ(3.0 * x(0, 0), y(0));
    samples += batch.size();
  }
  EXPECT_EQ(samples, 1000u);
  const std::uint64_t e = 3;
  std::size_t steps = 0;
  for (auto& batch : f.epoch(e)) steps += batch.epoch() == 3;
  EXPECT_EQ(steps, 4u);
}

TEST(from_matlab, partition_and_shuffle) {
  const auto ds = rows(1000);
  EXPECT_EQ(samples_of(ds | partition({.seed = 7}) | read() | batch(256) | transfer(device)), 1000u);
  const std::uint64_t n = 3;
  std::size_t samples = 0;
  for (std::uint64_t i = 0; i < n; ++i)
    samples += samples_of(ds | partition({.world = {.rank = i, .size = n}}) | read() | batch(256) | transfer(device));
  EXPECT_EQ(samples, 1000u);
}

TEST(from_matlab, options_of_the_queue) {
  const auto ds = rows(1000);
  auto cast_to_single = ds | partition() | read() | batch(256, cast<float, keep>) | transfer(device);
  for (auto& batch : cast_to_single.epoch(0)) {
    static_assert(std::same_as<decltype(batch.get<0>())::element_type, float>);
    EXPECT_EQ(batch.size(), batch.step() == 3 ? 232u : 256u);
  }
  const std::vector<std::vector<float>> sequences{{1}, {1, 2}, {1, 2, 3}};
  EXPECT_EQ(samples_of(sequences | partition() | read() | batch(256, pad_to({.length = 64})) | transfer(device)), 3u);
  EXPECT_EQ(samples_of(ds | partition() | read() | batch({.size = 256, .last = last_batch::drop}) | transfer(device)),
            768u);
  EXPECT_EQ(samples_of(ds | partition() | read({.readers = 4}) | batch(256) | transfer(device)), 1000u);
}

TEST(from_matlab, transforms_and_combinations) {
  const auto ds = rows(1000);
  const auto fcn = [](const row& one) { return std::get<1>(one); };
  EXPECT_EQ(samples_of((ds | std::views::transform(fcn)) | partition() | read() | batch(256) | transfer(device)),
            1000u);
  const auto augment = [](const auto& sample, philox& random) { std::get<1>(sample)() += random.uniform(); };
  EXPECT_EQ(samples_of(ds | partition() | read({.readers = 2}, augment) | batch(256) | transfer(device)), 1000u);
  const std::vector<float> a(100), b(100);
  EXPECT_EQ(samples_of(ranges::views::zip(a, b) | partition() | read() | batch(256) | transfer(device)), 100u);
  EXPECT_EQ(samples_of((ds | std::views::take(100)) | partition() | read() | batch(256) | transfer(device)), 100u);
  const range_dataset table(rows(1000));
  const auto [train, validation, test] = split(table, {.validation = 0.1, .test = 0.2});
  EXPECT_EQ(train.size(), 700u);
  EXPECT_EQ(validation.size(), 100u);
  EXPECT_EQ(test.size(), 200u);
}

TEST(from_matlab, gop_over_batches) {
  const auto ds = rows(1000);
  const auto size = [](auto& batch) { return static_cast<double>(batch.size()); };
  auto p = ds | partition() | read() | batch(256) | transfer(device) | compute(size) | reduce(0.0, std::plus<>{});
  EXPECT_EQ(run(p).value(), 1000.0);
}

TEST(from_matlab, spmd_and_what_workers_say_to_each_other) {
  const auto ds = rows(1000);
  std::vector<std::uint64_t> ranks(4);
  replicas(4, [&](auto& replica) {
    ranks[replica.rank()] = replica.size();
    std::vector<double> x(3, 2);
    replica.sum(x);
    EXPECT_EQ(x[2], 8);
    std::vector<float> parameters(2, static_cast<float>(replica.rank()));
    replica.broadcast(0, {}, parameters);
    EXPECT_EQ(parameters[1], 0);
    replica.barrier();
    auto f = replica.start(ds | partition({.world = replica}) | read() | batch({.global = 256}) | transfer(device));
    std::size_t steps = 0;
    for (auto& batch : f.epoch(0)) {
      std::vector<float> gradient(2, 1), most(1, static_cast<float>(replica.rank()));
      replica.all_reduce(batch, gradient, buffer(most, reduction::maximum));
      EXPECT_EQ(most[0], 3);
      ++steps;
    }
    EXPECT_EQ(steps, 4u);
  });
  EXPECT_EQ(ranks, std::vector<std::uint64_t>(4, 4));
}

}  // namespace
