// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using pixels = std::array<std::uint8_t, 4>;
using labelled = std::tuple<pixels, int>;

const std::vector<labelled> images{{{0, 1, 2, 255}, 7}, {{10, 20, 30, 40}, 8}, {{5, 5, 5, 5}, 9}};

/// Rows 0 to 2 in one batch.
template <class Collate>
auto feed_of(Collate collate, int readers) {
  return (images | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = readers}) |
          penstock::batch(3, collate) | penstock::transfer(penstock::cpu_device{}))
      .start();
}

class Cast : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Readers, Cast, testing::Values(0, 2), testing::PrintToStringParamName());

TEST_P(Cast, converts_the_fields_that_it_names_and_keeps_the_others) {
  auto feed = feed_of(penstock::cast<float, penstock::keep>, GetParam());
  const auto batch = feed.next();
  const auto [image, label] = batch.fields();
  static_assert(std::same_as<decltype(image), const penstock::tensor_view<float, 2>>);
  static_assert(std::same_as<decltype(label), const penstock::tensor_view<int, 1>>);
  EXPECT_EQ(std::vector<float>(image.begin(), image.end()),
            (std::vector<float>{0, 1, 2, 255, 10, 20, 30, 40, 5, 5, 5, 5}));
  EXPECT_EQ(std::vector<int>(label.begin(), label.end()), (std::vector<int>{7, 8, 9}));
}

TEST_P(Cast, comes_after_the_transform_which_sees_what_was_stored) {
  const auto brighter = [](const auto& sample) {
    const auto& [image, label] = sample;
    static_assert(std::same_as<std::remove_cvref_t<decltype(image[0])>, std::uint8_t>);
    for (std::uint8_t& pixel : image) pixel = static_cast<std::uint8_t>(pixel / 5);
    label() = -label();
  };
  auto feed = (images | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = GetParam()}, brighter) | penstock::batch(3, penstock::cast<double, long>) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  const auto batch = feed.next();
  const auto [image, label] = batch.fields();
  EXPECT_EQ(image(0, 3), 51.0);
  EXPECT_EQ(label[2], -9L);
}

TEST_P(Cast, of_a_dataset_that_reads_in_bulk_converts_as_well) {
  using schema_type = penstock::schema<penstock::field<std::uint16_t>>;
  struct bulk {
    std::uint64_t size() const { return 9; }
    schema_type schema() const { return schema_type{penstock::field<std::uint16_t>{"id"}}; }
    void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
      for (std::size_t row = 0; row < indices.size(); ++row)
        std::get<0>(to)[row] = static_cast<std::uint16_t>(indices[row]);
    }
  };
  auto feed = (bulk{} | penstock::partition() | penstock::read({.readers = GetParam()}) |
               penstock::batch(4, penstock::cast<double>) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  for (auto& batch : feed.epoch(0))
    for (std::size_t row = 0; row < batch.size(); ++row)
      EXPECT_EQ(batch.get<0>()[row], static_cast<double>(batch.indices()[row]));
}

// ---- sizes

template <class Feed>
std::vector<std::size_t> sizes(Feed feed) {
  std::vector<std::size_t> result;
  for (auto& batch : feed.epoch(0)) {
    EXPECT_EQ(batch.template get<0>().extent(0), batch.rows());
    result.push_back(batch.size());
    result.push_back(batch.rows());
  }
  return result;
}
auto numbers(penstock::batch_options options, penstock::world world = {}) {
  return (std::views::iota(1, 11) | penstock::partition({.shuffle = penstock::shuffle::none, .world = world}) |
          penstock::read() | penstock::batch(options) | penstock::transfer(penstock::cpu_device{}))
      .start();
}

using list = std::vector<std::size_t>;

TEST(Batch, the_last_one_is_kept_with_its_real_size) {
  EXPECT_EQ(sizes(numbers({.size = 4})), (list{4, 4, 4, 4, 2, 2}));
}
TEST(Batch, the_last_one_is_dropped_if_asked_for) {
  EXPECT_EQ(sizes(numbers({.size = 4, .last = penstock::last_batch::drop})), (list{4, 4, 4, 4}));
}
TEST(Batch, the_last_one_is_padded_with_zeros_if_asked_for) {
  EXPECT_EQ(sizes(numbers({.size = 4, .last = penstock::last_batch::pad})), (list{4, 4, 4, 4, 2, 4}));
  auto feed = numbers({.size = 4, .last = penstock::last_batch::pad});
  std::vector<int> last;
  for (auto& batch : feed.epoch(0)) {
    const auto values = batch.get<0>();
    last.assign(values.begin(), values.end());
  }
  EXPECT_EQ(last, (std::vector<int>{9, 10, 0, 0}));
}
TEST(Batch, of_everything_is_one) { EXPECT_EQ(sizes(numbers({.size = 10})), (list{10, 10})); }
TEST(Batch, larger_than_the_dataset_is_one_short_one) { EXPECT_EQ(sizes(numbers({.size = 64})), (list{10, 10})); }

TEST(Batch, a_global_size_is_shared_by_the_ranks) {
  EXPECT_EQ(sizes(numbers({.global = 5}, {0, 2})), (list{3, 3, 3, 3}));
  EXPECT_EQ(sizes(numbers({.global = 5}, {1, 2})), (list{2, 2, 2, 2}));
  EXPECT_EQ(sizes(numbers({.size = 3}, {1, 2})), (list{3, 3, 2, 2})) << "4 of the last step, 2 for each rank";
}

}  // namespace
