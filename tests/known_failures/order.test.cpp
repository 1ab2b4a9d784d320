// SPDX-License-Identifier: Apache-2.0
// Order, random numbers, shuffling.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "support.hpp"

namespace {

using namespace known_failures;

// Draws of the dataset's own, and one more of the transform's.
struct augmented {
  std::uint64_t size() const { return 11; }
  auto schema() const {
    return penstock::schema{penstock::field<std::uint32_t>{"integer"}, penstock::field<float>{"uniform"},
                            penstock::field<float, 1>{"normal", {3}}};
  }
  template <class To>
  void read(std::uint64_t index, const To& to, penstock::read_context& context) const {
    *std::get<0>(to).data() = context.random.below(1000) + static_cast<std::uint32_t>(index) * 1000;
    *std::get<1>(to).data() = context.random.uniform();
    for (std::size_t i = 0; i < 3; ++i) std::get<2>(to)[i] = context.random.normal();
  }
};

// Every bit of three epochs' batches.
std::vector<std::uint32_t> bits(std::uint64_t seed, int readers, int depth) {
  auto feed = (augmented{} | penstock::partition({.seed = seed}) |
               penstock::read({.readers = readers},
                              [](const auto& sample, penstock::philox& random) {
                                *std::get<1>(sample).data() += random.uniform();
                              }) |
               penstock::batch(4) | penstock::transfer(penstock::cpu_device{}, {.depth = depth}))
                  .start();
  std::vector<std::uint32_t> result;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : feed.epoch(epoch)) {
      const auto [integers, uniforms, normals] = batch.fields();
      for (std::size_t row = 0; row < batch.size(); ++row) {
        result.push_back(integers[row]);
        result.push_back(std::bit_cast<std::uint32_t>(uniforms[row]));
        for (std::size_t i = 0; i < 3; ++i) result.push_back(std::bit_cast<std::uint32_t>(normals(row, i)));
      }
    }
  }
  return result;
}

TEST(known_failures, ORD_1_draws_are_bit_equal_for_any_number_of_readers) {
  const hang_limit limit;
  const auto expected = bits(7, 0, 1);
  ASSERT_EQ(expected.size(), 3u * 11 * 5);
  for (const int readers : {1, 2, 3, 8})
    for (const int depth : {1, 2, 5})
      EXPECT_EQ(bits(7, readers, depth), expected) << readers << " readers, depth " << depth;
  EXPECT_NE(bits(8, 2, 2), expected);
}

