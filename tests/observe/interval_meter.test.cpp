// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/interval_meter.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace std::chrono_literals;
using time_point = penstock::interval_meter::time_point;

TEST(interval_meter, a_step_lasts_from_when_its_batch_was_asked_for_to_when_the_next_one_was) {
  penstock::interval_meter meter;
  meter.batch({.epoch = 2, .step = 5, .samples = 8, .wait = 100ms}, time_point{10s});
  EXPECT_EQ(meter.so_far().steps, 0U) << "it is in hand";
  meter.batch({.epoch = 2, .step = 6, .samples = 8, .wait = 50ms}, time_point{10s} + 350ms);
  const auto done = meter.take();
  EXPECT_EQ(done.epoch, 2U);
  EXPECT_EQ(done.step, 5U);
  EXPECT_EQ(done.steps, 1U);
  EXPECT_EQ(done.samples, 8U);
  EXPECT_NEAR(done.elapsed.count(), 0.4, 1e-9);
  EXPECT_NEAR(done.wait_share().value(), 0.25, 1e-9);
  EXPECT_NEAR(done.samples_per_second().value(), 20, 1e-9);
  EXPECT_FALSE(meter.take().wait_share()) << "nothing since";
}

TEST(interval_meter, the_pause_between_epochs_is_no_steps_time) {
  penstock::interval_meter meter;
  meter.batch({.samples = 1}, time_point{10s});
  meter.end(time_point{11s});
  meter.batch({.epoch = 1, .samples = 1}, time_point{60s});
  meter.end(time_point{62s});
  EXPECT_EQ(meter.so_far().steps, 2U);
  EXPECT_NEAR(meter.so_far().elapsed.count(), 3, 1e-9);
  meter.end(time_point{99s});
  EXPECT_EQ(meter.so_far().steps, 2U) << "it has ended";
}

TEST(step_numbering, goes_on_over_epochs) {
  penstock::step_numbering steps;
  steps.begin({.steps_per_epoch = 10, .first_epoch = 2, .first_step = 3});
  EXPECT_EQ(steps.next(), 23U);
  EXPECT_EQ(steps.of(2, 3), 23U);
  EXPECT_EQ(steps.of(3, 0), 30U);
  EXPECT_EQ(steps.of(3, 0), 30U);
  EXPECT_EQ(steps.of(5, 1), 51U);
  EXPECT_EQ(steps.next(), 52U);
}

TEST(step_numbering, counts_the_steps_of_epochs_of_unknown_length) {
  penstock::step_numbering steps;
  steps.begin({});
  for (std::uint64_t step = 0; step < 7; ++step) EXPECT_EQ(steps.of(0, step), step);
  EXPECT_EQ(steps.of(1, 0), 7U);
  EXPECT_EQ(steps.of(1, 1), 8U);
  EXPECT_EQ(steps.of(2, 0), 9U);
  steps.begin({.first_epoch = 2, .first_step = 4}, 9);
  EXPECT_EQ(steps.of(2, 4), 13U) << "where the caller knows";
}

}  // namespace
