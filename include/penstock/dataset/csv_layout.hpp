// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/dataset/csv_column.hpp>
#include <penstock/dataset/csv_options.hpp>
#include <penstock/dataset/csv_parser.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// Whether a table has y beside x.
enum class csv_role { features_and_target, features };

/// Which columns of a file are used, and which elements of a sample they become: features first, then the target.
class csv_layout {
 public:
  csv_layout(std::string path, csv_options options, csv_role role)
      : path_(std::move(path)), options_(std::move(options)), role_(role), missing_(options_.missing) {}

  const std::string& path() const { return path_; }
  const csv_options& options() const { return options_; }
  bool has_target() const { return role_ == csv_role::features_and_target; }
  std::size_t file_columns() const { return names_.size(); }
  /// Elements of x.
  std::size_t features() const { return features_; }
  /// Elements of x and y.
  std::size_t elements() const { return features_ + (has_target() ? 1 : 0); }
  const std::vector<csv_column>& columns() const { return columns_; }

  /// The names in the file's order. From here on it is known which columns are used.
  void set_names(std::vector<std::string> names, std::uint64_t line) {
    names_ = std::move(names);
    if (options_.row_names) names_.insert(names_.begin(), "row names");
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].empty()) names_[i] = concat("column ", i + 1);
    }
    check_names(line);
    for (const std::string& name : options_.drop) position_of(name, "drop");
    for (const csv_categories& one : options_.categories) {
      if (has_target() || one.column != options_.target) position_of(one.column, "categories");
    }
    const bool all = options_.columns.empty();
    for (const std::string& name : all ? names_ : options_.columns) {
      const std::size_t position = position_of(name, "columns");
      if (all && options_.row_names && position == 0) continue;
      if (std::find(options_.drop.begin(), options_.drop.end(), name) != options_.drop.end()) continue;
      if (name == options_.target) {
        if (!all) reject_option("csv", "columns", concat('"', name, '"'), "a column that is not the target");
        continue;
      }
      add_column(name, position, options_.text);
    }
    if (columns_.empty()) throw error("no column is left as a feature", place_in_file(path_));
    if (has_target()) {
      const csv_categories* const own = categories_of(options_.target);
      if (own != nullptr && (own->as == csv_text::one_hot || own->as == csv_text::drop)) {
        reject_option("csv", "categories of the target", "one_hot or drop", "csv_text::ordinal");
      }
      const std::size_t position = position_of(options_.target, "target");
      add_column(options_.target, position, options_.text == csv_text::error ? csv_text::error : csv_text::ordinal);
    }
    index_columns();
  }

  /// Column `position` of the file; null if it is not used.
  csv_column* column_at(std::size_t position) {
    return position < used_.size() && used_[position] != unused ? &columns_[used_[position]] : nullptr;
  }
  const csv_column* column_at(std::size_t position) const {
    return position < used_.size() && used_[position] != unused ? &columns_[used_[position]] : nullptr;
  }

  /// First pass.
  void learn(const csv_cell& cell) {
    csv_column* const column = column_at(cell.column);
    if (column == nullptr) return;
    if (!column->learn(cell.text, missing_, options_.decimal)) {
      fail(concat("found ", csv_column::quoted(cell.text), ", wanted a number (csv_text::error refuses text)"),
           cell.line, cell.column);
    }
    if (column->categories_seen() > options_.max_categories) {
      fail(concat("the column has more than ", options_.max_categories,
                  " different texts, wanted categories (drop it, or raise max_categories)"),
           cell.line, cell.column);
    }
  }

  /// End of the first pass: columns get their final places, and the options what was found.
  void learned() {
    for (csv_column& column : columns_) column.learned();
    std::erase_if(columns_, [](const csv_column& column) { return column.dropped(); });
    features_ = 0;
    options_.columns.clear();
    options_.drop.clear();
    options_.categories.clear();
    options_.text = csv_text::error;  // what is not among the categories is a number, in other files as well
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      csv_column& column = columns_[i];
      const bool target = has_target() && i + 1 == columns_.size();
      column.place_at(features_);
      if (column.is_text()) options_.categories.push_back({column.name(), column.categories(), column.as()});
      if (target) break;
      features_ += column.width();
      options_.columns.push_back(column.name());
    }
    if (features_ == 0) throw error("no column is left as a feature, all are text and dropped", place_in_file(path_));
    index_columns();
  }

  /// Second pass: hands the elements of a cell, if it is used, to `put(element, value)`.
  template <class Element, class Put>
  void decode(const csv_cell& cell, std::uint64_t sample, Put&& put) const {
    const csv_column* const column = column_at(cell.column);
    if (column == nullptr || column->decode<Element>(cell.text, missing_, options_, put)) return;
    const csv_complaint complaint = column->explain<Element>(cell.text, missing_, options_);
    fail(concat("found ", complaint.found, ", wanted ", complaint.wanted), cell.line, cell.column, sample);
  }

  void check_row(csv_mark start, std::size_t cells) const {
    if (cells == names_.size()) return;
    std::string problem = concat("the row has ", cells, cells == 1 ? " cell" : " cells", ", wanted ", names_.size(),
                                 ": ", csv_column::listed(names_));
    if (cells == names_.size() + 1) problem += " (row_names = true if the first column has no name)";
    fail(problem, start.line, std::min(cells, names_.size()));
  }

  [[noreturn]] void fail(const std::string& problem, std::uint64_t line, std::size_t column,
                         std::optional<std::uint64_t> sample = {}) const {
    std::string position = concat("line ", line, ", column ", column + 1);
    if (column < names_.size()) position += concat(" (", names_[column], ")");
    provenance where = place_in_file(path_, std::move(position));
    where.sample = sample;
    throw error(problem, std::move(where));
  }

 private:
  static constexpr std::size_t unused = static_cast<std::size_t>(-1);

  void check_names(std::uint64_t line) const {
    std::vector<std::string> sorted = names_;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice == sorted.end()) return;
    const auto first = std::find(names_.begin(), names_.end(), *twice);
    const auto second = std::find(first + 1, names_.end(), *twice);
    fail(concat("the column name ", csv_column::quoted(*twice), " stands for column ", first - names_.begin() + 1,
                " already, wanted names that differ"),
         line, static_cast<std::size_t>(second - names_.begin()));
  }

  std::size_t position_of(const std::string& name, std::string_view option) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return static_cast<std::size_t>(found - names_.begin());
    throw error(concat("there is no column ", csv_column::quoted(name), " (option ", option, "), wanted one of ",
                       csv_column::listed(names_)),
                place_in_file(path_));
  }

  const csv_categories* categories_of(const std::string& name) const {
    for (const csv_categories& one : options_.categories) {
      if (one.column == name) return &one;
    }
    return nullptr;
  }

  void add_column(const std::string& name, std::size_t position, csv_text policy) {
    const csv_categories* const own = categories_of(name);
    if (own == nullptr) {
      columns_.emplace_back(name, position, policy, std::vector<std::string>{});
    } else if (own->as == csv_text::drop) {
      return;
    } else {
      columns_.emplace_back(name, position, own->as, own->order);
      own->as == csv_text::error ? columns_.back().make_number() : columns_.back().make_text();
    }
  }

  void index_columns() {
    used_.assign(names_.size(), unused);
    for (std::size_t i = 0; i < columns_.size(); ++i) used_[columns_[i].position()] = i;
  }

  std::string path_;
  csv_options options_;
  csv_role role_;
  csv_markers missing_;
  std::vector<std::string> names_;   // of all columns in the file
  std::vector<csv_column> columns_;  // those used: features in order, then the target
  std::vector<std::size_t> used_;    // column in the file -> column used
  std::size_t features_ = 0;
};

}  // namespace penstock::detail
