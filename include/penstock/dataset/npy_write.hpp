// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <penstock/dataset/atomic_file.hpp>
#include <penstock/dataset/npy_type.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/tensor_view.hpp>

namespace penstock {

namespace detail {

/// Everything before the elements, padded so that they begin at a multiple of 64.
inline std::string npy_header_bytes(std::string_view type, std::span<const std::size_t> shape) {
  std::string extents;
  for (std::size_t extent : shape) extents += concat(extents.empty() ? "" : " ", extent, ",");
  if (shape.size() > 1) extents.pop_back();
  std::string text = concat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", extents, "), }");
  constexpr std::size_t fixed = 10;
  constexpr std::size_t alignment = 64;
  text.append(alignment - 1 - (fixed + text.size()) % alignment, ' ');
  text += '\n';
  std::string out = "\x93NUMPY";
  out += '\x01';
  out += '\0';
  out += static_cast<char>(static_cast<unsigned char>(text.size() & 0xff));
  out += static_cast<char>(static_cast<unsigned char>(text.size() >> 8));
  return out + text;
}

template <class T>
void write_npy_elements(const std::string& path, std::span<const T> values, std::span<const std::size_t> shape) {
  constexpr std::size_t most = 64;
  if (shape.size() > most) reject_option("write_npy", "shape", concat(shape.size(), " extents long"), "64 or fewer");
  const auto elements = count_npy_elements(shape);
  if (!elements) reject_option("write_npy", "shape", "larger than memory", "one that memory can hold");
  if (*elements != values.size()) {
    reject_option("write_npy", "shape", concat("one of ", *elements, " elements"), concat(values.size(), " as given"));
  }
  const std::string header = npy_header_bytes(npy_type_text<T>(), shape);
  atomic_file file(path);
  file.write(std::as_bytes(std::span(header)));
  file.write(std::as_bytes(values));
  file.commit();
}

}  // namespace detail

/// Writes an array as an NPY file of version 1.0 in C order and this machine's byte order.
///
/// The file appears under its name when it is whole and on disk, so readers and crashes never meet half of one.
/// Throws `error` with path and reason; then a file that was there before is untouched.
template <class T, std::size_t Rank>
  requires npy_element<std::remove_cv_t<T>>
void write_npy(const std::string& path, tensor_view<T, Rank> values) {
  const auto shape = values.shape();
  detail::write_npy_elements<std::remove_cv_t<T>>(path, {values.data(), values.size()}, shape);
}

/// The same from any contiguous range: `write_npy("x.npy", std::vector<float>(12), {3, 4})`.
/// Throws `std::invalid_argument` if the shape has another number of elements.
template <std::ranges::contiguous_range Range>
  requires npy_element<std::ranges::range_value_t<Range>>
void write_npy(const std::string& path, const Range& values, const std::vector<std::size_t>& shape) {
  using value_type = std::ranges::range_value_t<Range>;
  detail::write_npy_elements<value_type>(path, {std::ranges::data(values), std::ranges::size(values)}, shape);
}

}  // namespace penstock
