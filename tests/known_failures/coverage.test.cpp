// SPDX-License-Identifier: Apache-2.0
// Coverage: shards, epoch size, last batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ranges>
#include <stdexcept>
#include <string_view>

#include "support.hpp"

namespace {

using namespace known_failures;

template <class Source>
auto shard(Source&& source, std::uint64_t rank, std::uint64_t size, const penstock::batch_options& batch,
           int readers = 2, penstock::shuffle how = penstock::shuffle::none) {
  return (std::forward<Source>(source) | penstock::partition({.seed = 4, .shuffle = how, .world = {rank, size}}) |
          penstock::read({.readers = readers}) | penstock::batch(batch) | penstock::transfer(penstock::cpu_device{}))
      .start();
}

TEST(known_failures, COV_1_ten_rows_over_three_replicas_are_4_3_and_3) {
  const hang_limit limit;
  const auto data = numbers<>{10};
  std::vector<std::uint64_t> all;
  std::vector<std::size_t> sizes;
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    const auto rows = joined(all_of(shard(data, rank, 3, {.size = 4}).epoch(0)));
    sizes.push_back(rows.size());
    all.insert(all.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 3, 3}));
  std::ranges::sort(all);
  EXPECT_EQ(all, first_numbers(10));
}

TEST(known_failures, COV_1_no_row_is_repeated_or_lost_for_any_world) {
  const hang_limit limit;
  for (const std::uint64_t n : {1u, 2u, 7u, 10u, 64u, 103u}) {
    const auto data = numbers<>{n};
    for (const std::uint64_t size : {1u, 2u, 3u, 7u}) {
      for (const std::int64_t batch : {1, 4, 200}) {
        for (const auto last : {penstock::last_batch::keep, penstock::last_batch::pad}) {
          std::vector<std::uint64_t> all;
          for (std::uint64_t rank = 0; rank < size; ++rank) {
            const auto rows = joined(
                all_of(shard(data, rank, size, {.size = batch, .last = last}, 0, penstock::shuffle::full).epoch(1)));
            all.insert(all.end(), rows.begin(), rows.end());
          }
          std::ranges::sort(all);
          EXPECT_EQ(all, first_numbers(n)) << n << " rows, " << size << " replicas, batch " << batch;
        }
      }
    }
  }
}

TEST(known_failures, COV_1_padding_is_told_from_rows) {
  const hang_limit limit;
  const auto data = numbers<>{10};
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    auto feed = shard(data, rank, 3, {.size = 4, .last = penstock::last_batch::pad});
    for (auto& batch : feed.epoch(0)) {
      EXPECT_EQ(batch.size(), rank == 0 ? 4u : 3u);
      EXPECT_EQ(batch.indices().size(), batch.size());
      EXPECT_EQ(batch.rows(), 4u);
      for (std::size_t row = batch.size(); row < batch.rows(); ++row) EXPECT_EQ(batch.host<0>()[row], 0u);
    }
  }
}

TEST(known_failures, COV_2_the_announced_length_is_the_delivered_one_on_each_replica_in_each_epoch) {
  const hang_limit limit;
  struct listener {
    std::uint64_t* announced;
    void on_begin(const penstock::run_begin& event) { *announced = event.steps_per_epoch.value(); }
  };
  const auto data = numbers<>{103};
  for (const auto last : {penstock::last_batch::keep, penstock::last_batch::drop, penstock::last_batch::pad}) {
    const std::size_t expected = last == penstock::last_batch::drop ? 4 : 5;
    for (std::uint64_t rank = 0; rank < 6; ++rank) {
      auto feed = shard(data, rank, 6, {.size = 4, .last = last}, 2, penstock::shuffle::full);
      std::uint64_t announced = 0;
      feed.observe(listener{&announced});
      for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
        EXPECT_EQ(feed.steps_per_epoch(), expected);
        EXPECT_EQ(all_of(feed.epoch(epoch)).size(), expected) << "rank " << rank << ", epoch " << epoch;
        EXPECT_EQ(announced, expected);
      }
    }
  }
}

