// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/stage/plan.hpp>

namespace {

using penstock::default_plan;
using penstock::last_batch;
using penstock::position_range;
using penstock::rank_share;
using penstock::shuffle;
using penstock::step_shape;
using penstock::world;
using indices = std::vector<std::uint64_t>;

/// Draws with replacement, each sample as often as its weight says: an example of a plan of one's own.
class weighted_plan {
 public:
  weighted_plan(std::vector<std::uint64_t> weights, std::uint64_t draws) : until_(std::move(weights)), draws_(draws) {
    std::partial_sum(until_.begin(), until_.end(), until_.begin());
  }
  std::uint64_t size() const { return draws_; }
  void order(std::uint64_t seed, std::uint64_t epoch, std::uint64_t first, std::span<std::uint64_t> out) const {
    for (std::uint64_t& index : out) {
      penstock::philox random(seed, epoch, first++, penstock::random_domain::plan);
      const auto chosen = std::upper_bound(until_.begin(), until_.end(), random.below(until_.back()));
      index = static_cast<std::uint64_t>(chosen - until_.begin());
    }
  }

 private:
  std::vector<std::uint64_t> until_;
  std::uint64_t draws_;
};

/// The samples of all folds but one, shuffled anew in each epoch; the folds themselves depend on `fold_seed` alone.
class k_fold_plan {
 public:
  k_fold_plan(std::uint64_t n, std::uint64_t folds, std::uint64_t left_out, std::uint64_t fold_seed)
      : folds_(n, fold_seed, 0), left_out_(rank_share(0, n, {left_out, folds})) {}
  std::uint64_t size() const { return folds_.size() - left_out_.count; }
  void order(std::uint64_t seed, std::uint64_t epoch, std::uint64_t first, std::span<std::uint64_t> out) const {
    penstock::permutation(size(), seed, epoch).fill(first, out);
    for (std::uint64_t& index : out) index = folds_(index < left_out_.first ? index : index + left_out_.count);
  }

 private:
  penstock::permutation folds_;
  position_range left_out_;
};

static_assert(penstock::plan<penstock::sequential_plan> && penstock::plan<penstock::shuffled_plan> &&
              penstock::plan<penstock::block_shuffled_plan> && penstock::plan<default_plan> &&
              penstock::plan<weighted_plan> && penstock::plan<k_fold_plan>);
static_assert(!penstock::plan<int> && !penstock::plan<indices>);

indices whole(const penstock::plan auto& plan, std::uint64_t seed, std::uint64_t epoch) {
  indices out(plan.size());
  plan.order(seed, epoch, 0, out);
  return out;
}

indices sorted(indices values) {
  std::sort(values.begin(), values.end());
  return values;
}

indices up_to(std::uint64_t n) {
  indices all(n);
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

constexpr shuffle kinds[] = {shuffle::none,      shuffle::full,        shuffle::blocks(1),
                             shuffle::blocks(7), shuffle::blocks(100), shuffle::blocks(5000)};

TEST(plan, has_each_sample_once_in_each_epoch) {
  for (std::uint64_t n : {0u, 1u, 2u, 6u, 7u, 8u, 64u, 65u, 100u, 343u, 1003u})
    for (shuffle how : kinds)
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
        ASSERT_EQ(sorted(whole(default_plan(n, how), 5, epoch)), up_to(n)) << n << " in blocks of " << how.block();
}

template <class Plan>
void expect_parts_make_the_whole(const Plan& plan) {
  const indices all = whole(plan, 3, 2);
  for (std::size_t length : {1u, 5u, 64u, 150u})
    for (std::size_t first = 0; first + length <= all.size(); first += 3) {
      indices part(length);
      plan.order(3, 2, first, part);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(first)));
    }
}
TEST(plan, gives_any_part_of_the_epoch_as_in_the_whole) {
  for (shuffle how : kinds) expect_parts_make_the_whole(default_plan(303, how));
  expect_parts_make_the_whole(weighted_plan({1, 0, 5, 2}, 200));
  expect_parts_make_the_whole(k_fold_plan(303, 4, 2, 1));
}

