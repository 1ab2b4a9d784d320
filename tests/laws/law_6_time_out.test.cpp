// SPDX-License-Identifier: Apache-2.0
// ctest: serial
// Law 6, second half: a reader or a device that never comes back is named, given up, and does not keep the process.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "configurations.hpp"
#include "threads.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace {

using namespace laws;
using namespace std::chrono_literals;

template <class Device>
class law_6 : public testing::Test {};
TYPED_TEST_SUITE(law_6, devices, device_name);

/// Blocks for ever, or until the test lets it go, at one sample of epoch 0.
struct blocked_sample {
  std::uint64_t which;
  std::shared_ptr<signpost> entered = std::make_shared<signpost>();
  std::shared_ptr<signpost> go_on = std::make_shared<signpost>();
  void operator()(std::uint64_t index, penstock::read_context& context) const {
    if (index != which || context.epoch != 0) return;
    entered->reach();
    while (!go_on->await()) {
    }
  }
};

bool says(const std::string& message, const std::string& part) { return message.find(part) != std::string::npos; }

TYPED_TEST(law_6, a_reader_that_is_stuck_for_ever_is_named_abandoned_and_the_next_feed_is_clean) {
  leaves_a_reader_behind();
  for (auto [readers, depth] : {std::pair{1, 2}, {2, 1}, {2, 4}, {8, 2}}) {
    const configuration one{.readers = readers, .depth = depth, .how = shuffle::none};
    SCOPED_TRACE(text(one));
    // Owned by the feed, and so by its stuck reader when both are gone here; it is never let go.
    const blocked_sample block{9};
    {
      auto feed = (samples{23, block} | penstock::partition({.shuffle = one.how}) |
                   penstock::read({.readers = readers, .timeout = 400ms, .first_timeout = 30s}) | penstock::batch(4) |
                   penstock::transfer(TypeParam::make(), {.depth = depth}))
                      .start();
      std::vector<delivered> before;
      try {
        for (auto& batch : feed.epoch(0)) before.push_back(take(batch));
        FAIL() << "no time-out";
      } catch (const penstock::timeout_error& caught) {
        const std::string message = caught.what();
        EXPECT_EQ(caught.where().stage, "read");
        EXPECT_EQ(caught.where().epoch, 0U);
        EXPECT_EQ(caught.where().step, 2U);
        EXPECT_EQ(caught.where().sample, 9U);
        EXPECT_TRUE(says(message, "reads sample 9 of step 2")) << message;
        EXPECT_TRUE(says(message, "penstock:read")) << message;
      }
      EXPECT_EQ(before.size(), 2U);
      // To begin anew needs the stuck reader, and says so.
      EXPECT_THROW(epoch_of(feed, 0), penstock::timeout_error);
    }  // returns
    const samples<> clean{23};
    auto feed = feed_of(clean, TypeParam::make(), one);
    EXPECT_EQ(epoch_of(feed, 0), planned(23, one, 0));
  }
}

TYPED_TEST(law_6, an_abandoned_reader_that_comes_back_after_all_finds_what_it_needs) {
  const blocked_sample block{9};
  const std::size_t threads = threads_now();
  {
    auto feed = (samples{23, block} | penstock::partition({.shuffle = shuffle::none}) |
                 penstock::read({.readers = 2, .timeout = 400ms, .first_timeout = 30s}) | penstock::batch(4) |
                 penstock::transfer(TypeParam::make(), {.depth = 2}))
                    .start();
    EXPECT_THROW(epoch_of(feed, 0), penstock::timeout_error);
  }
  block.go_on->reach();
  EXPECT_EQ(threads_left(threads), threads);
}

// ERR-7
TYPED_TEST(law_6, ERR_7_the_first_batch_has_a_time_out_of_its_own) {
  const blocked_sample block{0};
  auto feed = (samples{23, block} | penstock::partition({.shuffle = shuffle::none}) |
               penstock::read({.readers = 1, .timeout = 100ms, .first_timeout = 30s}) | penstock::batch(23) |
               penstock::transfer(TypeParam::make()))
                  .start();
  std::jthread other([&] {
    block.entered->await();
    const auto until = std::chrono::steady_clock::now() + 200ms;  // longer than `timeout`
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    block.go_on->reach();
  });
  EXPECT_EQ(feed.next().size(), 23U);
}

TEST(law_6, a_copy_that_does_not_end_is_waited_for_and_then_its_memory_is_left_alone) {
  const samples<> data{23};
  const auto clock = std::make_shared<penstock::manual_clock>();
  const penstock::modelled_device device({.copy_time = 100us, .clock = clock});
#if defined(__SANITIZE_ADDRESS__)
  const __lsan::ScopedDisabler leaked_on_purpose;
#endif
  for (int readers : {1, 2}) {
    auto feed =
        (data | penstock::partition() | penstock::read({.readers = readers, .timeout = 20ms, .first_timeout = 30s}) |
         penstock::batch(4) | penstock::transfer(device, {.depth = 2}))
            .start();
    auto batch = feed.next();
    ASSERT_EQ(batch.size(), 4U);
    batch.release();
  }  // time stands still, so that no copy ends; this returns all the same
  EXPECT_EQ(device.counts().freed_in_use, 0U);
  EXPECT_GT(device.counts().live_allocations, 0U);
}

TEST(law_6, a_copy_that_is_under_way_is_waited_for_before_its_memory_goes) {
  const samples<> data{23};
  const auto clock = std::make_shared<penstock::manual_clock>();
  const penstock::modelled_device device({.copy_time = 100us, .clock = clock});
  auto feed = feed_of(data, device, {.readers = 2});
  ASSERT_EQ(feed.next().size(), 4U);
  // Time moves only when somebody waits for it.
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (device.counts().waiting != 0) clock->advance(10us);
      std::this_thread::yield();
    }
  });
  {
    const auto ends_here = std::move(feed);
  }
  EXPECT_EQ(device.counts().freed_in_use, 0U);
  EXPECT_EQ(device.counts().live_allocations, 0U);
}

TEST(law_6, inline_reading_that_waits_for_a_copy_is_ended_by_a_stop) {
  const samples<> data{23};
  const auto clock = std::make_shared<penstock::manual_clock>();
  const penstock::modelled_device device({.copy_time = 100us, .clock = clock});
  auto feed = feed_of(data, device, {.readers = 0, .depth = 1});
  ASSERT_EQ(feed.next().size(), 4U);
  std::jthread other([&] {
    while (device.counts().waiting == 0) std::this_thread::yield();
    feed.stop();
  });
  EXPECT_FALSE(feed.next());
  other.join();
  clock->advance(1s);
}

}  // namespace