// A step of the last rows only: some replicas get a batch without rows, none a step less.
TEST(known_failures, COV_2_a_last_step_with_fewer_rows_than_replicas_is_a_step_on_each) {
  const hang_limit limit;
  const auto data = numbers<>{26};
  std::vector<std::size_t> last;
  for (std::uint64_t rank = 0; rank < 6; ++rank) {
    auto feed = shard(data, rank, 6, {.size = 4});
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      const auto batches = all_of(feed.epoch(epoch));
      ASSERT_EQ(batches.size(), 2u);
      if (epoch == 0) last.push_back(batches[1].size());
    }
  }
  EXPECT_EQ(last, (std::vector<std::size_t>{1, 1, 0, 0, 0, 0}));
}

template <class Batch>
void overwrite(const Batch& batch) {
  const auto data = std::get<0>(batch.fields());
  std::memset(data.data(), 0xFF, data.size() * sizeof(std::uint64_t));
}

TEST(known_failures, COV_4_a_short_last_batch_ends_where_its_rows_do) {
  const hang_limit limit;
  for (const int readers : {0, 1, 3}) {
    auto feed = (numbers<>{8} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                 penstock::read({.readers = readers}) | penstock::batch(5) |
                 penstock::transfer(penstock::cpu_device{}, {.depth = 1}))
                    .start();
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      for (auto& batch : feed.epoch(epoch)) {
        const bool last = batch.step() == 1;
        EXPECT_EQ(batch.size(), last ? 3u : 5u);
        EXPECT_EQ(batch.rows(), batch.size());
        EXPECT_EQ(batch.indices().size(), batch.size());
        const auto [data] = batch.fields();
        ASSERT_EQ(data.extent(0), batch.size());
        for (std::size_t row = 0; row < batch.size(); ++row) EXPECT_EQ(data[row], row + (last ? 5 : 0));
        overwrite(batch);
      }
    }
  }
}

TEST(known_failures, COV_4_padding_is_zero_and_counted_also_in_a_used_slot) {
  const hang_limit limit;
  for (const int readers : {0, 1, 3}) {
    auto feed =
        (numbers<>{8} | penstock::partition({.shuffle = penstock::shuffle::none}) |
         penstock::read({.readers = readers}) | penstock::batch({.size = 5, .last = penstock::last_batch::pad}) |
         penstock::transfer(penstock::cpu_device{}, {.depth = 1}))
            .start();
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      for (auto& batch : feed.epoch(epoch)) {
        const bool last = batch.step() == 1;
        EXPECT_EQ(batch.size(), last ? 3u : 5u);
        EXPECT_EQ(batch.indices().size(), batch.size());
        const auto [data] = batch.fields();
        ASSERT_EQ(data.extent(0), 5u);
        for (std::size_t row = 0; row < 5; ++row) EXPECT_EQ(data[row], !last ? row : row < 3 ? row + 5 : 0);
        overwrite(batch);
      }
    }
  }
}

TEST(known_failures, COV_4_the_last_batch_of_a_stream_has_its_real_size) {
  const hang_limit limit;
  auto feed = (penstock::stream([] { return std::views::iota(std::uint64_t{0}, std::uint64_t{8}); }) |
               penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 2}) |
               penstock::batch(5) | penstock::transfer(penstock::cpu_device{}, {.depth = 1}))
                  .start();
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::size_t> sizes;
    for (auto& batch : feed.epoch(epoch)) {
      sizes.push_back(batch.size());
      EXPECT_EQ(batch.rows(), batch.size());
      overwrite(batch);
    }
    EXPECT_EQ(sizes, (std::vector<std::size_t>{5, 3}));
  }
}

class coverage_of_short_data : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(known_failures, coverage_of_short_data, testing::Values(0, 1, 4));

