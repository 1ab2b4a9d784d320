// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>

namespace {

const std::vector<std::pair<float, int>> samples{{0.F, 0}, {10.F, 1}, {20.F, 2}, {30.F, 3}, {40.F, 4}, {50.F, 5}};

template <class Device>
auto feed_of(Device device, penstock::transfer_options<Device> options = {}) {
  return (samples | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read() | penstock::batch(2) |
          penstock::transfer(device, options))
      .start();
}

TEST(Transfer, depth_is_of_slots_and_twins_unless_host_depth_is_given) {
  const auto both = penstock::transfer(penstock::modelled_device{}, {.depth = 4});
  EXPECT_EQ(both.host_depth(), 4U);
  EXPECT_EQ(both.device_depth(), 4U);
  const auto host = penstock::transfer(penstock::modelled_device{}, {.depth = 2, .host_depth = 5});
  EXPECT_EQ(host.host_depth(), 5U);
  EXPECT_EQ(host.device_depth(), 2U);
  EXPECT_EQ(penstock::transfer(penstock::cpu_device{}, {.depth = 4}).device_depth(), 0U) << "slots are handed over";
}

TEST(Transfer, to_a_device_with_memory_of_its_own_is_one_copy_a_batch) {
  const penstock::modelled_device device;
  {
    auto feed = feed_of(device);
    std::size_t step = 0;
    for (auto& batch : feed.epoch(0)) {
      static_assert(std::is_same_v<std::remove_cvref_t<decltype(batch.get<0>())>::memory_space,
                                   penstock::modelled_device::memory_space>);
      batch.stream().synchronize();
      EXPECT_EQ(batch.get<0>().data()[1], static_cast<float>(20 * step + 10));
      EXPECT_EQ(batch.host<1>()[1], static_cast<int>(2 * step + 1));
      ++step;
    }
    EXPECT_EQ(step, 3U);
  }
  EXPECT_EQ(device.counts().pageable_copies, 0U);
  EXPECT_EQ(device.counts().live_allocations, 0U);
  EXPECT_EQ(device.counts().live_host_allocations, 0U);
  EXPECT_EQ(device.counts().live_streams, 0U);
  EXPECT_EQ(device.counts().live_events, 0U);
}

TEST(Transfer, memory_is_as_much_as_depth_says) {
  const penstock::modelled_device device;
  auto feed = feed_of(device, {.depth = 2, .host_depth = 3});
  feed.next();
  EXPECT_EQ(device.counts().live_allocations, 2U);
  EXPECT_EQ(device.counts().live_host_allocations, 3U);
}

TEST(Transfer, batches_are_consumed_on_a_stream_of_the_user_s_if_one_is_given) {
  const penstock::modelled_device device;
  auto own = device.make_stream();
  auto feed = feed_of(device, {.consumer = own.view()});
  auto batch = feed.next();
  EXPECT_EQ(batch.stream(), own.view());
}

TEST(Transfer, to_the_cpu_hands_the_slot_over) {
  auto feed = feed_of(penstock::cpu_device{}, {.depth = 1});
  auto first = feed.next();
  const auto* slot = first.get<0>().data();
  first.release();
  EXPECT_EQ(feed.next().get<0>().data(), slot) << "the only one there is";
}

}  // namespace
