// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::detail {

/// The characters that mean something, as a table that the parser looks bytes up in. 0 stands for "none".
class csv_syntax {
 public:
  explicit csv_syntax(char delimiter = ',', char quote = '"', char comment = 0, std::size_t skip_lines = 0)
      : delimiter_(delimiter), quote_(quote), comment_(comment), skip_lines_(skip_lines) {
    ends_cell_[byte_of('\r')] = ends_cell_[byte_of('\n')] = ends_cell_[byte_of(delimiter)] = true;
    if (separates_by_blanks()) ends_cell_[byte_of('\t')] = true;
  }

  char delimiter() const { return delimiter_; }
  std::size_t skip_lines() const { return skip_lines_; }
  bool is_quote(char c) const { return c == quote_ && quote_ != 0; }
  bool is_comment(char c) const { return c == comment_ && comment_ != 0; }
  bool is_blank(char c) const { return (c == ' ' || c == '\t') && c != delimiter_; }
  bool ends_cell(char c) const { return ends_cell_[byte_of(c)]; }
  /// Runs of spaces and tabs stand between cells, and mean nothing at either end of a line.
  bool separates_by_blanks() const { return delimiter_ == ' '; }
  static bool is_line_end(char c) { return c == '\n' || c == '\r'; }

 private:
  static std::size_t byte_of(char c) { return static_cast<unsigned char>(c); }

  std::array<bool, 256> ends_cell_{};
  char delimiter_;
  char quote_;
  char comment_;
  std::size_t skip_lines_;
};

/// A place where a row begins.
struct csv_mark {
  std::uint64_t byte = 0;  ///< from 0
  std::uint64_t line = 1;  ///< from 1, as editors count
  bool operator==(const csv_mark&) const = default;
};

/// One cell. `text` is unescaped and valid during the call only.
struct csv_cell {
  std::size_t column = 0;  ///< from 0
  std::string_view text;
  bool quoted = false;
  std::uint64_t line = 0;  ///< on which the cell begins
};

}  // namespace penstock::detail
