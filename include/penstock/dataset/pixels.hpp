// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/dataset/image.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// Where the channels stand in a field: C x H x W, or H x W x C; of volumes C x D x H x W, or D x H x W x C.
enum class channel_axis : std::uint8_t { first, last };

/// What to do with an image that is smaller than what is cut out of it: it is an error (which `read({.bad = ...})` can
/// skip), or its last row and column are repeated.
enum class small_image : std::uint8_t { fail, pad };

/// How pixels become the numbers of a field.
struct pixel_options {
  channel_axis channels = channel_axis::first;
  /// Floating point: what black and white become.
  std::array<float, 2> range{0, 1};
  /// Floating point, per channel or empty: subtracted from what `range` gives.
  std::vector<float> mean{};
  /// Floating point, per channel or empty: what the difference is divided by.
  std::vector<float> deviation{};
};

/// A box of pixels in an image: the first one and how many, by depth, height and width (of images the depth is 1), and
/// how it is turned. Not turned, row y and column x of the box are pixel (y + origin[1], x + origin[2]).
struct pixel_box {
  std::array<std::size_t, 3> origin{0, 0, 0};
  std::array<std::size_t, 3> size{1, 1, 1};
  bool flip_depth = false;    ///< front to back
  bool flip_rows = false;     ///< upside down
  bool flip_columns = false;  ///< left to right
  bool transpose = false;     ///< after the flips: rows become columns, which wants as many of these as of those

  /// "rows 10 to 49, columns 0 to 39"; of volumes "slices 2 to 9" before that.
  std::string text() const {
    const auto one = [this](std::string_view name, std::size_t axis) {
      return detail::concat(name, ' ', origin[axis], " to ", origin[axis] + size[axis] - 1);
    };
    const std::string plane = one("rows", 1) + ", " + one("columns", 2);
    return size[0] == 1 && origin[0] == 0 ? plane : one("slices", 0) + ", " + plane;
  }
};

namespace detail {

template <pixel From>
inline constexpr float white_of = std::is_same_v<From, std::uint8_t>    ? 255.0f
                                  : std::is_same_v<From, std::uint16_t> ? 65535.0f
                                                                        : 1.0f;

/// `count` numbers that lie `step` apart, as `To`: floating point is value / white * gain + shift.
template <pixel From, pixel To, class Step>
void convert_pixels(const From* from, Step step, std::size_t count, To* __restrict to, float gain, float shift) {
  const auto one = [&](From value) -> To {  // integers have a gain of 1
    if constexpr (std::is_same_v<To, float>)
      return static_cast<float>(value) / white_of<From> * gain + shift;
    else if constexpr (std::is_same_v<To, From>)
      return value;
    else
      return static_cast<To>(value * 257u);  // 255 becomes 65535
  };
  constexpr std::size_t block = 16;  // a constant, without which g++ -O2 uses no vectors
  std::size_t i = 0;
  for (; i + block <= count; i += block, from += static_cast<std::ptrdiff_t>(block) * step)
    for (std::size_t k = 0; k < block; ++k) to[i + k] = one(from[static_cast<std::ptrdiff_t>(k) * step]);
  for (; i < count; ++i, from += step) to[i] = one(*from);
}

/// The same with the steps that are frequent as constants: grey, mirrored grey, and colours.
template <pixel From, pixel To>
void convert_run(const From* from, std::ptrdiff_t step, std::size_t count, To* to, float gain, float shift) {
  const auto known = [&]<std::ptrdiff_t Step>(std::integral_constant<std::ptrdiff_t, Step> constant) {
    convert_pixels(from, constant, count, to, gain, shift);
  };
  if constexpr (std::is_same_v<To, From>)
    if (step == 1 && gain == 1 && shift == 0) return static_cast<void>(std::memcpy(to, from, count * sizeof(To)));
  switch (step) {
    case 1: return known(std::integral_constant<std::ptrdiff_t, 1>{});
    case -1: return known(std::integral_constant<std::ptrdiff_t, -1>{});
    case 3: return known(std::integral_constant<std::ptrdiff_t, 3>{});
    case -3: return known(std::integral_constant<std::ptrdiff_t, -3>{});
    default: return convert_pixels(from, step, count, to, gain, shift);
  }
}

}  // namespace detail

