// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/image.hpp>
#include <penstock/dataset/image_files.hpp>
#include <penstock/dataset/pixels.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

struct images_options {
  /// Of every image, in pixels. Both 0: as the first image, which is decoded once to learn it.
  std::size_t height = 0;
  std::size_t width = 0;
  pixel_options pixels{};
  std::string name = "image";  ///< of the field
};

/// Whole images; see `images`.
template <pixel T, image_source Source>
class image_dataset {
  static_assert(Source::dimensions == 2, "penstock: images takes images, not volumes");

 public:
  using schema_type = penstock::schema<field<T, 3>>;

  image_dataset(Source source, const images_options& options)
      : state_(std::make_shared<const state>(std::move(source), options)) {}

  std::uint64_t size() const { return state_->source.size(); }
  std::string path(std::uint64_t index) const { return state_->source.path(index); }
  /// The file of a sample.
  provenance where(std::uint64_t index) const { return detail::place_in_file(path(index)); }
  std::size_t channels() const { return state_->writer.channels(); }

  schema_type schema() const {
    const auto [height, width] = state_->extent();
    return schema_type(
        field<T, 3>{state_->options.name, state_->writer.template shape<2>({std::size_t{1}, height, width})});
  }

  void read(std::uint64_t index, const sample_view<schema_type>& to) const {
    const auto [height, width] = state_->extent();
    const image decoded = state_->source.load(index);
    if (decoded.height() != height || decoded.width() != width)
      throw error(detail::concat("the image is ", decoded.height(), " x ", decoded.width(), ", wanted ", height, " x ",
                                 width, state_->told() ? "" : " as the first one"),
                  detail::place_in_file(path(index)));
    const pixel_box whole{.origin = {0, 0, 0}, .size = {1, height, width}};
    state_->writer.write(decoded, whole, std::get<0>(to).data(), path(index));
  }

  /// "900 images, C x H x W float32 in [0, 1]"
  std::string describe() const { return detail::concat(size(), " images, ", state_->writer.template describe<2>()); }

 private:
  struct state {
    state(Source given, const images_options& chosen)
        : source(std::move(given)), options(chosen), writer("images", chosen.pixels, source.channels()) {
      if ((options.height == 0) != (options.width == 0))
        detail::reject_option("images", options.height == 0 ? "height" : "width", "0",
                              "both height and width, or none: the first image's");
      if (source.size() == 0) detail::reject_option("images", "the number of images", "0", "1 or more");
    }

    bool told() const { return options.height != 0; }
    std::array<std::size_t, 2> extent() const {
      if (told()) return {options.height, options.width};
      const std::lock_guard<std::mutex> lock(mutex);
      if (!first) first = measure();
      return *first;
    }
    std::array<std::size_t, 2> measure() const {
      try {
        const image one = source.load(0);
        return {one.height(), one.width()};
      } catch (const error& problem) {
        throw error(
            problem.problem() + "; as the first image it gives the size of all, which .height and .width say, too",
            problem.where(), problem.cause());
      }
    }

    Source source;
    images_options options;
    pixel_writer<T> writer;
    mutable std::mutex mutex;
    mutable std::optional<std::array<std::size_t, 2>> first;
  };

  std::shared_ptr<const state> state_;
};

/// Whole images of one size as samples: one field, "image", C x H x W of float in [0, 1] unless options say otherwise.
///
///     auto data = penstock::images(penstock::image_files("photos"), {.height = 480, .width = 640});
///
/// Nothing is decoded here. Without `height` and `width` the schema is that of the first image: who asks first, a feed
/// that starts or a reader, decodes it for that, on its own thread. Reading throws `error` with the path for what
/// cannot be decoded, and for another size with what was found and wanted. Const, read by any number of readers; copies
/// share all. Decoding allocates, in the readers, also after the first step; each image is decoded once an epoch.
template <pixel T = float, image_source Source>
image_dataset<T, Source> images(Source source, const images_options& options = {}) {
  return image_dataset<T, Source>(std::move(source), options);
}

}  // namespace penstock
