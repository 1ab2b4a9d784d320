// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/sample/error.hpp>

namespace penstock {

/// What becomes of a column of text. A column is one of text if its first cell that is not missing is no number.
enum class csv_text {
  ordinal,  ///< the category's number, from 0, in the order given or else in alphabetical (byte) order
  one_hot,  ///< one feature for each category, 1 for the cell's own and 0 for the others
  drop,     ///< left out
  error     ///< refused
};

/// What becomes of a cell that holds nothing or a marker such as NA.
enum class csv_missing {
  error,  ///< an error that names file, line and column
  nan     ///< not-a-number, in all features of the cell
};

/// Where the values live.
enum class csv_mode {
  loaded,  ///< parsed at construction, kept in memory
  indexed  ///< parsed when read, from the mapped file; kept in memory is the place of every 16th row
};

/// How one column is turned into numbers. `{"cut", {"Fair", "Good", "Ideal"}}` gives categories in their order, which
/// also makes a column of numbers one of categories; without them they are gathered from the file.
struct csv_categories {
  std::string column{};
  std::vector<std::string> order{};
  csv_text as = csv_text::ordinal;  ///< `error`: the column must hold numbers
  bool operator==(const csv_categories&) const = default;
};

/// How a CSV file is read. The defaults suit RFC 4180 with a header line.
struct csv_options {
  std::string target{};                      ///< name of the column that is y
  std::vector<std::string> columns{};        ///< the features, in this order; empty: all columns but the target
  std::vector<std::string> drop{};           ///< columns that are no features
  std::vector<csv_categories> categories{};  ///< columns of text that want more than `text` says
  csv_text text = csv_text::ordinal;         ///< all other columns of text; a target is then ordinal, or refused
  char delimiter = ',';                      ///< ' ': runs of blanks; 0: the one of , ; and tab that cuts line 1 most
  char quote = '"';                          ///< 0: none
  bool header = true;                        ///< false: columns are named "column 1", "column 2", ...
  bool row_names = false;                    ///< R's way: the header has no name for the first column, no feature
  std::size_t skip_lines = 0;                ///< lines before the header
  char comment = 0;                          ///< lines that begin with it are skipped; 0: none
  std::vector<std::string> missing{"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"};  ///< markers, blanks cut off
  csv_missing on_missing = csv_missing::error;
  char decimal = '.';                 ///< or ','
  std::size_t max_categories = 1000;  ///< a column with more different texts is refused (it is a name, not a category)
  csv_mode mode = csv_mode::loaded;
  bool operator==(const csv_options&) const = default;
};

namespace detail {

/// Throws `std::invalid_argument` for options that no file could make right.
inline void check_csv_options(const csv_options& options, std::string_view stage) {
  const auto shown = [](char c) { return c == 0 ? std::string("0") : std::string{'\'', c, '\''}; };
  const char delimiter = options.delimiter;
  if (options.decimal != '.' && options.decimal != ',') {
    reject_option(stage, "decimal", shown(options.decimal), "'.' or ','");
  }
  if (delimiter == options.decimal || delimiter == '\n' || delimiter == '\r') {
    reject_option(stage, "delimiter", shown(delimiter), "a character that is neither the decimal sign nor a line end");
  }
  if (options.quote != 0 && (options.quote == delimiter || options.quote == options.decimal)) {
    reject_option(stage, "quote", shown(options.quote), "a character that differs from delimiter and decimal sign");
  }
  if (options.comment != 0 && (options.comment == delimiter || options.comment == options.quote)) {
    reject_option(stage, "comment", shown(options.comment), "a character that differs from delimiter and quote");
  }
  if (options.row_names && !options.header) reject_option(stage, "row_names", "true", "false where header is false");
  if (options.max_categories == 0) reject_option(stage, "max_categories", "0", "1 or more");
  for (std::size_t i = 0; i < options.categories.size(); ++i) {
    const csv_categories& one = options.categories[i];
    for (std::size_t k = 0; k < i; ++k) {
      if (options.categories[k].column != one.column) continue;
      reject_option(stage, "categories", concat('"', one.column, "\" twice"), "it once");
    }
    for (std::size_t k = 0; k < one.order.size(); ++k) {
      for (std::size_t l = 0; l < k; ++l) {
        if (one.order[k] == one.order[l]) {
          reject_option(stage, concat("categories of ", one.column), concat('"', one.order[k], "\" twice"), "it once");
        }
      }
    }
  }
}

}  // namespace detail
}  // namespace penstock