template <class Partition>
std::vector<std::uint64_t> order_of(const Partition& partition, int readers,
                                    std::initializer_list<std::uint64_t> before, std::uint64_t epoch) {
  auto feed = (numbers<>{22} | partition | penstock::read({.readers = readers}) | penstock::batch(5) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  for (const std::uint64_t other : before) (void)all_of(feed.epoch(other));
  return joined(all_of(feed.epoch(epoch)));
}

TEST(known_failures, ORD_3_each_epoch_has_an_order_of_its_own_without_being_told) {
  const hang_limit limit;
  std::set<std::vector<std::uint64_t>> orders;
  auto feed = (numbers<>{22} | penstock::partition({.seed = 5}) | penstock::read({.readers = 2}) | penstock::batch(5) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::uint64_t> order;
    while (auto batch = feed.next()) {
      const auto more = numbers_of(batch);
      order.insert(order.end(), more.begin(), more.end());
    }
    EXPECT_TRUE(orders.insert(order).second);
    std::ranges::sort(order);
    EXPECT_EQ(order, first_numbers(22));
  }
}

TEST(known_failures, ORD_3_the_order_is_a_function_of_seed_and_epoch_only) {
  const hang_limit limit;
  for (const auto how : {penstock::shuffle::full, penstock::shuffle::blocks(4)}) {
    const auto partition = penstock::partition({.seed = 5, .shuffle = how});
    std::set<std::vector<std::uint64_t>> orders;
    for (const std::uint64_t epoch : {0u, 1u, 2u}) {
      const auto expected = order_of(partition, 1, {}, epoch);
      EXPECT_EQ(order_of(partition, 0, {}, epoch), expected);
      EXPECT_EQ(order_of(partition, 3, {2, 0, 7}, epoch), expected);
      EXPECT_EQ(order_of(partition, 3, {epoch, epoch}, epoch), expected);
      orders.insert(expected);
      EXPECT_NE(order_of(penstock::partition({.seed = 6, .shuffle = how}), 1, {}, epoch), expected);
    }
    EXPECT_EQ(orders.size(), 3u);
  }
}

// Row 0 is read when all rows are in that can come before it.
TEST(known_failures, ORD_4_a_slow_first_row_does_not_change_the_order) {
  const hang_limit limit;
  constexpr int depth = 4;
  for (const int readers : {2, 3, 10}) {
    std::atomic<std::uint64_t> others{0};
    auto hook = [&](std::uint64_t index) {
      if (index == 0)
        while (others.load() < depth * 8 - 8) std::this_thread::yield();
      else
        others.fetch_add(1);
    };
    std::vector<std::uint64_t> first, second;
    const auto result = penstock::run(
        numbers{64 * 8, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
        penstock::read({.readers = readers}) | penstock::batch(8) |
        penstock::transfer(penstock::cpu_device{}, {.depth = depth}) | penstock::compute([&](auto& batch) {
          first.push_back(batch.step());
          return numbers_of(batch);
        }) |
        penstock::compute([&](const std::vector<std::uint64_t>& rows, auto& batch) {
          second.push_back(batch.step());
          return rows;
        }) |
        penstock::reduce(std::vector<std::uint64_t>{}, [](auto& all, const std::vector<std::uint64_t>& rows) {
          all.insert(all.end(), rows.begin(), rows.end());
        }));
    EXPECT_EQ(first, first_numbers(64));
    EXPECT_EQ(second, first_numbers(64));
    EXPECT_EQ(result.value(), first_numbers(64 * 8));
  }
}

auto sorted_stream(int readers, std::uint64_t seed, std::uint64_t window) {
  return (penstock::stream([] { return std::views::iota(std::uint64_t{0}, std::uint64_t{1000}); }) |
          penstock::partition({.seed = seed, .shuffle = penstock::shuffle::window(window)}) |
          penstock::read({.readers = readers}) | penstock::batch(32) | penstock::transfer(penstock::cpu_device{}))
      .start();
}

class order_of_streams : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(known_failures, order_of_streams, testing::Values(0, 1, 4));

TEST_P(order_of_streams, ORD_5_a_shuffle_window_does_not_reach_over_the_end_of_an_epoch) {
  const hang_limit limit;
  auto feed = sorted_stream(GetParam(), 7, 300);
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    auto order = joined(all_of(feed.epoch(epoch)));
    ASSERT_EQ(order.size(), 1000u);
    // What is drawn at one position is of the window that has come in until then.
    for (std::size_t position = 0; position < order.size(); ++position) EXPECT_LT(order[position], position + 300);
    EXPECT_TRUE(orders.insert(order).second);
    std::ranges::sort(order);
    EXPECT_EQ(order, first_numbers(1000));
  }
}

TEST_P(order_of_streams, ORD_5_an_epoch_that_was_left_leaves_no_row_to_the_next) {
  const hang_limit limit;
  auto feed = sorted_stream(GetParam(), 7, 300);
  const auto whole = joined(all_of(feed.epoch(1)));
  for (auto& batch : feed.epoch(0))
    if (batch.step() == 3) break;
  EXPECT_EQ(joined(all_of(feed.epoch(1))), whole);
  EXPECT_EQ(joined(all_of(sorted_stream(2, 7, 300).epoch(1))), whole);
}

TEST_P(order_of_streams, ORD_5_any_window_gives_every_row_once) {
  const hang_limit limit;
  for (const std::uint64_t window : {1u, 2u, 999u, 1000u, 1001u, 5000u}) {
    auto feed = sorted_stream(GetParam(), 1, window);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      auto order = joined(all_of(feed.epoch(epoch)));
      if (window == 1) {
        EXPECT_EQ(order, first_numbers(1000));
      }
      std::ranges::sort(order);
      EXPECT_EQ(order, first_numbers(1000)) << "window " << window;
    }
  }
}

}  // namespace
