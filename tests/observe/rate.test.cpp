// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/rate.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace {

using seconds = penstock::rate_estimate::seconds;

TEST(rate_estimate, knows_nothing_before_the_first_interval) {
  penstock::rate_estimate rate;
  EXPECT_FALSE(rate.per_second());
  EXPECT_FALSE(rate.time_for(10));
  rate.add(5, seconds{0});
  EXPECT_FALSE(rate.per_second());
}

TEST(rate_estimate, is_the_first_intervals_speed_after_it) {
  for (const double length : {1e-9, 1e-3, 1.0, 1e3, 1e9}) {
    penstock::rate_estimate rate(seconds{10});
    rate.add(5 * length, seconds{length});
    EXPECT_NEAR(rate.per_second().value(), 5, 1e-9) << length;
    EXPECT_NEAR(rate.time_for(20).value().count(), 4, 1e-9) << length;
  }
}

TEST(rate_estimate, does_not_depend_on_how_an_interval_is_cut) {
  penstock::rate_estimate whole(seconds{2}), pieces(seconds{2});
  whole.add(10, seconds{1});
  pieces.add(10, seconds{1});
  whole.add(30, seconds{3});
  for (int i = 0; i < 300; ++i) pieces.add(0.1, seconds{0.01});
  EXPECT_NEAR(whole.per_second().value(), pieces.per_second().value(), 1e-9);
}

TEST(rate_estimate, forgets_an_old_speed_at_the_pace_of_its_memory) {
  penstock::rate_estimate rate(seconds{10});
  rate.add(1e6, seconds{1e4});  // 100/s, long enough to fill the memory
  rate.add(0, seconds{10});
  EXPECT_NEAR(rate.per_second().value(), 100 / 2.718281828, 0.1);
  rate.add(0, seconds{40});
  EXPECT_LT(rate.per_second().value(), 1);
}

TEST(rate_estimate, stays_finite_and_not_negative) {
  penstock::rate_estimate rate;
  rate.add(0, seconds{1});
  EXPECT_EQ(rate.per_second(), 0.0);
  EXPECT_FALSE(rate.time_for(1)) << "never is not a number";
  rate.add(1, seconds{-5});
  EXPECT_NEAR(rate.per_second().value(), 1, 0.1);
  EXPECT_EQ(rate.time_for(-3).value().count(), 0);
  rate.add(std::numeric_limits<double>::min(), seconds{1e6});
  EXPECT_FALSE(rate.time_for(std::numeric_limits<double>::max()));
}

TEST(rate_estimate, refuses_a_memory_that_is_not_positive) {
  EXPECT_THROW(penstock::rate_estimate(seconds{0}), std::invalid_argument);
  EXPECT_THROW(penstock::rate_estimate(seconds{-1}), std::invalid_argument);
  EXPECT_THROW(penstock::rate_estimate(seconds{std::numeric_limits<double>::quiet_NaN()}), std::invalid_argument);
}

}  // namespace
