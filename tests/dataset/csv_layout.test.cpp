// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
// Which columns are used, and what is wrong with files and options.
#include <penstock/dataset/csv_layout.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "csv_support.hpp"

namespace {

using penstock::csv_missing;
using penstock::csv_mode;
using penstock::csv_options;
using penstock_test::complaint_about;
using penstock_test::numbers;
using penstock_test::rows_in;

std::string rejection_of(const csv_options& options) {
  try {
    penstock_test::rows_in("a,b\n1,2\n", options);
  } catch (const std::invalid_argument& caught) {
    return caught.what();
  }
  return "";
}

TEST(csv_layout, columns_come_in_the_order_wanted) {
  EXPECT_EQ(rows_in("a,b,c\n1,2,3\n", {.columns = {"c", "a"}}), (std::vector<numbers>{{3, 1}}));
}

TEST(csv_layout, drop_leaves_columns_out) {
  EXPECT_EQ(rows_in("a,b,c\n1,x,3\n", {.drop = {"b"}}), (std::vector<numbers>{{1, 3}}));
  EXPECT_EQ(complaint_about("a\n1\n", {.drop = {"a"}}), "t.csv: no column is left as a feature");
}

TEST(csv_layout, names_may_have_blanks_around_them_quotes_and_a_byte_order_mark) {  // CSV-4
  EXPECT_EQ(rows_in("\xEF\xBB\xBF\"id\", x\n7,8\n", {.columns = {"id"}}), (std::vector<numbers>{{7}}));
  EXPECT_EQ(rows_in("\xEF\xBB\xBFid,x\n7,8\n", {.columns = {"x", "id"}}), (std::vector<numbers>{{8, 7}}));
}

TEST(csv_layout, columns_without_name_are_called_by_their_number) {
  EXPECT_EQ(rows_in(",b\n1,2\n", {.columns = {"column 1"}}), (std::vector<numbers>{{1}}));
  EXPECT_EQ(rows_in("1,2\n3,4\n", {.columns = {"column 2"}, .header = false}), (std::vector<numbers>{{2}, {4}}));
}

TEST(csv_layout, row_names_are_no_feature) {
  EXPECT_EQ(rows_in("\"a\",\"b\"\n\"r1\",1,2\n\"r2\",3,4\n", {.row_names = true}),
            (std::vector<numbers>{{1, 2}, {3, 4}}));
}

TEST(csv_layout, an_unknown_column_is_an_error_that_lists_those_there_are) {
  const std::string text = "carat,cut\n1,2\n";
  EXPECT_EQ(complaint_about(text, {.target = "price"}),
            "t.csv: there is no column \"price\" (option target), wanted one of carat, cut");
  EXPECT_EQ(complaint_about(text, {.columns = {"Cut"}}),
            "t.csv: there is no column \"Cut\" (option columns), wanted one of carat, cut");
  EXPECT_EQ(complaint_about(text, {.drop = {""}}),
            "t.csv: there is no column \"\" (option drop), wanted one of carat, cut");
  EXPECT_EQ(complaint_about(text, {.categories = {{"color", {"D"}}}}),
            "t.csv: there is no column \"color\" (option categories), wanted one of carat, cut");
  std::string wide = "0";
  for (int i = 1; i < 100; ++i) wide += "," + std::to_string(i);
  EXPECT_NE(complaint_about(wide + "\n", {.target = "y"}).find("18, 19, ... (100 in all)"), std::string::npos);
}

TEST(csv_layout, two_columns_of_one_name_are_an_error) {
  EXPECT_EQ(complaint_about("a,b,a\n1,2,3\n", {}),
            "t.csv, line 1, column 3 (a): the column name \"a\" stands for column 1 already, wanted names that differ");
}

TEST(csv_layout, files_without_rows_are_errors) {
  EXPECT_EQ(complaint_about("", {}), "t.csv: the file is empty, wanted a table");
  EXPECT_EQ(complaint_about("\n\r\n", {}), "t.csv: the file holds blank lines only, wanted a table");
  EXPECT_EQ(complaint_about("\xEF\xBB\xBF", {}), "t.csv: the file holds blank lines only, wanted a table");
  for (const char* text : {"a,b", "a,b\n", "a,b\r\n\r\n"}) {
    EXPECT_EQ(complaint_about(text, {}), "t.csv: no row follows the column names, wanted at least 1");
  }
}

TEST(csv_layout, utf_16_is_refused_by_name) {
  EXPECT_EQ(complaint_about(std::string("\xFF\xFE\x61\0", 4), {}), "t.csv: the text is UTF-16, wanted UTF-8");
}

TEST(csv_layout, says_where_quotes_are_wrong) {
  EXPECT_EQ(complaint_about("a,b\n1,2\n3,\"4\n", {}),
            "t.csv, line 3, column 2 (b): a quote is opened here and never closed");
}

class csv_modes : public testing::TestWithParam<csv_mode> {};
INSTANTIATE_TEST_SUITE_P(, csv_modes, testing::Values(csv_mode::loaded, csv_mode::indexed),
                         [](const auto& run) { return run.param == csv_mode::loaded ? "loaded" : "indexed"; });

TEST_P(csv_modes, CSV_6_a_cell_without_number_is_an_error_with_file_line_and_column) {
  EXPECT_EQ(complaint_about("a,b,c\n4,5,6\n1,,3\n", {.mode = GetParam()}),
            "sample 1, t.csv, line 3, column 2 (b): found nothing, wanted a number "
            "(on_missing = csv_missing::nan lets it pass)");
  EXPECT_EQ(complaint_about("a,b,c\n4,5,6\n\"1\",\"\n\",3\n", {.mode = GetParam()}),
            "sample 1, t.csv, line 3, column 2 (b): found \"\n\", wanted a number "
            "(or the column named in categories, if it is text)");
  EXPECT_EQ(complaint_about("a,b,c\r\n\"4\r\n\",5,6\r\n\r\n1,abc,3\r\n", {.columns = {"b"}, .mode = GetParam()}),
            "sample 1, t.csv, line 5, column 2 (b): found \"abc\", wanted a number "
            "(or the column named in categories, if it is text)");
  EXPECT_EQ(complaint_about("a\n1\n1e50\n", {.mode = GetParam()}),
            "sample 1, t.csv, line 3, column 1 (a): found \"1e50\", wanted a number that float holds");
}

TEST_P(csv_modes, CSV_6_a_missing_cell_is_nan_where_that_is_wanted) {
  const csv_options options{.on_missing = csv_missing::nan, .mode = GetParam()};
  const auto rows = rows_in("a,b,c\n1,,3\n4, NA ,\"\"\n?,nan,9\n", options);
  ASSERT_EQ(rows.size(), 3u);
  const std::vector<std::vector<bool>> missing{{false, true, false}, {false, true, true}, {true, true, false}};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(std::isnan(rows[i][k]), missing[i][k]) << i << ", " << k;
  }
  EXPECT_EQ(rows[2][2], 9);
}

