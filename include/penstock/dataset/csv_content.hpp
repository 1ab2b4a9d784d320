// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/dataset/csv_layout.hpp>
#include <penstock/dataset/csv_options.hpp>
#include <penstock/dataset/csv_parser.hpp>
#include <penstock/dataset/mapped_file.hpp>

namespace penstock::detail {

/// Counts the cells of the first row.
struct csv_first_row {
  std::size_t cells = 0;

  void cell(const csv_cell&) {}
  bool row(csv_mark, std::size_t count) {
    cells = count;
    return false;
  }
  void fail(const std::string& problem, std::uint64_t, std::size_t) { throw error(problem); }
};

/// The one of , ; and tab that cuts the first row into most cells. A decimal comma is no candidate.
inline char detect_csv_delimiter(std::string_view text, const csv_options& options) {
  char best = options.decimal == ',' ? ';' : ',';
  std::size_t most = 1;
  for (const char candidate : {',', ';', '\t'}) {
    if (candidate == options.decimal || candidate == options.quote || candidate == options.comment) continue;
    const csv_syntax syntax(candidate, options.quote, options.comment, options.skip_lines);
    csv_first_row first;
    try {
      csv_parser parser(syntax);
      if (parser.push(text, first)) parser.finish(first);
    } catch (const error&) {  // a quote that ends inside a cell: not this one
    }
    if (first.cells > most) {
      most = first.cells;
      best = candidate;
    }
  }
  return best;
}

/// First pass over a file: names, kinds of columns, categories, number of rows, and the marks of every n-th.
class csv_scan {
 public:
  /// One mark, 16 bytes, for so many rows.
  static constexpr std::size_t rows_per_mark = 16;

  explicit csv_scan(csv_layout& layout) : layout_(&layout), in_header_(layout.options().header) {}

  std::uint64_t rows = 0;
  std::vector<csv_mark> marks;

  void cell(const csv_cell& cell) {
    if (layout_->file_columns() == 0) {  // a header, or the first row of a file without one
      names_.emplace_back(in_header_ ? trimmed(cell.text) : std::string_view{});
      if (!in_header_) first_row_.push_back({std::string(cell.text), cell.quoted, cell.line});
    } else {
      layout_->learn(cell);
    }
  }
  bool row(csv_mark start, std::size_t cells) {
    if (layout_->file_columns() == 0) {
      layout_->set_names(std::move(names_), start.line);
      for (std::size_t i = 0; i < first_row_.size(); ++i) {
        layout_->learn({i, first_row_[i].text, first_row_[i].quoted, first_row_[i].line});
      }
      if (in_header_) return true;
    }
    layout_->check_row(start, cells);
    if (rows % rows_per_mark == 0) marks.push_back(start);
    ++rows;
    return true;
  }
  [[noreturn]] void fail(const std::string& problem, std::uint64_t line, std::size_t column) const {
    layout_->fail(problem, line, column);
  }

 private:
  struct kept_cell {
    std::string text;
    bool quoted;
    std::uint64_t line;
  };

  csv_layout* layout_;
  bool in_header_;
  std::vector<std::string> names_;
  std::vector<kept_cell> first_row_;
};

/// Second pass: passes over `skip` rows, then hands the elements of `count` rows to `put(row, element, value)`.
template <class Element, class Put>
class csv_rows {
 public:
  csv_rows(const csv_layout& layout, std::uint64_t first_row, std::uint64_t skip, std::uint64_t count, Put put)
      : layout_(&layout), row_(first_row), skip_(skip), count_(count), put_(std::move(put)) {}

  void cell(const csv_cell& cell) {
    if (skip_ > 0) return;
    layout_->decode<Element>(cell, row_, [this](std::size_t element, Element value) { put_(row_, element, value); });
  }
  bool row(csv_mark start, std::size_t cells) {
    layout_->check_row(start, cells);
    ++row_;
    if (skip_ > 0) {
      --skip_;
      return true;
    }
    return --count_ > 0;
  }
  [[noreturn]] void fail(const std::string& problem, std::uint64_t line, std::size_t column) const {
    layout_->fail(problem, line, column, row_);
  }

