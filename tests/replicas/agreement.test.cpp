// SPDX-License-Identifier: Apache-2.0
// What ranks have to agree on beside the sizes of their values, and what becomes of an error that had nowhere to go.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <limits>

#include "scene.hpp"

namespace {

using namespace scenes;

class agreement : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(replicas, agreement, testing::Values(2, 3, 4));

TEST_P(agreement, ranks_resumed_at_different_samples_are_refused) {
  const hang_limit limit;
  const dataset data = count_to(16);
  const auto caught = error_of([&] {
    penstock::replicas(GetParam(), [&](rank& one) {
      auto feed = one.start(batches_of(one, data, {.global = 4}));
      auto state = feed.state();
      // The same step's number on all.
      state.samples = one.rank() == 1 ? 5 : 4;
      feed.resume(state);
      for (auto& batch : feed.epoch(0)) one.all_reduce(batch);
    });
  });
  ASSERT_TRUE(caught);
  EXPECT_EQ(caught->where().step, 1u) << caught->what();
}

TEST_P(agreement, of_a_broadcast_on_its_root) {
  const hang_limit limit;
  const auto from = [&](auto root) {
    std::vector<std::array<double, 2>> values(static_cast<std::size_t>(GetParam()));
    const auto caught = error_of([&] {
      penstock::replicas(GetParam(), [&](rank& one) {
        auto& mine = values[one.rank()];
        mine.fill(one.rank() == 1 ? 5.0 : std::numeric_limits<double>::quiet_NaN());
        one.broadcast(root(one), {}, std::span(mine));
      });
    });
    if (!caught) {
      for (const auto& mine : values) EXPECT_EQ(mine, (std::array<double, 2>{5, 5}));
    }
    return caught;
  };
  EXPECT_FALSE(from([](const rank&) { return 1u; }));
  EXPECT_TRUE(from([](const rank& one) { return one.rank(); }));
  const auto outside = from([](const rank&) { return 4u; });
  ASSERT_TRUE(outside);
  EXPECT_THROW(outside->rethrow_cause(), std::invalid_argument);
  EXPECT_TRUE(has(outside->what(), "broadcast: root is rank 4")) << outside->what();
}

TEST_P(agreement, of_a_sum_on_its_length) {
  const hang_limit limit;
  for (const auto& lengths : {std::pair{3u, 2u}, {9u, 8u}, {17u, 20u}}) {
    EXPECT_TRUE(error_of([&] {
      penstock::replicas(GetParam(), [&](rank& one) {
        std::vector<double> numbers(one.rank() == 0 ? lengths.first : lengths.second);
        one.sum(numbers);
      });
    })) << lengths.first
        << " and " << lengths.second;
  }
}

TEST_P(agreement, of_calls_outside_the_loop_on_their_kind) {
  const hang_limit limit;
  const auto caught = error_of([&] {
    penstock::replicas(GetParam(), [&](rank& one) {
      double number[1] = {1};
      if (one.rank() == 0)
        one.sum(number);
      else
        one.barrier();
    });
  });
  ASSERT_TRUE(caught);
  EXPECT_TRUE(has(caught->what(), "wanted the same calls on all ranks")) << caught->what();
}

// An exchange that comes too early for the others' loop.
TEST_P(agreement, of_an_exchange_in_a_loop_that_another_leaves) {
  const hang_limit limit;
  const dataset data = count_to(16);
  const auto caught = error_of([&] {
    penstock::replicas(GetParam(), [&](rank& one) {
      auto feed = one.start(batches_of(one, data, {.global = 4}));
      for (auto& batch : feed.epoch(0)) {
        if (one.rank() == 1 && batch.step() == 2) break;
        if (one.rank() != 1 && batch.step() == 2) one.barrier();
        one.all_reduce(batch);
      }
    });
  });
  ASSERT_TRUE(caught);
  EXPECT_TRUE(has(caught->what(), "rank 1 ends its loop where rank 0 exchanges values outside one")) << caught->what();
}

TEST_P(agreement, of_a_step_on_who_says_what_it_weighs) {
  const hang_limit limit;
  const dataset data = count_to(16);
  const auto caught = error_of([&] {
    penstock::replicas(GetParam(), [&](rank& one) {
      auto feed = one.start(batches_of(one, data, {.global = 4}));
      for (auto& batch : feed.epoch(0)) {
        penstock::step_options options;
        if (one.rank() != 0 || batch.step() != 2) options.weight = 10;
        one.all_reduce(batch, options);
      }
    });
  });
  ASSERT_TRUE(caught);
  EXPECT_EQ(caught->where().step, 2u) << caught->what();
}

class endings_that_meet : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(replicas, endings_that_meet, testing::Values(2, 3, 4));

// It is told by the handle's destructor, which cannot throw: by the next call then, or by the body's end.
TEST_P(endings_that_meet, a_failure_met_while_a_loop_is_left_is_told_by_the_next_call) {
  const hang_limit limit;
  const dataset data = count_to(16);
  std::string told;
  std::atomic<int> ended{0};
  const auto caught = error_of([&] {
    penstock::replicas(GetParam(), [&](rank& one) {
      {
        auto feed = one.start(batches_of(one, data, {.global = 4}));
        for (auto& batch : feed.epoch(0)) {
          one.all_reduce(batch);
          if (batch.step() != 2) continue;
          if (one.rank() != 1) break;
          throw std::domain_error("by the body");
        }
      }
      if (one.rank() != 0) return;
      try {
        one.barrier();
      } catch (const penstock::replica_error& error) {
        told = error.what();
      }
      // What was caught is not forgotten.
      EXPECT_THROW(one.finish(), penstock::replica_error);
      ++ended;
    });
  });
  ASSERT_TRUE(caught);
  EXPECT_EQ(caught->rank(), 1u);
  EXPECT_TRUE(has(told, "rank 1 failed: by the body")) << told;
  EXPECT_EQ(ended, 1);
}

TEST_P(endings_that_meet, after_a_stop_nothing_is_begun_any_more) {
  const hang_limit limit;
  const dataset data = count_to(16);
  std::atomic<int> begun{0};
  const auto summary = penstock::replicas(GetParam(), [&](rank& one) {
    for (int training = 0; training < 2; ++training) {
      auto feed = one.start(batches_of(one, data, {.global = 4}));
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        for (auto& batch : feed.epoch(epoch)) {
          if (training == 1) ++begun;
          if (one.rank() == 1 && batch.step() == 1) one.stop();
          one.all_reduce(batch);
        }
      }
    }
  });
  EXPECT_EQ(begun, 0);
  EXPECT_EQ(summary.steps, 1u);
  EXPECT_TRUE(summary.stopped);
  EXPECT_EQ(summary.stopped_by, 1u);
}

