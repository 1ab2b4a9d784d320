// SPDX-License-Identifier: Apache-2.0
// What loops over epochs may rely on: handles, `next`, `steps`, reading on into the next epoch.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <utility>
#include <vector>

#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;

template <class Device>
class epochs : public testing::Test {
 public:
  samples<> data{23};
};
TYPED_TEST_SUITE(epochs, devices, device_name);

using range_type = decltype(feed_of(samples<>{}, cpu::make(), {}))::range_type;
static_assert(std::ranges::input_range<const range_type> && std::copyable<range_type>);

TYPED_TEST(epochs, readers_go_on_into_the_next_one_so_that_it_does_not_start_cold) {
  for (int readers : {1, 2, 8}) {
    signpost next_epoch;
    std::atomic<int> first_reads = 0;
    const samples counted{24, [&](std::uint64_t index, penstock::read_context& context) {
                            if (context.epoch == 1 && index < 4) {
                              ++first_reads;
                              next_epoch.reach();
                            }
                          }};
    const configuration one{.readers = readers, .how = shuffle::none};
    auto feed = feed_of(counted, TypeParam::make(), one);
    ASSERT_EQ(epoch_of(feed, 0), planned(24, one, 0));
    EXPECT_TRUE(next_epoch.await(4)) << "nobody has asked for epoch 1 yet";
    ASSERT_EQ(epoch_of(feed, 1), planned(24, one, 1));
    EXPECT_EQ(first_reads, 4) << "what was read ahead is used";
  }
}

TYPED_TEST(epochs, what_was_read_ahead_is_thrown_away_for_another_epoch) {
  for_each_configuration([&](const configuration& one) {
    auto feed = feed_of(this->data, TypeParam::make(), one);
    for (std::uint64_t epoch : {0U, 2U, 1U, 1U, 7U, 8U, 0U}) ASSERT_EQ(epoch_of(feed, epoch), planned(23, one, epoch));
  });
}

TYPED_TEST(epochs, readers_stop_at_the_last_one_and_without_next_epoch_at_each) {
  for (bool by_option : {true, false})
    for (int readers : all_readers) {
      std::atomic<int> reads = 0;
      const samples counted{24, [&](std::uint64_t, penstock::read_context&) { ++reads; }};
      auto feed = feed_of(counted, TypeParam::make(), {.readers = readers}, {.next_epoch = !by_option});
      if (!by_option) feed.set_last_epoch(1);
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        epoch_of(feed, epoch);
        if (by_option) {
          EXPECT_EQ(reads, 24 * static_cast<int>(epoch + 1));
        }
      }
      {
        const auto ends = std::move(feed);
      }
      EXPECT_EQ(reads, 48);
    }
}

// SHUT-4
TYPED_TEST(epochs, SHUT_4_a_second_one_ends_the_first_whose_handle_then_throws) {
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(this->data, TypeParam::make(), one);
    auto first = feed.epoch(0);
    auto at = first.begin();
    for (int i = 0; i < 3; ++i, ++at) ASSERT_FALSE(at == first.end());
    auto second = feed.epoch(0);
    ASSERT_THROW((void)(at == first.end()), penstock::error);
    ASSERT_THROW(*at, penstock::error);
    ASSERT_THROW(++at, penstock::error);
    std::vector<delivered> batches;
    for (auto& batch : second) batches.push_back(take(batch));
    ASSERT_EQ(batches, planned(23, one, 0));
    ASSERT_TRUE(second.begin() == second.end()) << "it is over";
  });
}

TYPED_TEST(epochs, a_handle_that_outlives_its_feed_throws) {
  range_type none;
  EXPECT_THROW((void)(none.begin() == none.end()), penstock::error);
  auto kept = [&] {
    auto feed = feed_of(this->data, TypeParam::make(), {});
    return feed.epoch(0);
  }();
  EXPECT_THROW((void)(kept.begin() == kept.end()), penstock::error);
  const auto copy = kept;
  EXPECT_THROW(*copy.begin(), penstock::error);
}

