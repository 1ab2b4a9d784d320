// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <penstock/dataset/image.hpp>

namespace penstock {

/// The orientation, 1 to 8, that a block of EXIF data holds: what follows "Exif\0\0" in a JPEG file's APP1 segment, or
/// a PNG file's chunk eXIf. 1, upright, where there is none or the block is damaged; reads no byte beyond it.
///
/// Only the first directory is looked at, which is that of the image itself and not of its thumbnail. Source:
/// EXIF 2.32, 4.5 and 4.6.4 A; TIFF 6.0, section 2.
inline unsigned exif_orientation(std::span<const std::byte> block) noexcept {
  constexpr unsigned upright = 1, orientation_tag = 0x0112, short_type = 3;
  constexpr std::size_t head = 8, entry = 12;
  if (block.size() < head) return upright;
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(block[i]); };
  const bool little = at(0) == 'I' && at(1) == 'I', big = at(0) == 'M' && at(1) == 'M';
  if (!little && !big) return upright;
  const auto two = [&](std::size_t i) { return little ? at(i) | at(i + 1) << 8 : at(i) << 8 | at(i + 1); };
  const auto four = [&](std::size_t i) {
    return little ? two(i) | std::uint32_t{two(i + 2)} << 16 : std::uint32_t{two(i)} << 16 | two(i + 2);
  };
  if (two(2) != 42) return upright;
  std::size_t place = four(4);
  if (place > block.size() - 2) return upright;
  const unsigned count = two(place);
  place += 2;
  for (unsigned i = 0; i < count && block.size() - place >= entry; ++i, place += entry) {
    if (two(place) != orientation_tag) continue;
    const unsigned value = two(place + 8);
    const bool right = two(place + 2) == short_type && four(place + 4) == 1 && value >= 1 && value <= 8;
    return right ? value : upright;
  }
  return upright;
}

namespace detail {

/// Pixel (y, x) of `to`, packed, is the one at `from` + y * row_step + x * column_step. In squares, as one of the two
/// jumps from row to row when an image is turned.
template <std::size_t Size>
void place_pixels(const std::byte* from, std::ptrdiff_t row_step, std::ptrdiff_t column_step, std::byte* to,
                  std::size_t height, std::size_t width) {
  constexpr std::size_t side = 32;
  for (std::size_t top = 0; top < height; top += side)
    for (std::size_t left = 0; left < width; left += side)
      for (std::size_t y = top; y < std::min(top + side, height); ++y)
        for (std::size_t x = left; x < std::min(left + side, width); ++x)
          std::memcpy(to + (y * width + x) * Size,
                      from + static_cast<std::ptrdiff_t>(y) * row_step + static_cast<std::ptrdiff_t>(x) * column_step,
                      Size);
}

/// A stored image as it is to be seen, `orientation` as EXIF counts.
inline image upright(image stored, unsigned orientation) {
  if (orientation <= 1 || orientation > 8) return stored;
  const bool turned = orientation >= 5;  // rows are seen as columns
  const bool last_row = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool last_column = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const std::size_t size = stored.channels() * size_of(stored.type());
  const auto column = static_cast<std::ptrdiff_t>(size), row = static_cast<std::ptrdiff_t>(stored.width() * size);
  const std::byte* first = stored.data();
  if (last_row) first += static_cast<std::ptrdiff_t>(stored.height() - 1) * row;
  if (last_column) first += static_cast<std::ptrdiff_t>(stored.width() - 1) * column;
  std::ptrdiff_t down = last_row ? -row : row, right = last_column ? -column : column;
  if (turned) std::swap(down, right);
  image seen(stored.type(), turned ? stored.width() : stored.height(), turned ? stored.height() : stored.width(),
             stored.channels());
  const auto place = [&]<std::size_t Size>(std::integral_constant<std::size_t, Size>) {
    place_pixels<Size>(first, down, right, seen.data(), seen.height(), seen.width());
  };
  switch (size) {
    case 1: place(std::integral_constant<std::size_t, 1>{}); break;
    case 2: place(std::integral_constant<std::size_t, 2>{}); break;
    case 3: place(std::integral_constant<std::size_t, 3>{}); break;
    case 4: place(std::integral_constant<std::size_t, 4>{}); break;
    case 6: place(std::integral_constant<std::size_t, 6>{}); break;
    case 8: place(std::integral_constant<std::size_t, 8>{}); break;
    case 12: place(std::integral_constant<std::size_t, 12>{}); break;
    default: place(std::integral_constant<std::size_t, 16>{}); break;
  }
  return seen;
}

}  // namespace detail
}  // namespace penstock
