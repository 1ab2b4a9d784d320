// SPDX-License-Identifier: Apache-2.0
// Law 4: batches arrive in the order of the steps, each exactly once, for any number of readers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;

template <class Device>
class law_4 : public testing::Test {};
TYPED_TEST_SUITE(law_4, devices, device_name);

TYPED_TEST(law_4, a_late_sample_delays_its_batch_and_never_lets_another_pass) {
  for_each_schedule([](configuration one) {
    if (one.readers < 2) return;  // somebody has to read the others
    one.how = shuffle::none;
    signpost others;
    // The first sample waits until all others that fit into the depth are in, those of its own range aside.
    const auto ranges = std::min(std::bit_ceil(static_cast<unsigned>(one.readers)), 4U);
    const std::size_t wanted = 4U * static_cast<unsigned>(one.depth) - 4U / ranges;
    std::atomic<bool> in_time = false;
    const samples data{24, [&](std::uint64_t index, penstock::read_context& context) {
                         if (index == 0 && context.epoch == 0)
                           in_time = others.await(wanted);
                         else
                           others.reach();
                       }};
    auto feed = feed_of(data, TypeParam::make(), one);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) ASSERT_EQ(epoch_of(feed, epoch), planned(24, one, epoch));
    ASSERT_TRUE(in_time);
  });
}

TYPED_TEST(law_4, each_sample_is_read_once_in_each_epoch) {
  for_each_configuration([](const configuration& one) {
    constexpr std::uint64_t n = 23, epochs = 3;
    std::array<std::atomic<int>, n * epochs> reads{};
    const samples data{n, [&](std::uint64_t index, penstock::read_context& context) {
                         if (context.epoch < epochs) ++reads[context.epoch * n + index];
                       }};
    auto feed = feed_of(data, TypeParam::make(), one);
    feed.set_last_epoch(epochs - 1);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto batches = epoch_of(feed, epoch);
      ASSERT_EQ(batches, planned(n, one, epoch));
      std::size_t right = 0;
      for (const auto& batch : batches)
        for (std::uint64_t index : batch.indices) right += reads[epoch * n + index] == 1;
      ASSERT_EQ(right, one.last == last_batch::drop ? 20U : 23U);
    }
    for (const auto& count : reads) ASSERT_LE(count, 1);
  });
}

// ORD-4
TYPED_TEST(law_4, ORD_4_ten_readers_keep_the_order_in_run_after_run) {
  const samples<> data{64 * 4};
  const configuration one{.readers = 10, .depth = 4};
  const auto wanted = planned(data.n, one, 0);
  for (int run = 0; run < 20; ++run) {
    auto feed = feed_of(data, TypeParam::make(), one);
    ASSERT_EQ(epoch_of(feed, 0), wanted) << "run " << run;
  }
}

}  // namespace
