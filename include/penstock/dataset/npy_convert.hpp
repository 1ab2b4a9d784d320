// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <penstock/dataset/npy_type.hpp>

namespace penstock::detail {

/// IEEE 754 binary16 to binary32; exact, subnormal numbers, infinities and NaN payloads included.
constexpr float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign == 0 ? magnitude : -magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

/// Stands for `f2` in a file, on compilers with and without a type for it.
struct npy_half {
  std::uint16_t bits;
};

template <class T>
inline constexpr bool is_npy_complex = npy_kind<T> == 'c';

/// The number at `from`, which need not be aligned.
template <class Source, bool Swapped>
Source npy_load(const std::byte* from) {
  if constexpr (std::same_as<Source, bool>) {
    return *from != std::byte{0};  // any byte may be in a file, only 0 and 1 may be in a bool
  } else if constexpr (is_npy_complex<Source>) {
    using part = typename Source::value_type;
    return {npy_load<part, Swapped>(from), npy_load<part, Swapped>(from + sizeof(part))};
  } else {
    std::array<std::byte, sizeof(Source)> bytes;
    if constexpr (Swapped) {
      for (std::size_t i = 0; i < sizeof(Source); ++i) bytes[i] = from[sizeof(Source) - 1 - i];
    } else {
      std::memcpy(bytes.data(), from, sizeof(Source));
    }
    return std::bit_cast<Source>(bytes);
  }
}

/// Whether the value of a floating-point number is one of the integer type `T`.
template <std::integral T>
bool is_value_of(double value) {
  // max / 2 + 1 is a power of two, so the bounds are exact even where max itself is not a double.
  constexpr double above = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2;
  constexpr double least = std::is_signed_v<T> ? -above : 0;
  if (!(value >= least && value < above)) return false;
  return static_cast<double>(static_cast<T>(value)) == value;
}

/// Converts one number. Floating-point targets round; integer and bool targets must hold the very value, else false.
template <class T, class Source>
bool npy_assign(const Source& value, T& to) {
  if constexpr (std::same_as<Source, npy_half>) {
    return npy_assign(half_to_float(value.bits), to);
  } else if constexpr (is_npy_complex<T>) {
    using part = typename T::value_type;
    if constexpr (is_npy_complex<Source>) {
      to = T(static_cast<part>(value.real()), static_cast<part>(value.imag()));
    } else {
      to = T(static_cast<part>(value));
    }
    return true;
  } else if constexpr (std::same_as<T, bool>) {
    to = value != Source{0};
    return value == Source{0} || value == Source{1};
  } else if constexpr (std::integral<T>) {
    if constexpr (std::floating_point<Source>) {
      if (!is_value_of<T>(static_cast<double>(value))) return false;
    } else if constexpr (!std::same_as<Source, bool>) {
      if (!std::in_range<T>(value)) return false;
    }
    to = static_cast<T>(value);
    return true;
  } else if constexpr (std::floating_point<T>) {
    to = static_cast<T>(value);
    return true;
  } else {
    to = static_cast<T>(static_cast<float>(value));  // a 16-bit type of the user's
    return true;
  }
}

/// Reads `count` numbers that lie `stride` bytes apart. Returns how many it could; fewer than `count` if the next one
/// has no equal in `T`.
template <class T>
using npy_converter = std::size_t (*)(const std::byte* from, std::size_t stride, std::size_t count, T* to);

template <class T, class Source, bool Swapped>
std::size_t npy_convert(const std::byte* from, std::size_t stride, std::size_t count, T* to) {
  constexpr bool same_type =
      sizeof(T) == sizeof(Source) && !std::same_as<T, bool> && !std::same_as<Source, bool> &&
      (npy_kind<T> == npy_kind<Source> || (std::same_as<Source, npy_half> && npy_kind<T> == 'f'));
  if constexpr (same_type && !Swapped) {
    if (stride == sizeof(T)) {
      if (count > 0) std::memcpy(to, from, count * sizeof(T));
      return count;
    }
  }
  for (std::size_t i = 0; i < count; ++i, from += stride) {
    if constexpr (same_type) {
      to[i] = npy_load<T, Swapped>(from);
    } else if (!npy_assign(npy_load<Source, Swapped>(from), to[i])) {
      return i;
    }
  }
  return count;
}

template <class T, class Source>
npy_converter<T> choose_npy_converter(bool swapped) {
  if constexpr (is_npy_complex<Source> && !is_npy_complex<T>) {
    return nullptr;  // dropping the imaginary part is no conversion
  } else if constexpr (sizeof(Source) == 1) {
    return npy_convert<T, Source, false>;
  } else {
    return swapped ? npy_convert<T, Source, true> : npy_convert<T, Source, false>;
  }
}

/// The function that reads numbers of the file's type into `T`, or null where there is none.
template <npy_element T>
npy_converter<T> find_npy_converter(const npy_type& type) {
  const auto is = [&](char kind, std::size_t size) { return type.kind == kind && type.size == size; };
  if (is('b', 1)) return choose_npy_converter<T, bool>(type.swapped);
  if (is('i', 1)) return choose_npy_converter<T, std::int8_t>(type.swapped);
  if (is('i', 2)) return choose_npy_converter<T, std::int16_t>(type.swapped);
  if (is('i', 4)) return choose_npy_converter<T, std::int32_t>(type.swapped);
  if (is('i', 8)) return choose_npy_converter<T, std::int64_t>(type.swapped);
  if (is('u', 1)) return choose_npy_converter<T, std::uint8_t>(type.swapped);
  if (is('u', 2)) return choose_npy_converter<T, std::uint16_t>(type.swapped);
  if (is('u', 4)) return choose_npy_converter<T, std::uint32_t>(type.swapped);
  if (is('u', 8)) return choose_npy_converter<T, std::uint64_t>(type.swapped);
  if (is('f', 2)) return choose_npy_converter<T, npy_half>(type.swapped);
  if (is('f', 4)) return choose_npy_converter<T, float>(type.swapped);
  if (is('f', 8)) return choose_npy_converter<T, double>(type.swapped);
  if (is('c', 8)) return choose_npy_converter<T, std::complex<float>>(type.swapped);
  if (is('c', 16)) return choose_npy_converter<T, std::complex<double>>(type.swapped);
  return nullptr;
}

}  // namespace penstock::detail
