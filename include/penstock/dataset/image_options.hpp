// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/dataset/image.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// What becomes of an image file's pixels; see `decode_image`.
struct image_decode_options {
  /// 1: grey, 2: grey and alpha, 3: red, green and blue, 4: these and alpha; whatever the file has.
  std::size_t channels = 3;
  /// Turn the image as its EXIF or TIFF orientation says; otherwise pixels and size are as stored.
  bool orient = true;
  /// Larger images are shrunk so that the longer of height and width is this. 0: none is.
  std::size_t longest_side = 0;
  /// A file that says it has more is refused before memory is taken for them.
  std::uint64_t max_pixels = std::uint64_t{1} << 28;
};

namespace detail {

/// What a format's reader gives: grey, grey and alpha, RGB or RGBA as the file has it, not yet turned.
struct decoded_image {
  image pixels{};
  unsigned orientation = 1;                  // as EXIF counts
  std::array<std::size_t, 2> stored_size{};  // height and width; the pixels may be fewer, not less than asked for
};

[[noreturn]] inline void throw_image_error(const std::string& path, std::string position, std::string problem) {
  throw error(std::move(problem), place_in_file(path, std::move(position)));
}

inline void check_image_options(std::string_view who, const image_decode_options& options) {
  if (options.channels < 1 || options.channels > 4)
    reject_option(who, "channels", std::to_string(options.channels),
                  "1 (grey), 2 (grey and alpha), 3 (RGB) or 4 (RGB and alpha)");
  if (options.max_pixels == 0) reject_option(who, "max_pixels", "0", "1 or more");
}

/// Whether the file's own size is one that is wanted; to be asked before memory is taken.
inline void check_image_size(const std::string& path, std::uint64_t height, std::uint64_t width,
                             const image_decode_options& options) {
  if (height == 0 || width == 0)
    throw_image_error(path, {}, concat("the image is ", height, " x ", width, ", wanted 1 or more each way"));
  if (height > options.max_pixels / width)
    throw_image_error(path, {},
                      concat("the image is said to be ", height, " x ", width, ", wanted ", options.max_pixels,
                             " pixels or fewer; the option max_pixels allows more"));
}

/// Height and width after shrinking, the proportions kept to the nearest pixel.
inline std::array<std::size_t, 2> fitted_size(std::array<std::size_t, 2> size, std::size_t longest_side) {
  const std::size_t longest = std::max(size[0], size[1]);
  if (longest_side == 0 || longest <= longest_side) return size;
  for (std::size_t& side : size) side = std::max<std::size_t>(1, (side * longest_side + longest / 2) / longest);
  return size;
}

}  // namespace detail
}  // namespace penstock
