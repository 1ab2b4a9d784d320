// SPDX-License-Identifier: Apache-2.0
// Most bytes: 1024
// CSV tables: the first two bytes choose the options, the others are the file. Whatever they are, an error, or a table
// that gives the same numbers loaded and indexed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/dataset/csv.hpp>

#include "memory_file.hpp"

namespace {

using namespace penstock;

csv_options options_of(std::uint8_t first, std::uint8_t second) {
  constexpr char delimiters[] = {',', ';', '\t', ' ', 0, '|', ',', ';'};
  constexpr csv_text texts[] = {csv_text::ordinal, csv_text::one_hot, csv_text::drop, csv_text::error};
  csv_options options;
  options.delimiter = delimiters[first & 7];
  options.text = texts[first >> 3 & 3];
  options.header = (first & 32) == 0;
  options.row_names = options.header && (first & 64) != 0;
  options.decimal = (first & 128) != 0 && options.delimiter != ',' ? ',' : '.';
  options.on_missing = (second & 1) != 0 ? csv_missing::nan : csv_missing::error;
  options.quote = (second & 2) != 0 ? '\0' : '"';
  options.comment = (second & 4) != 0 ? '#' : '\0';
  options.skip_lines = second >> 3 & 3;
  if ((second & 32) != 0) options.max_categories = 3;
  if ((second & 64) != 0) options.target = "y";
  return options;
}

/// A row's bytes, or nothing where a cell is not what was wanted.
std::optional<std::vector<unsigned char>> row_of(const csv_features<float>& table, std::size_t index) {
  const std::size_t width = std::get<0>(table.schema().fields).shape[0];
  const std::unique_ptr<float[]> row(new float[width]());
  std::vector<unsigned char> bytes(width * sizeof(float));
  try {
    table.prefetch(index);
    table.read(index, sample_view<csv_features<float>::schema_type>(tensor_view<float, 1>(row.get(), {width})));
  } catch (const error&) {
    return std::nullopt;
  }
  if (width != 0) std::memcpy(bytes.data(), row.get(), bytes.size());
  return bytes;
}

std::optional<csv_features<float>> open(const std::string& path, csv_options options, csv_mode mode) {
  options.mode = mode;
  try {
    return csv_features<float>(path, options);
  } catch (const error&) {
    return std::nullopt;
  } catch (const std::invalid_argument&) {  // such as all columns dropped
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const csv_options options = options_of(data[0], data[1]);
  const fuzz::memory_file file(data + 2, size - 2);
  const auto loaded = open(file.path(), options, csv_mode::loaded);
  const auto indexed = open(file.path(), options, csv_mode::indexed);
  if (loaded && !indexed) std::abort();
  if (!indexed) return 0;
  bool all = true;
  for (std::size_t i = 0; i < indexed->size(); ++i) {
    const auto row = row_of(*indexed, i);
    all = all && row.has_value();
    if (loaded && row != row_of(*loaded, i)) std::abort();
  }
  if (all && !loaded) std::abort();
  if (loaded && (loaded->size() != indexed->size() || loaded->feature_names() != indexed->feature_names()))
    std::abort();
  return 0;
}
