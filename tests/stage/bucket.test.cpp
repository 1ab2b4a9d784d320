// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using sentence = std::vector<std::int32_t>;
using sample = std::tuple<sentence, std::int64_t>;

/// Lengths as text has them: most are short, few are long, 1 to 256.
std::size_t length_of(std::uint64_t i) {
  penstock::philox random(99, 0, i, penstock::random_domain::user);
  const double u = static_cast<double>(random.uniform());
  return static_cast<std::size_t>(1 + 255 * u * u * u * u);
}
sample sample_of(std::uint64_t i) {
  return {sentence(length_of(i), static_cast<std::int32_t>(i) + 1), static_cast<std::int64_t>(i)};
}
auto sentences(std::uint64_t n) {
  return penstock::stream([n] { return std::views::iota(std::uint64_t{0}, n) | std::views::transform(sample_of); });
}

struct settings {
  int readers = 0;
  penstock::shuffle how = penstock::shuffle::none;
  penstock::world where{};
  std::int64_t size = 64;
  std::size_t tokens = 1024;
};
auto feed_of(std::uint64_t n, settings with = {}) {
  return (sentences(n) | penstock::partition({.seed = 3, .shuffle = with.how, .world = with.where}) |
          penstock::read({.readers = with.readers}) |
          penstock::batch({.size = with.size},
                          penstock::bucket_by_length({.bounds = {16, 32, 64, 128, 256}, .tokens = with.tokens})) |
          penstock::transfer(penstock::cpu_device{}))
      .start();
}

/// A batch as it arrived.
struct step {
  std::uint64_t bound = 0;
  std::uint64_t tokens = 0;  // without padding
  std::uint64_t longest = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> indices;  // which are the ids, unless the stream is shuffled
  bool operator==(const step&) const = default;
};
template <class Feed>
std::vector<step> steps_of(Feed& feed) {
  std::vector<step> result;
  for (auto& batch : feed.epoch(0)) {
    const auto [words, mask, id] = batch.fields();
    step one;
    one.bound = batch.info().bound;
    for (std::size_t row = 0; row < batch.size(); ++row) {
      std::uint64_t count = 0;
      for (std::size_t i = 0; i < 256; ++i) {
        count += mask(row, i);
        EXPECT_EQ(words(row, i), mask(row, i) == 1 ? id(row) + 1 : 0);
      }
      EXPECT_EQ(count, length_of(static_cast<std::uint64_t>(id(row))));
      one.indices.push_back(static_cast<std::int64_t>(batch.indices()[row]));
      one.tokens += count;
      one.longest = std::max(one.longest, count);
      one.ids.push_back(id(row));
    }
    result.push_back(std::move(one));
  }
  return result;
}