TEST(plan, ORD_3_is_another_permutation_in_each_epoch_and_a_function_of_seed_and_epoch) {
  for (shuffle how : {shuffle::full, shuffle::blocks(4)}) {
    const default_plan plan(22, how);
    const indices first = whole(plan, 7, 0), second = whole(plan, 7, 1), third = whole(plan, 7, 2);
    EXPECT_NE(first, up_to(22));
    EXPECT_NE(first, second);
    EXPECT_NE(first, third);
    EXPECT_NE(second, third);
    EXPECT_EQ(second, whole(default_plan(22, how), 7, 1));
    EXPECT_NE(first, whole(plan, 8, 0));
  }
}

TEST(plan, keeps_blocks_together_and_shuffles_within_and_among_them) {
  constexpr std::uint64_t n = 1'030;  // ten blocks of 100 and one of 30
  std::vector<int> short_at(11);
  for (std::uint64_t epoch = 0; epoch < 1'100; ++epoch) {
    const indices order = whole(default_plan(n, shuffle::blocks(100)), 1, epoch);
    indices blocks;
    for (std::size_t first = 0; first < n;) {
      const std::uint64_t block = order[first] / 100;
      const std::size_t length = block == 10 ? 30 : 100;
      indices expected = up_to(length);
      for (std::uint64_t& index : expected) index += block * 100;
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
      const indices found(begin, begin + static_cast<std::ptrdiff_t>(length));
      ASSERT_NE(found, expected);
      ASSERT_EQ(sorted(found), expected);
      if (block == 10) ++short_at[blocks.size()];
      blocks.push_back(block);
      first += length;
    }
    ASSERT_EQ(sorted(blocks), up_to(11));
  }
  // The short block stands anywhere: 100 times at each place, with a standard deviation of 9.5.
  for (int count : short_at) EXPECT_NEAR(count, 100, 40);
}

TEST(shuffle, refuses_blocks_and_windows_of_nothing) {
  EXPECT_TRUE(shuffle::window(5).is_window());
  EXPECT_EQ(shuffle::window(5).block(), 5u);
  EXPECT_NE(shuffle::window(5), shuffle::blocks(5));
  EXPECT_THROW(static_cast<void>(shuffle::window(0)), std::invalid_argument);
  EXPECT_EQ(shuffle::blocks(3).block(), 3u);
  EXPECT_TRUE(shuffle::full.is_full());
  EXPECT_TRUE(shuffle::none.is_none());
  EXPECT_EQ(default_plan(3).how(), shuffle::full);
  try {
    static_cast<void>(shuffle::blocks(0));
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& caught) {
    EXPECT_EQ(std::string(caught.what()), "penstock: partition: samples in a block to shuffle is 0, wanted 1 or more");
  }
}

TEST(rank_share, COV_1_splits_ten_rows_over_three_ranks_into_four_three_and_three) {
  EXPECT_EQ(rank_share(0, 10, {0, 3}), (position_range{0, 4}));
  EXPECT_EQ(rank_share(0, 10, {1, 3}), (position_range{4, 3}));
  EXPECT_EQ(rank_share(0, 10, {2, 3}), (position_range{7, 3}));
}

TEST(rank_share, is_contiguous_complete_and_even_to_one) {
  for (std::uint64_t size = 1; size <= 6; ++size)
    for (std::uint64_t count = 0; count <= 40; ++count) {
      std::uint64_t next = 1000;
      for (std::uint64_t rank = 0; rank < size; ++rank) {
        const position_range share = rank_share(1000, count, {rank, size});
        EXPECT_EQ(share.first, next);
        EXPECT_TRUE(share.count == count / size || share.count == count / size + 1);
        next += share.count;
      }
      EXPECT_EQ(next, 1000 + count);
    }
}

TEST(step_shape, COV_2_announces_on_each_rank_what_it_delivers) {
  constexpr step_shape shape{.positions = 103, .batch = 6 * 4};
  static_assert(shape.steps() == 5);
  std::uint64_t delivered = 0;
  for (std::uint64_t rank = 0; rank < 6; ++rank)
    for (std::uint64_t k = 0; k < shape.steps(); ++k) {
      const position_range share = shape.step(k, {rank, 6});
      EXPECT_EQ(share.count, k < 4 ? 4u : (rank == 0 ? 2u : 1u));
      delivered += share.count;
    }
  EXPECT_EQ(delivered, 103u);
}

