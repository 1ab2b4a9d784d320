// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/dataset/pixels.hpp>
#include <penstock/dataset/tile_grid.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/tensor_view.hpp>

namespace penstock {

/// What becomes of pixels that several tiles have.
enum class tile_overlap : std::uint8_t {
  nearest,  ///< those of the tile whose middle is nearest, bit for bit; of two as near the first one's
  average,  ///< weighted means, a tile's weight falling linearly to its edges; floating point only
};

struct stitch_options {
  tile_overlap overlap = tile_overlap::nearest;
  channel_axis channels = channel_axis::first;  ///< in the tiles and in the whole
};

/// Puts the tiles of one image together again, in any order: the inverse of `tiles`, byte for byte.
///
///     penstock::stitcher<float> whole(data.grid(0), 3);
///     for each tile: whole.add(tile, place);
///     if (whole.finished()) use(whole.result());
///
/// Tiles are C x h x w or h x w x C (of volumes with d before h), `channels` being those of what is stitched, such as a
/// network's output. Padding is cut off. Means are those of the numbers given, to rounding, which depends on the
/// tiles' order. All memory is allocated by the constructor. One thread at a time.
template <class T, std::size_t Dimensions = 2>
  requires std::is_trivially_copyable_v<T> && (!std::is_same_v<T, bool>) && (Dimensions == 2 || Dimensions == 3)
class stitcher {
 public:
  using value_type = T;

  /// Throws `std::invalid_argument` for a grid of other dimensions, no channels, and means of integers.
  stitcher(const tile_grid& grid, std::size_t channels, const stitch_options& options = {})
      : grid_(grid), channels_(channels), options_(options) {
    using detail::concat, detail::reject_option;
    if (grid.dimensions() != Dimensions)
      reject_option("stitcher", "grid", concat("one of ", grid.dimensions(), " dimensions"),
                    concat("one of ", Dimensions));
    if (channels == 0) reject_option("stitcher", "channels", "0", "1 or more");
    if (!std::is_floating_point_v<T> && options.overlap == tile_overlap::average)
      reject_option("stitcher", "overlap", "average", "nearest, as these are not floating-point numbers");
    const auto extent = grid.extent();
    values_.resize(extent[0] * extent[1] * extent[2] * channels);
    added_.resize(grid.size());
    if (options.overlap == tile_overlap::average)
      for (std::size_t axis = 0; axis < 3; ++axis) sum_weights(axis);
  }

  const tile_grid& grid() const noexcept { return grid_; }
  /// Whether all tiles are there.
  bool finished() const noexcept { return count_ == added_.size(); }

  /// Throws `error` for a tile that is not one of the grid, is of another image than the first one was, or was added
  /// before; `std::invalid_argument` for one of another shape. Then nothing has changed.
  void add(tensor_view<const T, Dimensions + 1> tile, const tile_place& place) {
    if (tile.shape() != shape(grid_.tile_size()))
      detail::reject_option("stitcher", "the tile's shape", text(tile.shape()), text(shape(grid_.tile_size())));
    if (count_ != 0 && place.image != image_)
      throw error(detail::concat("stitcher: a tile of image ", place.image, ", wanted ", added_.size() - count_,
                                 " more of image ", image_, "; clear() begins another"));
    const std::size_t number = grid_.number(place);
    if (number == grid_.size())
      throw error(
          detail::concat("stitcher: image ", place.image, " has no tile of ", grid_.text(place), " in this grid"));
    if (added_[number])
      throw error(detail::concat("stitcher: tile ", number, " of image ", place.image, ", ", grid_.text(place),
                                 ", was added twice"));
    if (options_.overlap == tile_overlap::nearest)
      put(tile.data(), number);
    else if constexpr (std::is_floating_point_v<T>)
      blend(tile.data(), number);
    image_ = place.image;
    added_[number] = true;
    ++count_;
  }

