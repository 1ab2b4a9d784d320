// SPDX-License-Identifier: Apache-2.0
// Law 8: no duplicates, no inventions: a short batch has its real size, padding is zero and counts for nothing.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <penstock/schedule/run.hpp>

#include "configurations.hpp"

namespace {

using namespace laws;

template <class Device>
class law_8 : public testing::Test {};
TYPED_TEST_SUITE(law_8, devices, device_name);

// COV-4
TYPED_TEST(law_8, COV_4_the_last_batch_has_its_real_size_and_is_kept_dropped_or_padded_with_zeros) {
  for_each_configuration([](const configuration& one) {
    for (std::uint64_t n : {21U, 24U, 3U, 1U}) {
      if (n < 4 && one.last == last_batch::drop) continue;
      // Slots were used before the last batch came to them: what is left in them must not show.
      const samples<> data{n};
      auto feed = feed_of(data, TypeParam::make(), one);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const auto batches = epoch_of(feed, epoch);  // looks at the padding, too
        std::size_t real = 0;
        for (const auto& batch : batches) real += batch.indices.size();
        ASSERT_EQ(real, one.last == last_batch::drop ? n / 4 * 4 : n);
        const std::size_t last = n % 4 == 0 || one.last == last_batch::drop ? 4 : n % 4;
        ASSERT_EQ(batches.back().indices.size(), last);
        ASSERT_EQ(batches.back().rows, one.last == last_batch::pad ? 4U : last);
      }
    }
  });
}

// COV-6
TYPED_TEST(law_8, COV_6_an_epoch_without_a_batch_is_an_error_unless_allowed) {
  const samples<> few{3}, none{0};
  const configuration dropping{.last = last_batch::drop};
  EXPECT_THROW(feed_of(few, TypeParam::make(), dropping), std::invalid_argument);
  EXPECT_THROW(feed_of(none, TypeParam::make(), configuration{}), std::invalid_argument);
  for (int readers : all_readers) {
    auto feed = (few | penstock::partition() | penstock::read({.readers = readers}) |
                 penstock::batch({.size = 4, .last = last_batch::drop, .allow_empty = true}) |
                 penstock::transfer(TypeParam::make()))
                    .start();
    EXPECT_TRUE(epoch_of(feed, 0).empty());
    EXPECT_TRUE(epoch_of(feed, 1).empty());
    EXPECT_EQ(feed.steps_per_epoch(), 0U);
    EXPECT_FALSE(feed.next());
    for (auto& batch : feed.steps(3)) FAIL() << batch.step();
  }
}

TYPED_TEST(law_8, a_rank_without_samples_in_the_last_step_gets_an_empty_batch) {
  const samples<> data{22};
  for (last_batch last : {last_batch::keep, last_batch::pad})
    for (int readers : all_readers) {
      const configuration one{.readers = readers, .last = last, .batch = 10, .world = {2, 3}};
      SCOPED_TRACE(text(one));
      auto feed = feed_of(data, TypeParam::make(), one);
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        const auto batches = epoch_of(feed, epoch);
        ASSERT_EQ(batches.size(), 3U);
        EXPECT_EQ(batches[0].indices.size(), 3U);
        EXPECT_EQ(batches[2].indices.size(), 0U);
        // Padded ones are of one size on all ranks: 10 samples over 3.
        EXPECT_EQ(batches[2].rows, last == last_batch::pad ? 4U : 0U);
      }
    }
}

TYPED_TEST(law_8, a_reduction_over_real_counts_is_that_of_the_whole_for_any_batch_size) {
  const samples<> data{23};
  for (std::int64_t size : {1, 4, 5, 23, 40})
    for (last_batch last : {last_batch::keep, last_batch::pad}) {
      const auto sums = [](auto& batch) {
        batch.stream().synchronize();
        const auto id = batch.template host<0>();
        std::pair<std::uint64_t, std::uint64_t> result{0, batch.size()};
        for (std::size_t row = 0; row < batch.size(); ++row) result.first += id[row];
        return result;
      };
      const auto add = [](std::pair<std::uint64_t, std::uint64_t> a, const std::pair<std::uint64_t, std::uint64_t>& b) {
        return std::pair{a.first + b.first, a.second + b.second};
      };
      const auto result =
          penstock::run(data | penstock::partition({.seed = 3}) | penstock::read({.readers = 2}) |
                            penstock::batch({.size = size, .last = last}) | penstock::transfer(TypeParam::make()) |
                            penstock::compute(sums) | penstock::reduce(std::pair<std::uint64_t, std::uint64_t>{}, add),
                        {.epochs = 2});
      ASSERT_EQ(result.epochs.size(), 2U);
      for (const auto& epoch : result.epochs) EXPECT_EQ(epoch, (std::pair<std::uint64_t, std::uint64_t>{253, 23}));
    }
}

}  // namespace