class Buckets : public testing::TestWithParam<std::uint64_t> {
 protected:
  static std::vector<std::vector<step>> of_all_ranks(std::uint64_t n, settings with = {}) {
    std::vector<std::vector<step>> result;
    for (std::uint64_t rank = 0; rank < GetParam(); ++rank) {
      with.where = {rank, GetParam()};
      auto feed = feed_of(n, with);
      result.push_back(steps_of(feed));
    }
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Buckets, testing::Values(1U, 2U, 3U, 5U), testing::PrintToStringParamName());

TEST_P(Buckets, bring_each_sample_once_within_bound_and_budget) {
  for (const std::uint64_t n : {1U, 2U, 4U, 17U, 100U, 1500U}) {
    std::multiset<std::int64_t> found;
    for (const auto& steps : of_all_ranks(n))
      for (const step& one : steps) {
        EXPECT_GE(one.bound, one.longest);
        EXPECT_LE(one.bound * one.ids.size(), 1024U);
        EXPECT_LE(one.ids.size(), 64U);
        EXPECT_EQ(one.indices, one.ids);
        found.insert(one.ids.begin(), one.ids.end());
      }
    ASSERT_EQ(found.size(), n);
    std::int64_t next = 0;
    for (const std::int64_t id : found) ASSERT_EQ(id, next++);
  }
}

// All replicas have the same steps, of the same bounds, and none computes more than another by as much as one sample.
TEST_P(Buckets, balance_the_ranks_step_by_step) {
  for (std::uint64_t n = 1; n <= 1500; n += n < 60 ? 1 : 480) {
    const auto ranks = of_all_ranks(n);
    const auto& first = ranks[0];
    for (std::size_t k = 0; k < first.size(); ++k) {
      std::uint64_t least = 1 << 20, most = 0, longest = 0, rows_least = 1 << 20, rows_most = 0;
      for (const auto& steps : ranks) {
        if (k + 1 == first.size() && steps.size() == k) {
          rows_least = least = 0;  // fewer samples than ranks are left: the last step is nothing for this one
          continue;
        }
        ASSERT_GT(steps.size(), k);
        EXPECT_EQ(steps[k].bound, first[k].bound);
        ASSERT_FALSE(steps[k].ids.empty()) << n << " samples, step " << k;
        least = std::min(least, steps[k].tokens);
        most = std::max(most, steps[k].tokens);
        longest = std::max(longest, steps[k].longest);
        rows_least = std::min<std::uint64_t>(rows_least, steps[k].ids.size());
        rows_most = std::max<std::uint64_t>(rows_most, steps[k].ids.size());
      }
      EXPECT_LE(rows_most - rows_least, 1U) << k;
      EXPECT_LE(most - least, longest) << "step " << k;
    }
  }
}

// Who has the longest sample of a step does not have the longest of every round: over an epoch the differences cancel.
TEST_P(Buckets, balance_the_ranks_over_an_epoch) {
  std::uint64_t least = ~std::uint64_t{0}, most = 0;
  for (const auto& steps : of_all_ranks(6000)) {
    std::uint64_t tokens = 0;
    for (const step& one : steps) tokens += one.tokens;
    least = std::min(least, tokens);
    most = std::max(most, tokens);
  }
  const double more = static_cast<double>(most - least) / static_cast<double>(least);
  RecordProperty("most_over_least", std::to_string(more));
  EXPECT_LT(more, 0.01);
}

TEST_P(Buckets, that_were_left_early_hold_nothing_of_it) {
  auto feed = feed_of(300, {.where = {0, GetParam()}});
  const auto wanted = steps_of(feed);
  for (auto& batch : feed.epoch(1)) {
    static_cast<void>(batch);
    break;
  }
  EXPECT_EQ(steps_of(feed), wanted);
}

TEST_P(Buckets, are_the_same_for_any_readers_and_window) {
  for (const auto how : {penstock::shuffle::none, penstock::shuffle::window(50)}) {
    const auto wanted = of_all_ranks(400, {.readers = 0, .how = how});
    EXPECT_EQ(of_all_ranks(400, {.readers = 1, .how = how}), wanted);
    EXPECT_EQ(of_all_ranks(400, {.readers = 4, .how = how}), wanted);
  }
}

TEST_P(Buckets, resume_goes_on_with_the_very_next_step) {
  for (const auto how : {penstock::shuffle::none, penstock::shuffle::window(20)})
    for (std::uint64_t rank = 0; rank < GetParam(); ++rank) {
      auto feed = feed_of(150, {.how = how, .where = {rank, GetParam()}});
      const auto all = steps_of(feed);
      auto walked = feed_of(150, {.how = how, .where = {rank, GetParam()}});
      for (std::size_t k = 0; k < all.size(); ++k) {
        auto other = feed_of(150, {.readers = k % 2 == 0 ? 2 : 0, .how = how, .where = {rank, GetParam()}});
        other.resume(walked.state());
        EXPECT_EQ(steps_of(other), std::vector(all.begin() + static_cast<std::ptrdiff_t>(k), all.end()));
        walked.next();
      }
    }
}

/// Padding's part of what a kernel goes over that stops at each batch's bound.
double padding_of(const std::vector<std::vector<step>>& ranks) {
  std::uint64_t real = 0, gone_over = 0;
  for (const auto& steps : ranks)
    for (const step& one : steps) {
      real += one.tokens;
      gone_over += one.ids.size() * one.bound;
    }
  return 1 - static_cast<double>(real) / static_cast<double>(gone_over);
}

TEST_P(Buckets, leave_little_padding_where_one_length_for_all_leaves_much) {
  std::uint64_t real = 0;
  constexpr std::uint64_t n = 4000;
  for (std::uint64_t i = 0; i < n; ++i) real += length_of(i);
  const double without = 1 - static_cast<double>(real) / (256.0 * n);
  const double with = padding_of(of_all_ranks(n));
  RecordProperty("padding_without", std::to_string(without));
  RecordProperty("padding_with", std::to_string(with));
  EXPECT_GT(without, 0.75);
  EXPECT_LT(with, 0.40);
}

std::string refused(penstock::bucket_options options) {
  try {
    penstock::bucket_by_length made(std::move(options));
    return "nothing was thrown";
  } catch (const std::invalid_argument& caught) {
    return caught.what();
  }
}
TEST(BucketByLength, refuses_options_that_do_not_fit_together) {
  EXPECT_EQ(refused({.bounds = {}}), "penstock: bucket_by_length: bounds is no bound, wanted 1 bound or more");
  EXPECT_EQ(refused({.bounds = {0}}), "penstock: bucket_by_length: bounds[0] is 0, wanted 1 or more: bounds ascend");
  EXPECT_EQ(refused({.bounds = {4, 8, 8}}),
            "penstock: bucket_by_length: bounds[2] is 8, wanted 9 or more: bounds ascend");
  EXPECT_EQ(refused({.bounds = {4, 8}, .tokens = 7}),
            "penstock: bucket_by_length: tokens is 7, wanted at least 8, one sample of the last bound");
}

auto of_rows(std::vector<std::vector<float>> rows, penstock::longer longer, penstock::last_batch last) {
  return (penstock::stream([rows = std::move(rows)] { return rows; }) |
          penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 0}) |
          penstock::batch({.size = 2, .last = last}, penstock::bucket_by_length({.bounds = {2, 4}, .longer = longer})) |
          penstock::transfer(penstock::cpu_device{}))
      .start();
}
TEST(BucketByLength, keeps_every_batch) {
  EXPECT_THROW(of_rows({{1}}, penstock::longer::error, penstock::last_batch::drop), std::invalid_argument);
  EXPECT_THROW(of_rows({{1}}, penstock::longer::error, penstock::last_batch::pad), std::invalid_argument);
}
TEST(BucketByLength, cuts_or_refuses_what_is_longer_than_the_last_bound) {
  auto cut = of_rows({{1, 2, 3, 4, 5}, {6}}, penstock::longer::cut, penstock::last_batch::keep);
  std::vector<float> found;
  for (auto& batch : cut.epoch(0)) {
    const auto [values, mask] = batch.fields();
    EXPECT_EQ(values.size(), 4 * batch.size());
    found.insert(found.end(), values.begin(), values.end());
  }
  EXPECT_EQ(found, (std::vector<float>{6, 0, 0, 0, 1, 2, 3, 4}));
  auto whole = of_rows({{6}, {7}, {1, 2, 3, 4, 5}, {8, 8, 8}}, penstock::longer::error, penstock::last_batch::keep);
  std::size_t batches = 0;
  try {
    for (auto& batch : whole.epoch(0)) batches += batch.size() == 2;
    FAIL() << "no error";
  } catch (const penstock::error& caught) {
    EXPECT_NE(std::string(caught.what()).find("has 5 elements, wanted at most 4"), std::string::npos) << caught.what();
    EXPECT_EQ(caught.where().sample, 2U);
  }
  EXPECT_EQ(batches, 1U);
}

// A resumed state is of a feed with the same buckets, as their steps are other ones.
TEST(BucketByLength, is_part_of_what_a_state_is_of) {
  auto one = feed_of(50, {.tokens = 1024});
  auto other = feed_of(50, {.tokens = 512});
  EXPECT_THROW(other.resume(one.state()), penstock::error);
}

TEST(BucketByLength, pads_without_buckets_where_pad_to_is_asked_for) {
  auto feed = (penstock::stream([] { return std::vector<std::vector<float>>{{1}, {2, 2}, {3, 3, 3}}; }) |
               penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 2}) |
               penstock::batch(2, penstock::pad_to({.length = 3})) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::vector<float> found;
  for (auto& batch : feed.epoch(0)) {
    const auto [values, mask] = batch.fields();
    found.insert(found.end(), values.begin(), values.end());
    EXPECT_EQ(batch.info().bound, 0U);
  }
  EXPECT_EQ(found, (std::vector<float>{1, 0, 0, 2, 2, 0, 3, 3, 3}));
}

}  // namespace
