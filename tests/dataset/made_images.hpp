// SPDX-License-Identifier: Apache-2.0
// Images that tests make: pixel (z, y, x) of channel c of image i has a number of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <penstock/dataset/image.hpp>
#include <penstock/sample/error.hpp>

namespace made_images {

/// What `call` throws says.
template <class Call>
std::string message(Call call) {
  try {
    call();
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return "nothing was thrown";
}

struct extents {
  std::size_t height, width, depth = 1;
};

template <penstock::pixel T>
T number(std::uint64_t image, std::size_t z, std::size_t y, std::size_t x, std::size_t c) {
  const std::uint64_t mixed = (((image * 131 + z) * 137 + y) * 139 + x) * 3 + c;
  if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(mixed % 100003) / 1024;
  else
    return static_cast<T>(mixed * 40503u >> 4);
}

template <penstock::pixel T>
penstock::image make(std::uint64_t index, extents of, std::size_t channels, float factor = 1) {
  penstock::image result(penstock::pixel_type_of<T>, of.height, of.width, channels, of.depth);
  T* to = result.pixels<T>().data();
  for (std::size_t z = 0; z < of.depth; ++z)
    for (std::size_t y = 0; y < of.height; ++y)
      for (std::size_t x = 0; x < of.width; ++x)
        for (std::size_t c = 0; c < channels; ++c)
          *to++ = static_cast<T>(static_cast<float>(number<T>(index, z, y, x, c)) * factor);
  return result;
}

/// An image source over such images, which counts what it loads. `factor` multiplies the numbers.
template <penstock::pixel T, std::size_t Dimensions = 2>
struct source {
  static constexpr std::size_t dimensions = Dimensions;

  std::vector<extents> sizes;
  std::size_t channel_count = 1;
  float factor = 1;
  std::vector<std::uint64_t> broken{};
  std::shared_ptr<std::atomic<std::uint64_t>> loads = std::make_shared<std::atomic<std::uint64_t>>(0);

  std::uint64_t size() const { return sizes.size(); }
  std::size_t channels() const { return channel_count; }
  std::string path(std::uint64_t index) const { return "made/" + std::to_string(index) + ".png"; }
  penstock::image load(std::uint64_t index) const {
    loads->fetch_add(1);
    for (const std::uint64_t one : broken)
      if (one == index) throw penstock::error("the file is cut", {.path = path(index), .position = "row 3"});
    return make<T>(index, sizes[index], channel_count, factor);
  }
};

}  // namespace made_images
