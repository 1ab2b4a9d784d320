// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/cache/shared_cache.hpp>
#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/image.hpp>
#include <penstock/dataset/pixels.hpp>
#include <penstock/dataset/tile_grid.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

struct tile_options {
  /// Height and width; of volumes depth, height and width. In pixels.
  std::vector<std::size_t> size{};
  /// Of neighbours, per axis; empty: none.
  std::vector<std::size_t> overlap{};
  small_image small = small_image::fail;
  /// The images' sizes, each as `size`: one for each image, or one that all have. Empty: each image is decoded once
  /// when the dataset is made, to learn its size.
  std::vector<std::vector<std::size_t>> extents{};
  pixel_options pixels{};
  /// Of decoded images, which readers share. One that lies in a mapped file counts as 64 KiB.
  std::size_t cache_bytes = std::size_t{1} << 30;
};

/// The tiles of images or volumes; see `tiles`.
template <pixel T, image_source Source>
class tile_dataset {
  static constexpr std::size_t dimensions = Source::dimensions;

 public:
  using schema_type = penstock::schema<field<T, dimensions + 1>, field<tile_place>>;

  tile_dataset(Source source, const tile_options& options)
      : state_(std::make_shared<const state>(std::move(source), options)) {}

  std::uint64_t size() const { return state_->first.back(); }
  std::uint64_t images() const { return state_->first.size() - 1; }
  std::string path(std::uint64_t image) const { return state_->source.path(image); }
  /// The file of a sample, which is a tile.
  provenance where(std::uint64_t index) const { return detail::place_in_file(path(image_of(index))); }
  std::size_t channels() const { return state_->writer.channels(); }
  /// The grid of an image: what a `stitcher` is made from.
  const tile_grid& grid(std::uint64_t image) const { return state_->grid(image); }

  std::string describe() const {
    const std::vector<std::size_t>& size = state_->size;
    return detail::concat("tiles of ", size[0], " x ", size[1],
                          dimensions == 3 ? detail::concat(" x ", size.back()) : std::string(), " of ", images(),
                          dimensions == 2 ? " images, " : " volumes, ", state_->writer.template describe<dimensions>());
  }

  schema_type schema() const {
    const std::vector<std::size_t>& size = state_->size;
    std::array<std::size_t, 3> box{1, 1, 1};
    std::copy(size.begin(), size.end(), box.end() - static_cast<std::ptrdiff_t>(size.size()));
    return schema_type(field<T, dimensions + 1>{"tile", state_->writer.template shape<dimensions>(box)},
                       field<tile_place>{"place"});
  }

  void read(std::uint64_t index, const sample_view<schema_type>& to) const {
    const state& own = *state_;
    const std::uint64_t image_number = image_of(index);
    const tile_grid& grid = own.grid(image_number);
    const tile_place place =
        grid.place(static_cast<std::size_t>(index - own.first[image_number]), static_cast<std::uint32_t>(image_number));
    const auto decoded = own.load(image_number);
    const std::array<std::size_t, 3> found{decoded->depth(), decoded->height(), decoded->width()};
    if (found != grid.extent())
      throw error(detail::concat("the image is ", text(found), ", wanted ", text(grid.extent()),
                                 " as it was or was said to be when the dataset was made"),
                  detail::place_in_file(path(image_number)));
    const pixel_box box{.origin = {place.z, place.y, place.x}, .size = grid.tile_size()};
    try {
      own.writer.write(*decoded, box, std::get<0>(to).data(), path(image_number));
    } catch (const error& problem) {
      provenance where = problem.where();
      if (where.position.empty()) where.position = grid.text(place);
      throw error(problem.problem(), where);
    }
    std::get<1>(to)() = place;
  }

  /// What the cache of decoded images has done: `made` is how many were decoded.
  cache_counts decoded() const { return state_->cache.counts(); }

 private:
  std::uint64_t image_of(std::uint64_t index) const {
    const auto& first = state_->first;
    return static_cast<std::uint64_t>(std::upper_bound(first.begin(), first.end(), index) - first.begin() - 1);
  }
  static std::string text(const std::array<std::size_t, 3>& extent) {
    const std::string plane = detail::concat(extent[1], " x ", extent[2]);
    return dimensions == 2 ? plane : detail::concat(extent[0], " x ", plane);
  }

  struct state {
    state(Source given, const tile_options& options)
        : source(std::move(given)),
          cache(options.cache_bytes),
          size(options.size),
          writer("tiles", options.pixels, source.channels()) {
      using detail::concat, detail::reject_option;
      if (size.size() != dimensions)
        reject_option("tiles", "size", concat(size.size(), " numbers"),
                      dimensions == 2 ? "height and width" : "depth, height and width");
      const std::uint64_t count = source.size();
      if (count > ~std::uint32_t{0}) reject_option("tiles", "images", concat(count), "fewer than 2^32");
      const std::size_t told = options.extents.size();
      if (told > 1 && told != count)
        reject_option("tiles", "extents", concat(told, " sizes"),
                      concat(count, ", one for each image, or one for all"));
      first.reserve(count + 1);
      first.push_back(0);
      for (std::uint64_t i = 0; i < count; ++i) {
        if (i == 0 || told != 1) grids.push_back(make_grid(i, options));
        first.push_back(first.back() + grids.back().size());
      }
    }

    tile_grid make_grid(std::uint64_t number, const tile_options& options) const {
      if (!options.extents.empty())
        return tile_grid(options.extents[options.extents.size() == 1 ? 0 : number], size, options.overlap,
                         options.small);
      const auto one = load(number);
      std::vector<std::size_t> extent{one->depth(), one->height(), one->width()};
      if (dimensions == 2) extent.erase(extent.begin());
      if (options.small == small_image::fail)
        for (std::size_t i = 0; i < dimensions; ++i)
          if (extent[i] < size[i])
            throw error(detail::concat("the image is ", text({one->depth(), one->height(), one->width()}),
                                       ", smaller than a tile; .small = small_image::pad repeats its edges"),
                        detail::place_in_file(source.path(number)));
      return tile_grid(extent, size, options.overlap, options.small);
    }

    const tile_grid& grid(std::uint64_t number) const { return grids[grids.size() == 1 ? 0 : number]; }
    std::shared_ptr<const image> load(std::uint64_t number) const {
      return cache.get(number, [&] { return source.load(number); }, [](const image& one) { return one.owned_bytes(); });
    }

    Source source;
    mutable shared_cache<image> cache;
    std::vector<std::size_t> size;
    pixel_writer<T> writer;
    std::vector<tile_grid> grids;      // of each image, or of all
    std::vector<std::uint64_t> first;  // samples of each image, and the end
  };

  std::shared_ptr<const state> state_;
};

/// All tiles of all images (`image_files`) or volumes (`npy_volumes`), as fields "tile" and "place" (`tile_place`):
/// image after image, each tile by tile as its `tile_grid` numbers them. `stitcher` puts the results together.
///
/// How many there are depends on the images' sizes: given as `.extents`, or learnt by decoding each image once here, on
/// this thread, which throws `error` with the path for what cannot be read. Read without shuffling, each image is
/// decoded once for all of its tiles, whatever the number of readers. An image of another size than was said is an
/// `error`. Copies share the cache. Decoding allocates, in the readers, also after the first step.
template <pixel T = float, image_source Source>
tile_dataset<T, Source> tiles(Source source, const tile_options& options) {
  return tile_dataset<T, Source>(std::move(source), options);
}

}  // namespace penstock
