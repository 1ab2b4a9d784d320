// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace penstock {

/// How a decoded image stores a channel of a pixel.
enum class pixel_type : std::uint8_t { uint8, uint16, float32 };

constexpr std::size_t size_of(pixel_type type) noexcept {
  return type == pixel_type::uint8 ? 1 : type == pixel_type::uint16 ? 2 : 4;
}
constexpr std::string_view name_of(pixel_type type) noexcept {
  return type == pixel_type::uint8 ? "uint8" : type == pixel_type::uint16 ? "uint16" : "float32";
}

/// What pixels are stored as, as `image::pixels` gives them.
template <class T>
concept pixel = std::same_as<T, std::uint8_t> || std::same_as<T, std::uint16_t> || std::same_as<T, float>;
template <pixel T>
inline constexpr pixel_type pixel_type_of = std::same_as<T, std::uint8_t>    ? pixel_type::uint8
                                            : std::same_as<T, std::uint16_t> ? pixel_type::uint16
                                                                             : pixel_type::float32;

/// A decoded image or volume: depth x height x width x channels, the channels of a pixel side by side, in this
/// machine's byte order. The depth of an image is 1. Integers have their full range: 255 or 65535 is white; floating
/// point is as it was stored, where 1 is white. Move-only.
class image {
 public:
  image() = default;
  /// Its pixels are not initialised. All extents are 1 or more.
  image(pixel_type type, std::size_t height, std::size_t width, std::size_t channels, std::size_t depth = 1)
      : shape_{depth, height, width, channels},
        type_(type),
        data_(new std::byte[bytes()], std::default_delete<std::byte[]>()),
        owned_(bytes()) {}
  /// Pixels that lie elsewhere and are only read, such as in a mapped file, which `data` keeps open.
  image(pixel_type type, std::size_t height, std::size_t width, std::size_t channels, std::size_t depth,
        std::shared_ptr<const std::byte> data)
      : shape_{depth, height, width, channels},
        type_(type),
        data_(std::const_pointer_cast<std::byte>(std::move(data))),
        owned_(elsewhere) {}
  image(image&&) noexcept = default;
  image& operator=(image&&) noexcept = default;

  pixel_type type() const noexcept { return type_; }
  std::size_t depth() const noexcept { return shape_[0]; }
  std::size_t height() const noexcept { return shape_[1]; }
  std::size_t width() const noexcept { return shape_[2]; }
  std::size_t channels() const noexcept { return shape_[3]; }
  /// Numbers in all.
  std::size_t size() const noexcept { return shape_[0] * shape_[1] * shape_[2] * shape_[3]; }
  std::size_t bytes() const noexcept { return size() * size_of(type_); }
  /// What it takes of a cache's budget: its own memory. Pixels that lie elsewhere count as 64 KiB, as a process may
  /// have only some ten thousand maps of files.
  std::size_t owned_bytes() const noexcept { return owned_; }
  std::byte* data() noexcept { return data_.get(); }
  const std::byte* data() const noexcept { return data_.get(); }

  /// All numbers; `T` must be what `type()` says.
  template <pixel T>
  std::span<T> pixels() noexcept {
    return {reinterpret_cast<T*>(data_.get()), size()};
  }
  template <pixel T>
  std::span<const T> pixels() const noexcept {
    return {reinterpret_cast<const T*>(data_.get()), size()};
  }
  /// Calls `function` with the numbers as a span of their own type.
  template <class Function>
  decltype(auto) visit(Function&& function) const {
    switch (type_) {
      case pixel_type::uint8: return function(pixels<std::uint8_t>());
      case pixel_type::uint16: return function(pixels<std::uint16_t>());
      default: return function(pixels<float>());
    }
  }

 private:
  static constexpr std::size_t elsewhere = std::size_t{1} << 16;

  std::array<std::size_t, 4> shape_{0, 0, 0, 0};
  pixel_type type_ = pixel_type::uint8;
  std::shared_ptr<std::byte> data_;
  std::size_t owned_ = 0;
};

/// Images or volumes by number, decoded when asked for: what `images`, `random_patches` and `tiles` read from.
///
/// `load(i)` decodes; it is const, called by several readers at once, and throws `error` with the path. `channels()` is
/// that of all of them, known before any is decoded; `path(i)` is for messages; `dimensions` is 2, or 3 for volumes.
template <class Source>
concept image_source = std::movable<Source> && requires(const Source& source, std::uint64_t index) {
  { source.size() } -> std::convertible_to<std::uint64_t>;
  { source.load(index) } -> std::same_as<image>;
  { source.path(index) } -> std::convertible_to<std::string>;
  { source.channels() } -> std::convertible_to<std::size_t>;
  requires Source::dimensions == 2 || Source::dimensions == 3;
};

}  // namespace penstock
