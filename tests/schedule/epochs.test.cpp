// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <cstdint>

#include <penstock/schedule/epochs.hpp>

namespace {

using penstock::last_batch;
using penstock::step_shape;
using penstock::world;
using penstock::detail::epoch_map;

TEST(epoch_map, counts_steps_on_from_epoch_to_epoch) {
  epoch_map map(step_shape{.positions = 10, .batch = 4}, world{});
  map.begin(100, 5, 0);
  EXPECT_EQ(map.steps_per_epoch(), 3U);
  for (std::uint64_t step = 0; step < 30; ++step) {
    const auto at = map(100 + step);
    EXPECT_EQ(at.epoch, 5 + step / 3);
    EXPECT_EQ(at.step, step % 3);
    EXPECT_EQ(at.mine.first, step % 3 * 4);
    EXPECT_EQ(at.mine.count, step % 3 == 2 ? 2U : 4U);
    EXPECT_EQ(at.next, at.mine.first + at.mine.count);
    EXPECT_EQ(at.global, at.mine.count);
  }
  EXPECT_EQ(map.end_of(5), 103U);
  EXPECT_EQ(map.end_of(7), 109U);
}

TEST(epoch_map, begun_in_the_middle_it_has_the_rest_and_then_whole_epochs) {
  for (last_batch last : {last_batch::keep, last_batch::drop}) {
    epoch_map map(step_shape{.positions = 10, .batch = 4, .last = last}, world{});
    map.begin(7, 2, 4);
    const std::uint64_t rest = last == last_batch::keep ? 2 : 1;
    EXPECT_EQ(map.first_steps(), rest);
    EXPECT_EQ(map(7).epoch, 2U);
    EXPECT_EQ(map(7).step, 1U) << "steps keep their numbers";
    EXPECT_EQ(map(7).mine.first, 4U);
    EXPECT_EQ(map.end_of(2), 7 + rest);
    EXPECT_EQ(map(7 + rest).epoch, 3U);
    EXPECT_EQ(map(7 + rest).step, 0U);
    EXPECT_EQ(map(7 + rest).mine.first, 0U);
  }
}

TEST(epoch_map, knows_where_nothing_is_left) {
  const epoch_map keeps(step_shape{.positions = 10, .batch = 4}, world{});
  EXPECT_FALSE(keeps.at_end(8));
  EXPECT_TRUE(keeps.at_end(10));
  const epoch_map drops(step_shape{.positions = 10, .batch = 4, .last = last_batch::drop}, world{});
  EXPECT_FALSE(drops.at_end(4));
  EXPECT_TRUE(drops.at_end(8));
}

TEST(epoch_map, ranks_have_consecutive_parts_of_one_step) {
  for (std::uint64_t size = 1; size <= 4; ++size) {
    std::uint64_t first = 0;
    for (std::uint64_t rank = 0; rank < size; ++rank) {
      epoch_map map(step_shape{.positions = 23, .batch = 10}, world{rank, size});
      map.begin(0, 0, 0);
      EXPECT_EQ(map(2).mine.first, 20 + first);
      EXPECT_EQ(map(2).global, 3U);
      EXPECT_EQ(map(2).next, 23U);
      first += map(2).mine.count;
    }
    EXPECT_EQ(first, 3U);
  }
}

}  // namespace