TYPED_TEST(epochs, copies_of_a_handle_share_it_and_the_last_one_ends_it) {
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(this->data, TypeParam::make(), one);
    auto handle = feed.epoch(0);
    std::vector<delivered> batches;
    {
      const auto copy = handle;
      for (auto& batch : copy) {
        batches.push_back(take(batch));
        if (batches.size() == 2) break;
      }
    }
    {
      auto moved = std::move(handle);
      for (auto& batch : moved) batches.push_back(take(batch));
      handle = moved;
    }
    ASSERT_EQ(batches, planned(23, one, 0));
    ASSERT_TRUE(handle.begin() == handle.end());
  });
}

TYPED_TEST(epochs, a_loop_that_was_left_shows_again_the_batch_that_it_did_not_pass) {
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(this->data, TypeParam::make(), one);
    const auto wanted = planned(23, one, 0);
    const auto range = feed.epoch(0);
    for (auto& batch : range)
      if (batch.step() == 2) break;
    std::vector<delivered> rest;
    for (auto& batch : range) rest.push_back(take(batch));
    ASSERT_EQ(rest, std::vector(wanted.begin() + 2, wanted.end()));
  });
}

TYPED_TEST(epochs, the_iterator_receives_late_so_that_taking_three_takes_three) {
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(this->data, TypeParam::make(), one);
    auto range = feed.epoch(0);
    int taken = 0;
    for (auto& batch : range | std::views::take(3)) taken += static_cast<int>(batch.size());
    ASSERT_EQ(taken, 12);
    ASSERT_EQ(feed.state().samples, 12U);
  });
}

TYPED_TEST(epochs, next_gives_each_epochs_batches_and_then_none_once) {
  for_each_configuration([&](const configuration& one) {
    auto feed = feed_of(this->data, TypeParam::make(), one);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<delivered> batches;
      while (auto batch = feed.next()) batches.push_back(take(batch));
      ASSERT_EQ(batches, planned(23, one, epoch));
    }
  });
}

TYPED_TEST(epochs, steps_cross_epochs_and_go_on_where_the_last_ones_ended) {
  for_each_configuration([&](const configuration& one) {
    std::vector<delivered> wanted;
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
      for (auto& batch : planned(23, one, epoch)) wanted.push_back(batch);
    auto feed = feed_of(this->data, TypeParam::make(), one);
    std::vector<delivered> batches;
    for (std::uint64_t count : {0U, 1U, 7U, 2U, 5U})
      for (auto& batch : feed.steps(count)) batches.push_back(take(batch));
    ASSERT_EQ(batches, std::vector(wanted.begin(), wanted.begin() + 15));
    // Left early, they go on after the last batch that was received.
    for (auto& batch : feed.steps(100)) {
      batches.push_back(take(batch));
      if (batches.size() == 17) break;
    }
    while (auto batch = feed.next()) batches.push_back(take(batch));
    ASSERT_EQ(batches, std::vector(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(batches.size())));
    ASSERT_EQ(batches.size() % planned(23, one, 0).size(), 0U);
  });
}

TYPED_TEST(epochs, what_was_left_is_gone_on_with_by_next_and_begun_anew_by_its_number) {
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(this->data, TypeParam::make(), one);
    const auto wanted = planned(23, one, 0);
    for (int again = 0; again < 2; ++again) {
      for (auto& batch : feed.epoch(0))
        if (batch.step() == 2) break;
      std::vector<delivered> rest;
      while (auto batch = feed.next()) rest.push_back(take(batch));
      ASSERT_EQ(rest, std::vector(wanted.begin() + 3, wanted.end()));
    }
    // A handle that is dropped unused changes nothing.
    {
      const auto unused = feed.steps(5);
    }
    auto batch = feed.next();
    ASSERT_EQ(take(batch), planned(23, one, 1)[0]);
  });
}

TYPED_TEST(epochs, a_pipeline_is_started_by_its_first_one) {
  const auto threads = threads_now();
  auto pipeline = pipeline_of(this->data, TypeParam::make(), {.readers = 2}, penstock::read());
  EXPECT_EQ(threads_now(), threads);
  const configuration one{.readers = 2};
  EXPECT_EQ(epoch_of(pipeline, 0), planned(23, one, 0));
  EXPECT_EQ(threads_now(), threads + 2);
  auto copy = pipeline;  // shares nothing that runs
  EXPECT_EQ(threads_now(), threads + 2);
  EXPECT_EQ(epoch_of(copy, 0), planned(23, one, 0));
  EXPECT_EQ(epoch_of(pipeline, 1), planned(23, one, 1));
}

}  // namespace
