// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/estimate.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

using namespace std::chrono_literals;
using time_point = penstock::progress_estimate::time_point;

/// Batches of 10 samples, each computed on in `compute`, then `wait` for the next.
struct modelled_run {
  penstock::progress_estimate estimate{};
  time_point now{1h};
  std::chrono::nanoseconds compute{100ms}, wait{0};

  void begin(const penstock::run_begin& event) { estimate.begin(event, now); }
  void batches(std::uint64_t epoch, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t step = first; step < first + count; ++step) {
      now += wait;
      estimate.batch({.epoch = epoch, .step = step, .samples = 10, .wait = wait}, now);
      now += compute;
    }
  }
  void end_epoch(std::uint64_t epoch, std::uint64_t steps) { estimate.epoch({.epoch = epoch, .steps = steps}, now); }
};

// PRG-2
TEST(progress_estimate, PRG_2_time_left_of_huge_totals_is_finite_not_negative_and_falls) {
  constexpr std::uint64_t total = 1'000'000'000'000;
  constexpr std::uint64_t stride = total / 1000;
  penstock::progress_estimate estimate;
  time_point now{1h};
  estimate.begin({.epochs = 1, .steps_per_epoch = total}, now);
  double before = std::numeric_limits<double>::infinity();
  for (std::uint64_t step = 0; step < total; step += stride) {  // one step a nanosecond: 10^12 ns in all
    estimate.batch({.step = step, .samples = 1}, now);
    if (step > 0) {
      const double left = estimate.time_left().value().count();
      const double right = static_cast<double>(total - step) * 1e-9;
      EXPECT_TRUE(std::isfinite(left));
      EXPECT_GE(left, 0);
      EXPECT_LT(left, before);
      EXPECT_NEAR(left, right, 0.05 * right);
      before = left;
    }
    now += std::chrono::nanoseconds{stride};
  }
}

// PRG-2
TEST(progress_estimate, PRG_2_epochs_times_steps_may_exceed_an_integer) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  modelled_run run;
  run.begin({.epochs = most, .steps_per_epoch = most});
  run.batches(0, 0, 3);
  const double left = run.estimate.time_left().value().count();
  EXPECT_NEAR(left, std::pow(2.0, 128) * 0.1, 0.01 * left);
  EXPECT_GE(run.estimate.fraction().value(), 0);
}

// PRG-4
TEST(progress_estimate, PRG_4_restored_work_is_in_the_fraction_but_not_in_the_speed) {
  modelled_run run;
  run.begin({.epochs = 1, .steps_per_epoch = 1351, .first_step = 130, .first_sample = 1300});
  EXPECT_NEAR(run.estimate.fraction().value(), 0.096, 0.001);
  EXPECT_FALSE(run.estimate.time_left()) << "nothing is known yet";
  run.batches(0, 130, 10);
  const double right = (1351 - 139) * 0.1;
  EXPECT_NEAR(run.estimate.time_left().value().count(), right, 0.2 * right);
  EXPECT_EQ(run.estimate.batches(), 10U);
  EXPECT_EQ(run.estimate.samples(), 100U);
}

TEST(progress_estimate, the_time_to_fill_the_pipeline_is_not_taken_for_speed) {
  modelled_run run;
  run.begin({.epochs = 1, .steps_per_epoch = 100});
  run.now += 60s;
  run.batches(0, 0, 2);
  EXPECT_NEAR(run.estimate.batches_per_second().value(), 10, 1e-6);
  EXPECT_NEAR(run.estimate.samples_per_second().value(), 100, 1e-6);
  EXPECT_NEAR(run.estimate.elapsed(run.now).count(), 60.2, 1e-6);
}

TEST(progress_estimate, the_share_of_waiting_is_of_all_time) {
  modelled_run run;
  run.wait = 300ms;
  run.begin({});
  run.batches(0, 0, 50);
  EXPECT_NEAR(run.estimate.wait_share().value(), 0.75, 1e-6);
  EXPECT_NEAR(run.estimate.waited().count(), 15, 1e-6);
}

TEST(progress_estimate, a_pause_between_epochs_slows_the_run_but_not_the_speed) {
  modelled_run run;
  run.begin({.epochs = 4, .steps_per_epoch = 10});
  run.batches(0, 0, 10);
  run.end_epoch(0, 10);
  EXPECT_DOUBLE_EQ(run.estimate.fraction().value(), 0.25);
  run.now += 5s;  // validation
  run.batches(1, 0, 10);
  EXPECT_NEAR(run.estimate.batches_per_second().value(), 10, 1e-6);
  EXPECT_EQ(run.estimate.wait_share(), 0.0);
  EXPECT_NEAR(run.estimate.time_left().value().count(), 2.1 + 2 * 5, 1e-6);  // the batch in hand is not done
}

TEST(progress_estimate, a_cold_start_of_an_epoch_is_waiting) {
  modelled_run run;
  run.begin({.epochs = 2, .steps_per_epoch = 10});
  run.batches(0, 0, 10);
  run.end_epoch(0, 10);
  run.wait = 1s;
  run.batches(1, 0, 1);
  EXPECT_NEAR(run.estimate.wait_share().value(), 0.5, 0.02);
}

TEST(progress_estimate, is_the_epochs_where_the_number_of_epochs_is_unknown) {
  modelled_run run;
  run.begin({.steps_per_epoch = 10});
  run.batches(0, 0, 10);
  run.end_epoch(0, 10);
  EXPECT_EQ(run.estimate.fraction(), 1.0);
  EXPECT_EQ(run.estimate.time_left().value().count(), 0);
  run.batches(1, 0, 6);
  EXPECT_EQ(run.estimate.fraction(), 0.5);
  EXPECT_NEAR(run.estimate.time_left().value().count(), 0.5, 1e-6);
}

TEST(progress_estimate, does_without_totals_and_without_a_begin) {
  modelled_run run;
  run.batches(3, 7, 5);
  EXPECT_FALSE(run.estimate.fraction());
  EXPECT_FALSE(run.estimate.time_left());
  EXPECT_NEAR(run.estimate.batches_per_second().value(), 10, 1e-6);
  EXPECT_EQ(run.estimate.current_epoch(), 3U);
  EXPECT_EQ(run.estimate.steps_done(), 11U);
  run.end_epoch(3, 5);
  EXPECT_EQ(run.estimate.steps_done(), 12U);
}

TEST(progress_estimate, learns_the_steps_of_an_epoch_from_a_batch) {
  penstock::progress_estimate estimate;
  estimate.batch({.step = 5, .samples = 1, .steps_in_epoch = 20}, time_point{1h});
  EXPECT_EQ(estimate.fraction(), 0.25);
}

TEST(progress_estimate, more_than_all_is_all) {
  modelled_run run;
  run.begin({.epochs = 1, .steps_per_epoch = 5});
  run.batches(0, 0, 9);
  EXPECT_EQ(run.estimate.fraction(), 1.0);
  EXPECT_EQ(run.estimate.time_left().value().count(), 0);
}

}  // namespace
