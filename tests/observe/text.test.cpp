// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/text.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>

namespace {

std::string rate(double value) {
  std::string out;
  penstock::detail::append_rate(out, value);
  return out;
}

std::string duration(double seconds) {
  std::string out;
  penstock::detail::append_duration(out, std::chrono::duration<double>{seconds});
  return out;
}

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(text, a_rate_has_three_digits_and_a_unit) {
  EXPECT_EQ(rate(0), "0");
  EXPECT_EQ(rate(0.012345), "0.0123");
  EXPECT_EQ(rate(1), "1.00");
  EXPECT_EQ(rate(9.994), "9.99");
  EXPECT_EQ(rate(9.996), "10.0");
  EXPECT_EQ(rate(99.96), "100");
  EXPECT_EQ(rate(999.4), "999");
  EXPECT_EQ(rate(999.6), "1.00k");
  EXPECT_EQ(rate(12345), "12.3k");
  EXPECT_EQ(rate(999'600), "1.00M");
  EXPECT_EQ(rate(4.5e9), "4.50G");
  EXPECT_EQ(rate(9e14), "900T");
  EXPECT_EQ(rate(1e20), "1e+20");
  EXPECT_EQ(rate(infinity), "inf");
}

TEST(text, a_duration_is_in_the_units_that_matter) {
  EXPECT_EQ(duration(-5), "0:00");
  EXPECT_EQ(duration(6.6), "0:07");
  EXPECT_EQ(duration(59.7), "1:00");
  EXPECT_EQ(duration(3599), "59:59");
  EXPECT_EQ(duration(3600), "1:00:00");
  EXPECT_EQ(duration(86399), "23:59:59");
  EXPECT_EQ(duration(86400 * 3 + 3600 * 4), "3d 04h");
  EXPECT_EQ(duration(1e12), "11574074d");
  EXPECT_EQ(duration(infinity), "11574074074074d");
  EXPECT_EQ(duration(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(text, characters_are_counted_and_cut_whole) {
  std::string text = "µ²x";
  EXPECT_EQ(penstock::detail::count_characters(text), 3U);
  penstock::detail::cut_to(text, 3);
  EXPECT_EQ(text, "µ²x");
  penstock::detail::cut_to(text, 2);
  EXPECT_EQ(text, "µ²");
  penstock::detail::cut_to(text, 0);
  EXPECT_EQ(text, "");
}

TEST(text, control_characters_are_not_passed_on) {
  std::string out;
  penstock::detail::append_printable(out, "a\r\n\x1b[2Jµ\x7f");
  EXPECT_EQ(out, "a???[2Jµ?");
}

TEST(text, others_text_stays_text_in_html_and_one_field_in_csv) {
  std::string out;
  penstock::detail::append_escaped(out, "<a href=\"x\">'&'</a>\n\x1bµ");
  EXPECT_EQ(out, "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;\n?µ");
  out.clear();
  penstock::detail::append_csv_field(out, "plain \n");
  penstock::detail::append_csv_field(out += ',', "a,\"b\"\n");
  EXPECT_EQ(out, "plain ?,\"a,\"\"b\"\"?\"");
}

TEST(text, a_number_comes_back_exactly_whatever_it_is) {
  for (const double value : {0.1 + 0.2, 1e-300, 12345678.9, -0.0}) {
    std::string out;
    penstock::detail::append_exact(out, value);
    EXPECT_EQ(std::stod(out), value) << out;
  }
}

}  // namespace
