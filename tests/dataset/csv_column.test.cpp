// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
// How columns of text become numbers.
#include <penstock/dataset/csv_column.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "csv_support.hpp"

namespace {

using penstock::csv_categories;
using penstock::csv_missing;
using penstock::csv_options;
using penstock::csv_text;
using penstock_test::complaint_about;
using penstock_test::numbers;
using penstock_test::rows_in;

const std::string gems = "cut,carat\nIdeal,1\nFair,2\nGood,3\nFair,4\n";

std::vector<std::string> names_in(const std::string& text, const csv_options& options) {
  const penstock_test::temporary_directory directory;
  return penstock::csv_features(directory.file("t.csv", text), options).feature_names();
}

TEST(csv_column, text_is_numbered_in_alphabetical_order_by_default) {
  EXPECT_EQ(rows_in(gems), (std::vector<numbers>{{2, 1}, {0, 2}, {1, 3}, {0, 4}}));
}

TEST(csv_column, text_is_numbered_in_the_order_given) {
  const csv_options options{.categories = {{"cut", {"Fair", "Good", "Very Good", "Ideal"}}}};
  EXPECT_EQ(rows_in(gems, options), (std::vector<numbers>{{3, 1}, {0, 2}, {1, 3}, {0, 4}}));
  EXPECT_EQ(names_in(gems, options), (std::vector<std::string>{"cut", "carat"}));
}

TEST(csv_column, one_hot_makes_one_feature_of_each_category) {
  const csv_options options{.text = csv_text::one_hot};
  EXPECT_EQ(rows_in(gems, options), (std::vector<numbers>{{0, 0, 1, 1}, {1, 0, 0, 2}, {0, 1, 0, 3}, {1, 0, 0, 4}}));
  EXPECT_EQ(names_in(gems, options), (std::vector<std::string>{"cut=Fair", "cut=Good", "cut=Ideal", "carat"}));
}

TEST(csv_column, one_hot_takes_an_order_too) {
  const csv_options options{.categories = {{"cut", {"Ideal", "Good", "Fair"}, csv_text::one_hot}}};
  EXPECT_EQ(rows_in(gems, options)[0], (numbers{1, 0, 0, 1}));
  EXPECT_EQ(names_in(gems, options)[0], "cut=Ideal");
}

TEST(csv_column, text_can_be_dropped_by_policy_or_by_name) {
  const std::vector<numbers> wanted{{1}, {2}, {3}, {4}};
  EXPECT_EQ(rows_in(gems, {.text = csv_text::drop}), wanted);
  EXPECT_EQ(rows_in(gems, {.categories = {{.column = "cut", .as = csv_text::drop}}}), wanted);
  EXPECT_EQ(complaint_about("a\nx\n", {.text = csv_text::drop}),
            "t.csv: no column is left as a feature, all are text and dropped");
}

TEST(csv_column, text_can_be_refused) {
  const std::string wanted = "found \"Ideal\", wanted a number";
  EXPECT_EQ(complaint_about(gems, {.text = csv_text::error}),
            "t.csv, line 2, column 1 (cut): " + wanted + " (csv_text::error refuses text)");
  EXPECT_EQ(
      complaint_about(gems, {.categories = {{.column = "cut", .as = csv_text::error}}}),
      "sample 0, t.csv, line 2, column 1 (cut): " + wanted + " (or the column named in categories, if it is text)");
}

TEST(csv_column, numbers_can_be_categories) {
  const std::string cars = "cylinders\n8\n4\n6\n4\n";
  EXPECT_EQ(rows_in(cars, {.categories = {{.column = "cylinders", .as = csv_text::one_hot}}}),
            (std::vector<numbers>{{0, 0, 1}, {1, 0, 0}, {0, 1, 0}, {1, 0, 0}}));
  EXPECT_EQ(rows_in(cars, {.categories = {{"cylinders", {"4", "6", "8"}}}}),
            (std::vector<numbers>{{2}, {0}, {1}, {0}}));
}

TEST(csv_column, an_unknown_category_is_an_error_that_lists_the_known_ones) {
  EXPECT_EQ(complaint_about(gems, {.categories = {{"cut", {"Fair", "Ideal"}}}}),
            "sample 2, t.csv, line 4, column 1 (cut): found \"Good\", wanted one of Fair, Ideal");
}

TEST(csv_column, too_many_categories_are_refused_before_they_fill_the_memory) {
  EXPECT_EQ(complaint_about(gems, {.max_categories = 2}),
            "t.csv, line 4, column 1 (cut): the column has more than 2 different texts, wanted categories "
            "(drop it, or raise max_categories)");
}

TEST(csv_column, a_missing_text_is_no_category) {
  const std::string text = "cut,x\nNA,1\nIdeal,2\n,3\n";
  EXPECT_EQ(complaint_about(text, {}),
            "sample 0, t.csv, line 2, column 1 (cut): found \"NA\", wanted one of its texts "
            "(on_missing = csv_missing::nan lets it pass)");
  for (const csv_text as : {csv_text::ordinal, csv_text::one_hot}) {
    const auto rows = rows_in(text, {.text = as, .on_missing = csv_missing::nan});
    EXPECT_TRUE(std::isnan(rows[0][0]));
    EXPECT_TRUE(std::isnan(rows[2][0]));
    EXPECT_EQ(rows[1][0], as == csv_text::ordinal ? 0 : 1);
  }
}

TEST(csv_column, a_marker_that_is_a_category_given_is_the_category) {
  EXPECT_EQ(rows_in("country\nNA\nDE\n", {.categories = {{"country", {"DE", "NA"}}}}),
            (std::vector<numbers>{{1}, {0}}));
}

TEST(csv_column, categories_with_quotes_commas_and_line_breaks) {
  const std::string text = "name\n\"a, \"\"b\"\"\"\n\"c\nd\"\n\"a, \"\"b\"\"\"\n";
  EXPECT_EQ(rows_in(text), (std::vector<numbers>{{0}, {1}, {0}}));
  EXPECT_EQ(names_in(text, {.text = csv_text::one_hot}), (std::vector<std::string>{"name=a, \"b\"", "name=c\nd"}));
}

TEST(csv_column, a_target_of_text_is_a_category_number) {
  const penstock_test::temporary_directory directory;
  const std::string path = directory.file("t.csv", gems);
  const penstock::csv_table table(path, {.target = "cut", .text = csv_text::one_hot});
  EXPECT_EQ(penstock_test::rows_of(table), (std::vector<numbers>{{1, 2}, {2, 0}, {3, 1}, {4, 0}}));
  EXPECT_THROW(penstock::csv_table(path, {.target = "cut", .categories = {{.column = "cut", .as = csv_text::drop}}}),
               std::invalid_argument);
}

}  // namespace
