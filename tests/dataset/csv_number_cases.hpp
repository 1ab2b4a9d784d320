// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/dataset/csv_number.hpp>

#include <gtest/gtest.h>
#include <stdlib.h>

#include <clocale>
#include <cmath>
#include <limits>
#include <locale>
#include <string>
#include <string_view>
#include <utility>

#include "csv_support.hpp"

namespace {

using penstock::detail::number_status;
using penstock::detail::parse_number;

template <class Element>
class csv_number_of : public testing::Test {
 protected:
  static number_status status(std::string_view text, char decimal = '.') {
    Element value{};
    return parse_number(text, decimal, value);
  }
  static Element value(std::string_view text, char decimal = '.') {
    Element value = -777;
    EXPECT_EQ(parse_number(text, decimal, value), number_status::good) << text;
    return value;
  }
};
using element_types = testing::Types<float, double>;
TYPED_TEST_SUITE(csv_number_of, element_types);

TYPED_TEST(csv_number_of, is_what_the_compiler_reads) {
  EXPECT_EQ(this->value("3.14"), static_cast<TypeParam>(3.14L));
  EXPECT_EQ(this->value("-.5"), TypeParam(-0.5));
  EXPECT_EQ(this->value("+5"), TypeParam(5));
  EXPECT_EQ(this->value("5."), TypeParam(5));
  EXPECT_EQ(this->value("007"), TypeParam(7));
  EXPECT_EQ(this->value("1e-3"), static_cast<TypeParam>(1e-3L));
  EXPECT_EQ(this->value("2.5E+2"), TypeParam(250));
  EXPECT_EQ(this->value("0.1000000000000000055511151231257827"), static_cast<TypeParam>(0.1L));
  EXPECT_TRUE(std::signbit(this->value("-0")));
}

TYPED_TEST(csv_number_of, takes_all_of_the_text) {
  for (const std::string_view text : {"", "abc", "1x", "1 2", "1.2.3", "1,2", "--1", "+-1", "++1", "+", "-", ".",
                                      "0x10", "1e", "e5", "true", "12:30", "2020-01-01"}) {
    EXPECT_EQ(this->status(text), number_status::not_a_number) << text;
  }
}

TYPED_TEST(csv_number_of, too_large_is_said_and_too_small_is_zero) {
  EXPECT_EQ(this->status("1e999"), number_status::out_of_range);
  EXPECT_EQ(this->status("-1e999"), number_status::out_of_range);
  EXPECT_EQ(this->status(std::string(400, '9')), number_status::out_of_range);
  EXPECT_EQ(this->value("1e-999"), TypeParam(0));
  EXPECT_EQ(this->value("0." + std::string(400, '0') + "1"), TypeParam(0));
  EXPECT_EQ(this->value("1e-40"), static_cast<TypeParam>(1e-40L)) << "denormal for float";
}

TYPED_TEST(csv_number_of, infinity_and_nan_are_numbers) {
  EXPECT_EQ(this->value("inf"), std::numeric_limits<TypeParam>::infinity());
  EXPECT_EQ(this->value("-Infinity"), -std::numeric_limits<TypeParam>::infinity());
  EXPECT_TRUE(std::isnan(this->value("NaN")));
}

TYPED_TEST(csv_number_of, with_decimal_comma) {
  EXPECT_EQ(this->value("3,5", ','), TypeParam(3.5));
  EXPECT_EQ(this->value("-,5e1", ','), TypeParam(-5));
  EXPECT_EQ(this->status("3.5", ','), number_status::not_a_number);
  EXPECT_EQ(this->status("1.234,5", ','), number_status::not_a_number);
}

/// Decimal comma, as in German.
struct comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
};

template <class Element>
void expect_values_of_the_c_locale() {
  const std::pair<std::string_view, double> cases[] = {{"54.12345", 54.12345}, {"1e-3", 1e-3}, {"-.5", -.5}};
  for (const auto& [text, wanted] : cases) {
    Element value{};
    EXPECT_EQ(parse_number(text, '.', value), number_status::good);
    EXPECT_EQ(value, static_cast<Element>(wanted));
  }
}

// CSV-5
TYPED_TEST(csv_number_of, CSV_5_does_not_follow_the_global_locale_of_Cpp) {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new comma));
  expect_values_of_the_c_locale<TypeParam>();
  std::locale::global(before);
}

// CSV-5
TEST(csv_number, CSV_5_does_not_follow_the_locale_of_C) {
  const penstock_test::temporary_directory directory;  // German may not be installed: compile it
  const std::string made = directory.file("de_DE.UTF-8");
  const bool compiled = std::system(("localedef -i de_DE -f UTF-8 '" + made + "' >/dev/null 2>&1").c_str()) == 0;
  if (compiled) ::setenv("LOCPATH", directory.file("").c_str(), 1);
  const bool set = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  if (set) {
    EXPECT_EQ(std::strtod("54,5", nullptr), 54.5) << "the locale is not German";
    expect_values_of_the_c_locale<float>();
    expect_values_of_the_c_locale<double>();
  }
  std::setlocale(LC_ALL, "C");
  ::unsetenv("LOCPATH");
  if (!set) GTEST_SKIP() << "no German locale, and none could be compiled";
}

}  // namespace
