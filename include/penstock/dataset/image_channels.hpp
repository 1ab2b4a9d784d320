// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <penstock/dataset/image.hpp>

namespace penstock::detail {

/// Rec. ITU-R BT.601 luma, 0.299 R + 0.587 G + 0.114 B. Integers: (19595 R + 38470 G + 7471 B + 32768) / 65536, rounded
/// down: the nearest integer, with weights in 65536ths. Greys stay as they are.
template <pixel T>
T luma(T red, T green, T blue) {
  if constexpr (std::is_same_v<T, float>)
    return 0.299f * red + 0.587f * green + 0.114f * blue;
  else
    return static_cast<T>((19595u * red + 38470u * green + 7471u * blue + 32768u) >> 16);
}

template <pixel T>
inline constexpr T opaque = std::is_same_v<T, float> ? T{1} : std::numeric_limits<T>::max();

template <std::size_t From, std::size_t To, pixel T>
void convert_channels(const T* from, T* to, std::size_t count) {
  constexpr bool was_grey = From <= 2, is_grey = To <= 2;
  for (std::size_t i = 0; i < count; ++i, from += From, to += To) {
    if constexpr (was_grey)
      for (std::size_t c = 0; c < (is_grey ? 1 : 3); ++c) to[c] = from[0];
    else if constexpr (is_grey)
      to[0] = luma(from[0], from[1], from[2]);
    else
      for (std::size_t c = 0; c < 3; ++c) to[c] = from[c];
    if constexpr (To % 2 == 0) to[To - 1] = From % 2 == 0 ? from[From - 1] : opaque<T>;
  }
}

/// An image of 1 to 4 channels with `wanted` ones, by the table at `decode_image`.
inline image with_channels(image from, std::size_t wanted) {
  if (from.channels() == wanted) return from;
  image to(from.type(), from.height(), from.width(), wanted, from.depth());
  const std::size_t count = from.size() / from.channels();
  from.visit([&]<class T>(std::span<const T> pixels) {
    const auto known = [&]<std::size_t From, std::size_t To>() {
      if (from.channels() == From && wanted == To)
        convert_channels<From, To>(pixels.data(), to.pixels<T>().data(), count);
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (known.template operator()<I / 4 + 1, I % 4 + 1>(), ...);
    }(std::make_index_sequence<16>{});
  });
  return to;
}

}  // namespace penstock::detail