TEST_P(csv_modes, CSV_6_rows_of_another_length_are_errors_whatever_the_policy) {
  const csv_options options{.on_missing = csv_missing::nan, .mode = GetParam()};
  EXPECT_EQ(complaint_about("a,b,c\n1,2,3\n4,5\n", options),
            "t.csv, line 3, column 3 (c): the row has 2 cells, wanted 3: a, b, c");
  EXPECT_EQ(complaint_about("a,b,c\n1,2,3,\n", options),
            "t.csv, line 2, column 4: the row has 4 cells, wanted 3: a, b, c "
            "(row_names = true if the first column has no name)");
  EXPECT_EQ(complaint_about("a,b,c\n1,2,3,4,5\n", options),
            "t.csv, line 2, column 4: the row has 5 cells, wanted 3: a, b, c");
  EXPECT_EQ(complaint_about("1,2\n1\n", {.header = false, .mode = GetParam()}),
            "t.csv, line 2, column 2 (column 2): the row has 1 cell, wanted 2: column 1, column 2");
}

TEST_P(csv_modes, markers_of_ones_own_may_be_numbers) {
  const csv_options options{.missing = {"-999"}, .on_missing = csv_missing::nan, .mode = GetParam()};
  EXPECT_TRUE(std::isnan(rows_in("a\n-999\n1\n", options)[0][0]));
}

TEST(csv_options, that_no_file_could_suit_are_rejected) {
  EXPECT_EQ(rejection_of({.decimal = ';'}), "penstock: csv_features: decimal is ';', wanted '.' or ','");
  EXPECT_EQ(
      rejection_of({.decimal = ','}),
      "penstock: csv_features: delimiter is ',', wanted a character that is neither the decimal sign nor a line end");
  EXPECT_EQ(rejection_of({.quote = ','}),
            "penstock: csv_features: quote is ',', wanted a character that differs from delimiter and decimal sign");
  EXPECT_EQ(rejection_of({.header = false, .row_names = true}),
            "penstock: csv_features: row_names is true, wanted false where header is false");
  EXPECT_EQ(rejection_of({.categories = {{"a", {"x", "x"}}}}),
            "penstock: csv_features: categories of a is \"x\" twice, wanted it once");
  EXPECT_EQ(rejection_of({.categories = {{"a", {"x"}}, {"a", {"y"}}}}),
            "penstock: csv_features: categories is \"a\" twice, wanted it once");
  EXPECT_EQ(rejection_of({.max_categories = 0}), "penstock: csv_features: max_categories is 0, wanted 1 or more");
  EXPECT_EQ(rejection_of({}), "");
}

}  // namespace
