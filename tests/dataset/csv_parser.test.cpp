// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/dataset/csv_parser.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using penstock::detail::csv_cell;
using penstock::detail::csv_mark;
using penstock::detail::csv_parser;
using penstock::detail::csv_syntax;

using texts = std::vector<std::string>;

/// Keeps all that a parser tells.
struct table {
  std::vector<texts> rows;
  std::vector<csv_mark> marks;
  std::vector<std::uint64_t> lines;  // of all cells
  texts now;

  void cell(const csv_cell& cell) {
    EXPECT_EQ(cell.column, now.size());
    now.emplace_back(cell.text);
    lines.push_back(cell.line);
  }
  bool row(csv_mark start, std::size_t cells) {
    EXPECT_EQ(cells, now.size());
    rows.push_back(std::move(now));
    now.clear();
    marks.push_back(start);
    return true;
  }
  void fail(const std::string& problem, std::uint64_t line, std::size_t column) {
    throw std::runtime_error(std::to_string(line) + ":" + std::to_string(column) + ": " + problem);
  }
  bool operator==(const table&) const = default;
};

/// Each piece lies in memory of its own, which is gone when the next one comes.
table parse(std::string_view text, std::size_t piece = 1'000'000, const csv_syntax& syntax = csv_syntax(),
            csv_mark start = {}) {
  table result;
  csv_parser parser(syntax, start);
  for (std::size_t at = 0; at < text.size(); at += piece) {
    const std::string copy(text.substr(at, piece));
    parser.push(copy, result);
  }
  parser.finish(result);
  return result;
}

std::vector<texts> rows(std::string_view text, const csv_syntax& syntax = csv_syntax()) {
  return parse(text, 1'000'000, syntax).rows;
}