 private:
  const csv_layout* layout_;
  std::uint64_t row_;
  std::uint64_t skip_;
  std::uint64_t count_;
  Put put_;
};

/// A CSV file as numbers: loaded, or found in the mapped file when asked for. Constant once it is made.
template <class Element>
class csv_content {
 public:
  csv_content(std::string path, csv_options options, csv_role role)
      : file_(std::move(path)), layout_(file_.path(), std::move(options), role), syntax_(syntax_of(layout_.options())) {
    scan();
    if (layout_.options().mode == csv_mode::loaded) load();
  }

  const csv_layout& layout() const { return layout_; }
  std::size_t size() const { return size_; }

  /// Hands the elements of row `index` to `put(element, value)`, x before y.
  template <class Put>
  void read(std::size_t index, Put&& put) const {
    if (index >= size_) {
      throw error(concat("there is no row ", index, ", wanted one below ", size_), place_in_file(layout_.path()));
    }
    const std::size_t width = layout_.elements();
    if (!values_.empty()) {
      const Element* const row = values_.data() + index * width;
      for (std::size_t i = 0; i < width; ++i) put(i, row[i]);
    } else {
      const std::size_t mark = index / csv_scan::rows_per_mark;
      parse(marks_[mark], mark * csv_scan::rows_per_mark, index % csv_scan::rows_per_mark, 1,
            [&put](std::uint64_t, std::size_t element, Element value) { put(element, value); });
    }
  }

  void prefetch(std::size_t index) const noexcept {
    if (index >= size_) return;
    if (!values_.empty()) {
      __builtin_prefetch(values_.data() + index * layout_.elements());
    } else {
      file_.will_need(marks_[index / csv_scan::rows_per_mark].byte, 1);
    }
  }

 private:
  csv_syntax syntax_of(const csv_options& options) const {
    const char delimiter = options.delimiter == 0 ? detect_csv_delimiter(text(), options) : options.delimiter;
    return csv_syntax(delimiter, options.quote, options.comment, options.skip_lines);
  }
  std::string_view text(std::uint64_t from = 0) const {
    const auto bytes = file_.bytes().subspan(static_cast<std::size_t>(from));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void scan() {
    const std::string_view all = text();
    if (all.empty()) throw error("the file is empty, wanted a table", place_in_file(file_.path()));
    if (all.starts_with("\xFF\xFE") || all.starts_with("\xFE\xFF")) {
      throw error("the text is UTF-16, wanted UTF-8", place_in_file(file_.path()));
    }
    csv_scan scan(layout_);
    csv_parser parser(syntax_);
    if (parser.push(all, scan)) parser.finish(scan);
    if (layout_.file_columns() == 0) {
      throw error("the file holds blank lines only, wanted a table", place_in_file(file_.path()));
    }
    if (scan.rows == 0) throw error("no row follows the column names, wanted at least 1", place_in_file(file_.path()));
    layout_.learned();
    size_ = static_cast<std::size_t>(scan.rows);
    marks_ = std::move(scan.marks);
  }

  void load() {
    const std::size_t width = layout_.elements();
    values_.resize(size_ * width);
    parse(marks_.front(), 0, 0, size_, [this, width](std::uint64_t row, std::size_t element, Element value) {
      values_[static_cast<std::size_t>(row) * width + element] = value;
    });
    marks_ = {};
    const mapped_file unmapped(std::move(file_));
  }

  template <class Put>
  void parse(csv_mark from, std::uint64_t row, std::uint64_t skip, std::uint64_t count, Put put) const {
    csv_rows<Element, Put> sink(layout_, row, skip, count, std::move(put));
    csv_parser parser(syntax_, from);
    if (parser.push(text(from.byte), sink)) parser.finish(sink);
  }

  mapped_file file_;
  csv_layout layout_;
  csv_syntax syntax_;
  std::size_t size_ = 0;
  std::vector<csv_mark> marks_;  // indexed
  std::vector<Element> values_;  // loaded: row after row, x before y
};

}  // namespace penstock::detail
