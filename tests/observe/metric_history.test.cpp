// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/metric_history.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include <penstock/observe/sparkline.hpp>

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

TEST(metric_history, keeps_all_values_while_there_is_room) {
  penstock::metric_history history("loss", 4);
  for (std::uint64_t step = 0; step < 4; ++step) history.add(10 * step, static_cast<double>(step));
  ASSERT_EQ(history.buckets().size(), 4U);
  EXPECT_EQ(history.buckets()[2].first_step, 20U);
  EXPECT_EQ(history.buckets()[2].mean(), 2.0);
}

TEST(metric_history, a_million_values_stay_within_its_buckets_and_no_spike_is_lost) {
  constexpr std::uint64_t count = 1'000'000;
  penstock::metric_history history("loss", 100);
  double sum = 0;
  for (std::uint64_t step = 0; step < count; ++step) {
    const double value = step == 123'456 ? 1000.0 : step == 654'321 ? -1000.0 : static_cast<double>(step % 7);
    history.add(step, value);
    sum += value;
  }
  EXPECT_LE(history.buckets().size(), 100U);
  EXPECT_GT(history.buckets().size(), 50U);
  double total = 0;
  std::uint64_t values = 0, next = 0;
  bool has_top = false, has_bottom = false;
  for (const auto& each : history.buckets()) {
    EXPECT_EQ(each.first_step, next) << "no step is lost";
    next = each.last_step + 1;
    total += each.sum;
    values += each.values;
    has_top = has_top || (each.most == 1000 && each.first_step <= 123'456 && 123'456 <= each.last_step);
    has_bottom = has_bottom || (each.least == -1000 && each.first_step <= 654'321 && 654'321 <= each.last_step);
  }
  EXPECT_EQ(next, count);
  EXPECT_EQ(values, count);
  EXPECT_DOUBLE_EQ(total, sum);
  EXPECT_TRUE(has_top);
  EXPECT_TRUE(has_bottom);
  EXPECT_EQ(history.most_step(), 123'456U);
  EXPECT_EQ(history.least_step(), 654'321U);
}

TEST(metric_history, values_that_are_not_finite_are_counted_and_spoil_nothing) {
  penstock::metric_history history("loss", 2);
  for (const double value : {1.0, not_a_number, 3.0, infinity, -infinity, 2.0}) history.add(history.values(), value);
  EXPECT_EQ(history.values(), 6U);
  EXPECT_EQ(history.finite(), 3U);
  EXPECT_EQ(history.first_not_finite(), 1U);
  EXPECT_EQ(history.least(), 1);
  EXPECT_EQ(history.most(), 3);
  EXPECT_EQ(history.buckets()[0].mean(), 2.0);
  EXPECT_FALSE(penstock::metric_bucket{}.mean());
}

TEST(metric_history, refuses_a_number_of_buckets_that_cannot_be_halved) {
  EXPECT_THROW(penstock::metric_history("loss", 0), std::invalid_argument);
  EXPECT_THROW(penstock::metric_history("loss", 5), std::invalid_argument);
  EXPECT_THROW(penstock::metric_histories(3), std::invalid_argument);
}

std::string curve(std::initializer_list<double> values, penstock::curve_style style, std::size_t most = 8) {
  penstock::metric_history history("x", 16);
  for (const double value : values) history.add(history.values(), value);
  std::string out;
  penstock::detail::append_sparkline(out, history.buckets(), most, style);
  return out;
}

TEST(sparkline, goes_from_the_least_to_the_greatest_value) {
  using enum penstock::curve_style;
  EXPECT_EQ(curve({0, 1, 2, 3, 4, 5, 6, 7}, blocks), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(curve({3, 2, 1, 0}, ascii), "^-._");
  EXPECT_EQ(curve({0, 0, 1, 1, 2, 2, 3, 3}, ascii, 4), "_.-^");
  EXPECT_EQ(curve({5, 5, 5}, ascii), "---") << "a constant has no height";
  EXPECT_EQ(curve({1, not_a_number, 2}, ascii), "_!^");
  EXPECT_EQ(curve({-1.7e308, 1.7e308}, ascii), "_^") << "the range is more than a double holds";
  EXPECT_EQ(curve({1}, blocks), "");
  EXPECT_EQ(curve({1, 2}, none), "");
}

}  // namespace
