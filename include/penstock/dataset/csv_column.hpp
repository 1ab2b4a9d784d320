// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/dataset/csv_number.hpp>
#include <penstock/dataset/csv_options.hpp>

namespace penstock::detail {

/// What stands for a missing value. Most cells are told apart from all markers by their length alone.
class csv_markers {
 public:
  explicit csv_markers(std::vector<std::string> texts) : texts_(std::move(texts)) {
    for (const std::string& text : texts_) lengths_ |= bit_of(text.size());
  }
  bool contain(std::string_view text) const {
    if ((lengths_ & bit_of(text.size())) == 0) return false;
    return std::find(texts_.begin(), texts_.end(), text) != texts_.end();
  }

 private:
  static std::uint64_t bit_of(std::size_t length) { return std::uint64_t{1} << std::min<std::size_t>(length, 63); }

  std::vector<std::string> texts_;
  std::uint64_t lengths_ = 0;
};

/// What is the matter with a cell, for a message: `found "abc", wanted a number`.
struct csv_complaint {
  std::string found;
  std::string wanted;
};

/// One column that is used, and how its cells become elements of a sample.
class csv_column {
 public:
  enum class kind : unsigned char { unknown, number, text };

  csv_column(std::string name, std::size_t position, csv_text as, std::vector<std::string> order)
      : name_(std::move(name)), position_(position), as_(as), given_(!order.empty()) {
    if (given_) {
      kind_ = kind::text;
      set_categories(std::move(order));
    }
  }

  const std::string& name() const { return name_; }
  std::size_t position() const { return position_; }  ///< in the file, from 0
  std::size_t first() const { return first_; }        ///< its first element of the sample
  std::size_t width() const { return kind_ == kind::text && as_ == csv_text::one_hot ? categories_.size() : 1; }
  bool is_text() const { return kind_ == kind::text; }
  bool dropped() const { return kind_ == kind::text && as_ == csv_text::drop; }
  csv_text as() const { return as_; }
  const std::vector<std::string>& categories() const { return categories_; }

  void place_at(std::size_t first) { first_ = first; }
  void make_text() { kind_ = kind::text; }
  void make_number() { kind_ = kind::number; }

  /// First pass: learns from a cell whether the column is text, and its categories. False if text is refused.
  bool learn(std::string_view text, const csv_markers& missing, char decimal) {
    if (kind_ == kind::number || given_ || dropped()) return true;
    text = trimmed(text);
    if (missing.contain(text)) return true;
    if (kind_ == kind::unknown) {
      float value;
      kind_ = parse_number(text, decimal, value) == number_status::not_a_number ? kind::text : kind::number;
      if (kind_ == kind::number) return true;
      if (as_ == csv_text::error) return false;
      if (as_ == csv_text::drop) return true;
    }
    if (seen_.find(text) == seen_.end()) seen_.emplace(text);
    return true;
  }
  std::size_t categories_seen() const { return seen_.size(); }

  /// End of the first pass.
  void learned() {
    if (kind_ == kind::unknown) kind_ = kind::number;  // nothing but missing cells
    if (kind_ == kind::text && !given_) set_categories({seen_.begin(), seen_.end()});
    seen_.clear();
  }

  /// Second pass: hands the elements of a cell to `put(element, value)`. False if the cell does not fit; `explain`
  /// then says why.
  template <class Element, class Put>
  bool decode(std::string_view text, const csv_markers& missing, const csv_options& options, Put&& put) const {
    text = trimmed(text);
    const bool has_number = kind_ == kind::number;
    std::size_t category = has_number ? no_category : find_category(text);
    if (category == no_category && missing.contain(text)) {
      if (options.on_missing == csv_missing::error) return false;
      for (std::size_t i = 0; i < width(); ++i) put(first_ + i, std::numeric_limits<Element>::quiet_NaN());
      return true;
    }
    if (has_number) {
      Element value{};
      if (parse_number(text, options.decimal, value) != number_status::good) return false;
      put(first_, value);
      return true;
    }
    if (category == no_category) return false;
    if (as_ == csv_text::one_hot) {
      for (std::size_t i = 0; i < width(); ++i) put(first_ + i, static_cast<Element>(i == category ? 1 : 0));
    } else {
      put(first_, static_cast<Element>(category));
    }
    return true;
  }

  template <class Element>
  csv_complaint explain(std::string_view text, const csv_markers& missing, const csv_options& options) const {
    text = trimmed(text);
    if (missing.contain(text)) {
      return {text.empty() ? "nothing" : quoted(text),
              concat(is_text() ? "one of its texts" : "a number", " (on_missing = csv_missing::nan lets it pass)")};
    }
    if (is_text()) return {quoted(text), "one of " + listed(categories_)};
    Element value{};
    const bool too_large = parse_number(text, options.decimal, value) == number_status::out_of_range;
    if (too_large) return {quoted(text), concat("a number that ", sizeof(Element) == 4 ? "float" : "double", " holds")};
    return {quoted(text), "a number (or the column named in categories, if it is text)"};
  }

  /// At most 40 bytes of `text`, in quotes.
  static std::string quoted(std::string_view text) {
    if (text.size() <= 40) return concat('"', text, '"');
    return concat('"', text.substr(0, 37), "...\"");
  }
  /// "a, b, c", at most 20 of them.
  static std::string listed(const std::vector<std::string>& texts) {
    constexpr std::size_t most = 20;
    std::string out;
    for (std::size_t i = 0; i < texts.size() && i < most; ++i) out += concat(i == 0 ? "" : ", ", texts[i]);
    return texts.size() <= most ? out : concat(out, ", ... (", texts.size(), " in all)");
  }

 private:
  static constexpr std::size_t no_category = static_cast<std::size_t>(-1);

  void set_categories(std::vector<std::string> order) {
    categories_ = std::move(order);
    by_text_.resize(categories_.size());
    for (std::size_t i = 0; i < by_text_.size(); ++i) by_text_[i] = i;
    std::sort(by_text_.begin(), by_text_.end(),
              [&](std::size_t a, std::size_t b) { return categories_[a] < categories_[b]; });
  }
  std::size_t find_category(std::string_view text) const {
    const auto found = std::lower_bound(by_text_.begin(), by_text_.end(), text,
                                        [&](std::size_t a, std::string_view b) { return categories_[a] < b; });
    return found != by_text_.end() && categories_[*found] == text ? *found : no_category;
  }

  std::string name_;
  std::size_t position_;
  std::size_t first_ = 0;
  csv_text as_;
  kind kind_ = kind::unknown;
  bool given_;
  std::vector<std::string> categories_;
  std::vector<std::size_t> by_text_;         // numbers of the categories, sorted by their text
  std::set<std::string, std::less<>> seen_;  // first pass
};

}  // namespace penstock::detail
