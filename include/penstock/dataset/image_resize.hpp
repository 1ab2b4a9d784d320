// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <penstock/dataset/image.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

namespace detail {

/// Pixels of a line of `from` ones that pixel `index` of a line of `to` ones covers, in units of 1 / `to` pixel: the
/// shares of one pixel sum up to `from`.
struct covered_pixels {
  covered_pixels(std::size_t index, std::size_t from, std::size_t to)
      : begin(index * from), end(begin + from), first(begin / to), last((end - 1) / to), unit(to) {}
  std::size_t share(std::size_t pixel) const {
    return std::min((pixel + 1) * unit, end) - std::max(pixel * unit, begin);
  }
  std::size_t begin, end, first, last, unit;
};

/// `Sum` holds a sum over a column, `Total` one over a whole image.
template <class Sum, class Total, pixel T>
void shrink_pixels(const T* from, std::size_t height, std::size_t width, std::size_t channels, T* to,
                   std::size_t to_height, std::size_t to_width) {
  const std::size_t row = width * channels;
  std::vector<Sum> sums(row);
  const Total all = static_cast<Total>(height) * static_cast<Total>(width);
  for (std::size_t y = 0; y < to_height; ++y) {
    std::fill(sums.begin(), sums.end(), Sum{});
    const covered_pixels rows(y, height, to_height);
    for (std::size_t i = rows.first; i <= rows.last; ++i) {
      const auto share = static_cast<Sum>(rows.share(i));
      const T* line = from + i * row;
      for (std::size_t k = 0; k < row; ++k) sums[k] += share * static_cast<Sum>(line[k]);
    }
    for (std::size_t x = 0; x < to_width; ++x) {
      const covered_pixels columns(x, width, to_width);
      for (std::size_t c = 0; c < channels; ++c) {
        Total total{};
        for (std::size_t i = columns.first; i <= columns.last; ++i)
          total += static_cast<Total>(columns.share(i)) * static_cast<Total>(sums[i * channels + c]);
        if constexpr (std::is_floating_point_v<T>)
          *to++ = static_cast<T>(total / all);
        else
          *to++ = static_cast<T>((total + all / 2) / all);
      }
    }
  }
}

}  // namespace detail

/// A smaller copy of an image: each pixel is the mean of the area that it covers, pixels at its border by their share.
///
/// Any factor, another one each way. Integers are summed exactly and rounded once, half up; floating point in double
/// precision. An image of one value stays that. Alpha is averaged as the colours are, which it does not weigh.
/// Throws `std::invalid_argument` for a volume, and for a size that is 0 or larger than the image.
inline image shrink(const image& from, std::size_t height, std::size_t width) {
  const auto check = [](const char* name, std::size_t wanted, std::size_t has) {
    if (wanted == 0 || wanted > has)
      detail::reject_option("shrink", name, detail::concat(wanted), detail::concat("1 to ", has, ", the image's own"));
  };
  check("height", height, from.height());
  check("width", width, from.width());
  if (from.depth() != 1) detail::reject_option("shrink", "depth", detail::concat(from.depth()), "1");
  image to(from.type(), height, width, from.channels());
  from.visit([&]<class T>(std::span<const T> pixels) {
    const auto run = [&]<class Sum, class Total>() {
      detail::shrink_pixels<Sum, Total>(pixels.data(), from.height(), from.width(), from.channels(),
                                        to.pixels<T>().data(), height, width);
    };
    if constexpr (std::is_same_v<T, float>)
      run.template operator()<double, double>();
    else if (from.height() < std::numeric_limits<std::uint32_t>::max() / std::numeric_limits<T>::max())
      run.template operator()<std::uint32_t, std::uint64_t>();
    else
      run.template operator()<std::uint64_t, std::uint64_t>();
  });
  return to;
}

}  // namespace penstock
