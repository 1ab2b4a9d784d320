// SPDX-License-Identifier: Apache-2.0
// Replicas and gradient all-reduce, and what coverage has to do with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <ranges>
#include <stdexcept>

#include <penstock/replicas.hpp>

#include "support.hpp"

namespace {

using namespace known_failures;
using rank = penstock::replica_of<penstock::local_world<>>;

template <class Source>
auto shard(Source&& source, const rank& one, const penstock::batch_options& batch, int readers = 2,
           penstock::shuffle how = penstock::shuffle::none) {
  return std::forward<Source>(source) | penstock::partition({.seed = 4, .shuffle = how, .world = one}) |
         penstock::read({.readers = readers}) | penstock::batch(batch) | penstock::transfer(one.device());
}
auto count_to(std::uint64_t n) {
  return penstock::stream([n] { return std::views::iota(std::uint64_t{0}, n); });
}

/// The error that all ranks of a run end with; its text by rank.
struct ended {
  std::optional<penstock::replica_error> error;
  std::vector<std::string> told;
};
template <class Body>
ended ends(int ranks, Body&& body, const penstock::replica_options& options = {}) {
  ended result;
  result.told.resize(static_cast<std::size_t>(ranks));
  try {
    penstock::replicas(
        ranks,
        [&](rank& one) {
          try {
            body(one);
          } catch (const std::exception& caught) {
            result.told[one.rank()] = caught.what();
            throw;
          }
        },
        options);
  } catch (const penstock::replica_error& caught) {
    result.error = caught;
  }
  return result;
}
bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Streams of 4, 3 and 3 batches: nobody knows before that they differ.
TEST(known_failures, REP_1_three_replicas_with_4_3_and_3_batches_end_alike) {
  const hang_limit limit;
  for (const auto how : {penstock::uneven::join, penstock::uneven::stop}) {
    std::vector<std::uint64_t> updates(3);
    const auto summary = penstock::replicas(
        3,
        [&](rank& one) {
          auto feed = (count_to(one.rank() == 0 ? 20 : 15) | penstock::partition({.shuffle = penstock::shuffle::none}) |
                       penstock::read() | penstock::batch(5) | penstock::transfer(one.device()));
          auto running = one.start(feed);
          float gradient[3] = {1, 2, 3};
          for (auto& batch : running.epoch(0))
            if (one.all_reduce(batch, std::span(gradient))) ++updates[one.rank()];
        },
        {.uneven = how});
    const std::uint64_t steps = how == penstock::uneven::join ? 4 : 3;
    EXPECT_EQ(summary.steps, steps);
    EXPECT_EQ(updates, (std::vector<std::uint64_t>{steps, steps, steps}));
  }
}
// Of a dataset the steps are known, and equal.
TEST(known_failures, REP_1_ten_batches_of_a_dataset_are_dealt_in_equal_steps) {
  const hang_limit limit;
  const auto data = numbers<>{50};
  std::vector<std::uint64_t> steps(3);
  penstock::replicas(3, [&](rank& one) {
    auto feed = one.start(shard(data, one, {.size = 5}));
    float gradient[3] = {1, 2, 3};
    for (auto& batch : feed.epoch(0)) steps[one.rank()] += one.all_reduce(batch, std::span(gradient)).counts;
  });
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{4, 4, 4}));
}

TEST(known_failures, REP_2_different_sizes_are_told_on_every_replica_with_counts_and_step) {
  const hang_limit limit;
  const auto data = numbers<>{30};
  for (const std::uint64_t odd : {0u, 1u, 2u}) {
    const auto result = ends(3, [&](rank& one) {
      auto feed = one.start(shard(data, one, {.global = 3}));
      std::vector<float> values(1024);
      for (auto& batch : feed.epoch(0)) {
        if (batch.step() == 4 && one.rank() == odd) values.resize(1000);
        one.all_reduce(batch, values);
      }
    });
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->where().step, 4u);
    for (const auto& told : result.told)
      EXPECT_TRUE(has(told, "1000") && has(told, "1024") && has(told, "step 4")) << told;
  }
}
TEST(known_failures, REP_2_buckets_in_swapped_order_are_told_on_every_replica) {
  const hang_limit limit;
  const auto data = numbers<>{30};
  for (const bool early : {false, true}) {
    const auto result = ends(3, [&](rank& one) {
      auto feed = one.start(shard(data, one, {.global = 3}));
      std::vector<float> first(24), last(1000);
      for (auto& batch : feed.epoch(0)) {
        const bool swapped = one.rank() == 1 && batch.step() == 4;
        auto& a = swapped ? last : first;
        auto& b = swapped ? first : last;
        if (early) {
          one.ready(batch, a);
          one.all_reduce(batch, b);
        } else {
          one.all_reduce(batch, a, b);
        }
      }
    });
    ASSERT_TRUE(result.error);
    for (const auto& told : result.told) EXPECT_TRUE(has(told, "step 4") && has(told, "wanted the same")) << told;
  }
}

