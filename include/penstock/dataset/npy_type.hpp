// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <complex>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <penstock/sample/error.hpp>

namespace penstock {

namespace detail {

template <class T>
constexpr char default_npy_kind() {
  if constexpr (std::is_same_v<T, bool>) {
    return 'b';
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return 'f';
  } else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return 'c';
  } else if constexpr (std::is_same_v<T, signed char> || std::is_same_v<T, short> || std::is_same_v<T, int> ||
                       std::is_same_v<T, long> || std::is_same_v<T, long long>) {
    return 'i';
  } else if constexpr (std::is_same_v<T, unsigned char> || std::is_same_v<T, unsigned short> ||
                       std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long> ||
                       std::is_same_v<T, unsigned long long>) {
    return 'u';
  } else {
    return '\0';
  }
}

}  // namespace detail

/// NumPy's letter for the kind of `T`: b, i, u, f or c; zero for what NPY files do not hold as plain numbers.
///
/// Specialise it as 'f' for a 16-bit floating-point type of your own (one that `static_cast`s from float), such as
/// CUDA's `__half`: arrays of `f2` are then read into it bit by bit.
template <class T>
inline constexpr char npy_kind = detail::default_npy_kind<T>();

// g++ 12 defines the macro in C++ without having the type.
#if defined(__FLT16_MANT_DIG__) && (defined(__clang__) || __GNUC__ >= 13)
template <>
inline constexpr char npy_kind<_Float16> = 'f';
#endif

/// What an NPY file can be read into and written from.
template <class T>
concept npy_element = npy_kind<T> != '\0';

namespace detail {

/// A plain number's type as NumPy writes it: kind, bytes, and whether its bytes are in the other order than ours.
struct npy_type {
  char kind = '\0';
  std::size_t size = 0;
  bool swapped = false;
  bool operator==(const npy_type&) const = default;
};

/// Nothing for what is not a plain number of a known size: text, dates, objects, structures, long double.
inline std::optional<npy_type> parse_npy_type(std::string_view text) {
  if (text.size() != 3 && text.size() != 4) return std::nullopt;
  const char order = text[0];
  if (order != '<' && order != '>' && order != '=' && order != '|') return std::nullopt;
  npy_type type{text[1], 0, false};
  if (text.size() == 4 && text.substr(2) != "16") return std::nullopt;
  type.size = text.size() == 4 ? 16 : static_cast<std::size_t>(static_cast<unsigned char>(text[2]) - '0');
  const auto has = [&](std::string_view kinds) { return kinds.find(type.kind) != std::string_view::npos; };
  const bool known = (type.size == 1 && has("biu")) || (type.size == 2 && has("iuf")) ||
                     (type.size == 4 && has("iuf")) || (type.size == 8 && has("iufc")) || (type.size == 16 && has("c"));
  if (!known) return std::nullopt;
  constexpr bool little = std::endian::native == std::endian::little;
  type.swapped = type.size > 1 && order == (little ? '>' : '<');
  return type;
}

/// The number of elements; nothing if memory could not hold them.
///
/// Extents of 0 do not excuse the others: a sample's size is computed from part of them. The widest element, in the
/// file or in memory, has 16 bytes.
inline std::optional<std::size_t> count_npy_elements(std::span<const std::size_t> shape) {
  constexpr std::size_t limit = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / 16;
  std::size_t product = 1;
  bool none = false;
  for (std::size_t extent : shape) {
    none = none || extent == 0;
    if (extent == 0) continue;
    if (product > limit / extent) return std::nullopt;
    product *= extent;
  }
  return none ? 0 : product;
}

/// "float64", as NumPy's users know it.
inline std::string npy_type_name(char kind, std::size_t size) {
  switch (kind) {
    case 'b': return "bool";
    case 'i': return concat("int", size * 8);
    case 'u': return concat("uint", size * 8);
    case 'f': return concat("float", size * 8);
    default: return concat("complex", size * 8);
  }
}

/// "<f4" for float on a little-endian machine.
template <npy_element T>
std::string npy_type_text() {
  const char order = sizeof(T) == 1 ? '|' : std::endian::native == std::endian::little ? '<' : '>';
  return concat(order, npy_kind<T>, sizeof(T));
}

/// What any type string stands for, in words.
inline std::string describe_npy_type(std::string_view text) {
  if (const auto type = parse_npy_type(text)) return npy_type_name(type->kind, type->size);
  if (text.starts_with('[') || text.starts_with('(')) return "a structured type";
  const std::size_t order = text.find_first_of("<>=|") == 0 ? 1 : 0;
  if (text.size() == order) return "no type at all";
  switch (text[order]) {
    case 'O': return "Python objects";
    case 'U':
    case 'S':
    case 'a': return "text";
    case 'M': return "dates";
    case 'm': return "time spans";
    case 'V': return "raw bytes";
    case 'f':
    case 'c':
      if (text.substr(order) == "f16" || text.substr(order) == "c32" || text.substr(order) == "f12" ||
          text.substr(order) == "c24") {
        return "long double, which differs between machines";
      }
      return "an unknown type";
    default: return "an unknown type";
  }
}

}  // namespace detail
}  // namespace penstock
