// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/dataset/image.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// Where the channels stand in a field: C x H x W, or H x W x C; of volumes C x D x H x W, or D x H x W x C.
enum class channel_order : std::uint8_t { first, last };

/// How pixels become the numbers of a field.
struct pixel_options {
  channel_order channels = channel_order::first;
  /// Floating point: what black and white become.
  std::array<float, 2> range{0, 1};
  /// Floating point, per channel or empty: subtracted from what `range` gives.
  std::vector<float> mean{};
  /// Floating point, per channel or empty: what the difference is divided by.
  std::vector<float> deviation{};
};

/// A box of pixels in an image: the first one and how many, by depth, height and width (the depth of images is 1), and
/// how it is turned. Without a turn, row y and column x of the box are pixel (y + origin[1], x + origin[2]).
struct pixel_box {
  std::array<std::size_t, 3> origin{0, 0, 0};
  std::array<std::size_t, 3> size{1, 1, 1};
  // Applied to the box in this order; the last one needs as many rows as columns.
  bool flip_depth = false;    ///< front to back
  bool flip_rows = false;     ///< upside down
  bool flip_columns = false;  ///< left to right
  bool transpose = false;     ///< rows become columns
};

namespace detail {

/// Of a source pixel number: bytes are 255 when white.
template <pixel From>
inline constexpr float white_of = std::is_same_v<From, std::uint8_t>    ? 255.0f
                                  : std::is_same_v<From, std::uint16_t> ? 65535.0f
                                                                        : 1.0f;

/// One run of `count` numbers, `step` source numbers apart: to floating point `value / white * gain + shift`.
template <pixel From, pixel To>
inline void convert_run(const From* from, std::ptrdiff_t step, std::size_t count, To* to, std::size_t to_step,
                        float gain, float shift) {
  const auto one = [gain, shift](From value) -> To {
    if constexpr (std::is_same_v<To, float>)
      return static_cast<float>(value) / white_of<From> * gain + shift;
    else if constexpr (std::is_same_v<To, From>)
      return value;
    else
      return static_cast<To>(value * 257u);  // 8 to 16 bits: 255 becomes 65535
  };
  for (std::size_t i = 0; i < count; ++i) to[i * to_step] = one(from[static_cast<std::ptrdiff_t>(i) * step]);
}

}  // namespace detail

/// Writes boxes of images into fields of element type `To`, as `pixel_options` say: float, or the images' own integers
/// (`uint16_t` takes 8 bits, too, times 257). What would lose bits is refused with the path.
template <pixel To>
class pixel_writer {
 public:
  /// Throws `std::invalid_argument` in the name of `who` for options that do not fit `channels` or `To`.
  pixel_writer(std::string who, pixel_options options, std::size_t channels);

  channel_order order() const noexcept { return order_; }
  /// The shape of a box in a field: with channels, without the depth where `dimensions` is 2.
  template <std::size_t Dimensions>
  std::array<std::size_t, Dimensions + 1> shape(const std::array<std::size_t, 3>& size) const;

  /// Writes `box` of `from` to `to`, row after row. The part of a box beyond the image repeats the image's last row or
  /// column there. `path` is for messages.
  void write(const image& from, const pixel_box& box, To* to, const std::string& path) const;

 private:
  channel_order order_;
  std::size_t channels_;
  std::vector<float> gain_, shift_;
};

}  // namespace penstock
