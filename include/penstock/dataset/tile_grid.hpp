// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/dataset/pixels.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// Where a tile lies: its first slice, row and column in an image. As a field beside the tile it is
/// `batch.host<1>()[row]`, on any device.
struct tile_place {
  std::uint32_t image = 0;  ///< number in the source
  std::uint32_t z = 0, y = 0, x = 0;
  bool operator==(const tile_place&) const = default;
};

/// The tiles that cover an image or volume: all of one size, neighbours with this overlap, from the first row and
/// column on. The last tile of an axis is moved back so that it ends with the image, and overlaps more.
///
///     penstock::tile_grid({300, 300}, {128, 128}, {32, 32})   // starts 0, 96, 172 along each axis: 9 tiles
///
/// A value of a few numbers: nothing is stored per tile. Tiles are numbered row by row, in volumes slice by slice.
class tile_grid {
 public:
  /// All lists are height and width, or depth, height and width; no overlap is none. Where a tile is larger than the
  /// image it is refused, or with `small_image::pad` reaches beyond its end. Throws `std::invalid_argument`.
  tile_grid(const std::vector<std::size_t>& extent, const std::vector<std::size_t>& size,
            const std::vector<std::size_t>& overlap = {}, small_image small = small_image::fail)
      : dimensions_(size.size()) {
    using detail::concat, detail::reject_option;
    check_lengths(extent.size(), size.size(), overlap.size());
    for (std::size_t i = 0; i < dimensions_; ++i) {
      line& to = axes_[3 - dimensions_ + i];
      to = {extent[i], size[i], overlap.empty() ? 0 : overlap[i]};
      if (to.extent == 0) reject_option("tiles", "the image's size", "0 along an axis", "1 or more");
      if (to.size == 0) reject_option("tiles", "size", "0 along an axis", "1 or more");
      if (to.overlap >= to.size)
        reject_option("tiles", "overlap", concat(to.overlap), concat("less than the tile's size of ", to.size));
      if (to.size > to.extent && small == small_image::fail)
        reject_option("tiles", "size", concat(to.size, " where the image has ", to.extent),
                      "tiles no larger than the image, or .small = small_image::pad");
    }
  }

  std::size_t dimensions() const noexcept { return dimensions_; }
  /// By depth, height and width; in two dimensions the depth is 1.
  std::array<std::size_t, 3> extent() const noexcept { return {axes_[0].extent, axes_[1].extent, axes_[2].extent}; }
  std::array<std::size_t, 3> tile_size() const noexcept { return {axes_[0].size, axes_[1].size, axes_[2].size}; }
  /// Tiles along each axis.
  std::array<std::size_t, 3> counts() const noexcept { return {axes_[0].count(), axes_[1].count(), axes_[2].count()}; }
  /// Tiles in all.
  std::size_t size() const noexcept { return axes_[0].count() * axes_[1].count() * axes_[2].count(); }

  /// Where tile `number` lies; the image's number is the caller's.
  tile_place place(std::size_t number, std::uint32_t image = 0) const noexcept {
    const auto [z, y, x] = position(number);
    return {image, static_cast<std::uint32_t>(axes_[0].start(z)), static_cast<std::uint32_t>(axes_[1].start(y)),
            static_cast<std::uint32_t>(axes_[2].start(x))};
  }
  /// The number of the tile that lies there, or `size()` if none does.
  std::size_t number(const tile_place& place) const noexcept {
    const std::size_t starts[] = {place.z, place.y, place.x};
    std::size_t result = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t at = axes_[i].number(starts[i]);
      if (at == axes_[i].count()) return size();
      result = result * axes_[i].count() + at;
    }
    return result;
  }
  /// Where tile `number` stands among the others, along each axis.
  std::array<std::size_t, 3> position(std::size_t number) const noexcept {
    const std::size_t width = axes_[2].count(), height = axes_[1].count();
    return {number / width / height, number / width % height, number % width};
  }
  /// The first slice, row or column of tile `number` of this axis (0 to 2: depth, height, width).
  std::size_t start(std::size_t axis, std::size_t number) const noexcept { return axes_[axis].start(number); }
  /// The first one that is nearer to the middle of tile `number` than to that of the tile before; of the tile after the
  /// last one the image's end. So each pixel is one tile's; of two as near it is the first one's.
  std::size_t own(std::size_t axis, std::size_t number) const noexcept { return axes_[axis].own(number); }

  /// "rows 96 to 223, columns 0 to 127"; of volumes "slices 0 to 31" before that.
  std::string text(const tile_place& place) const {
    const auto one = [&](std::string_view name, std::size_t start, std::size_t i) {
      return detail::concat(name, ' ', start, " to ", start + axes_[i].size - 1);
    };
    const std::string plane = one("rows", place.y, 1) + ", " + one("columns", place.x, 2);
    return dimensions_ == 2 ? plane : one("slices", place.z, 0) + ", " + plane;
  }

 private:
  struct line {
    std::size_t extent = 1, size = 1, overlap = 0;

    std::size_t step() const noexcept { return size - overlap; }
    std::size_t count() const noexcept { return extent <= size ? 1 : (extent - size + step() - 1) / step() + 1; }
    std::size_t start(std::size_t number) const noexcept {
      return number + 1 < count() ? number * step() : extent <= size ? 0 : extent - size;
    }
    std::size_t number(std::size_t from) const noexcept {
      const std::size_t last = count() - 1;
      if (from == start(last)) return last;
      return from % step() == 0 && from / step() < last ? from / step() : count();
    }
    std::size_t own(std::size_t number) const noexcept {
      if (number == 0) return 0;
      if (number >= count()) return extent;
      return (start(number - 1) + start(number) + size - 1) / 2 + 1;
    }
  };

  void check_lengths(std::size_t extent, std::size_t size, std::size_t overlap) const {
    constexpr const char* wanted = "height and width, or depth, height and width";
    if (size != 2 && size != 3) detail::reject_option("tiles", "size", detail::concat(size, " numbers"), wanted);
    const std::string same = detail::concat(size, ", as many as in a tile's size");
    if (extent != size) detail::reject_option("tiles", "the image's size", detail::concat(extent, " numbers"), same);
    if (overlap != size && overlap != 0)
      detail::reject_option("tiles", "overlap", detail::concat(overlap, " numbers"), same + ", or none");
  }

  std::size_t dimensions_;
  std::array<line, 3> axes_{};
};

}  // namespace penstock
