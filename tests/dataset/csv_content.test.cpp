// SPDX-License-Identifier: Apache-2.0
// The two modes give the same rows, to any number of readers.
#include <penstock/dataset/csv_content.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "csv_support.hpp"

namespace {

using penstock::csv_features;
using penstock::csv_mode;
using penstock::csv_options;
using penstock::detail::detect_csv_delimiter;
using penstock_test::numbers;
using penstock_test::row_of;
using penstock_test::rows_of;
using penstock_test::temporary_directory;

constexpr std::size_t many = 1041;

/// Rows with a quoted line break, some with doubled quotes, and a blank line now and then.
std::string notes(const std::string& line_end) {
  std::string text = "id,note,x" + line_end;
  for (std::size_t i = 0; i < many; ++i) {
    text += std::to_string(i) + ",\"line one," + line_end + (i % 2 == 0 ? "line two" : "said \"\"no\"\"") + "\"," +
            std::to_string(i % 7) + ".5" + line_end;
    if (i % 10 == 0) text += line_end;
  }
  return text;
}

class csv_readers : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(, csv_readers, testing::Values(1, 2, 10), testing::PrintToStringParamName());

// CSV-2
TEST_P(csv_readers, CSV_2_see_the_same_rows_in_both_modes) {
  const temporary_directory directory;
  for (const std::string line_end : {"\n", "\r\n", "\r"}) {
    const std::string path = directory.file("t.csv", notes(line_end));
    for (const csv_mode mode : {csv_mode::loaded, csv_mode::indexed}) {
      const csv_features table(path, {.mode = mode});
      ASSERT_EQ(table.size(), many);
      std::vector<numbers> rows(many);
      std::vector<std::jthread> readers;
      for (std::size_t reader = 0; reader < GetParam(); ++reader) {
        readers.emplace_back([&, reader] {
          for (std::size_t i = reader; i < many; i += GetParam()) {
            table.prefetch(i + 1);
            rows[i] = row_of(table, i);
          }
        });
      }
      readers.clear();
      for (std::size_t i = 0; i < many; ++i) {
        const double number = static_cast<double>(i);
        ASSERT_EQ(rows[i], (numbers{number, static_cast<double>(i % 2), static_cast<double>(i % 7) + 0.5}));
      }
    }
  }
}

TEST(csv_content, an_indexed_table_reads_rows_in_any_order) {
  const temporary_directory directory;
  const csv_features table(directory.file("t.csv", notes("\n")), {.mode = csv_mode::indexed});
  for (std::size_t i = many; i-- > 0;) ASSERT_EQ(row_of(table, i)[0], static_cast<double>(i));
  for (std::size_t i = 0, at = 0; i < many; ++i, at = (at + 389) % many) {
    ASSERT_EQ(row_of(table, at)[0], static_cast<double>(at));
  }
}

TEST(csv_content, a_row_that_is_not_there_is_an_error) {
  const temporary_directory directory;
  for (const csv_mode mode : {csv_mode::loaded, csv_mode::indexed}) {
    const csv_features table(directory.file("t.csv", "a\n1\n2"), {.mode = mode});
    EXPECT_EQ(row_of(table, 1), numbers{2});
    EXPECT_THROW(row_of(table, 2), penstock::error);
    table.prefetch(2);
  }
}

TEST(csv_content, a_loaded_table_needs_its_file_no_more) {
  const temporary_directory directory;
  const std::string path = directory.file("t.csv", "a\n1\n2\n");
  const csv_features table(path);
  directory.file("t.csv", "");
  EXPECT_EQ(rows_of(table), (std::vector<numbers>{{1}, {2}}));
}

TEST(csv_content, both_modes_agree_on_every_oddity) {
  const temporary_directory directory;
  const csv_options odd{.skip_lines = 1, .comment = '#'};
  for (const std::string text :
       {"1,1\na,b\n1,2\n#x\n\n 3 ,\"4\"", "\na,b\r1,2\r3,4\r", "\xEF\xBB\xBFx\r\n\"a\",b\r\n1,\"2\" \r\n3,4"}) {
    const std::string path = directory.file("t.csv", text);
    for (const csv_mode mode : {csv_mode::loaded, csv_mode::indexed}) {
      csv_options options = odd;
      options.mode = mode;
      EXPECT_EQ(rows_of(csv_features(path, options)), (std::vector<numbers>{{1, 2}, {3, 4}})) << text;
    }
  }
}

TEST(csv_content, without_header_the_first_row_is_a_row) {
  const temporary_directory directory;
  for (const csv_mode mode : {csv_mode::loaded, csv_mode::indexed}) {
    const csv_features table(directory.file("t.csv", "1,b\n2,a\n"), {.header = false, .mode = mode});
    EXPECT_EQ(rows_of(table), (std::vector<numbers>{{1, 1}, {2, 0}}));
  }
}

TEST(csv_content, decimal_commas_go_with_semicolons) {
  const temporary_directory directory;
  const csv_features table(directory.file("t.csv", "a;b\n1,5;-2,25\n"), {.delimiter = ';', .decimal = ','});
  EXPECT_EQ(rows_of(table), (std::vector<numbers>{{1.5, -2.25}}));
}

TEST(csv_delimiter, is_the_one_that_cuts_the_first_row_most) {
  const csv_options options{.delimiter = 0};
  EXPECT_EQ(detect_csv_delimiter("a,b\n1;2;3;4,5\n", options), ',');
  EXPECT_EQ(detect_csv_delimiter("a;b;c,d\n", options), ';');
  EXPECT_EQ(detect_csv_delimiter("\"a,b,c\"\td\n", options), '\t');
  EXPECT_EQ(detect_csv_delimiter("\n\n\"a\n;;;\",b", options), ',');
  EXPECT_EQ(detect_csv_delimiter("alone\n1\n", options), ',');
  EXPECT_EQ(detect_csv_delimiter("1,5;2,5;3,5\n", {.delimiter = 0, .decimal = ','}), ';');
  EXPECT_EQ(detect_csv_delimiter("#;;;\nx,,\na,b\n", {.delimiter = 0, .skip_lines = 1, .comment = '#'}), ',');
}

}  // namespace