class csv_line_end : public testing::TestWithParam<std::string> {
 protected:
  /// `text` with the line end of this run for each '\n'.
  std::string with_line_ends(std::string_view text) const {
    std::string out;
    for (char c : text) out += c == '\n' ? GetParam() : std::string(1, c);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(, csv_line_end, testing::Values("\n", "\r\n", "\r"), [](const auto& run) {
  return run.param == "\n" ? "LF" : run.param == "\r" ? "CR" : "CRLF";
});

TEST_P(csv_line_end, ends_a_row) {
  EXPECT_EQ(rows(with_line_ends("a,b\n1,2\n")), (std::vector<texts>{{"a", "b"}, {"1", "2"}}));
}

TEST_P(csv_line_end, may_lack_at_the_end) {
  EXPECT_EQ(rows(with_line_ends("a,b\n1,2")), (std::vector<texts>{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows(with_line_ends("a,b\n1,")), (std::vector<texts>{{"a", "b"}, {"1", ""}}));
  EXPECT_EQ(rows(with_line_ends("a,b\n1,\"\"")), (std::vector<texts>{{"a", "b"}, {"1", ""}}));
}

TEST_P(csv_line_end, alone_makes_no_row) {
  EXPECT_EQ(rows(with_line_ends("\n\na\n\n  \n1\n\n")), (std::vector<texts>{{"a"}, {"1"}}));
}

// CSV-1
TEST_P(csv_line_end, CSV_1_inside_quotes_is_text) {
  const table all = parse(with_line_ends("1,2,\"a\nb\",0\n3,4,c,5\n"));
  EXPECT_EQ(all.rows, (std::vector<texts>{{"1", "2", with_line_ends("a\nb"), "0"}, {"3", "4", "c", "5"}}));
  EXPECT_EQ(all.lines, (std::vector<std::uint64_t>{1, 1, 1, 2, 3, 3, 3, 3}));
}

// CSV-1
TEST(csv_parser, CSV_1_quotes_hold_doubled_quotes_and_commas) {
  EXPECT_EQ(rows("\"a \"\"b\"\", c\",\"\"\"\",\"\"\"x\"\"\"\n"), (std::vector<texts>{{"a \"b\", c", "\"", "\"x\""}}));
}

// CSV-2
TEST_P(csv_line_end, CSV_2_rows_do_not_depend_on_where_the_text_is_cut) {
  std::string text = "\xEF\xBB\xBF\"id\",note,x\n";
  std::vector<texts> wanted{{"id", "note", "x"}};
  for (int i = 0; i < 1041; ++i) {
    const std::string number = std::to_string(i);
    text += number + ",\"line one,\nsaid \"\"" + number + "\"\"\" ," + (i % 3 == 0 ? "" : " 1.5") + "\n";
    if (i % 10 == 0) text += "\n";
    wanted.push_back({number, with_line_ends("line one,\nsaid \"" + number + "\""), i % 3 == 0 ? "" : " 1.5"});
  }
  text = with_line_ends(text);
  const table whole = parse(text);
  ASSERT_EQ(whole.rows, wanted);
  EXPECT_EQ(whole.marks[0], (csv_mark{3, 1}));
  EXPECT_EQ(whole.marks[2].line, 5u);
  for (std::size_t piece = 1; piece <= 64; ++piece) ASSERT_EQ(parse(text, piece), whole) << "pieces of " << piece;
}

// CSV-2
TEST_P(csv_line_end, CSV_2_a_parser_that_starts_at_a_mark_goes_on_as_the_first_did) {
  const std::string text = with_line_ends("a,b\n1,\"x\ny\"\n\n2,\"\"\"\"\n3,z");
  const table whole = parse(text);
  ASSERT_EQ(whole.rows.size(), 4u);
  for (std::size_t i = 0; i < whole.marks.size(); ++i) {
    const table rest = parse(std::string_view(text).substr(whole.marks[i].byte), 5, csv_syntax(), whole.marks[i]);
    const auto at = static_cast<std::ptrdiff_t>(i);
    EXPECT_EQ(rest.rows, std::vector<texts>(whole.rows.begin() + at, whole.rows.end()));
    EXPECT_EQ(rest.marks, std::vector<csv_mark>(whole.marks.begin() + at, whole.marks.end()));
  }
}

// CSV-4
TEST(csv_parser, CSV_4_a_byte_order_mark_is_no_text) {
  for (const std::string_view text : {"\"id\",x\n1,2\n", "id,x\n1,2\n"}) {
    for (std::size_t piece = 1; piece <= 4; ++piece) {
      EXPECT_EQ(parse("\xEF\xBB\xBF" + std::string(text), piece).rows, rows(text));
    }
  }
}

TEST(csv_parser, what_only_begins_like_a_byte_order_mark_is_text) {
  for (const std::string text : {"\xEF\xBB", "\xEF", "\xEF\xBB,a", "\xEF\xBC\x81,b"}) {
    std::string back;
    const std::vector<texts> all = rows(text);
    ASSERT_EQ(all.size(), 1u);
    for (const std::string& cell : all[0]) back += (back.empty() ? "" : ",") + cell;
    EXPECT_EQ(back, text);
    EXPECT_EQ(parse(text, 1), parse(text));
  }
  EXPECT_TRUE(rows("\xEF\xBB\xBF").empty());
}

TEST(csv_parser, blanks_around_quotes_are_no_text_and_others_are) {
  EXPECT_EQ(rows("a, \"b, c\" ,\t\"d\"\t\n"), (std::vector<texts>{{"a", "b, c", "d"}}));
  EXPECT_EQ(rows(" a , b\n"), (std::vector<texts>{{" a ", " b"}}));
}

TEST(csv_parser, a_quote_inside_an_unquoted_cell_is_text) {
  EXPECT_EQ(rows("5\" pipe,x\n"), (std::vector<texts>{{"5\" pipe", "x"}}));
}

TEST(csv_parser, other_delimiters_and_quotes) {
  EXPECT_EQ(rows("'a'\t'b\tc'\n", csv_syntax('\t', '\'')), (std::vector<texts>{{"a", "b\tc"}}));
  EXPECT_EQ(rows("\"a\";b,c\n", csv_syntax(';')), (std::vector<texts>{{"a", "b,c"}}));
  EXPECT_EQ(rows("\"a\",b\n", csv_syntax(',', 0)), (std::vector<texts>{{"\"a\"", "b"}}));
}

TEST(csv_parser, runs_of_blanks_separate_where_the_delimiter_is_a_blank) {
  const csv_syntax blanks(' ', '\'');
  const std::string text = "  'a b'  c \n1\t2\n\n \n  3   4";
  EXPECT_EQ(rows(text, blanks), (std::vector<texts>{{"a b", "c"}, {"1", "2"}, {"3", "4"}}));
  for (std::size_t piece = 1; piece < 8; ++piece) EXPECT_EQ(parse(text, piece, blanks), parse(text, 99, blanks));
}

TEST_P(csv_line_end, comments_and_lines_before_the_header_are_skipped_and_counted) {
  const std::string text = with_line_ends("3,\"4\n\n#\"\na,b\n# more\n1,#2\n#");
  const csv_syntax syntax(',', '"', '#', 2);
  const table all = parse(text, 99, syntax);
  EXPECT_EQ(all.rows, (std::vector<texts>{{"a", "b"}, {"1", "#2"}}));
  EXPECT_EQ(all.lines, (std::vector<std::uint64_t>{4, 4, 6, 6}));
  for (std::size_t piece = 1; piece < 8; ++piece) EXPECT_EQ(parse(text, piece, syntax), all);
}

TEST(csv_parser, says_where_an_open_quote_begins) {
  try {
    parse("a,b\n\"x\ny\",\"z\n\n1,2\n");
    FAIL() << "took a quote that is never closed";
  } catch (const std::runtime_error& caught) {
    EXPECT_STREQ(caught.what(), "3:1: a quote is opened here and never closed");
  }
}

TEST(csv_parser, refuses_text_after_a_closing_quote) {
  try {
    parse("a,b\n1,\"2\"3\n");
    FAIL() << "took text after a closing quote";
  } catch (const std::runtime_error& caught) {
    EXPECT_STREQ(caught.what(), "2:1: found '3' after a closing quote, wanted the end of the cell");
  }
}

}  // namespace
