// SPDX-License-Identifier: Apache-2.0
// Replicas by run(): the laws that a loop of one's own is held to.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <tuple>

#include "scene.hpp"

namespace {

using namespace scenes;

constexpr std::uint64_t rows = 15, steps = 4, epochs = 3;

// Calls `before(rank, batch)` where the gradient is computed, `after(rank, batch)` where the update is made.
template <class Before, class After>
auto pipeline_of(rank& one, const dataset& data, std::vector<double>& value, Before before, After after) {
  return batches_of(one, data, {.global = 4}) | penstock::compute([&value, before, r = one.rank()](const auto& batch) {
           before(r, batch);
           return std::span(value);
         }) |
         penstock::all_reduce() |
         penstock::compute([after, r = one.rank()](std::span<double>, const auto& batch) { after(r, batch); });
}

class runs : public testing::TestWithParam<int> {
 protected:
  std::size_t ranks() const { return static_cast<std::size_t>(GetParam()); }
  const dataset data = count_to(rows);
  const hang_limit limit;
};
INSTANTIATE_TEST_SUITE_P(replicas, runs, testing::Values(1, 2, 3, 4));

TEST_P(runs, that_fail_anywhere_end_all_ranks_at_the_same_step) {
  const std::size_t before = threads_alive();
  for (std::uint64_t who = 0; who < ranks(); ++who) {
    for (const update when : {update{0, 0}, {0, 2}, {0, 3}, {1, 0}, {2, 3}}) {
      for (const bool in_update : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rank " << who << " at " << when << (in_update ? " in" : " before"));
        std::vector<std::vector<double>> values(ranks(), std::vector<double>(2));
        std::vector<std::vector<update>> updates(ranks());
        const auto maybe = [&](std::uint64_t r, const auto& batch, bool here) {
          if (here && r == who && update{batch.epoch(), batch.step()} == when) throw std::domain_error("by a compute");
        };
        const auto caught = error_of([&] {
          penstock::run(world(GetParam()),
                        [&](rank& one) {
                          return pipeline_of(
                              one, data, values[one.rank()],
                              [&](std::uint64_t r, const auto& batch) { maybe(r, batch, !in_update); },
                              [&](std::uint64_t r, const auto& batch) {
                                updates[r].push_back({batch.epoch(), batch.step()});
                                maybe(r, batch, in_update);
                              });
                        },
                        {.epochs = epochs});
        });
        ASSERT_TRUE(caught);
        EXPECT_EQ(caught->rank(), who);
        EXPECT_EQ(caught->where().epoch, when.epoch);
        EXPECT_EQ(caught->where().step, when.step);
        EXPECT_THROW(caught->rethrow_cause(), std::domain_error);
        for (const auto& own : updates) EXPECT_EQ(own.size(), when.epoch * steps + when.step + (in_update ? 1 : 0));
      }
    }
  }
  EXPECT_TRUE(threads_come_back_to(before));
  EXPECT_TRUE(still_works(GetParam()));
}

TEST_P(runs, that_are_stopped_go_on_with_the_very_next_sample_on_any_number_of_ranks) {
  for (const int later : {1, 2, 3, 4}) {
    for (const update when : {update{0, 0}, {0, 2}, {0, 3}, {1, 1}}) {
      for (const bool by_an_observer : {false, true}) {
        SCOPED_TRACE(testing::Message() << "then " << later << ", stopped at " << when);
        std::mutex mutex;
        std::vector<std::vector<std::uint64_t>> delivered(2);
        std::vector<std::vector<double>> values(4, std::vector<double>(2));
        std::stop_source source;
        const auto make = [&](bool stops) {
          return [&, stops](rank& one) {
            return pipeline_of(
                one, data, values[one.rank()],
                [&, stops, last = one.size() - 1](std::uint64_t r, const auto& batch) {
                  if (stops && r == last && update{batch.epoch(), batch.step()} == when) source.request_stop();
                },
                [&](std::uint64_t, const auto& batch) {
                  const std::scoped_lock lock(mutex);
                  const auto own = numbers_of(batch);
                  auto& all = delivered[batch.epoch()];
                  all.insert(all.end(), own.begin(), own.end());
                });
          };
        };
        struct stopper {
          std::stop_source& source;
          update when;
          void on_batch(const penstock::batch_event& event) const {
            if (update{event.epoch, event.step} == when) source.request_stop();
          }
        };
        const auto first =
            by_an_observer ? penstock::run(world(GetParam()), make(false), {.epochs = 2, .stop = source.get_token()},
                                           stopper{source, when})
                           : penstock::run(world(GetParam()), make(true), {.epochs = 2, .stop = source.get_token()});
        ASSERT_TRUE(first.stopped);
        // The state is of what was updated: at the step of the stop or behind it.
        const std::uint64_t done = first.state.epoch * rows + first.state.samples;
        EXPECT_EQ(delivered[0].size() + delivered[1].size(), done);
        EXPECT_GE(done, when.epoch * rows + 4 * when.step);
        EXPECT_LE(done, when.epoch * rows + 4 * when.step + 4);
        EXPECT_EQ(first.steps, first.state.epoch * steps + first.state.samples / 4);
        const auto second = penstock::run(world(later), make(false), {.epochs = 2, .resume = first.state});
        EXPECT_FALSE(second.stopped);
        EXPECT_EQ(first.steps + second.steps, 2 * steps);
        for (auto& all : delivered) {
          std::ranges::sort(all);
          EXPECT_EQ(all, known_failures::first_numbers(rows));
        }
      }
    }
  }
}

// y = 3 a - 2 b + 1 at weights of 0: the gradient of the mean square over all rows is known.
double a_of(std::uint64_t i) { return std::sin(static_cast<double>(i)); }
double b_of(std::uint64_t i) { return std::cos(static_cast<double>(2 * i)); }
double error_of_row(std::uint64_t i) { return -(3 * a_of(i) - 2 * b_of(i) + 1); }

TEST_P(runs, reduce_to_the_gradient_of_the_global_batch) {
  const dataset thirteen = count_to(13);
  for (const std::int64_t global : {13, 5, 3, 2}) {
    std::vector<std::vector<double>> gradients(ranks(), std::vector<double>(3));
    std::atomic<std::uint64_t> updates{0};
    penstock::run(world(GetParam()), [&](rank& one) {
      return batches_of(one, thirteen, {.global = global, .how = penstock::shuffle::none}) |
             penstock::compute([&own = gradients[one.rank()]](const auto& batch) {
               // 0 / 0 where there is no row.
               std::ranges::fill(own, 0.0);
               for (const std::uint64_t i : numbers_of(batch)) {
                 own[0] += 2 * error_of_row(i) * a_of(i);
                 own[1] += 2 * error_of_row(i) * b_of(i);
                 own[2] += 2 * error_of_row(i);
               }
               for (double& one_of : own) one_of /= static_cast<double>(batch.size());
               return std::span(own);
             }) |
             penstock::all_reduce() | penstock::compute([&](std::span<double> gradient, const auto& batch) {
               const std::uint64_t first = batch.step() * static_cast<std::uint64_t>(global);
               const std::uint64_t last = std::min<std::uint64_t>(13, first + static_cast<std::uint64_t>(global));
               double wanted[3] = {};
               for (std::uint64_t i = first; i < last; ++i) {
                 wanted[0] += 2 * error_of_row(i) * a_of(i);
                 wanted[1] += 2 * error_of_row(i) * b_of(i);
                 wanted[2] += 2 * error_of_row(i);
               }
               for (std::size_t i = 0; i < 3; ++i)
                 EXPECT_NEAR(gradient[i], wanted[i] / static_cast<double>(last - first), 1e-6);
               ++updates;
             });
    });
    const auto global_rows = static_cast<std::uint64_t>(global);
    EXPECT_EQ(updates, ranks() * ((13 + global_rows - 1) / global_rows));
  }
}

TEST_P(runs, weigh_as_the_user_says_and_leave_out_what_weighs_nothing) {
  std::vector<std::vector<double>> values(ranks(), std::vector<double>(1));
  std::atomic<std::uint64_t> updates{0};
  // Even numbers count, and the sum of what counts is what a rank brings.
  const auto weight = [](const auto& batch) {
    const auto all = numbers_of(batch);
    return static_cast<double>(std::ranges::count_if(all, [](std::uint64_t i) { return i < 8 && i % 2 == 0; }));
  };
  const auto result = penstock::run(world(GetParam()), [&](rank& one) {
    return batches_of(one, data, {.global = 4, .how = penstock::shuffle::none}) |
           penstock::compute([&own = values[one.rank()]](const auto& batch) {
             own[0] = 0;
             for (const std::uint64_t i : numbers_of(batch))
               if (i % 2 == 0) own[0] += static_cast<double>(i);
             return std::span(own);
           }) |
           penstock::all_reduce(penstock::mean_of_sums, weight) |
           penstock::compute([&](std::span<double> mean, const auto& batch) {
             EXPECT_EQ(mean[0], batch.step() == 0 ? 1 : 5);
             ++updates;
           });
  });
  EXPECT_EQ(updates, 2 * ranks());
  EXPECT_EQ(result.steps, 2u);
  // A step without an update is done all the same.
  EXPECT_EQ(result.state.epoch, 1u);
}

TEST_P(runs, give_what_reduce_made_and_tell_observers_once) {
  struct counter {
    std::uint64_t begins = 0, batches = 0, epochs = 0;
    std::string reason{};
    void on_begin(const penstock::run_begin&) { ++begins; }
    void on_batch(const penstock::batch_event&) { ++batches; }
    void on_epoch(const penstock::epoch_event&) { ++epochs; }
    void on_end(const penstock::run_end& event) { reason = event.reason; }
  } counted;
  std::vector<std::vector<double>> values(ranks(), std::vector<double>(1));
  const auto result = penstock::run(
      world(GetParam()),
      [&](rank& one) {
        return batches_of(one, data, {.global = 4}) | penstock::compute([&own = values[one.rank()]](const auto& batch) {
                 own[0] = static_cast<double>(batch.size());
                 return std::span(own);
               }) |
               penstock::all_reduce(penstock::reduction::sum) |
               penstock::reduce(0.0, [](double so_far, std::span<double> all) { return so_far + all[0]; });
      },
      {.epochs = 2}, counted);
  EXPECT_EQ(result.epochs, (std::vector<double>{rows, rows}));
  EXPECT_EQ(counted.begins, 1u);
  EXPECT_EQ(counted.batches, 2 * steps);
  EXPECT_EQ(counted.epochs, 2u);
  EXPECT_EQ(counted.reason, "done");
}

TEST_P(runs, end_by_an_observer_that_throws) {
  struct thrower {
    void on_batch(const penstock::batch_event& event) const {
      if (event.step == 2) throw std::domain_error("by an observer");
    }
  };
  std::vector<std::vector<double>> values(ranks(), std::vector<double>(2));
  std::atomic<std::uint64_t> updates{0};
  const auto caught = error_of([&] {
    penstock::run(
        world(GetParam()),
        [&](rank& one) {
          return pipeline_of(one, data, values[one.rank()], [](auto&&...) {}, [&](auto&&...) { ++updates; });
        },
        {}, thrower{});
  });
  ASSERT_TRUE(caught);
  EXPECT_EQ(caught->rank(), 0u);
  EXPECT_EQ(updates, 2 * ranks());
}

// What makes the pipelines fails on one rank, or makes them of another world.
TEST_P(runs, whose_pipelines_cannot_be_made_end_all_ranks) {
  std::vector<std::vector<double>> values(ranks(), std::vector<double>(2));
  const std::uint64_t who = ranks() - 1;
  for (const bool other_world : {false, true}) {
    const auto caught = error_of([&] {
      penstock::run(world(GetParam()), [&](rank& one) {
        if (one.rank() == who && !other_world) throw std::invalid_argument("by make_pipeline");
        const penstock::world mine{one.rank(), one.rank() == who ? one.size() + 1 : one.size()};
        return data | penstock::partition({.world = mine}) | penstock::read() | penstock::batch({.global = 4}) |
               penstock::transfer(one.device()) |
               penstock::compute([&own = values[one.rank()]](const auto&) { return std::span(own); }) |
               penstock::all_reduce();
      });
    });
    ASSERT_TRUE(caught);
    EXPECT_EQ(caught->rank(), who);
    EXPECT_THROW(caught->rethrow_cause(), std::invalid_argument);
    EXPECT_TRUE(has(caught->what(), other_world ? "partition({.world = replica})" : "by make_pipeline"))
        << caught->what();
  }
}

// run() without a world is a run of one rank, and comes to the same.
TEST(run_of_one_rank, weighs_as_a_world_of_one_does) {
  const hang_limit limit;
  const dataset data = count_to(13);
  std::vector<double> sum(1), mean(1);
  std::vector<std::int64_t> counts(1);
  const auto even = [](const auto& batch) { return batch.step() == 1 ? 0.0 : 2.0; };
  const auto pipeline = [&] {
    return data | penstock::partition() | penstock::read() | penstock::batch(5) |
           penstock::transfer(penstock::cpu_device{}) | penstock::compute([&](const auto&) {
             sum[0] = mean[0] = 26;
             counts[0] = 3;
             return std::tuple(std::span(sum), penstock::buffer(mean, penstock::weighted_mean),
                               penstock::buffer(counts, penstock::reduction::sum));
           });
  };
  std::vector<double> seen;
  const auto note = penstock::compute([&](const auto&) {
    seen.push_back(sum[0]);
    EXPECT_EQ(mean[0], 26);
    EXPECT_EQ(counts[0], 3);
  });
  penstock::run(pipeline() | penstock::all_reduce(penstock::mean_of_sums) | note);
  EXPECT_EQ(seen, (std::vector<double>{26.0 / 5, 26.0 / 5, 26.0 / 3}));
  seen.clear();
  const auto result = penstock::run(pipeline() | penstock::all_reduce(penstock::mean_of_sums, even) | note);
  EXPECT_EQ(seen, (std::vector<double>{13, 13}));
  EXPECT_EQ(result.steps, 2u);
}

}  // namespace
