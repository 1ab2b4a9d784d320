// SPDX-License-Identifier: Apache-2.0
// What may be done with a received batch: several held, moved, let go elsewhere and later than the feed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;

template <class Device>
class leases : public testing::Test {
 public:
  using lease = penstock::lease<schema_type, typename Device::device>;
  samples<> data{23};
};
TYPED_TEST_SUITE(leases, devices, device_name);

TYPED_TEST(leases, move_and_hold_nothing_after) {
  using held_type = typename TestFixture::lease;
  static_assert(!std::copyable<held_type> && std::is_nothrow_move_constructible_v<held_type> &&
                std::is_nothrow_move_assignable_v<held_type>);
  auto feed = feed_of(this->data, TypeParam::make(), {.depth = 3});
  const configuration one{};
  const auto wanted = planned(23, one, 0);
  held_type none;
  EXPECT_FALSE(none);
  held_type first = feed.next();
  held_type moved = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(take(moved), wanted[0]);
  held_type& same = moved;
  moved = std::move(same);
  EXPECT_EQ(take(moved), wanted[0]);
  moved = feed.next();  // lets the first one go
  EXPECT_EQ(take(moved), wanted[1]);
  moved.release();
  EXPECT_FALSE(moved);
  moved.release();
  for (std::size_t step = 2; step < 6; ++step) EXPECT_EQ(take(moved = feed.next()), wanted[step]);
}

TYPED_TEST(leases, several_are_held_and_let_go_in_any_order) {
  for (int readers : all_readers) {
    const configuration one{.readers = readers, .depth = 4};
    auto feed = feed_of(this->data, TypeParam::make(), one);
    for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
      const auto wanted = planned(23, one, epoch);
      std::array<std::size_t, 3> order{0, 1, 2};
      for (std::uint64_t i = 0; i < epoch; ++i) std::next_permutation(order.begin(), order.end());
      std::vector<delivered> batches;
      for (int pair = 0; pair < 2; ++pair) {
        std::array<typename TestFixture::lease, 3> held;
        for (auto& one_of : held) {
          one_of = feed.next();
          batches.push_back(take(one_of));
        }
        for (std::size_t i : order) {
          EXPECT_EQ(take(held[i]), wanted[static_cast<std::size_t>(pair) * 3 + i]);
          held[i].release();
        }
      }
      EXPECT_EQ(batches, wanted);
      EXPECT_FALSE(feed.next());
    }
  }
}

TYPED_TEST(leases, one_kept_for_good_is_only_a_buffer_less) {
  for_each_schedule([&](configuration one) {
    if (one.depth == 1) return;
    auto feed = feed_of(this->data, TypeParam::make(), one);
    auto kept = feed.next();
    for (std::uint64_t epoch : {0U, 1U, 5U, 2U}) ASSERT_EQ(epoch_of(feed, epoch), planned(23, one, epoch));
    ASSERT_EQ(take(kept), planned(23, one, 0)[0]) << "untouched by what came after";
  });
}

TYPED_TEST(leases, may_be_moved_out_of_a_loop) {
  for (int readers : all_readers) {
    const configuration one{.readers = readers, .depth = 4};
    auto feed = feed_of(this->data, TypeParam::make(), one);
    std::vector<typename TestFixture::lease> kept;
    std::vector<delivered> batches;
    for (auto& batch : feed.epoch(0)) {
      batches.push_back(take(batch));
      if (batch.step() % 2 == 1) kept.push_back(std::move(batch));
    }
    EXPECT_EQ(batches, planned(23, one, 0));
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(take(kept[i]), batches[2 * i + 1]);
  }
}

TYPED_TEST(leases, outlive_their_feed_with_their_memory_but_not_with_its_threads) {
  const auto threads = threads_now();
  for_each_schedule([&](const configuration& one) {
    const auto wanted = planned(23, one, 0);
    std::vector<typename TestFixture::lease> kept;
    {
      auto feed = feed_of(this->data, TypeParam::make(), one);
      for (int i = 0; i < one.depth; ++i) kept.push_back(feed.next());
    }
    ASSERT_EQ(threads_left(threads), threads);
    for (std::size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(take(kept[i]), wanted[i]);
    std::swap(kept.front(), kept.back());
  });
}

TEST(leases, give_the_devices_memory_back_with_the_last_one_after_the_feed) {
  const samples<> data{23};
  const auto device = modelled::make();
  auto feed = std::make_optional(feed_of(data, device, {.readers = 2}));
  auto first = feed->next(), second = feed->next();
  feed.reset();
  EXPECT_EQ(device.counts().live_allocations, 2U);
  second.release();
  EXPECT_EQ(device.counts().live_allocations, 2U);
  first.release();
  EXPECT_EQ(device.counts().live_allocations, 0U);
  EXPECT_EQ(device.counts().live_streams, 0U);
  EXPECT_EQ(device.counts().freed_in_use, 0U);
}

TYPED_TEST(leases, are_let_go_by_other_threads) {
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(this->data, TypeParam::make(), one);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<delivered> batches;
      for (auto& batch : feed.epoch(epoch)) {
        batches.push_back(take(batch));
        std::jthread([own = std::move(batch)]() mutable { own.release(); });
      }
      ASSERT_EQ(batches, planned(23, one, epoch));
    }
  });
}

TYPED_TEST(leases, are_let_go_while_the_consumer_waits_restarts_or_ends_the_feed) {
  const auto threads = threads_now();
  for (int run = 0; run < 30; ++run) {
    const configuration one{.readers = run % 3 == 0 ? 8 : 2, .depth = 4};
    std::jthread other;
    auto feed = feed_of(this->data, TypeParam::make(), one);
    auto first = feed.next(), second = feed.next();
    other = std::jthread([a = std::move(first), b = std::move(second)]() mutable {
      a.release();
      b.release();
    });
    if (run % 2 == 0) {
      ASSERT_EQ(epoch_of(feed, 1), planned(23, one, 1));
    } else {
      const auto ends = std::move(feed);
    }
  }
  EXPECT_EQ(threads_left(threads), threads);
}

}  // namespace
