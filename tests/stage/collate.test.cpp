// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using tokens = std::vector<int>;

template <class Data, class Collate>
auto feed_of(const Data& data, int readers, Collate collate, std::int64_t size = 4) {
  return (data | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = readers}) |
          penstock::batch(size, collate) | penstock::transfer(penstock::cpu_device{}))
      .start();
}

class PadTo : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Readers, PadTo, testing::Values(0, 2), testing::PrintToStringParamName());

const std::vector<tokens> sentences{{1, 2, 3}, {}, {4}, {5, 6}};

TEST_P(PadTo, fills_with_zeros_and_masks_what_is_there) {
  auto feed = feed_of(sentences, GetParam(), penstock::pad_to({.length = 3}));
  // The second epoch finds what the first one left in the buffers.
  for (std::uint64_t epoch : {0U, 1U})
    for (auto& batch : feed.epoch(epoch)) {
      const auto [words, mask] = batch.fields();
      EXPECT_EQ(std::vector(words.begin(), words.end()), (tokens{1, 2, 3, 0, 0, 0, 4, 0, 0, 5, 6, 0}));
      EXPECT_EQ(std::vector<int>(mask.begin(), mask.end()), (tokens{1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0}));
    }
}

TEST_P(PadTo, names_the_mask_after_its_field) {
  const auto schema = feed_of(sentences, GetParam(), penstock::pad_to({.length = 5})).schema();
  EXPECT_EQ(std::get<0>(schema.fields).name, "0");
  EXPECT_EQ(std::get<1>(schema.fields).name, "0_mask");
  EXPECT_EQ(std::get<1>(schema.fields).shape[0], 5U);
}

TEST_P(PadTo, a_longer_one_is_an_error_that_says_which) {
  auto feed = feed_of(sentences, GetParam(), penstock::pad_to({.length = 2}), 1);
  try {
    feed.next();
    FAIL() << "it was read";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().sample, 0U);
    EXPECT_NE(caught.problem().find("field 0 has 3 elements, wanted at most 2"), std::string::npos) << caught.problem();
  }
}

TEST_P(PadTo, a_longer_one_is_cut_if_asked_for) {
  auto feed = feed_of(sentences, GetParam(), penstock::pad_to({.length = 2, .longer = penstock::longer::cut}));
  const auto batch = feed.next();
  const auto [words, mask] = batch.fields();
  EXPECT_EQ(std::vector(words.begin(), words.end()), (tokens{1, 2, 0, 0, 4, 0, 5, 6}));
  EXPECT_EQ(std::vector<int>(mask.begin(), mask.end()), (tokens{1, 1, 0, 0, 1, 0, 1, 1}));
}

TEST_P(PadTo, pads_each_sequence_of_a_tuple_and_leaves_the_rest) {
  const std::vector<std::tuple<tokens, float, std::array<int, 2>, std::vector<double>>> samples{
      {{1}, 0.5F, {8, 9}, {2.5, 3.5}}, {{2, 3}, 1.5F, {6, 7}, {}}};
  auto feed = feed_of(samples, GetParam(), penstock::pad_to({.length = 2}));
  const auto batch = feed.next();
  const auto [words, word_mask, weight, pair, curve, curve_mask] = batch.fields();
  EXPECT_EQ(words(1, 1), 3);
  EXPECT_EQ(word_mask(0, 1), 0);
  EXPECT_EQ(weight[1], 1.5F);
  EXPECT_EQ(pair(1, 0), 6);
  EXPECT_EQ(curve(0, 1), 3.5);
  EXPECT_EQ(curve_mask(1, 0), 0);
}

TEST_P(PadTo, transforms_see_the_padded_sample) {
  auto feed = (sentences | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = GetParam()},
                              [](const auto& sample) {
                                const auto& [words, mask] = sample;
                                for (std::size_t i = 0; i < words.size(); ++i) words[i] = mask[i] != 0 ? -words[i] : 99;
                              }) |
               penstock::batch(4, penstock::pad_to({.length = 3})) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  const auto batch = feed.next();
  const auto words = batch.get<0>();
  EXPECT_EQ(words(0, 2), -3);
  EXPECT_EQ(words(1, 0), 99);
}

TEST(Collate, pads_parts_of_a_split) {
  const auto parts = penstock::split(sentences, {.test = 0.5, .seed = 1});
  auto feed = feed_of(parts.test, 1, penstock::pad_to({.length = 3}));
  const auto batch = feed.next();
  ASSERT_EQ(batch.size(), 2U);
  for (std::size_t row = 0; row < 2; ++row) {
    const tokens& wanted = sentences[parts.test.origin(row)];
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(batch.get<0>()(row, i), i < wanted.size() ? wanted[i] : 0);
  }
}

TEST(Collate, a_length_of_zero_is_refused) { EXPECT_THROW(penstock::pad_to({}), std::invalid_argument); }

/// A user's own: the mean and the number of a sequence's elements.
struct summary {
  template <class Dataset>
  auto schema(const Dataset&) const {
    return penstock::schema(penstock::field<float>{"mean"}, penstock::field<std::uint32_t>{"count"});
  }
  template <class Sample>
  void operator()(
      const Sample& sample,
      const std::tuple<penstock::tensor_view<float, 0>, penstock::tensor_view<std::uint32_t, 0>>& to) const {
    float sum = 0;
    for (int value : sample) sum += static_cast<float>(value);
    std::get<0>(to)() = sample.empty() ? 0 : sum / static_cast<float>(sample.size());
    std::get<1>(to)() = static_cast<std::uint32_t>(sample.size());
  }
};

TEST(Collate, may_be_of_the_user_s_own) {
  auto feed = feed_of(sentences, 2, summary{});
  const auto batch = feed.next();
  const auto [mean, count] = batch.fields();
  EXPECT_EQ(std::vector(mean.begin(), mean.end()), (std::vector<float>{2, 0, 4, 5.5F}));
  EXPECT_EQ(std::vector(count.begin(), count.end()), (std::vector<std::uint32_t>{3, 0, 1, 2}));
}

}  // namespace
