// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using floats = std::vector<float>;

/// A range in its own order, through a feed.
template <class Source>
auto feed_of(Source&& source, int readers = 1) {
  return (std::forward<Source>(source) | penstock::partition({.shuffle = penstock::shuffle::none}) |
          penstock::read({.readers = readers}) | penstock::batch(3) | penstock::transfer(penstock::cpu_device{}))
      .start();
}
template <class Source>
floats read_all(Source&& source, int readers) {
  auto feed = feed_of(std::forward<Source>(source), readers);
  floats result;
  for (auto& batch : feed.epoch(0))
    for (const auto& value : batch.template get<0>()) result.push_back(static_cast<float>(value));
  return result;
}

class StdViews : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Readers, StdViews, testing::Values(0, 2), testing::PrintToStringParamName());

const std::vector<int> numbers{5, 6, 7, 8, 9};

TEST_P(StdViews, iota_is_a_dataset) {
  EXPECT_EQ(read_all(std::views::iota(3, 8), GetParam()), (floats{3, 4, 5, 6, 7}));
}
TEST_P(StdViews, transform_is_a_dataset) {
  EXPECT_EQ(read_all(numbers | std::views::transform([](int x) { return 0.5F * static_cast<float>(x); }), GetParam()),
            (floats{2.5F, 3, 3.5F, 4, 4.5F}));
}
TEST_P(StdViews, take_is_a_dataset) { EXPECT_EQ(read_all(numbers | std::views::take(2), GetParam()), (floats{5, 6})); }
TEST_P(StdViews, drop_is_a_dataset) { EXPECT_EQ(read_all(numbers | std::views::drop(3), GetParam()), (floats{8, 9})); }
TEST_P(StdViews, reverse_is_a_dataset) {
  EXPECT_EQ(read_all(numbers | std::views::reverse, GetParam()), (floats{9, 8, 7, 6, 5}));
}
TEST_P(StdViews, what_elements_refer_to_is_hinted_at_and_copied) {
  const floats all{1, 2, 3, 4, 5, 6};
  using view = penstock::tensor_view<const float, 1>;
  EXPECT_EQ(read_all(std::vector<view>{view(all.data(), {2}), view(all.data() + 4, {2})}, GetParam()),
            (floats{1, 2, 5, 6}));
  EXPECT_EQ(read_all(std::vector<std::span<const float>>{{all.data() + 1, 3}, {all.data(), 3}}, GetParam()),
            (floats{2, 3, 4, 1, 2, 3}));
  const std::vector<std::pair<floats, int>> pairs{{{1, 2}, 3}, {{4, 5}, 6}};
  EXPECT_EQ(read_all(pairs, GetParam()), (floats{1, 2, 4, 5}));
  EXPECT_EQ(read_all(std::vector<floats>{{}, {}}, GetParam()), floats{});
  penstock::prefetch_lines(nullptr, 0);
  penstock::prefetch_lines(all.data(), 1 << 30);  // a hint never touches anything
}
TEST_P(StdViews, batches_pass_through_take_which_pulls_none_more) {
  auto feed = feed_of(std::views::iota(0, 30), GetParam());
  std::size_t batches = 0;
  for (auto& batch : feed.epoch(0) | std::views::take(2)) batches += batch.size() == 3;
  EXPECT_EQ(batches, 2U);
  EXPECT_EQ(feed.state().samples, 6U);
}

TEST(Range, an_lvalue_is_referred_to) {
  std::vector<int> own{1, 2, 3};
  auto feed = feed_of(own, 0);
  own[0] = 7;
  EXPECT_EQ(feed.next().get<0>()[0], 7);
}

TEST(Range, an_rvalue_is_owned) {
  auto feed = [] {
    std::vector<int> own{1, 2, 3};
    return feed_of(std::move(own));
  }();
  EXPECT_EQ(feed.next().get<0>()[2], 3);
}

TEST(Range, rows_take_their_shape_from_the_first) {
  const std::vector<std::vector<float>> rows{{1, 2}, {3, 4}};
  auto feed = feed_of(rows);
  const auto batch = feed.next();
  const auto x = batch.get<0>();
  EXPECT_EQ(x.shape(), (std::array<std::size_t, 2>{2, 2}));
  EXPECT_EQ(x(1, 0), 3);
}

TEST(Range, a_row_of_another_length_is_an_error_that_says_which) {
  const std::vector<std::vector<float>> rows{{1, 2}, {3, 4}, {5}};
  auto feed = feed_of(rows);
  try {
    feed.next();
    FAIL() << "it was read";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().sample, 2U);
    EXPECT_EQ(caught.problem(), "field 0 has 1 elements, wanted 2 as in sample 0");
  }
}

TEST(Range, tuples_of_all_kinds_of_fields_are_samples) {
  const std::array<double, 4> matrix{1, 2, 3, 4};
  using view = penstock::tensor_view<const double, 2>;
  using sample = std::tuple<std::uint8_t, std::array<float, 2>, std::span<const double>, view>;
  const std::vector<sample> samples{{std::uint8_t{9}, {5, 6}, matrix, view(matrix.data(), {2, 2})}};
  auto feed = feed_of(samples);
  const auto batch = feed.next();
  const auto [number, pair, four, two_by_two] = batch.fields();
  EXPECT_EQ(number[0], 9);
  EXPECT_EQ(pair(0, 1), 6);
  EXPECT_EQ(four(0, 3), 4);
  EXPECT_EQ(two_by_two.shape(), (std::array<std::size_t, 3>{1, 2, 2}));
  EXPECT_EQ(two_by_two(0, 1, 0), 3);
}

TEST(Range, proxies_are_samples) {
  const std::vector<bool> bits{true, false, true};
  EXPECT_EQ(read_all(bits, 2), (floats{1, 0, 1}));
}

TEST(Range, fields_are_named_by_their_place) {
  const penstock::range_dataset data(std::vector<std::pair<int, float>>{{1, 2.F}});
  EXPECT_EQ(std::get<0>(data.schema().fields).name, "0");
  EXPECT_EQ(std::get<1>(data.schema().fields).name, "1");
}

TEST(Range, an_empty_one_is_refused_before_anything_starts) {
  const std::vector<float> none;
  try {
    feed_of(none);
    FAIL() << "it was started";
  } catch (const std::invalid_argument& caught) {
    EXPECT_NE(std::string(caught.what()).find("the dataset is empty"), std::string::npos) << caught.what();
  }
}

}  // namespace
