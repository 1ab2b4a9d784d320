// SPDX-License-Identifier: Apache-2.0
// Law 5: as many slots and twins as configured, and nothing queues beyond them, whatever is slow.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;

/// The CPU, counting slots.
struct counting_cpu : penstock::cpu_device {
  std::shared_ptr<std::atomic<int>> slots = std::make_shared<std::atomic<int>>(0);
  penstock::detail::aligned_memory allocate_host(std::size_t bytes) const {
    ++*slots;
    return cpu_device::allocate_host(bytes);
  }
};

TEST(law_5, there_are_as_many_slots_and_twins_as_the_depth) {
  const samples<> data{23};
  for_each_schedule([&](const configuration& one) {
    const counting_cpu handed_over;
    auto on_cpu = feed_of(data, handed_over, one);
    const auto copied = modelled::make();
    auto on_device = feed_of(data, copied, one);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      epoch_of(on_cpu, epoch);
      epoch_of(on_device, epoch);
    }
    EXPECT_EQ(*handed_over.slots, one.depth);
    EXPECT_EQ(copied.counts().live_host_allocations, static_cast<std::size_t>(one.depth));
    EXPECT_EQ(copied.counts().live_allocations, static_cast<std::size_t>(one.depth));
  });
}

/// 6 steps an epoch; tells what was read ahead of what.
struct watch {
  signpost reads;
  std::atomic<std::uint64_t> released = 0;  // counted before each release
  std::atomic<std::uint64_t> limit = 0;     // steps that may be begun beyond those
  std::atomic<bool> exceeded = false;

  void operator()(std::uint64_t index, std::uint64_t epoch) {
    if (epoch * 6 + index / 4 >= released + limit) exceeded = true;
    reads.reach();
  }
};

template <class Device>
class law_5_ahead : public testing::Test {};
TYPED_TEST_SUITE(law_5_ahead, devices, device_name);

template <class Device>
constexpr std::uint64_t buffers(int depth) {
  return static_cast<std::uint64_t>(depth) * (std::same_as<Device, cpu> ? 1 : 2);
}

TYPED_TEST(law_5_ahead, readers_use_all_buffers_and_no_more) {
  for_each_schedule([](configuration one) {
    one.how = shuffle::none;
    watch seen;
    seen.limit = buffers<TypeParam>(one.depth);
    const samples data{24, [&seen](std::uint64_t index, penstock::read_context& at) { seen(index, at.epoch); }};
    auto feed = feed_of(data, TypeParam::make(), one);
    for (int epoch = 0; epoch < 3; ++epoch)
      while (auto batch = feed.next()) {
        // Held: from here on readers are at most the other buffers ahead, and if there are any, they get there.
        if (one.readers > 0) {
          ASSERT_TRUE(seen.reads.await((seen.released + seen.limit) * 4));
        }
        ++seen.released;
      }
    ASSERT_FALSE(seen.exceeded);
  });
}

TYPED_TEST(law_5_ahead, held_batches_are_buffers_less_and_holding_all_is_an_error_that_says_so) {
  for_each_schedule([](configuration one) {
    one.how = shuffle::none;
    watch seen;
    seen.limit = buffers<TypeParam>(one.depth);
    const samples data{24, [&seen](std::uint64_t index, penstock::read_context& at) { seen(index, at.epoch); }};
    auto feed = feed_of(data, TypeParam::make(), one);
    const auto wanted = planned(24, one, 0);
    std::vector<decltype(feed.next())> held;
    for (int i = 0; i < one.depth; ++i) held.push_back(feed.next());
    try {
      (void)feed.next();
      FAIL() << "a batch more than there are";
    } catch (const penstock::error& caught) {
      const std::string message = caught.what();
      EXPECT_NE(message.find("all " + std::to_string(one.depth) + " batches of this feed are held"), std::string::npos)
          << message;
    }
    // The feed is none the worse for it, and what is held keeps its content.
    for (std::size_t i = 0; i < held.size(); ++i) EXPECT_EQ(take(held[i]), wanted[i]);
    for (std::size_t step = held.size(); step < wanted.size(); ++step) {
      ++seen.released;
      held.erase(held.begin());
      held.push_back(feed.next());
      EXPECT_EQ(take(held.back()), wanted[step]);
    }
    EXPECT_FALSE(seen.exceeded);
  });
}

// MEM-3
TYPED_TEST(law_5_ahead, MEM_3_a_slow_first_sample_lets_no_more_than_the_depth_pile_up) {
  const configuration one{.readers = 8, .depth = 4, .how = shuffle::none};
  signpost others, go_on;
  const samples data{96, [&](std::uint64_t index, penstock::read_context&) {
                       if (index == 0)
                         go_on.await();
                       else
                         others.reach();
                     }};
  auto feed = feed_of(data, TypeParam::make(), one);
  auto range = feed.epoch(0);
  ASSERT_TRUE(others.await(15));
  EXPECT_EQ(others.reached(), 15U) << "4 slots of 4 samples, one of them not in";
  go_on.reach();
  std::vector<delivered> batches;
  for (auto& batch : range) batches.push_back(take(batch));
  EXPECT_EQ(batches, planned(96, one, 0));
}

}  // namespace
