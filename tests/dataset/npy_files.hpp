// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include <penstock/dataset/npy.hpp>

#include "../support/error_of.hpp"
#include "../support/temporary_directory.hpp"

namespace npy_test {

using penstock_test::temporary_directory;

inline std::string write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
  return path;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// An NPY file's bytes with this text as header, blanks up to the alignment and a line end after it.
inline std::string with_header(std::string text, std::string_view data, int version = 1, std::size_t alignment = 64) {
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  while ((6 + 2 + length_bytes + text.size() + 1) % alignment != 0) text += ' ';
  text += '\n';
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  for (std::size_t i = 0; i < length_bytes; ++i) out += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return out + text + std::string(data);
}

inline std::string npy_file(std::string_view type, std::string_view shape, std::string_view data,
                            bool fortran = false) {
  return with_header(penstock::detail::concat("{'descr': '", type, "', 'fortran_order': ", fortran ? "True" : "False",
                                              ", 'shape': ", shape, ", }"),
                     data);
}

/// The values' bytes, each value's in the stated order: '<' or '>'.
template <class T>
std::string bytes_of(const std::vector<T>& values, char order = '<') {
  std::string out;
  for (const T& value : values) {
    std::array<char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    const bool reverse = (order == '<') != (std::endian::native == std::endian::little);
    for (std::size_t i = 0; i < sizeof(T); ++i) out += bytes[reverse ? sizeof(T) - 1 - i : i];
  }
  return out;
}

/// Sample `index` of a dataset of one field, in a heap block of exactly its size (for the address sanitizer).
template <class T, std::size_t Rank>
std::vector<T> sample_of(const penstock::npy_array<T, Rank>& array, std::size_t index) {
  const auto shape = std::get<0>(array.schema().fields).shape;
  std::size_t elements = 1;
  for (std::size_t extent : shape) elements *= extent;
  std::unique_ptr<T[]> block(new T[elements]());
  array.read(index, {penstock::tensor_view<T, Rank>(block.get(), shape)});
  return std::vector<T>(block.get(), block.get() + elements);
}

/// All samples, one after the other.
template <class T, std::size_t Rank>
std::vector<T> all_of(const penstock::npy_array<T, Rank>& array) {
  std::vector<T> out;
  for (std::size_t i = 0; i < array.size(); ++i) {
    for (const T& value : sample_of(array, i)) out.push_back(value);
  }
  return out;
}

using penstock_test::error_of;

/// Whether all parts are in the text; otherwise says which is not.
inline std::string missing(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (std::string_view part : parts) {
    if (text.find(part) == std::string::npos) return "no \"" + std::string(part) + "\" in \"" + text + "\"";
  }
  return {};
}

}  // namespace npy_test