TEST(step_shape, loses_and_repeats_nothing_wherever_it_starts) {
  for (std::uint64_t n = 0; n <= 30; ++n)
    for (std::uint64_t batch = 1; batch <= 12; ++batch)
      for (std::uint64_t start = 0; start <= n; ++start)
        for (last_batch last : {last_batch::keep, last_batch::drop, last_batch::pad}) {
          const step_shape shape{.positions = n, .batch = batch, .last = last, .start = start};
          std::uint64_t next = start;
          for (std::uint64_t k = 0; k < shape.steps(); ++k) {
            const position_range step = shape.step(k);
            ASSERT_EQ(step.first, next);
            ASSERT_GT(step.count, 0u);
            ASSERT_TRUE(step.count == batch || (last != last_batch::drop && k + 1 == shape.steps()));
            next += step.count;
          }
          if (last == last_batch::drop) {
            ASSERT_LT(n - next, batch);
          } else {
            ASSERT_EQ(next, n);
          }
        }
  EXPECT_EQ((step_shape{.positions = 5, .batch = 2, .start = 6}.steps()), 0u);
}

// Law 1: what the ranks read in step k is the same set for every world; over an epoch it is every position once.
TEST(step_shape, gives_the_ranks_together_the_same_steps_in_every_world) {
  for (std::uint64_t n : {1u, 23u, 96u, 101u})
    for (shuffle how : kinds) {
      const default_plan plan(n, how);
      const indices all = whole(plan, 11, 1);
      const step_shape shape{.positions = n, .batch = 10};
      for (std::uint64_t size = 1; size <= 6; ++size) {
        indices delivered;
        for (std::uint64_t k = 0; k < shape.steps(); ++k) {
          indices step;
          for (std::uint64_t rank = 0; rank < size; ++rank) {
            const position_range share = shape.step(k, {rank, size});
            indices part(share.count);
            plan.order(11, 1, share.first, part);
            step.insert(step.end(), part.begin(), part.end());
          }
          const auto begin = all.begin() + static_cast<std::ptrdiff_t>(shape.step(k).first);
          ASSERT_EQ(step, indices(begin, begin + static_cast<std::ptrdiff_t>(shape.step(k).count)));
          delivered.insert(delivered.end(), step.begin(), step.end());
        }
        ASSERT_EQ(sorted(delivered), up_to(n));
      }
    }
}

TEST(weighted_plan, draws_by_weight_and_anew_in_each_epoch) {
  const weighted_plan plan({1, 0, 5, 2}, 8'000);
  const indices drawn = whole(plan, 2, 0);
  const std::uint64_t expected[] = {1'000, 0, 5'000, 2'000};
  for (std::uint64_t sample = 0; sample < 4; ++sample)  // standard deviations of up to 44
    EXPECT_NEAR(static_cast<double>(std::count(drawn.begin(), drawn.end(), sample)),
                static_cast<double>(expected[sample]), sample == 1 ? 0 : 200);
  EXPECT_NE(drawn, whole(plan, 2, 1));
  EXPECT_EQ(drawn, whole(plan, 2, 0));
}

TEST(k_fold_plan, leaves_out_each_sample_in_one_fold_the_same_in_each_epoch) {
  indices left_out;
  for (std::uint64_t fold = 0; fold < 4; ++fold) {
    const k_fold_plan plan(103, 4, fold, 9);
    const indices used = sorted(whole(plan, 7, 0));
    EXPECT_EQ(used, sorted(whole(plan, 7, 1)));
    EXPECT_NE(whole(plan, 7, 0), whole(plan, 7, 1));
    const indices all = up_to(103);
    std::set_difference(all.begin(), all.end(), used.begin(), used.end(), std::back_inserter(left_out));
  }
  EXPECT_EQ(sorted(left_out), up_to(103));
}

}  // namespace
