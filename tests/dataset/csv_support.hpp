// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <stdlib.h>

#include <penstock/dataset/csv.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/tensor_view.hpp>

#include "../support/temporary_directory.hpp"

namespace penstock_test {

using numbers = std::vector<double>;

/// Row `index`: the features, then the target if there is one.
template <class Element>
numbers row_of(const penstock::csv_table<Element>& table, std::size_t index) {
  const std::size_t width = std::get<0>(table.schema().fields).shape[0];
  numbers row(width + 1, -777);
  table.read(index, std::tuple{penstock::tensor_view<double, 1>{row.data(), {width}},
                               penstock::tensor_view<double, 0>{row.data() + width, {}}});
  return row;
}
template <class Element>
numbers row_of(const penstock::csv_features<Element>& table, std::size_t index) {
  const std::size_t width = std::get<0>(table.schema().fields).shape[0];
  numbers row(width, -777);
  table.read(index, std::tuple{penstock::tensor_view<double, 1>{row.data(), {width}}});
  return row;
}

template <class Table>
std::vector<numbers> rows_of(const Table& table) {
  std::vector<numbers> rows;
  for (std::size_t i = 0; i < table.size(); ++i) rows.push_back(row_of(table, i));
  return rows;
}

/// What reading all of `text` says went wrong: the penstock::error's text without the directory, or "".
inline std::string complaint_about(std::string_view text, penstock::csv_options options) {
  const temporary_directory directory;
  const std::string path = directory.file("t.csv", text);
  try {
    if (options.target.empty()) {
      rows_of(penstock::csv_features(path, options));
    } else {
      rows_of(penstock::csv_table(path, options));
    }
  } catch (const penstock::error& caught) {
    std::string what = caught.what();
    const std::size_t at = what.find(path);
    if (at != std::string::npos) what.replace(at, path.size(), "t.csv");
    return what;
  }
  return "";
}

inline std::vector<numbers> rows_in(std::string_view text, const penstock::csv_options& options = {}) {
  const temporary_directory directory;
  return rows_of(penstock::csv_features(directory.file("t.csv", text), options));
}

}  // namespace penstock_test