/// Writes boxes of images into fields of element type `To`, as `pixel_options` say: float, or the images' own integers.
/// `std::uint16_t` takes 8 bits, too, times 257; what would lose bits is refused with the path. Const, and called by
/// any number of threads.
template <pixel To>
class pixel_writer {
 public:
  /// Throws `std::invalid_argument` in the name of `who` for options that fit neither `channels` nor `To`.
  pixel_writer(std::string_view who, const pixel_options& options, std::size_t channels)
      : order_(options.channels), channels_(channels), gain_(channels), shift_(channels), range_(options.range) {
    const auto count = [&](const char* name, const std::vector<float>& values) {
      if (!values.empty() && values.size() != channels)
        detail::reject_option(who, name, detail::concat(values.size(), " numbers"),
                              detail::concat(channels, ", one for each channel, or none"));
    };
    count("mean", options.mean);
    count("deviation", options.deviation);
    const float low = options.range[0], high = options.range[1];
    if (!std::isfinite(low) || !std::isfinite(high) || low == high)
      detail::reject_option(who, "range", detail::concat(low, " to ", high), "two finite numbers that differ");
    if (!std::is_same_v<To, float> && (low != 0 || high != 1 || !options.mean.empty() || !options.deviation.empty()))
      detail::reject_option(who, "range, mean or deviation", "given",
                            "none, as integers travel as they are: cast_normalise makes numbers of them on the device");
    for (std::size_t c = 0; c < channels; ++c) {
      const float mean = options.mean.empty() ? 0 : options.mean[c];
      const float deviation = options.deviation.empty() ? 1 : options.deviation[c];
      if (!std::isfinite(mean)) detail::reject_option(who, "mean", std::to_string(mean), "finite numbers");
      if (!std::isfinite(deviation) || deviation == 0)
        detail::reject_option(who, "deviation", std::to_string(deviation), "finite numbers other than 0");
      if (mean != 0 || deviation != 1) standardised_ = true;
      gain_[c] = (high - low) / deviation;
      shift_[c] = (low - mean) / deviation;
      alike_ = alike_ && gain_[c] == gain_[0] && shift_[c] == shift_[0];
    }
  }

  channel_axis order() const noexcept { return order_; }
  /// "C x H x W float32 in [0, 1]", for a table of the pipeline.
  template <std::size_t Dimensions>
  std::string describe() const {
    const std::string box = Dimensions == 2 ? "H x W" : "D x H x W";
    std::string out = order_ == channel_axis::first ? "C x " + box : box + " x C";
    out += detail::concat(' ', name_of(pixel_type_of<To>));
    if (!std::is_same_v<To, float>) return out + " as stored";
    if (standardised_) return out + ", mean and deviation of each channel taken out";
    const auto number = [](float value) {
      char text[32];
      return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
    };
    return out + detail::concat(" in [", number(range_[0]), ", ", number(range_[1]), ']');
  }
  std::size_t channels() const noexcept { return channels_; }
  /// The shape that a box has in a field; of two dimensions without the depth.
  template <std::size_t Dimensions>
  std::array<std::size_t, Dimensions + 1> shape(const std::array<std::size_t, 3>& size) const {
    std::array<std::size_t, Dimensions + 1> result{};
    const bool first = order_ == channel_axis::first;
    for (std::size_t i = 0; i < Dimensions; ++i) result[first ? i + 1 : i] = size[3 - Dimensions + i];
    result[first ? 0 : Dimensions] = channels_;
    return result;
  }
  /// Numbers in a box.
  std::size_t elements(const std::array<std::size_t, 3>& size) const noexcept {
    return size[0] * size[1] * size[2] * channels_;
  }

  /// Writes `box` of `from` to `to`, in the order of `shape`. Where a box reaches beyond the image, the image's last
  /// slice, row or column is repeated; its origin is within. Throws `error` with `path` if the image does not fit.
  void write(const image& from, const pixel_box& box, To* to, const std::string& path) const {
    if (from.channels() != channels_)
      throw error(detail::concat("the image has ", from.channels(), " channels, wanted ", channels_),
                  detail::place_in_file(path));
    from.visit([&]<class From>(std::span<const From> pixels) {
      if constexpr (std::is_same_v<To, float> || sizeof(From) <= sizeof(To))
        write_box(pixels.data(), from, box, to);
      else
        throw error(detail::concat("the image has ", name_of(from.type()), " pixels, wanted ",
                                   name_of(pixel_type_of<To>), " ones or smaller: others would lose bits"),
                    detail::place_in_file(path));
    });
  }

