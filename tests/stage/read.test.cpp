// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using numbers = std::vector<std::uint64_t>;

const numbers tens{0, 10, 20, 30, 40, 50, 60, 70, 80, 90};

template <class Read>
numbers epoch_of(Read read, std::uint64_t seed = 5) {
  auto feed = (tens | penstock::partition({.seed = seed, .shuffle = penstock::shuffle::none}) | std::move(read) |
               penstock::batch(4) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  numbers result;
  for (auto& batch : feed.epoch(2)) {
    const auto values = batch.template get<0>();
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

class Transform : public testing::TestWithParam<int> {
 protected:
  penstock::read_options options() const { return {.readers = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Readers, Transform, testing::Values(0, 1, 3), testing::PrintToStringParamName());

TEST_P(Transform, changes_each_sample_once_in_place) {
  EXPECT_EQ(epoch_of(penstock::read(options(), [](const auto& sample) { std::get<0>(sample)() += 1; })),
            (numbers{1, 11, 21, 31, 41, 51, 61, 71, 81, 91}));
}

TEST_P(Transform, draws_from_the_stream_of_seed_epoch_and_sample) {
  const numbers found = epoch_of(penstock::read(
      options(), [](const auto& sample, penstock::philox& random) { std::get<0>(sample)() += random() % 10; }));
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(found[i], 10 * i + penstock::philox(5, 2, i)() % 10);
}

TEST_P(Transform, what_it_throws_arrives_with_the_sample_s_place) {
  const auto failing = [](const auto& sample) {
    if (std::get<0>(sample)() == 50) throw std::domain_error("fifty");
  };
  try {
    epoch_of(penstock::read(options(), failing));
    FAIL() << "it was read";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().stage, "read");
    EXPECT_EQ(caught.where().sample, 5U);
    EXPECT_EQ(caught.where().step, 1U);
    EXPECT_EQ(caught.where().epoch, 2U);
    EXPECT_THROW(caught.rethrow_cause(), std::domain_error);
  }
}

TEST(Read, time_outs_default_to_each_other) {
  using std::chrono::minutes;
  using std::chrono::seconds;
  EXPECT_EQ(penstock::read().timeout(), minutes(10));
  EXPECT_EQ(penstock::read().first_timeout(), minutes(10));
  EXPECT_EQ(penstock::read({.timeout = seconds(3)}).first_timeout(), seconds(3));
  EXPECT_EQ(penstock::read({.first_timeout = seconds(9)}).timeout(), minutes(10));
}

TEST(Read, readers_may_be_shared_by_feeds) {
  const auto pool = penstock::reader_pool::make(2);
  const auto feed_of = [&](const numbers& data) {
    return (data | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.shared = pool}) |
            penstock::batch(4) | penstock::transfer(penstock::cpu_device{}))
        .start();
  };
  const numbers ones{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  auto left = feed_of(tens);
  auto right = feed_of(ones);
  auto ones_range = right.epoch(0);
  auto one = ones_range.begin();
  numbers found;
  for (auto& batch : left.epoch(0)) {
    ASSERT_FALSE(one == ones_range.end());
    for (std::size_t row = 0; row < batch.size(); ++row) EXPECT_EQ(batch.get<0>()[row], 10 * (*one).get<0>()[row]);
    found.insert(found.end(), batch.indices().begin(), batch.indices().end());
    ++one;
  }
  EXPECT_TRUE(one == ones_range.end());
  EXPECT_EQ(found, ones);
}

TEST(Read, a_pool_of_no_readers_is_refused) { EXPECT_THROW(penstock::reader_pool::make(0), std::invalid_argument); }

}  // namespace
