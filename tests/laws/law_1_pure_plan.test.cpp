// SPDX-License-Identifier: Apache-2.0
// Law 1: which samples make step k of epoch e on rank r is a function of (seed, epoch, world, rank, k), and of nothing
// else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "configurations.hpp"

namespace {

using namespace laws;

template <class Device>
class law_1 : public testing::Test {};
TYPED_TEST_SUITE(law_1, devices, device_name);

std::vector<std::uint64_t> sorted_indices(const std::vector<delivered>& batches) {
  std::vector<std::uint64_t> all;
  for (const delivered& batch : batches) all.insert(all.end(), batch.indices.begin(), batch.indices.end());
  std::sort(all.begin(), all.end());
  return all;
}

TYPED_TEST(law_1, batches_are_the_plans_for_any_readers_depth_and_device) {
  const samples<> data{23};
  for_each_configuration([&](const configuration& one) {
    auto feed = feed_of(data, TypeParam::make(), one);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      ASSERT_EQ(epoch_of(feed, epoch), planned(data.n, one, epoch));
      ASSERT_EQ(feed.steps_per_epoch(), planned(data.n, one, epoch).size());
    }
  });
}

TYPED_TEST(law_1, any_epoch_can_be_asked_for_in_any_order_and_again) {
  const samples<> data{23};
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(data, TypeParam::make(), one);
    for (std::uint64_t epoch : {5U, 5U, 0U, 1U, 1U << 30U})
      ASSERT_EQ(epoch_of(feed, epoch), planned(data.n, one, epoch));
  });
}

// ORD-3
TYPED_TEST(law_1, ORD_3_epochs_differ_and_so_do_seeds) {
  const samples<> data{22};
  configuration one{.readers = 2};
  auto feed = feed_of(data, TypeParam::make(), one);
  const auto indices_of = [](const std::vector<delivered>& batches) {
    std::vector<std::uint64_t> all;
    for (const delivered& batch : batches) all.insert(all.end(), batch.indices.begin(), batch.indices.end());
    return all;
  };
  const auto first = indices_of(epoch_of(feed, 0)), second = indices_of(epoch_of(feed, 1)),
             third = indices_of(epoch_of(feed, 2));
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  EXPECT_NE(first, third);
  one.seed = 8;
  auto other = feed_of(data, TypeParam::make(), one);
  EXPECT_NE(indices_of(epoch_of(other, 0)), first);
}

// COV-1, COV-2
TYPED_TEST(law_1, COV_1_ranks_are_disjoint_and_complete_and_a_step_is_the_same_set_for_every_world) {
  const samples<> data{23};
  for (shuffle how : all_shuffles)
    for (std::int64_t batch : {4, 10}) {
      const auto whole = planned(data.n, {.how = how, .batch = batch}, 1);
      for (std::uint64_t size = 1; size <= 4; ++size) {
        std::vector<std::vector<delivered>> ranks;
        for (std::uint64_t rank = 0; rank < size; ++rank) {
          const configuration one{.readers = 2, .how = how, .batch = batch, .world = {rank, size}};
          SCOPED_TRACE(text(one));
          auto feed = feed_of(data, TypeParam::make(), one);
          ranks.push_back(epoch_of(feed, 1));
          ASSERT_EQ(ranks.back(), planned(data.n, one, 1));
          ASSERT_EQ(ranks.back().size(), whole.size());
        }
        std::vector<delivered> together;
        for (std::size_t step = 0; step < whole.size(); ++step) {
          std::vector<delivered> parts;
          for (const auto& rank : ranks) parts.push_back(rank[step]);
          ASSERT_EQ(sorted_indices(parts), sorted_indices({whole[step]}))
              << "step " << step << " of " << size << " ranks";
          together.insert(together.end(), parts.begin(), parts.end());
        }
        std::vector<std::uint64_t> all(data.n);
        std::iota(all.begin(), all.end(), 0U);
        ASSERT_EQ(sorted_indices(together), all);
      }
    }
}

TEST(law_1, a_plan_of_ones_own_is_followed_and_may_be_longer_than_the_dataset) {
  struct twice_backwards {
    std::uint64_t n;
    std::uint64_t size() const { return 2 * n; }
    void order(std::uint64_t, std::uint64_t epoch, std::uint64_t first, std::span<std::uint64_t> out) const {
      for (std::uint64_t& index : out) index = (2 * n - 1 - first++ + epoch) % n;
    }
  };
  const samples<> data{7};
  auto feed = (data | penstock::partition(twice_backwards{7}) | penstock::read({.readers = 2}) | penstock::batch(4) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::vector<std::uint64_t> all;
  for (auto& batch : feed.epoch(1)) {
    const auto one = take(batch);
    all.insert(all.end(), one.indices.begin(), one.indices.end());
  }
  EXPECT_EQ(all, (std::vector<std::uint64_t>{0, 6, 5, 4, 3, 2, 1, 0, 6, 5, 4, 3, 2, 1}));
}

}  // namespace