  /// The tiles that are missing, by number.
  std::vector<std::size_t> missing() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < added_.size(); ++i)
      if (!added_[i]) result.push_back(i);
    return result;
  }

  /// The whole image: C x H x W or H x W x C (of volumes with D before H). Throws `error`, naming the first one, if
  /// tiles are missing. The view is good until `clear` or the end of the stitcher.
  tensor_view<const T, Dimensions + 1> result() const {
    if (!finished()) {
      const auto absent = missing();
      throw error(detail::concat("stitcher: ", absent.size(), " of ", added_.size(), " tiles are missing, first tile ",
                                 absent[0], ", ", grid_.text(grid_.place(absent[0]))));
    }
    return {values_.data(), shape(grid_.extent())};
  }

  /// Begins the next image of the same size.
  void clear() {
    std::fill(added_.begin(), added_.end(), false);
    std::fill(values_.begin(), values_.end(), T{});
    count_ = 0;
  }

 private:
  std::array<std::size_t, Dimensions + 1> shape(const std::array<std::size_t, 3>& size) const {
    std::array<std::size_t, Dimensions + 1> result{};
    const bool first = options_.channels == channel_axis::first;
    for (std::size_t i = 0; i < Dimensions; ++i) result[first ? i + 1 : i] = size[3 - Dimensions + i];
    result[first ? 0 : Dimensions] = channels_;
    return result;
  }
  static std::string text(const std::array<std::size_t, Dimensions + 1>& shape) {
    std::string result;
    for (const std::size_t extent : shape) result += detail::concat(result.empty() ? "" : " x ", extent);
    return result;
  }

  /// Calls `run(from, to, count, z, y)` for each row of the box from `begin` to `end` in the image: `from` and `to` are
  /// where it begins in the tile's and the image's numbers, `count` how many there are.
  template <class Run>
  void rows(const std::array<std::size_t, 3>& start, const std::array<std::size_t, 3>& begin,
            const std::array<std::size_t, 3>& end, Run&& run) const {
    const auto extent = grid_.extent(), size = grid_.tile_size();
    const bool first = options_.channels == channel_axis::first;
    const std::size_t planes = first ? channels_ : 1, step = first ? 1 : channels_;
    for (std::size_t c = 0; c < planes; ++c)
      for (std::size_t z = begin[0]; z < end[0]; ++z)
        for (std::size_t y = begin[1]; y < end[1]; ++y) {
          const std::size_t from = ((c * size[0] + z - start[0]) * size[1] + y - start[1]) * size[2];
          const std::size_t to = ((c * extent[0] + z) * extent[1] + y) * extent[2];
          run((from + begin[2] - start[2]) * step, (to + begin[2]) * step, (end[2] - begin[2]) * step, z, y);
        }
  }

  void put(const T* tile, std::size_t number) {
    const auto position = grid_.position(number);
    std::array<std::size_t, 3> start{}, begin{}, end{};
    for (std::size_t i = 0; i < 3; ++i) {
      start[i] = grid_.start(i, position[i]);
      begin[i] = grid_.own(i, position[i]);
      end[i] = grid_.own(i, position[i] + 1);
    }
    rows(start, begin, end, [&](std::size_t from, std::size_t to, std::size_t count, std::size_t, std::size_t) {
      std::copy_n(tile + from, count, values_.data() + to);
    });
  }

  /// Of a tile's slice, row or column, before all weights of a pixel are made to sum to 1.
  double weight(std::size_t axis, std::size_t within) const {
    const std::size_t size = grid_.tile_size()[axis];
    return static_cast<double>(std::min(within + 1, size - within));
  }
  void sum_weights(std::size_t axis) {
    sums_[axis].resize(grid_.extent()[axis]);
    for (std::size_t k = 0; k < grid_.counts()[axis]; ++k)
      for (std::size_t i = 0; i < grid_.tile_size()[axis] && grid_.start(axis, k) + i < sums_[axis].size(); ++i)
        sums_[axis][grid_.start(axis, k) + i] += weight(axis, i);
  }

  void blend(const T* tile, std::size_t number)
    requires std::is_floating_point_v<T>
  {
    const auto position = grid_.position(number);
    std::array<std::size_t, 3> start{}, end{};
    for (std::size_t i = 0; i < 3; ++i) {
      start[i] = grid_.start(i, position[i]);
      end[i] = std::min(start[i] + grid_.tile_size()[i], grid_.extent()[i]);
    }
    const auto share = [&](std::size_t axis, std::size_t at) {
      return weight(axis, at - start[axis]) / sums_[axis][at];
    };
    const std::size_t step = options_.channels == channel_axis::first ? 1 : channels_;
    rows(start, start, end, [&](std::size_t from, std::size_t to, std::size_t count, std::size_t z, std::size_t y) {
      const double row = share(0, z) * share(1, y);
      for (std::size_t i = 0; i < count; ++i)
        values_[to + i] += static_cast<T>(row * share(2, start[2] + i / step) * static_cast<double>(tile[from + i]));
    });
  }

  tile_grid grid_;
  std::size_t channels_;
  stitch_options options_;
  std::vector<T> values_;
  std::vector<bool> added_;
  std::size_t count_ = 0;
  std::uint32_t image_ = 0;
  std::array<std::vector<double>, 3> sums_;  // of the weights along each axis
};

}  // namespace penstock
