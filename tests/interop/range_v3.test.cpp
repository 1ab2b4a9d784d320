// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/interop/range_v3.hpp>
#include <penstock/penstock.hpp>
#include <range/v3/algorithm/sort.hpp>
#include <range/v3/view/concat.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/sample.hpp>
#include <range/v3/view/slice.hpp>
#include <range/v3/view/stride.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/transform.hpp>
#include <range/v3/view/zip.hpp>

namespace {

namespace views = ranges::views;

const std::vector<float> tens{0, 10, 20, 30, 40, 50, 60};
const std::vector<int> ones{0, 1, 2, 3, 4, 5, 6};

class RangeV3 : public testing::TestWithParam<int> {
 protected:
  template <class Source>
  auto feed_of(Source&& source) const {
    return (std::forward<Source>(source) | penstock::partition({.shuffle = penstock::shuffle::none}) |
            penstock::read({.readers = GetParam()}) | penstock::batch(3) | penstock::transfer(penstock::cpu_device{}))
        .start();
  }
  /// The first field of all samples of an epoch.
  template <class Source>
  std::vector<float> read_all(Source&& source) const {
    auto feed = feed_of(std::forward<Source>(source));
    std::vector<float> result;
    for (auto& batch : feed.epoch(0))
      for (const auto& value : batch.template get<0>()) result.push_back(static_cast<float>(value));
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Readers, RangeV3, testing::Values(0, 2), testing::PrintToStringParamName());

using floats = std::vector<float>;

TEST_P(RangeV3, zip_of_two_vectors_gives_samples_of_two_fields) {
  auto feed = feed_of(views::zip(tens, ones));
  std::vector<std::pair<float, int>> found;
  for (auto& batch : feed.epoch(0)) {
    const auto [x, y] = batch.fields();
    for (std::size_t row = 0; row < batch.size(); ++row) found.emplace_back(x[row], y[row]);
  }
  const std::vector<std::pair<float, int>> wanted{{0, 0}, {10, 1}, {20, 2}, {30, 3}, {40, 4}, {50, 5}, {60, 6}};
  EXPECT_EQ(found, wanted);
}

TEST_P(RangeV3, transform_gives_what_its_function_makes) {
  EXPECT_EQ(read_all(views::transform(tens, [](float x) { return x + 1; })), (floats{1, 11, 21, 31, 41, 51, 61}));
}

TEST_P(RangeV3, transform_of_a_zip_gives_what_its_function_makes_of_both) {
  const auto sum = [](const auto& pair) { return pair.first + static_cast<float>(pair.second); };
  EXPECT_EQ(read_all(views::zip(tens, ones) | views::transform(sum)), (floats{0, 11, 22, 33, 44, 55, 66}));
}

TEST_P(RangeV3, slice_gives_a_part) { EXPECT_EQ(read_all(tens | views::slice(2, 6)), (floats{20, 30, 40, 50})); }

TEST_P(RangeV3, concat_gives_one_after_the_other) {
  const floats none;
  EXPECT_EQ(read_all(views::concat(tens, none, tens | views::slice(0, 2))), (floats{0, 10, 20, 30, 40, 50, 60, 0, 10}));
}

TEST_P(RangeV3, stride_gives_every_second) { EXPECT_EQ(read_all(tens | views::stride(2)), (floats{0, 20, 40, 60})); }

TEST_P(RangeV3, a_view_that_has_a_name_is_a_dataset_as_well) {
  auto part = tens | views::slice(1, 3);
  EXPECT_EQ(read_all(part), (floats{10, 20}));
}

TEST_P(RangeV3, sample_has_no_random_access_and_is_a_stream) {
  const auto chosen = [](std::uint64_t epoch) {
    // What is drawn with lives as long as the view that refers to it.
    static thread_local std::mt19937 random;
    random.seed(static_cast<std::uint32_t>(epoch));
    return tens | views::sample(4, random);
  };
  floats found = read_all(penstock::stream(chosen));
  ASSERT_EQ(found.size(), 4U);
  ranges::sort(found);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NE(std::find(tens.begin(), tens.end(), found[i]), tens.end());
    if (i > 0) {
      EXPECT_NE(found[i], found[i - 1]) << "drawn twice";
    }
  }
}

TEST_P(RangeV3, batches_of_an_epoch_can_be_enumerated) {
  auto feed = feed_of(tens);
  std::vector<std::size_t> sizes;
  for (auto&& [number, batch] : feed.epoch(0) | views::enumerate) {
    EXPECT_EQ(number, batch.step());
    sizes.push_back(batch.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{3, 3, 1}));
}

TEST_P(RangeV3, take_pulls_no_batch_more_than_it_gives) {
  auto feed = feed_of(views::iota(0, 100));
  std::size_t batches = 0;
  for (auto& batch : feed.epoch(0) | views::take(3)) {
    EXPECT_EQ(batch.step(), batches);
    ++batches;
  }
  EXPECT_EQ(batches, 3U);
  EXPECT_EQ(feed.state().samples, 9U);
}

}  // namespace
