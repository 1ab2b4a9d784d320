// SPDX-License-Identifier: Apache-2.0
// Laws 6, 7 and 9 for replicas in a loop of one's own: every way to end, on every rank, at the first, a middle and the
// last step of an epoch, before and after its exchange.
#include <gtest/gtest.h>

#include "scene.hpp"

namespace {

using namespace scenes;

enum class act { leave, fail, stop, stop_elsewhere, stop_feed, token };
constexpr std::uint64_t steps = 4;  // of an epoch
constexpr std::uint64_t epochs = 3;

struct scene {
  act what;
  int ranks;
  std::uint64_t who;
  update when;
  bool after;  // the step's all_reduce
};

struct outcome {
  std::vector<std::vector<update>> updates;  // by rank
  std::vector<penstock::feed_state> states, own;
  penstock::replica_summary summary;
  std::optional<penstock::replica_error> failure;
};

outcome play(const scene& one) {
  const dataset data = count_to(4 * steps - 1);
  const auto ranks = static_cast<std::size_t>(one.ranks);
  outcome result;
  result.updates.resize(ranks);
  result.states.resize(ranks);
  result.own.resize(ranks);
  std::stop_source source;
  const auto body = [&](rank& mine) {
    auto feed = mine.start(batches_of(mine, data, {.global = 4}));
    const std::size_t r = mine.rank();
    double values[2] = {1, 2};
    for (std::uint64_t epoch = 0; epoch < epochs && !mine.stopped(); ++epoch) {
      for (auto& batch : feed.epoch(epoch)) {
        const update now{epoch, batch.step()};
        const bool here = mine.rank() == one.who && now == one.when;
        const auto acts = [&] {
          if (one.what == act::fail) throw std::domain_error("by the body");
          if (one.what == act::stop) mine.stop();
          if (one.what == act::stop_elsewhere) std::thread([&] { mine.stop(); }).join();
          if (one.what == act::stop_feed) feed.stop();
          if (one.what == act::token) source.request_stop();
          return one.what == act::leave;
        };
        if (here && !one.after && acts()) break;
        if (mine.all_reduce(batch, std::span(values))) result.updates[r].push_back(now);
        if (here && one.after && acts()) break;
      }
    }
    // All are at the same place.
    double ones[1] = {1};
    mine.sum(ones);
    EXPECT_EQ(ones[0], one.ranks);
    result.states[r] = mine.state();
    result.own[r] = feed.state();
  };
  result.failure =
      error_of([&] { result.summary = penstock::replicas(one.ranks, body, {.stop = source.get_token()}); });
  return result;
}

// What every rank is to have updated.
std::vector<update> expected(const scene& one) {
  const bool step_counts = one.after || one.what == act::stop_feed;
  std::vector<update> all;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::uint64_t step = 0; step < steps; ++step) {
      const update now{epoch, step};
      if (now != one.when || step_counts) all.push_back(now);
      if (now != one.when) continue;
      if (one.what != act::leave) return all;
      break;
    }
  }
  return all;
}

class endings : public testing::TestWithParam<std::tuple<act, int>> {};
INSTANTIATE_TEST_SUITE_P(replicas, endings,
                         testing::Combine(testing::Values(act::leave, act::fail, act::stop, act::stop_elsewhere,
                                                          act::stop_feed, act::token),
                                          testing::Values(1, 2, 3, 4)));

TEST_P(endings, of_one_rank_end_all_at_the_same_step) {
  const hang_limit limit;
  const auto [what, ranks] = GetParam();
  const std::size_t before = threads_alive();
  for (std::uint64_t who = 0; who < static_cast<std::uint64_t>(ranks); ++who) {
    for (const update when : {update{0, 0}, {0, 2}, {0, 3}, {1, 0}, {2, 1}, {2, 3}}) {
      for (const bool after : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rank " << who << " at " << when << (after ? " after" : " before"));
        const scene one{what, ranks, who, when, after};
        const outcome result = play(one);
        const auto wanted = expected(one);
        // A token's last words may find other ranks at the step before it or at the step itself.
        if (what != act::token || after)
          for (const auto& updates : result.updates) EXPECT_EQ(updates, wanted);
        else
          for (const auto& updates : result.updates) EXPECT_EQ(updates, result.updates[0]);
        if (what == act::fail) {
          ASSERT_TRUE(result.failure);
          EXPECT_EQ(result.failure->rank(), who);
          EXPECT_EQ(result.failure->where().epoch, when.epoch);
          EXPECT_EQ(result.failure->where().step, when.step);
          EXPECT_TRUE(has(result.failure->what(), penstock::detail::concat("rank ", who, " failed: by the body")))
              << result.failure->what();
          EXPECT_THROW(result.failure->rethrow_cause(), std::domain_error);
          continue;
        }
        ASSERT_FALSE(result.failure) << result.failure->what();
        EXPECT_EQ(result.summary.steps, result.updates[0].size());
        // What is asked for after the last step comes to nothing.
        const bool in_time = wanted.size() < steps * epochs;
        if (what != act::leave && what != act::stop_feed) {
          EXPECT_EQ(result.summary.stopped, in_time);
        }
        if (in_time && (what == act::stop || what == act::stop_elsewhere)) {
          EXPECT_EQ(result.summary.stopped_by, who);
        }
        for (std::size_t r = 0; r < result.states.size(); ++r) {
          EXPECT_EQ(result.states[r], result.states[0]);
          EXPECT_EQ(result.own[r], result.states[0]) << "rank " << r;
        }
        EXPECT_EQ(result.summary.state, result.states[0]);
      }
    }
  }
  EXPECT_TRUE(threads_come_back_to(before));
  EXPECT_TRUE(still_works(ranks));
}

}  // namespace
