// SPDX-License-Identifier: Apache-2.0
// Law 6, first half: leaving a loop, throwing in it, stopping it and destroying the feed end every wait.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>

#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;

template <class Device>
class law_6 : public testing::Test {};
TYPED_TEST_SUITE(law_6, devices, device_name);

// SHUT-2, COV-8
TYPED_TEST(law_6, SHUT_2_leaving_early_is_followed_by_a_whole_epoch_and_leaves_no_thread) {
  const samples<> data{23};
  const std::size_t threads = threads_now();
  for_each_schedule([&](const configuration& one) {
    for (std::uint64_t steps = 0; steps < 6; ++steps) {
      auto feed = feed_of(data, TypeParam::make(), one);
      for (auto& batch : feed.epoch(0))
        if (batch.step() == steps) break;
      ASSERT_EQ(epoch_of(feed, 0), planned(data.n, one, 0));
      for (auto& batch : feed.epoch(1))
        if (batch.step() == steps) break;
      // Destroyed while readers are at work or wait.
    }
  });
  EXPECT_EQ(threads_left(threads), threads);
}

// SHUT-1
TYPED_TEST(law_6, SHUT_1_a_throw_in_the_loop_reaches_the_caller_also_while_a_handle_is_kept) {
  const samples<> data{23};
  const std::size_t threads = threads_now();
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(data, TypeParam::make(), one);
    const auto kept = feed.epoch(0);
    try {
      for (auto& batch : kept)
        if (batch.step() == 2) throw std::logic_error("the body's own");
      FAIL();
    } catch (const std::logic_error& caught) {
      ASSERT_STREQ(caught.what(), "the body's own");
    }
    ASSERT_EQ(epoch_of(feed, 3), planned(data.n, one, 3));
  });
  EXPECT_EQ(threads_left(threads), threads);
}

TYPED_TEST(law_6, a_reader_is_parked_within_the_sample_that_it_reads) {
  const configuration one{.readers = 1, .depth = 2, .how = shuffle::none, .batch = 64};
  signpost entered, go_on;
  std::atomic<std::uint64_t> last = 0;
  const samples data{64 * 4, [&](std::uint64_t index, penstock::read_context&) {
                       last = index;
                       if (index == 70) entered.reach(), go_on.await();
                     }};
  auto feed = feed_of(data, TypeParam::make(), one);
  {
    const auto range = feed.epoch(0);
    ASSERT_TRUE(range.begin() != range.end());
    ASSERT_TRUE(entered.await());
  }  // left while sample 70, in the middle of step 1, is read
  go_on.reach();
  {
    const auto feed_ends_here = std::move(feed);
  }
  EXPECT_EQ(last, 70U);
}

TYPED_TEST(law_6, a_feed_that_nobody_asked_ends_as_well) {
  const samples<> data{23};
  const std::size_t threads = threads_now();
  for_each_schedule([&](const configuration& one) {
    {
      auto feed = feed_of(data, TypeParam::make(), one);
    }
    {
      auto feed = feed_of(data, TypeParam::make(), one);
      const auto range = feed.epoch(0);
    }
  });
  EXPECT_EQ(threads_left(threads), threads);
}

TYPED_TEST(law_6, a_stop_from_another_thread_ends_the_loop_while_it_waits) {
  for_each_schedule([](const configuration& one) {
    if (one.readers == 0) return;  // the consumer's own thread reads
    std::stop_source stop;
    signpost entered;
    // Sample by sample, reads wait for the stop, as one does that blocks on a socket.
    const samples data{23, [&](std::uint64_t, penstock::read_context& context) {
                         entered.reach();
                         while (!context.stop.stop_requested()) std::this_thread::yield();
                       }};
    auto feed = feed_of(data, TypeParam::make(), one);
    feed.stop_when(stop.get_token());
    std::jthread other([&] {
      entered.await();
      stop.request_stop();
    });
    std::size_t received = 0;
    for (auto& batch : feed.epoch(0)) received += batch.size();
    ASSERT_EQ(received, 0U);
    ASSERT_TRUE(feed.stopped());
    ASSERT_FALSE(feed.next());
    for (auto& batch : feed.epoch(1)) FAIL() << batch.step();
    for (auto& batch : feed.steps(3)) FAIL() << batch.step();
  });
}

TYPED_TEST(law_6, a_stop_within_the_loop_ends_it_before_the_next_batch) {
  const samples<> data{23};
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(data, TypeParam::make(), one);
    std::uint64_t last = 0;
    for (auto& batch : feed.epoch(0)) {
      last = batch.step();
      if (last == 2) feed.stop();
    }
    ASSERT_EQ(last, 2U);
    ASSERT_EQ(feed.state().samples, 12U);
  });
}

TYPED_TEST(law_6, feeds_come_and_go_many_times) {
  const samples<> data{40};
  const std::size_t threads = threads_now();
  for (int run = 0; run < 60; ++run) {
    auto feed = feed_of(data, TypeParam::make(), {.readers = run % 3 == 0 ? 8 : 2, .depth = 1 + run % 4});
    for (auto& batch : feed.epoch(0))
      if (batch.step() == 1) break;
  }
  EXPECT_EQ(threads_left(threads), threads);
}

}  // namespace
