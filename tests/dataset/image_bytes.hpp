// SPDX-License-Identifier: Apache-2.0
// Images made for tests, and odd files of them, by the formats' own libraries.
#pragma once

#include <cstddef>
#include <cstdio>

#include <jpeglib.h>
#include <png.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/dataset/image.hpp>
#include <penstock/sample/error.hpp>

#include "../support/temporary_directory.hpp"

namespace image_test {

using penstock::image;
using penstock_test::temporary_directory;

/// What `action` throws says; empty if it throws nothing.
template <class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return {};
}
/// Whether all parts are in the text; otherwise says which is not.
inline std::string missing(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (std::string_view part : parts)
    if (text.find(part) == std::string::npos) return "no \"" + std::string(part) + "\" in \"" + text + "\"";
  return {};
}

template <penstock::pixel T>
std::vector<T> values_of(const image& from) {
  const auto all = from.pixels<T>();
  return {all.begin(), all.end()};
}
/// "2 x 3 x 1 uint8", and the numbers of all pixels as bytes: two images are alike if these are.
inline std::string shape_of(const image& from) {
  return penstock::detail::concat(from.height(), " x ", from.width(), " x ", from.channels(), " ",
                                  penstock::name_of(from.type()));
}
inline std::string bytes_of(const image& from) { return {reinterpret_cast<const char*>(from.data()), from.bytes()}; }

/// Numbers that differ from pixel to pixel, over the whole range.
template <penstock::pixel T>
image made(std::size_t height, std::size_t width, std::size_t channels) {
  image result(penstock::pixel_type_of<T>, height, width, channels);
  std::uint32_t state = 12345;
  for (T& value : result.pixels<T>()) {
    state = state * 1664525u + 1013904223u;
    if constexpr (std::is_same_v<T, float>)
      value = static_cast<float>(state >> 8) / 4e6f - 1;
    else
      value = static_cast<T>(state >> (32 - 8 * sizeof(T)));
  }
  return result;
}
/// Smooth, as photos are: JPEG changes it little.
inline image smooth(std::size_t height, std::size_t width, std::size_t channels) {
  image result(penstock::pixel_type::uint8, height, width, channels);
  auto at = result.pixels<std::uint8_t>().begin();
  for (std::size_t y = 0; y < height; ++y)
    for (std::size_t x = 0; x < width; ++x)
      for (std::size_t c = 0; c < channels; ++c)
        *at++ = static_cast<std::uint8_t>(40 + 150 * (c == 1 ? y : x) / (c == 1 ? height : width) + 20 * c);
  return result;
}

struct jpeg_options {
  int quality = 95;
  bool progressive = false;
  bool cmyk = false;     // of 4 channels
  unsigned restart = 0;  // MCUs between restart markers
  std::string exif{};    // what follows "Exif\0\0"
};

inline std::string jpeg_bytes(const image& from, const jpeg_options& options = {}) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = ::jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  ::jpeg_mem_dest(&codec, &memory, &size);
  codec.image_height = static_cast<JDIMENSION>(from.height());
  codec.image_width = static_cast<JDIMENSION>(from.width());
  codec.input_components = static_cast<int>(from.channels());
  codec.in_color_space = options.cmyk ? JCS_CMYK : from.channels() == 1 ? JCS_GRAYSCALE : JCS_RGB;
  ::jpeg_set_defaults(&codec);
  ::jpeg_set_quality(&codec, options.quality, TRUE);
  codec.restart_interval = options.restart;
  if (options.progressive) ::jpeg_simple_progression(&codec);
  ::jpeg_start_compress(&codec, TRUE);
  if (!options.exif.empty()) {
    const std::string block = std::string("Exif\0\0", 6) + options.exif;
    ::jpeg_write_marker(&codec, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(block.data()),
                        static_cast<unsigned>(block.size()));
  }
  while (codec.next_scanline < codec.image_height) {
    auto* row = const_cast<JSAMPROW>(reinterpret_cast<const JSAMPLE*>(from.data())) +
                codec.next_scanline * from.width() * from.channels();
    ::jpeg_write_scanlines(&codec, &row, 1);
  }
  ::jpeg_finish_compress(&codec);
  ::jpeg_destroy_compress(&codec);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  std::free(memory);
  return bytes;
}

struct png_options {
  int colours = PNG_COLOR_TYPE_GRAY;
  int depth = 8;
  bool interlaced = false;
  std::vector<png_color> palette{};
  std::vector<png_byte> palette_alpha{};
  int transparent_grey = -1;
  std::string exif{};
};

/// `rows` as PNG stores them: packed, big-endian.
inline std::string png_bytes(std::size_t height, std::size_t width, const std::string& rows,
                             const png_options& options = {}) {
  std::string bytes;
  png_structp png = ::png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = ::png_create_info_struct(png);
  ::png_set_write_fn(
      png, &bytes,
      [](png_structp of, png_bytep from, std::size_t count) {
        static_cast<std::string*>(::png_get_io_ptr(of))->append(reinterpret_cast<const char*>(from), count);
      },
      [](png_structp) {});
  ::png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), options.depth,
                 options.colours, options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!options.palette.empty())
    ::png_set_PLTE(png, info, options.palette.data(), static_cast<int>(options.palette.size()));
  png_color_16 key{};
  key.gray = static_cast<png_uint_16>(options.transparent_grey);
  if (!options.palette_alpha.empty())
    ::png_set_tRNS(png, info, options.palette_alpha.data(), static_cast<int>(options.palette_alpha.size()), nullptr);
  else if (options.transparent_grey >= 0)
    ::png_set_tRNS(png, info, nullptr, 0, &key);
  std::string exif = options.exif;
  if (!exif.empty())
    ::png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), reinterpret_cast<png_bytep>(exif.data()));
  ::png_write_info(png, info);
  const int passes = ::png_set_interlace_handling(png);
  for (int pass = 0; pass < passes; ++pass)
    for (std::size_t y = 0; y < height; ++y)
      ::png_write_row(png, reinterpret_cast<png_const_bytep>(rows.data() + y * (rows.size() / height)));
  ::png_write_end(png, info);
  ::png_destroy_write_struct(&png, &info);
  return bytes;
}

/// The same file with another size in its header, the checksum right.
inline std::string with_png_size(std::string bytes, std::uint32_t height, std::uint32_t width) {
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i)
      bytes[at + i] = static_cast<char>(static_cast<unsigned char>(value >> (24 - 8 * i) & 0xff));
  };
  put(16, width);
  put(20, height);
  std::uint32_t crc = ~0u;
  for (std::size_t i = 12; i < 29; ++i) {
    crc ^= static_cast<unsigned char>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
  }
  put(29, ~crc);
  return bytes;
}

}  // namespace image_test
