// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/dataset/csv.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <penstock/dataset/dataset.hpp>

#include "csv_support.hpp"

namespace {

using penstock::csv_features;
using penstock::csv_mode;
using penstock::csv_table;
using penstock::csv_text;
using penstock::field;
using penstock::schema;
using penstock::tensor_view;
using penstock_test::numbers;
using penstock_test::row_of;
using penstock_test::rows_of;
using penstock_test::temporary_directory;

static_assert(penstock::dataset<csv_table<>> && penstock::dataset<csv_table<double>>);
static_assert(penstock::dataset<csv_features<>> && penstock::dataset<csv_features<double>>);

TEST(csv_table, gives_features_and_target) {
  const temporary_directory directory;
  const csv_table table(directory.file("t.csv", "a,price,b\n1,2,3\n4,5.5,6\n"), {.target = "price"});
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.where(1).path, directory.path() + "/t.csv");
  EXPECT_EQ(table.schema(), (schema{field<float, 1>{"x", {2}}, field<float>{"price", {}}}));
  EXPECT_EQ(table.feature_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(rows_of(table), (std::vector<numbers>{{1, 3, 2}, {4, 6, 5.5}}));
}

TEST(csv_table, writes_to_views_of_any_arithmetic_type) {
  const temporary_directory directory;
  const csv_table table(directory.file("t.csv", "a,y\n7,-2\n"), {.target = "y"});
  std::vector<double> x(1);
  int y = 0;
  table.read(0, std::tuple{tensor_view<double, 1>{x.data(), {1}}, tensor_view<int, 0>{&y, {}}});
  EXPECT_EQ(x[0], 7);
  EXPECT_EQ(y, -2);
}

TEST(csv_table, of_double_keeps_what_float_would_round) {
  const temporary_directory directory;
  const std::string path = directory.file("t.csv", "a,y\n0.1,16777217\n");
  for (const csv_mode mode : {csv_mode::loaded, csv_mode::indexed}) {
    EXPECT_EQ(row_of(csv_table<double>(path, {.target = "y", .mode = mode}), 0), (numbers{0.1, 16777217}));
    EXPECT_EQ(row_of(csv_table(path, {.target = "y", .mode = mode}), 0), (numbers{double{0.1F}, 16777216}));
  }
}

TEST(csv_table, copies_share_the_content) {
  const temporary_directory directory;
  const std::string path = directory.file("t.csv", "a,y\n7,-2\n");
  auto original = std::make_unique<csv_table<>>(path, penstock::csv_options{.target = "y"});
  const csv_table<> copy = *original;
  original.reset();
  EXPECT_EQ(row_of(copy, 0), (numbers{7, -2}));
}

TEST(csv_table, wants_a_target) {
  const temporary_directory directory;
  const std::string path = directory.file("t.csv", "a,y\n7,-2\n");
  EXPECT_THROW(csv_table(path, {}), std::invalid_argument);
  EXPECT_THROW(csv_table(path, {.target = "y", .columns = {"a", "y"}}), std::invalid_argument);
  EXPECT_THROW(csv_table(directory.file("none.csv"), {.target = "y"}), penstock::error);
}

TEST(csv_features, leaves_a_target_out_and_does_not_need_it) {
  const temporary_directory directory;
  const csv_features with(directory.file("with.csv", "a,y\n7,-2\n"), {.target = "y"});
  const csv_features without(directory.file("without.csv", "a\n7\n"), {.target = "y"});
  EXPECT_EQ(rows_of(with), (std::vector<numbers>{{7}}));
  EXPECT_EQ(rows_of(without), (std::vector<numbers>{{7}}));
  EXPECT_EQ(with.schema(), (schema{field<float, 1>{"x", {1}}}));
}

TEST(csv_features, with_a_tables_options_makes_the_same_features_of_other_rows) {
  const temporary_directory directory;
  const csv_table table(directory.file("t.csv", "note,cut,n,grade\nx,Ideal,1,low\ny,Fair,2,high\nz,Good,3,low\n"),
                        {.target = "grade", .drop = {"note"}, .text = csv_text::one_hot});
  const csv_features rows(directory.file("new.csv", "n,extra,cut\n5,text,Good\n6,more,Good\n"), table.options());
  EXPECT_EQ(rows.feature_names(), table.feature_names());
  EXPECT_EQ(rows_of(rows), (std::vector<numbers>{{0, 1, 0, 5}, {0, 1, 0, 6}}));
}

TEST(csv_features, with_a_tables_options_keeps_numbers_numbers) {
  const temporary_directory directory;
  const csv_table table(directory.file("t.csv", "a,y\n1,2\n"), {.target = "y"});
  EXPECT_THROW(csv_features(directory.file("new.csv", "a\nabc\n"), table.options()), penstock::error);
}

class csv_diamonds : public testing::TestWithParam<csv_mode> {};
INSTANTIATE_TEST_SUITE_P(, csv_diamonds, testing::Values(csv_mode::loaded, csv_mode::indexed),
                         [](const auto& run) { return run.param == csv_mode::loaded ? "loaded" : "indexed"; });

TEST_P(csv_diamonds, are_read_whole) {
  const auto path = std::filesystem::path(__FILE__).parent_path() / "../../examples/data/diamonds.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const csv_table table(path, {.target = "price",
                               .categories = {{"cut", {"Fair", "Good", "Very Good", "Premium", "Ideal"}}},
                               .mode = GetParam()});
  ASSERT_EQ(table.size(), 53'940u);
  EXPECT_EQ(table.feature_names(),
            (std::vector<std::string>{"carat", "cut", "color", "clarity", "depth", "table", "x", "y", "z"}));
  const auto as_float = [](std::vector<float> row) { return numbers(row.begin(), row.end()); };
  EXPECT_EQ(row_of(table, 0), as_float({0.23F, 4, 1, 3, 61.5F, 55, 3.95F, 3.98F, 2.43F, 326}));
  EXPECT_EQ(row_of(table, 53'939), as_float({0.75F, 4, 0, 3, 62.2F, 55, 5.83F, 5.87F, 3.64F, 2757}));
  double prices = 0;
  for (std::size_t i = 0; i < table.size(); ++i) prices += row_of(table, i).back();
  EXPECT_EQ(prices, 212'135'217);
}

}  // namespace
