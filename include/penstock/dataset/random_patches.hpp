// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/cache/shared_cache.hpp>
#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/image.hpp>
#include <penstock/dataset/patch_plan.hpp>
#include <penstock/dataset/pixels.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

struct patch_options {
  /// Height and width; of volumes depth, height and width. In pixels.
  std::vector<std::size_t> size{};
  /// Samples of each image in an epoch.
  std::uint64_t per_image = 1;
  bool flip_rows = false;      ///< upside down, or not: as likely
  bool flip_columns = false;   ///< left to right
  bool flip_depth = false;     ///< of volumes: front to back
  bool quarter_turns = false;  ///< by 0, 90, 180 or 270 degrees in the plane; wants as many rows as columns
  small_image small = small_image::fail;
  pixel_options pixels{};           ///< of the first images' fields
  pixel_options response_pixels{};  ///< of the second's
  /// Of decoded images, which readers share. One that lies in a mapped file counts as 64 KiB.
  std::size_t cache_bytes = std::size_t{1} << 30;
};

/// Where a patch comes from, as a field beside it: `batch.host<N>()[row]`, the last field, on any device. A function of
/// seed, epoch and sample index.
struct patch_origin {
  std::uint32_t image = 0;            ///< number in the source
  std::uint32_t z = 0, y = 0, x = 0;  ///< first slice, row and column
  std::uint32_t turn = 0;  ///< bits: 1 rows flipped, 2 columns flipped, 4 transposed after that, 8 depth flipped
  bool operator==(const patch_origin&) const = default;

  pixel_box box(const std::array<std::size_t, 3>& size) const {
    return {{z, y, x}, size, (turn & 8) != 0, (turn & 1) != 0, (turn & 2) != 0, (turn & 4) != 0};
  }
};

/// Patches at random places of images or volumes; see `random_patches`.
template <pixel T, image_source... Sources>
class patch_dataset {
  using first_source = std::tuple_element_t<0, std::tuple<Sources...>>;
  static constexpr std::size_t dimensions = first_source::dimensions;
  static_assert(((Sources::dimensions == dimensions) && ...),
                "penstock: random_patches takes pairs of images or pairs of volumes, not one of each");
  static_assert(sizeof...(Sources) <= 2, "penstock: random_patches takes images, or images and responses");

 public:
  template <class>
  using patch_field = field<T, dimensions + 1>;
  using schema_type = penstock::schema<patch_field<Sources>..., field<patch_origin>>;

  patch_dataset(const patch_options& options, Sources... sources)
      : state_(std::make_shared<state>(options, std::move(sources)...)) {}

  std::uint64_t size() const { return images() * state_->per_image; }
  std::uint64_t images() const { return std::get<0>(state_->sources).size(); }
  std::string path(std::uint64_t image) const { return std::get<0>(state_->sources).path(image); }
  /// The file of a sample, which is a patch; of pairs the first.
  provenance where(std::uint64_t index) const { return detail::place_in_file(path(index / state_->per_image)); }
  const std::array<std::size_t, 3>& patch_size() const { return state_->size; }

