// SPDX-License-Identifier: Apache-2.0
// Law 2: everything is allocated before the first step; after it nothing is, by no thread, over any number of epochs.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "../support/counted_allocations.hpp"
#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;

template <class Device>
class law_2 : public testing::Test {};
TYPED_TEST_SUITE(law_2, devices, device_name);

/// What the batches of an epoch hold, without allocating.
template <class Feed>
std::uint64_t sum_of(Feed& feed, std::uint64_t epoch) {
  std::uint64_t sum = 0;
  for (auto& batch : feed.epoch(epoch)) {
    batch.stream().synchronize();
    const auto [id, values] = batch.fields();
    const auto* const ids = readable(id.data(), batch.size());
    for (std::size_t row = 0; row < batch.size(); ++row) sum += ids[row];
  }
  return sum;
}

TEST(law_2_counter, counts_every_kind_of_allocation) {
  const auto counts = [](auto&& allocate) {
    const std::size_t before = allocations;
    allocate();
    return allocations > before;
  };
  EXPECT_TRUE(counts([] { delete new volatile int(1); }));
  EXPECT_TRUE(counts([] { penstock::detail::aligned_memory memory(100); }));
  EXPECT_TRUE(counts([] { std::thread([] {}).join(); }));
}

TYPED_TEST(law_2, steps_and_epochs_allocate_nothing_and_start_no_thread) {
  const samples<> data{23};
  for_each_configuration([&](const configuration& one) {
    auto feed = feed_of(data, TypeParam::make(), one);
    std::uint64_t planned_sum = 0;
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
      for (const auto& batch : planned(data.n, one, epoch))
        for (std::uint64_t index : batch.indices) planned_sum += index;

    std::uint64_t sum = 0;
    std::size_t before = 0, threads = 0;
    bool first = true;
    for (auto& batch : feed.epoch(0)) {
      if (first) {
        threads = threads_now();  // allocates, itself
        before = allocations;
      }
      first = false;
      batch.stream().synchronize();
      for (std::uint64_t index : batch.indices()) sum += index;
    }
    for (std::uint64_t epoch = 1; epoch < 4; ++epoch) sum += sum_of(feed, epoch);
    const std::size_t after = allocations;
    ASSERT_EQ(after, before);
    ASSERT_EQ(threads_now(), threads);
    ASSERT_EQ(sum, planned_sum);
  });
}

TYPED_TEST(law_2, leaving_early_restarting_and_other_epochs_allocate_nothing) {
  const samples<> data{23};
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(data, TypeParam::make(), one);
    {
      auto first = feed.next();
    }
    const std::size_t before = allocations;
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      for (auto& batch : feed.epoch(3 * epoch))
        if (batch.step() == epoch) break;
      {
        auto batch = feed.next();
      }
      for (auto& batch : feed.steps(7)) batch.stream().synchronize();
    }
    const std::size_t after = allocations;
    ASSERT_EQ(after, before);
  });
}

TEST(law_2, the_devices_parts_are_those_of_the_start) {
  const samples<> data{23};
  for_each_schedule([&](const configuration& one) {
    const auto device = modelled::make();
    auto feed = feed_of(data, device, one);
    const auto begun = device.counts();
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) epoch_of(feed, epoch);
    const auto then = device.counts();
    ASSERT_EQ(then.live_allocations, begun.live_allocations);
    ASSERT_EQ(then.live_host_allocations, begun.live_host_allocations);
    ASSERT_EQ(then.live_streams, begun.live_streams);
    ASSERT_EQ(then.live_events, begun.live_events);
    ASSERT_EQ(then.pageable_copies, 0U);
    // One copy for each batch that was asked for, those read ahead aside: all fields travel together.
    ASSERT_GE(then.copies_to_device, 18U);
    ASSERT_LE(then.copies_to_device, 18U + static_cast<std::size_t>(2 * one.depth));
  });
}

}  // namespace