TEST(known_failures, REP_3_a_replica_that_dies_releases_the_others_with_its_cause) {
  const hang_limit limit;
  const auto data = numbers<>{80};
  const std::size_t before = threads_alive();
  for (int again = 0; again < 3; ++again) {
    std::vector<std::uint64_t> updates(4);
    const auto result = ends(4, [&](rank& one) {
      auto feed = one.start(shard(data, one, {.global = 4}));
      float gradient[3] = {1, 2, 3};
      for (auto& batch : feed.epoch(0)) {
        if (one.rank() == 2 && batch.step() == 5) throw std::domain_error("out of memory");
        if (one.all_reduce(batch, std::span(gradient))) ++updates[one.rank()];
      }
    });
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->rank(), 2u);
    EXPECT_EQ(result.error->where().step, 5u);
    EXPECT_THROW(result.error->rethrow_cause(), std::domain_error);
    for (std::size_t r = 0; r < 4; ++r)
      if (r != 2) {
        EXPECT_TRUE(has(result.told[r], "step 5: rank 2 failed: out of memory")) << result.told[r];
      }
    EXPECT_EQ(updates, (std::vector<std::uint64_t>{5, 5, 5, 5}));
    EXPECT_TRUE(threads_come_back_to(before));
  }
  // The process is as usable as before.
  const auto summary = penstock::replicas(4, [&](rank& one) {
    auto feed = one.start(shard(data, one, {.global = 4}));
    for (auto& batch : feed.epoch(0)) one.all_reduce(batch);
  });
  EXPECT_EQ(summary.steps, 20u);
}

// y = 3 x + 1 + something, by a line of weights 0.5 and -0.25.
TEST(known_failures, REP_5_seven_and_six_rows_give_the_gradient_of_thirteen) {
  const hang_limit limit;
  const auto x = [](std::uint64_t row) { return 0.25 * static_cast<double>(row) - 1; };
  const auto error = [&](std::uint64_t row) {
    return 0.5 * x(row) - 0.25 - (3 * x(row) + 1 + 0.1 * static_cast<double>(row % 3));
  };
  double wanted[2] = {};
  for (std::uint64_t row = 0; row < 13; ++row) {
    wanted[0] += 2 * error(row) * x(row) / 13;
    wanted[1] += 2 * error(row) / 13;
  }
  const auto data = numbers<>{13};
  std::vector<std::size_t> sizes(2);
  penstock::replicas(2, [&](rank& one) {
    auto feed = one.start(shard(data, one, {.global = 13}));
    for (auto& batch : feed.epoch(0)) {
      sizes[one.rank()] = batch.size();
      float mean[2] = {};
      double sum[2] = {};
      for (const std::uint64_t row : numbers_of(batch)) {
        sum[0] += 2 * error(row) * x(row);
        sum[1] += 2 * error(row);
      }
      for (std::size_t i = 0; i < 2; ++i) mean[i] = static_cast<float>(sum[i] / static_cast<double>(batch.size()));
      one.all_reduce(batch, std::span(mean), penstock::buffer(std::span(sum), penstock::mean_of_sums));
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(mean[i], wanted[i], 1e-6);
        EXPECT_NEAR(sum[i], wanted[i], 1e-12);
      }
    }
  });
  EXPECT_EQ(sizes, (std::vector<std::size_t>{7, 6}));
}

TEST(known_failures, REP_7_buckets_reduced_from_several_threads_are_refused) {
  const hang_limit limit;
  const auto data = numbers<>{30};
  const auto result = ends(2, [&](rank& one) {
    auto feed = one.start(shard(data, one, {.global = 2}));
    std::vector<float> first(24), last(1000);
    for (auto& batch : feed.epoch(0)) {
      // Two threads, in swapped order: each would wait for its counterpart.
      std::exception_ptr caught[2];
      const auto by = [&](std::vector<float>& bucket, std::exception_ptr& to) {
        return std::thread([&] {
          try {
            one.ready(batch, bucket);
          } catch (...) {
            to = std::current_exception();
          }
        });
      };
      std::thread a = by(one.rank() == 0 ? first : last, caught[0]);
      std::thread b = by(one.rank() == 0 ? last : first, caught[1]);
      a.join();
      b.join();
      for (const auto& each : caught)
        if (each) std::rethrow_exception(each);
      one.all_reduce(batch);
    }
  });
  ASSERT_TRUE(result.error);
  for (const auto& told : result.told) EXPECT_TRUE(has(told, "used by another thread")) << told;
}