TEST_P(endings_that_meet, a_feed_stopped_after_an_epoch_that_was_left_stops_the_others) {
  const hang_limit limit;
  const dataset data = count_to(16);
  penstock::replica_summary summary;
  const auto caught = error_of([&] {
    summary = penstock::replicas(GetParam(), [&](rank& one) {
      auto feed = one.start(batches_of(one, data, {.global = 4}));
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        for (auto& batch : feed.epoch(epoch)) {
          if (batch.step() == 2) break;
          one.all_reduce(batch);
        }
        if (one.rank() != 1) continue;
        feed.stop();
        return;
      }
    });
  });
  ASSERT_FALSE(caught) << caught->what();
  EXPECT_TRUE(summary.stopped);
  EXPECT_EQ(summary.steps, 2u);
}

TEST_P(endings_that_meet, a_range_over_epochs_that_one_leaves_ends_for_all) {
  const hang_limit limit;
  const dataset data = count_to(16);
  for (const std::uint64_t left_at : {0u, 2u, 3u, 4u, 6u}) {
    std::vector<std::uint64_t> updates(static_cast<std::size_t>(GetParam()));
    const auto caught = error_of([&] {
      penstock::replicas(GetParam(), [&](rank& one) {
        auto feed = one.start(batches_of(one, data, {.global = 4}));
        std::uint64_t done = 0;
        for (auto& batch : feed.steps(7)) {
          if (one.rank() == 1 && done == left_at) break;
          if (one.all_reduce(batch)) ++done;
        }
        updates[one.rank()] = done;
      });
    });
    ASSERT_FALSE(caught) << left_at << ": " << caught->what();
    for (const std::uint64_t done : updates) EXPECT_EQ(done, left_at);
  }
}

// As a run is that was resumed where it had ended.
TEST_P(endings_that_meet, a_state_that_was_resumed_is_the_runs_also_without_a_step) {
  const hang_limit limit;
  const dataset data = count_to(16);
  for (const auto& place : {std::pair{2u, 0u}, {1u, 8u}}) {
    penstock::feed_state resumed;
    const auto summary = penstock::replicas(GetParam(), [&](rank& one) {
      auto feed = one.start(batches_of(one, data, {.global = 4}));
      auto state = feed.state();
      state.epoch = place.first;
      state.samples = place.second;
      feed.resume(state);
      EXPECT_EQ(one.state(), state);
      if (one.rank() == 0) resumed = state;
    });
    EXPECT_EQ(summary.state, resumed);
  }
}

TEST_P(endings_that_meet, a_feed_may_outlive_its_replica) {
  const hang_limit limit;
  const dataset data = count_to(16);
  using feed = decltype(std::declval<rank&>().start(batches_of(std::declval<const rank&>(), data)));
  std::vector<std::optional<feed>> feeds(static_cast<std::size_t>(GetParam()));
  const auto summary = penstock::replicas(GetParam(), [&](rank& one) {
    auto& own = feeds[one.rank()];
    own.emplace(one.start(batches_of(one, data, {.global = 4})));
    for (auto& batch : own->epoch(0)) one.all_reduce(batch);
  });
  EXPECT_EQ(summary.steps, 4u);
  for (auto& own : feeds) {
    std::size_t batches = 0;
    for ([[maybe_unused]] auto& batch : own->epoch(1)) ++batches;
    EXPECT_EQ(batches, 4u);
  }
}

struct world_without_a_second_device : world {
  using world::local_world;
  communicator_type join(std::size_t n) {
    if (n == 1) throw std::domain_error("no second device");
    return world::join(n);
  }
};
// The time-out is longer than the test may take.
TEST_P(endings_that_meet, a_rank_that_cannot_begin_leaves_nobody_waiting) {
  const hang_limit limit(60);
  const auto caught = error_of([&] {
    penstock::replicas(world_without_a_second_device(GetParam()), [](rank& one) { one.barrier(); },
                       {.timeout = std::chrono::hours(1)});
  });
  ASSERT_TRUE(caught);
  EXPECT_EQ(caught->rank(), 1u);
  EXPECT_TRUE(has(caught->what(), "rank 1 failed: no second device")) << caught->what();
  EXPECT_THROW(caught->rethrow_cause(), std::domain_error);
  EXPECT_TRUE(still_works(GetParam()));
}

}  // namespace
