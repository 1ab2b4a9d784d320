// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/dataset/mapped_file.hpp>
#include <penstock/dataset/npy_type.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

namespace detail {

/// The format's number for an element type; 0 for others.
template <class T>
inline constexpr std::uint8_t idx_type = npy_kind<T> == 'u' && sizeof(T) == 1   ? 0x08
                                         : npy_kind<T> == 'i' && sizeof(T) == 1 ? 0x09
                                         : npy_kind<T> == 'i' && sizeof(T) == 2 ? 0x0B
                                         : npy_kind<T> == 'i' && sizeof(T) == 4 ? 0x0C
                                         : std::is_same_v<T, float>             ? 0x0D
                                         : std::is_same_v<T, double>            ? 0x0E
                                                                                : 0;

/// Bytes of an element, or 0 for a number that is no type.
constexpr std::size_t idx_item_size(std::uint8_t type) {
  return type == 0x08 || type == 0x09 ? 1 : type == 0x0B ? 2 : type == 0x0C || type == 0x0D ? 4 : type == 0x0E ? 8 : 0;
}
constexpr std::string_view idx_type_name(std::uint8_t type) {
  switch (type) {
    case 0x08: return "uint8";
    case 0x09: return "int8";
    case 0x0B: return "int16";
    case 0x0C: return "int32";
    case 0x0D: return "float32";
    case 0x0E: return "float64";
    default: return "no type";
  }
}

}  // namespace detail

/// What an IDX file can hold: uint8, int8, int16, int32, float and double.
template <class T>
concept idx_element = detail::idx_type<T> != 0;

/// What the header of an IDX file says.
struct idx_header {
  std::string path;
  std::uint8_t type = 0;  ///< 0x08 uint8, 0x09 int8, 0x0B int16, 0x0C int32, 0x0D float32, 0x0E float64
  std::vector<std::size_t> shape;
  std::uint64_t data_offset = 0;  ///< byte in the file where the elements begin

  /// "28 x 28"; "1" of no extents.
  std::string shape_text() const {
    std::string text;
    for (const std::size_t extent : shape) text += detail::concat(text.empty() ? "" : " x ", extent);
    return text.empty() ? "1" : text;
  }
};

namespace detail {

[[noreturn]] inline void throw_idx_error(const std::string& path, std::uint64_t offset, std::string problem) {
  throw error(std::move(problem), place_in_file(path, concat("byte ", offset)));
}

/// "0x0803", as the format's users know types with their number of dimensions.
inline std::string idx_magic_text(std::uint8_t type, std::size_t dimensions) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string text = "0x";
  for (const std::size_t value : {std::size_t{type}, dimensions}) {
    text += digits[value >> 4 & 15];
    text += digits[value & 15];
  }
  return text;
}

/// `start` is not that of an IDX file.
[[noreturn]] inline void throw_idx_magic_error(const std::string& path, std::span<const std::byte> start) {
  const auto at = [&](std::size_t i) {
    return i < start.size() ? std::to_integer<std::uint8_t>(start[i]) : std::uint8_t{0};
  };
  std::string problem = "this is not an IDX file, which begins with two zeros, its type and its number of dimensions";
  if (at(0) == 0x1f && at(1) == 0x8b)
    problem = "this is gzip, wanted the IDX file in it: gunzip unpacks it";
  else if (at(0) == 'P' && at(1) == 'K')
    problem = "this is a zip archive, wanted the IDX file in it";
  else if (at(0) == 0x93 && at(1) == 'N')
    problem = "this is an NPY file, which npy_array reads; wanted an IDX file";
  else if (start.size() >= 4 && at(2) == 0 && at(3) == 0 && idx_item_size(at(1)) != 0 && at(0) > 0)
    problem = concat("this is type ", idx_magic_text(at(1), at(0)),
                     " with its bytes swapped, wanted big-endian numbers as the format has them");
  else if (start.size() >= 4 && at(0) == 0 && at(1) == 0)
    problem = concat("this is type ", idx_magic_text(at(2), at(3)),
                     ", which the format does not know; wanted 0x08.., 0x09.., 0x0B.., 0x0C.., 0x0D.. or 0x0E..");
  throw_idx_error(path, 0, std::move(problem));
}

/// Reads the header and holds the file's size against it.
inline idx_header read_idx_header(const std::string& path, std::span<const std::byte> file) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint8_t>(file[i]); };
  if (file.size() < 4 || at(0) != 0 || at(1) != 0 || idx_item_size(at(2)) == 0) throw_idx_magic_error(path, file);
  idx_header header{path, at(2), std::vector<std::size_t>(at(3)), 4 + std::uint64_t{at(3)} * 4};
  if (file.size() < header.data_offset)
    throw_idx_error(
        path, file.size(),
        concat("the file ends here, within a header of ", header.data_offset, " bytes for ", at(3), " dimensions"));
  for (std::size_t i = 0; i < header.shape.size(); ++i)
    for (std::size_t k = 0; k < 4; ++k) header.shape[i] = header.shape[i] << 8 | at(4 + 4 * i + k);
  const auto elements = count_npy_elements(header.shape);
  if (!elements)
    throw_idx_error(path, 4, concat("the size ", header.shape_text(), " has more elements than memory can hold"));
  const std::uint64_t wanted = std::uint64_t{*elements} * idx_item_size(header.type);
  const std::uint64_t found = file.size() - header.data_offset;
  if (found != wanted)
    throw_idx_error(
        path, found < wanted ? file.size() : header.data_offset + wanted,
        concat(found < wanted ? "the file ends here, " : "the file goes on here, ", found, " bytes after its header; ",
               header.shape_text(), " of ", idx_type_name(header.type), " wants ", wanted));
  return header;
}

}  // namespace detail

/// The header of an IDX file of any type and number of dimensions, whose size fits. Throws `error` with path and byte.
inline idx_header idx_info(const std::string& path) { return detail::read_idx_header(path, mapped_file(path).bytes()); }

}  // namespace penstock