 private:
  template <pixel From>
  void write_box(const From* pixels, const image& from, const pixel_box& box, To* to) const {
    const std::array<std::size_t, 3> extents{from.depth(), from.height(), from.width()};
    bool inside = true;
    for (std::size_t i = 0; i < 3; ++i) inside = inside && box.origin[i] + box.size[i] <= extents[i];
    if (!inside) return write_beyond(pixels, extents, box, to);

    const auto c = static_cast<std::ptrdiff_t>(channels_);
    std::array<std::ptrdiff_t, 3> step{};
    step[2] = c;
    step[1] = step[2] * static_cast<std::ptrdiff_t>(extents[2]);
    step[0] = step[1] * static_cast<std::ptrdiff_t>(extents[1]);
    const std::array<bool, 3> flips{box.flip_depth, box.flip_rows, box.flip_columns};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t first = box.origin[i] + (flips[i] ? box.size[i] - 1 : 0);
      pixels += static_cast<std::ptrdiff_t>(first) * step[i];
      if (flips[i]) step[i] = -step[i];
    }
    if (box.transpose) std::swap(step[1], step[2]);

    const auto rows = [&](auto&& row) {
      for (std::size_t z = 0; z < box.size[0]; ++z)
        for (std::size_t y = 0; y < box.size[1]; ++y)
          row(pixels + static_cast<std::ptrdiff_t>(z) * step[0] + static_cast<std::ptrdiff_t>(y) * step[1]);
    };
    const std::size_t width = box.size[2];
    if (order_ == channel_axis::first) {
      for (std::size_t k = 0; k < channels_; ++k)
        rows([&](const From* row) {
          detail::convert_run(row + k, step[2], width, to, gain_[k], shift_[k]);
          to += width;
        });
    } else if (step[2] == c && alike_) {
      rows([&](const From* row) {
        detail::convert_run(row, 1, width * channels_, to, gain_[0], shift_[0]);
        to += width * channels_;
      });
    } else {
      rows([&](const From* row) {
        for (std::size_t x = 0; x < width; ++x, row += step[2])
          for (std::size_t k = 0; k < channels_; ++k, ++to)
            detail::convert_pixels(row + k, 1, 1, to, gain_[k], shift_[k]);
      });
    }
  }

  // Pixel by pixel: images that are smaller than a box are few.
  template <pixel From>
  void write_beyond(const From* pixels, const std::array<std::size_t, 3>& extents, const pixel_box& box, To* to) const {
    const bool first = order_ == channel_axis::first;
    const std::size_t plane = box.size[0] * box.size[1] * box.size[2];
    std::size_t at = 0;
    for (std::size_t z = 0; z < box.size[0]; ++z)
      for (std::size_t y = 0; y < box.size[1]; ++y)
        for (std::size_t x = 0; x < box.size[2]; ++x, ++at) {
          std::array<std::size_t, 3> place{z, box.transpose ? x : y, box.transpose ? y : x};
          const std::array<bool, 3> flips{box.flip_depth, box.flip_rows, box.flip_columns};
          for (std::size_t i = 0; i < 3; ++i) {
            place[i] = box.origin[i] + (flips[i] ? box.size[i] - 1 - place[i] : place[i]);
            if (place[i] >= extents[i]) place[i] = extents[i] - 1;
          }
          const From* const from = pixels + ((place[0] * extents[1] + place[1]) * extents[2] + place[2]) * channels_;
          for (std::size_t k = 0; k < channels_; ++k)
            detail::convert_pixels(from + k, 1, 1, to + (first ? k * plane + at : at * channels_ + k), gain_[k],
                                   shift_[k]);
        }
  }

  channel_axis order_;
  std::size_t channels_;
  std::vector<float> gain_, shift_;
  std::array<float, 2> range_;
  bool standardised_ = false;
  bool alike_ = true;  // all channels' gains and shifts
};

}  // namespace penstock
