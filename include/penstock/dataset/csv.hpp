// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/dataset/csv_content.hpp>
#include <penstock/dataset/csv_options.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

namespace detail {

/// What tables with and without target share. Copies share the content.
template <class Element>
class csv_base {
  static_assert(std::is_floating_point_v<Element>, "penstock: a CSV table's element type must be float or double");

 public:
  /// Rows, the header not counted.
  std::size_t size() const { return content_->size(); }

  /// The file of a row.
  provenance where(std::size_t) const { return place_in_file(content_->layout().path()); }

  /// The name of each element of x: the column's, or "color=D" for a category of a one-hot column.
  std::vector<std::string> feature_names() const {
    std::vector<std::string> names;
    const csv_layout& layout = content_->layout();
    for (const csv_column& column : layout.columns()) {
      if (column.first() >= layout.features()) break;  // the target
      if (column.is_text() && column.as() == csv_text::one_hot) {
        for (const std::string& category : column.categories()) names.push_back(concat(column.name(), '=', category));
      } else {
        names.push_back(column.name());
      }
    }
    return names;
  }

  /// The options with all defaults filled in by what was found: feature columns, and every text column's categories
  /// (`.text` is `csv_text::error`: all other columns hold numbers).
  /// Given to `csv_features`, they make another file's rows into the same features.
  const csv_options& options() const { return content_->layout().options(); }

  /// Asks for a row's memory, or its page of the file, ahead of `read`.
  void prefetch(std::size_t index) const noexcept { content_->prefetch(index); }

 protected:
  csv_base(std::string path, csv_options options, csv_role role)
      : content_(std::make_shared<const csv_content<Element>>(std::move(path), std::move(options), role)) {}

  const csv_content<Element>& content() const { return *content_; }

 private:
  std::shared_ptr<const csv_content<Element>> content_;
};

inline csv_options checked(csv_options options, bool target_wanted) {
  const char* const stage = target_wanted ? "csv_table" : "csv_features";
  check_csv_options(options, stage);
  if (target_wanted && options.target.empty()) {
    reject_option(stage, "target", "empty", "a column's name (csv_features reads rows without target)");
  }
  return options;
}

}  // namespace detail

/// A CSV file as a dataset: one sample per row, x the features (rank 1) and y the target (rank 0).
///
/// Columns of text become numbers as `csv_text` and `.categories` say; by default a category's place in alphabetical
/// order. Construction reads the file once (twice for `csv_mode::loaded`), checks that all rows have as many cells as
/// the first, and throws `error` with path, line and column, or `std::invalid_argument` for options that never fit.
/// A cell that is no number is found by construction when loaded, by `read` when indexed. Copies share the content;
/// everything is constant and may be called from any number of threads. Numbers do not depend on the locale.
template <class Element = float>
class csv_table : public detail::csv_base<Element> {
 public:
  using schema_type = penstock::schema<field<Element, 1>, field<Element>>;

  csv_table(std::string path, csv_options options)
      : detail::csv_base<Element>(std::move(path), detail::checked(std::move(options), true),
                                  detail::csv_role::features_and_target) {}

  /// The fields "x", as long as `feature_names()`, and the target under its column's name.
  schema_type schema() const {
    return schema_type{field<Element, 1>{"x", {this->content().layout().features()}},
                       field<Element>{this->options().target, {}}};
  }

  /// Writes row `index` to a pair of views, x and y, of any arithmetic types.
  /// Indexed tables parse up to 16 rows and allocate nothing, but for a cell of over 15 bytes with quotes in it.
  template <class To>
  void read(std::size_t index, const To& to) const {
    const auto& [x, y] = to;
    auto* const features = x.data();
    auto* const target = y.data();
    const std::size_t width = this->content().layout().features();
    this->content().read(index, [=](std::size_t element, Element value) {
      if (element < width) {
        features[element] = static_cast<std::remove_cvref_t<decltype(*features)>>(value);
      } else {
        *target = static_cast<std::remove_cvref_t<decltype(*target)>>(value);
      }
    });
  }
};

/// As `csv_table`, with x alone: rows to predict from. A `.target` is allowed, need not be in the file, and is no
/// feature. `csv_features rows("new.csv", table.options());`
template <class Element = float>
class csv_features : public detail::csv_base<Element> {
 public:
  using schema_type = penstock::schema<field<Element, 1>>;

  explicit csv_features(std::string path, csv_options options = {})
      : detail::csv_base<Element>(std::move(path), detail::checked(std::move(options), false),
                                  detail::csv_role::features) {}

  /// The field "x", as long as `feature_names()`.
  schema_type schema() const { return schema_type{field<Element, 1>{"x", {this->content().layout().features()}}}; }

  /// Writes row `index` to a tuple of one view, of any arithmetic type.
  template <class To>
  void read(std::size_t index, const To& to) const {
    const auto& [x] = to;
    auto* const features = x.data();
    this->content().read(index, [=](std::size_t element, Element value) {
      features[element] = static_cast<std::remove_cvref_t<decltype(*features)>>(value);
    });
  }
};

}  // namespace penstock