TEST(known_failures, REP_8_more_replicas_than_devices_run_on_the_cpu_and_none_are_refused) {
  const hang_limit limit;
  const auto data = numbers<>{8};
  std::atomic<int> bodies{0};
  penstock::replicas(16, [&](rank& one) {
    auto feed = one.start(shard(data, one, {.global = 8}));
    for (auto& batch : feed.epoch(0)) one.all_reduce(batch);
    ++bodies;
  });
  EXPECT_EQ(bodies, 16);
  const std::size_t before = threads_alive();
  for (const int wrong : {0, -1, 1025}) {
    try {
      penstock::replicas(wrong, [&](rank&) { ++bodies; });
      ADD_FAILURE() << wrong << " replicas were begun";
    } catch (const std::invalid_argument& caught) {
      EXPECT_TRUE(has(caught.what(), "penstock: replicas: number is ")) << caught.what();
    }
  }
  EXPECT_EQ(bodies, 16);
  EXPECT_LE(threads_alive(), before);
}

// The sum over ranks of an evaluation is that of each row once.
TEST(known_failures, COV_1_an_evaluation_over_replicas_counts_each_row_once) {
  const hang_limit limit;
  for (const auto last : {penstock::last_batch::keep, penstock::last_batch::pad}) {
    for (const std::uint64_t n : {1u, 7u, 10u, 64u, 103u}) {
      const auto data = numbers<>{n};
      for (const int ranks : {1, 2, 3, 4}) {
        penstock::replicas(ranks, [&](rank& one) {
          auto feed = shard(data, one, {.size = 4, .last = last}).start();
          double found[2] = {};
          for (auto& batch : feed.epoch(0))
            for (const std::uint64_t row : numbers_of(batch)) {
              found[0] += 1;
              found[1] += static_cast<double>(row);
            }
          one.sum(found);
          EXPECT_EQ(found[0], static_cast<double>(n));
          EXPECT_EQ(found[1], static_cast<double>(n * (n - 1) / 2));
        });
      }
    }
  }
}

TEST(known_failures, COV_2_announced_and_reduced_steps_are_the_same_on_six_replicas_in_each_epoch) {
  const hang_limit limit;
  const auto data = numbers<>{103};
  for (const auto last : {penstock::last_batch::keep, penstock::last_batch::drop, penstock::last_batch::pad}) {
    const std::uint64_t expected = last == penstock::last_batch::drop ? 4 : 5;
    const auto summary = penstock::replicas(6, [&](rank& one) {
      auto feed = one.start(shard(data, one, {.size = 4, .last = last}, 2, penstock::shuffle::full));
      for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
        EXPECT_EQ(feed.steps_per_epoch(), expected);
        std::uint64_t steps = 0;
        for (auto& batch : feed.epoch(epoch)) steps += one.all_reduce(batch).counts;
        EXPECT_EQ(steps, expected) << "rank " << one.rank() << ", epoch " << epoch;
      }
    });
    EXPECT_EQ(summary.steps, 5 * expected);
  }
}

TEST(known_failures, COV_7_one_stream_over_two_replicas_in_lockstep_is_delivered_once) {
  const hang_limit limit;
  const auto rows = count_to(1000);
  for (const auto how : {penstock::shuffle::none, penstock::shuffle::window(100)}) {
    for (const int ranks : {1, 2, 3}) {
      std::mutex mutex;
      std::vector<std::uint64_t> all;
      penstock::replicas(ranks, [&](rank& one) {
        auto feed = one.start(shard(rows, one, {.size = 16}, 4, how));
        for (auto& batch : feed.epoch(0)) {
          const auto own = numbers_of(batch);
          const auto result = one.all_reduce(batch);
          EXPECT_GE(result.samples, own.size());
          const std::scoped_lock lock(mutex);
          all.insert(all.end(), own.begin(), own.end());
        }
      });
      std::ranges::sort(all);
      EXPECT_EQ(all, first_numbers(1000));
    }
  }
}

}  // namespace