TEST_P(coverage_of_short_data, COV_6_an_epoch_without_a_batch_is_refused) {
  const hang_limit limit;
  const auto start = [&](std::uint64_t rows, std::uint64_t world) {
    return shard(numbers<>{rows}, 0, world, {.size = 32, .last = penstock::last_batch::drop}, GetParam());
  };
  for (const auto& [rows, world] : {std::pair{20u, 1u}, {31u, 1u}, {63u, 2u}, {0u, 1u}}) {
    try {
      (void)start(rows, world);
      ADD_FAILURE() << rows << " rows over " << world << " were taken";
    } catch (const std::invalid_argument& caught) {
      EXPECT_TRUE(std::string_view(caught.what()).starts_with("penstock: batch: ")) << caught.what();
    }
  }
  EXPECT_EQ(all_of(start(32, 1).epoch(0)).size(), 1u);
  EXPECT_EQ(all_of(start(64, 2).epoch(0)).size(), 1u);
}

TEST_P(coverage_of_short_data, COV_6_or_permitted_by_name) {
  const hang_limit limit;
  for (const std::uint64_t rows : {20u, 0u}) {
    std::atomic<std::uint64_t> begun{0};
    auto hook = [&](std::uint64_t) { begun.fetch_add(1); };
    auto feed = shard(numbers{rows, hook}, 0, 1, {.size = 32, .last = penstock::last_batch::drop, .allow_empty = true},
                      GetParam());
    EXPECT_EQ(feed.steps_per_epoch(), 0u);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(all_of(feed.epoch(epoch)).size(), 0u);
    EXPECT_FALSE(feed.next());
    // Nobody reads what nobody can ask for.
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    EXPECT_EQ(begun.load(), 0u);
  }
}

TEST(known_failures, COV_7_a_stream_is_delivered_once_whatever_the_number_of_readers_and_replicas) {
  const hang_limit limit;
  const auto rows = penstock::stream([] { return std::views::iota(std::uint64_t{0}, std::uint64_t{1000}); });
  for (const auto how : {penstock::shuffle::none, penstock::shuffle::window(100)}) {
    for (const std::uint64_t size : {1u, 2u, 3u}) {
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<std::uint64_t> all;
        for (std::uint64_t rank = 0; rank < size; ++rank) {
          const auto mine = joined(all_of(shard(rows, rank, size, {.size = 16}, 4, how).epoch(epoch)));
          EXPECT_GE(mine.size(), 1000 / size);
          all.insert(all.end(), mine.begin(), mine.end());
        }
        std::ranges::sort(all);
        EXPECT_EQ(all, first_numbers(1000));
      }
    }
  }
}

TEST(known_failures, COV_8_every_pass_is_a_whole_epoch) {
  const hang_limit limit;
  for (const int readers : {0, 1, 4}) {
    auto loader = numbers<>{100} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                  penstock::read({.readers = readers}) | penstock::batch(10) |
                  penstock::transfer(penstock::cpu_device{});
    for (std::uint64_t pass = 0; pass < 3; ++pass) EXPECT_EQ(joined(all_of(loader.epoch(pass))), first_numbers(100));
    for (std::uint64_t pass = 0; pass < 3; ++pass) EXPECT_EQ(joined(all_of(loader.epoch(0))), first_numbers(100));
    // Left at batch 4, begun again.
    for (int pass = 0; pass < 3; ++pass) {
      for (auto& batch : loader.epoch(1))
        if (batch.step() == 4) break;
    }
    EXPECT_EQ(joined(all_of(loader.epoch(1))), first_numbers(100));
    EXPECT_EQ(joined(all_of(loader.epoch(2))), first_numbers(100));
  }
}

TEST(known_failures, COV_8_every_pass_over_a_stream_is_a_whole_epoch) {
  const hang_limit limit;
  for (const int readers : {0, 1, 4}) {
    auto loader = penstock::stream([] { return std::views::iota(std::uint64_t{0}, std::uint64_t{100}); }) |
                  penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = readers}) |
                  penstock::batch(10) | penstock::transfer(penstock::cpu_device{});
    for (const std::uint64_t pass : {0u, 1u, 2u, 0u, 0u})
      EXPECT_EQ(joined(all_of(loader.epoch(pass))), first_numbers(100));
    for (int pass = 0; pass < 3; ++pass) {
      for (auto& batch : loader.epoch(0))
        if (batch.step() == 4) break;
    }
    EXPECT_EQ(joined(all_of(loader.epoch(0))), first_numbers(100));
  }
}

}  // namespace
