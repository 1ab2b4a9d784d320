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

#include <penstock/dataset/image.hpp>
#include <penstock/dataset/npy.hpp>

namespace penstock {

struct npy_images_options {
  std::size_t channels =
      1;                 ///< of each pixel: the last extent of the arrays, which is left out of arrays of one channel
  bool convert = false;  ///< take arrays of other element types, too, as float32
};

/// Images or volumes in NPY files, one in each: an image source (see `image_source`). Arrays are height x width, or
/// height x width x channels; of volumes depth x height x width (x channels).
///
/// Elements are uint8, uint16 or float32. Files in C order and this machine's byte order are mapped: pixels are
/// loaded by the system as they are touched, and take next to nothing of a cache. Others are read whole. No file is
/// opened before it is loaded; `load` throws `error` with path and byte.
template <std::size_t Dimensions>
class npy_image_files {
 public:
  static constexpr std::size_t dimensions = Dimensions;

  explicit npy_image_files(std::vector<std::string> paths, const npy_images_options& options = {})
      : paths_(std::move(paths)), options_(options) {
    if (options.channels == 0) detail::reject_option("npy_images", "channels", "0", "1 or more");
  }

  std::uint64_t size() const { return paths_.size(); }
  std::size_t channels() const { return options_.channels; }
  const std::string& path(std::uint64_t index) const { return paths_[static_cast<std::size_t>(index)]; }

  image load(std::uint64_t index) const {
    const std::string& file = path(index);
    const npy_header header = npy_info(file);
    const bool one_channel = header.shape.size() == Dimensions && options_.channels == 1;
    if (!one_channel && (header.shape.size() != Dimensions + 1 || header.shape.back() != options_.channels))
      detail::throw_npy_error(
          file, header.shape_offset,
          detail::concat("the shape is ", header.shape_text(), ", wanted ", Dimensions == 2 ? "" : "depth, ",
                         "height and width", options_.channels == 1 ? "" : ", and ",
                         options_.channels == 1 ? "" : std::to_string(options_.channels),
                         options_.channels == 1 ? "" : " channels"));
    for (const std::size_t extent : header.shape)
      if (extent == 0)
        detail::throw_npy_error(
            file, header.shape_offset,
            detail::concat("the shape is ", header.shape_text(), ", wanted 1 or more along each axis"));
    const auto type = detail::parse_npy_type(header.type);
    const auto is = [&](char kind, std::size_t size) { return type && type->kind == kind && type->size == size; };
    if (is('u', 1)) return load_as<std::uint8_t>(header, *type);
    if (is('u', 2)) return load_as<std::uint16_t>(header, *type);
    if (is('f', 4)) return load_as<float>(header, *type);
    if (options_.convert) return read_as<float>(header);
    detail::throw_npy_error(
        file, header.type_offset,
        detail::concat("the array's type is '", header.type, "' (", detail::describe_npy_type(header.type),
                       "), wanted uint8, uint16 or float32; the option .convert = true converts"));
  }

 private:
  static image shaped(pixel_type type, const npy_header& header, auto&&... memory) {
    const auto& shape = header.shape;
    const std::size_t depth = Dimensions == 3 ? shape[0] : 1;
    const std::size_t channels = shape.size() > Dimensions ? shape[Dimensions] : 1;
    return image(type, shape[Dimensions - 2], shape[Dimensions - 1], channels, depth,
                 std::forward<decltype(memory)>(memory)...);
  }

  template <pixel T>
  image load_as(const npy_header& header, const detail::npy_type& type) const {
    if (header.fortran_order || type.swapped || header.data_offset % alignof(T) != 0) return read_as<T>(header);
    const auto map = std::make_shared<const mapped_file>(header.path);
    if (map->size() < header.data_offset + header.elements() * sizeof(T)) return read_as<T>(header);  // cut since
    return shaped(pixel_type_of<T>, header,
                  std::shared_ptr<const std::byte>(map, map->bytes().data() + header.data_offset));
  }

  template <pixel T>
  image read_as(const npy_header& header) const {
    image result = shaped(pixel_type_of<T>, header);
    if (header.shape.size() == Dimensions)
      read_slices<T, Dimensions - 1>(header, result);
    else
      read_slices<T, Dimensions>(header, result);
    return result;
  }
  /// The first dimension's entries are an NPY array's samples.
  template <pixel T, std::size_t Rank>
  void read_slices(const npy_header& header, image& to) const {
    const npy_array<T, Rank> slices(header.path, {.convert = options_.convert});
    const auto shape = std::get<0>(slices.schema().fields).shape;
    T* data = to.pixels<T>().data();
    const std::size_t elements = to.size() / slices.size();
    for (std::size_t i = 0; i < slices.size(); ++i, data += elements)
      slices.read(i, std::tuple(tensor_view<T, Rank>(data, shape)));
  }

  std::vector<std::string> paths_;
  npy_images_options options_;
};

using npy_images = npy_image_files<2>;
using npy_volumes = npy_image_files<3>;

}  // namespace penstock