  schema_type schema() const {
    constexpr const char* names[] = {sizeof...(Sources) == 1 ? "patch" : "input", "response"};
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return schema_type(
          field<T, dimensions + 1>{names[I], state_->writers[I].template shape<dimensions>(state_->size)}...,
          field<patch_origin>{"origin"});
    }(std::index_sequence_for<Sources...>{});
  }

  /// The patches of `together` images at a time, images in random order: each image is decoded once in an epoch if the
  /// cache holds twice as many. To be given to `partition`.
  group_shuffled_plan blocks(std::uint64_t together) const { return {images(), state_->per_image, together}; }

  void read(std::uint64_t index, const sample_view<schema_type>& to, read_context& context) const {
    const std::uint64_t number = index / state_->per_image;
    const auto decoded = load(number);
    const patch_origin origin = draw(number, *decoded[0], context.random);
    const pixel_box box = origin.box(state_->size);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (write<I>(*decoded[I], box, std::get<I>(to).data(), number), ...);
    }(std::index_sequence_for<Sources...>{});
    std::get<sizeof...(Sources)>(to)() = origin;
  }

  /// Where sample `index` is read from in an epoch of a feed with this seed. Decodes its image, if that is not cached.
  patch_origin origin(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index) const {
    philox random(seed, epoch, index);
    const std::uint64_t number = index / state_->per_image;
    return draw(number, *load(number)[0], random);
  }

  std::string describe() const {
    const auto& size = state_->size;
    const std::string plane = detail::concat(size[1], " x ", size[2]);
    return detail::concat(state_->per_image, " patches of ",
                          dimensions == 2 ? plane : detail::concat(size[0], " x ", plane), " of each of ", images(),
                          sizeof...(Sources) == 2 ? " pairs of" : "", dimensions == 2 ? " images, " : " volumes, ",
                          state_->writers[0].template describe<dimensions>());
  }

  /// What the cache of decoded images has done: `made` is how many were decoded.
  cache_counts decoded() const { return state_->cache.counts(); }

 private:
  static constexpr std::size_t source_count = sizeof...(Sources);
  using images_of_sample = std::array<std::shared_ptr<const image>, source_count>;

  struct state {
    state(const patch_options& options, Sources... given)
        : sources(std::move(given)...), cache(options.cache_bytes), per_image(options.per_image), flips(options) {
      check(options);
      for (std::size_t i = 0; i < dimensions; ++i) size[3 - dimensions + i] = options.size[i];
      std::apply(
          [&](const auto&... source) {
            (writers.emplace_back("random_patches", writers.empty() ? options.pixels : options.response_pixels,
                                  source.channels()),
             ...);
          },
          sources);
    }

    void check(const patch_options& options) const {
      using detail::concat, detail::reject_option;
      constexpr const char* who = "random_patches";
      if (options.size.size() != dimensions)
        reject_option(who, "size", concat(options.size.size(), " extents long"),
                      dimensions == 2 ? "height and width" : "depth, height and width");
      for (const std::size_t extent : options.size)
        if (extent == 0) reject_option(who, "size", "0 along an axis", "1 or more");
      if (options.per_image == 0) reject_option(who, "per_image", "0", "1 or more");
      if (options.flip_depth && dimensions == 2)
        reject_option(who, "flip_depth", "true", "false, as these are images and not volumes");
      if (options.quarter_turns && options.size[dimensions - 2] != options.size[dimensions - 1])
        reject_option(who, "quarter_turns",
                      concat("true for patches of ", options.size[dimensions - 2], " x ", options.size[dimensions - 1]),
                      "as many rows as columns");
      const std::uint64_t count = std::get<0>(sources).size();
      std::apply(
          [&](const auto&... source) {
            const auto same = [&](const auto& one) {
              if (one.size() != count)
                throw error(concat("random_patches: ", count, " images with ", one.size(),
                                   " responses, wanted one response for each"));
            };
            (same(source), ...);
          },
          sources);
    }

    std::tuple<Sources...> sources;
    mutable shared_cache<image> cache;
    std::uint64_t per_image;
    patch_options flips;
    std::array<std::size_t, 3> size{1, 1, 1};
    std::vector<pixel_writer<T>> writers;
  };

  images_of_sample load(std::uint64_t number) const {
    images_of_sample result;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((result[I] = state_->cache.get(
            number * source_count + I, [&] { return std::get<I>(state_->sources).load(number); },
            [](const image& one) { return one.owned_bytes(); })),
       ...);
      (check_alike<I>(number, *result[0], *result[I]), ...);
    }(std::index_sequence_for<Sources...>{});
    return result;
  }

  template <std::size_t I>
  void check_alike(std::uint64_t number, const image& input, const image& other) const {
    if (input.depth() == other.depth() && input.height() == other.height() && input.width() == other.width()) return;
    throw error(
        detail::concat("the response is ", extents(other), ", wanted ", extents(input), " as of ", path(number)),
        detail::place_in_file(std::get<I>(state_->sources).path(number)));
  }
  static std::string extents(const image& one) {
    const std::string plane = detail::concat(one.height(), " x ", one.width());
    return dimensions == 2 ? plane : detail::concat(one.depth(), " x ", plane);
  }

  /// One draw for all that belongs together: each legal place is as likely, and so is each turn.
  patch_origin draw(std::uint64_t number, const image& from, philox& random) const {
    const std::array<std::size_t, 3> extent{from.depth(), from.height(), from.width()};
    const auto& size = state_->size;
    std::array<std::uint32_t, 3> place{};
    for (std::size_t i = 3 - dimensions; i < 3; ++i) {
      if (extent[i] >= size[i])
        place[i] = static_cast<std::uint32_t>(random.below(static_cast<std::uint64_t>(extent[i] - size[i] + 1)));
      else if (state_->flips.small == small_image::fail)
        throw_small(number, from);
    }
    patch_origin result{static_cast<std::uint32_t>(number), place[0], place[1], place[2], 0};
    const patch_options& flips = state_->flips;
    if (flips.flip_rows || flips.flip_columns || flips.flip_depth || flips.quarter_turns) {
      const std::uint32_t bits = random();
      if (flips.flip_rows) result.turn |= bits & 1;
      if (flips.flip_columns) result.turn |= bits & 2;
      if (flips.flip_depth) result.turn |= bits & 8;
      // A turn by 90 degrees is a flip and a transpose, one by 180 two flips; flips of before it just add to its own.
      constexpr std::uint32_t turns[] = {0, 1 | 4, 1 | 2, 2 | 4};
      if (flips.quarter_turns) result.turn ^= turns[bits >> 4 & 3];
    }
    return result;
  }
  [[noreturn]] void throw_small(std::uint64_t number, const image& from) const {
    const auto& size = state_->size;
    const std::string plane = detail::concat(size[1], " x ", size[2]);
    throw error(detail::concat("the image is ", extents(from), ", wanted ",
                               dimensions == 2 ? plane : detail::concat(size[0], " x ", plane),
                               " or more for a patch; .small = small_image::pad repeats its edges, and "
                               "read({.bad = bad_samples::skip}) leaves it out"),
                detail::place_in_file(path(number)));
  }

  template <std::size_t I>
  void write(const image& from, const pixel_box& box, T* to, std::uint64_t number) const {
    try {
      state_->writers[I].write(from, box, to, std::get<I>(state_->sources).path(number));
    } catch (const error& problem) {
      provenance where = problem.where();
      if (where.position.empty()) where.position = box.text();
      throw error(problem.problem(), where);
    }
  }

  std::shared_ptr<const state> state_;
};

/// Patches at random places of images (`image_files`) or volumes (`npy_volumes`): `per_image` samples of each, in each
/// epoch at other places, as fields "patch" and "origin" (`patch_origin`).
///
/// All legal places are as likely. What is drawn is a function of seed, epoch and sample index, so that patches are the
/// same for any number of readers and replicas and any cache. Decoded images are shared by readers within a budget;
/// with `partition(patches.blocks(16), {.seed = 7})` each is decoded once in an epoch, however many there are. Copies
/// share the cache. Decoding allocates, in the readers, also after the first step.
template <pixel T = float, image_source Source>
patch_dataset<T, Source> random_patches(Source source, const patch_options& options) {
  return patch_dataset<T, Source>(options, std::move(source));
}
/// Pairs, aligned pixel by pixel, as fields "input", "response" and "origin": one draw for both. Both must be of one
/// size.
template <pixel T = float, image_source Input, image_source Response>
patch_dataset<T, Input, Response> random_patches(Input input, Response response, const patch_options& options) {
  return patch_dataset<T, Input, Response>(options, std::move(input), std::move(response));
}

}  // namespace penstock
