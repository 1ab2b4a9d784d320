// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/dataset/image.hpp>
#include <penstock/dataset/image_channels.hpp>
#include <penstock/dataset/image_exif.hpp>
#include <penstock/dataset/image_jpeg.hpp>
#include <penstock/dataset/image_options.hpp>
#include <penstock/dataset/image_png.hpp>
#include <penstock/dataset/image_resize.hpp>
#include <penstock/dataset/image_tiff.hpp>
#include <penstock/dataset/mapped_file.hpp>

namespace penstock {

namespace detail {

enum class image_format : std::uint8_t { other, png, jpeg, tiff };

inline image_format image_format_of(std::string_view start) {
  constexpr std::string_view classic("II*\0MM\0*", 8), large("II+\0MM\0+", 8);
  if (start.starts_with("\x89PNG\r\n\x1a\n")) return image_format::png;
  if (start.starts_with("\xff\xd8\xff")) return image_format::jpeg;
  for (const std::string_view tiff : {classic, large})
    if (start.starts_with(tiff.substr(0, 4)) || start.starts_with(tiff.substr(4))) return image_format::tiff;
  return image_format::other;
}

inline std::string_view describe_other_image(std::string_view start) {
  const auto at = [&](std::size_t from, std::string_view text) { return start.substr(from).starts_with(text); };
  if (start.empty()) return "the file is empty";
  if (start.find_first_not_of('\0') == start.npos) return "the file begins with zeros";
  if (at(0, "GIF8")) return "this is GIF";
  if (at(0, "BM")) return "this seems to be BMP";
  if (at(0, "RIFF") && start.size() >= 12 && at(8, "WEBP")) return "this is WebP";
  if (start.size() >= 12 && at(4, "ftyp")) return "this is HEIC, AVIF or a video";
  if (at(0, "\xff\x0a") || (start.size() >= 12 && at(4, "JXL "))) return "this is JPEG XL";
  if (start.size() >= 12 && at(4, "jP  ")) return "this is JPEG 2000";
  if (at(0, "P") && start.size() > 2 && start[1] >= '1' && start[1] <= '7') return "this is PBM, PGM, PPM or PAM";
  if (at(0, "\x93NUMPY")) return "this is an NPY file, which npy_images reads";
  if (at(0, "\x89HDF")) return "this is HDF5";
  if (at(0, "%PDF")) return "this is PDF";
  if (at(0, "<")) return "this is text with a < first, such as SVG or HTML";
  return "this is no image that is known";
}

inline image decode_image_file(const std::string& path, const image_decode_options& options) {
  decoded_image decoded;
  {
    // The whole file, which is closed before it is decoded: a map would end the process if the file were cut meanwhile.
    std::unique_ptr<std::byte[]> bytes;
    std::span<const std::byte> all;
    image_format format{};
    {
      const file_descriptor file(path);
      std::array<char, 12> start{};
      const auto size = static_cast<std::size_t>(file.size());
      const std::size_t count = std::min(size, start.size());
      file.read_at(0, std::as_writable_bytes(std::span(start)).first(count));
      const std::string_view known(start.data(), count);
      format = image_format_of(known);
      if (format == image_format::other)
        throw_image_error(path, "byte 0", concat(describe_other_image(known), ", wanted PNG, JPEG or TIFF"));
      bytes.reset(new std::byte[size]);
      file.read_at(0, {bytes.get(), size});
      all = {bytes.get(), size};
    }
    decoded = format == image_format::png    ? read_png(all, path, options)
              : format == image_format::jpeg ? read_jpeg(all, path, options)
                                             : read_tiff(all, path, options);
  }
  image& pixels = decoded.pixels;
  const auto [height, width] = fitted_size(decoded.stored_size, options.longest_side);
  if (pixels.height() != height || pixels.width() != width) pixels = shrink(pixels, height, width);
  pixels = with_channels(std::move(pixels), options.channels);
  return options.orient ? upright(std::move(pixels), decoded.orientation) : std::move(pixels);
}

}  // namespace detail

/// Decodes a PNG, JPEG or TIFF file, whichever its first bytes say that it is, to an image of `options.channels`
/// channels. Const data only, no global state: called by any number of threads.
///
/// Pixels stay what they are stored as: uint8; uint16 of 16-bit PNG and TIFF; float32 of such TIFF. Palettes are
/// expanded, grey of 1, 2 or 4 bits (PNG) scaled to 8. Gamma and colour profiles are not applied. Then
///
/// | file            | 1 grey                 | 2 grey, alpha         | 3 RGB      | 4 RGB, alpha        |
/// |-----------------|------------------------|-----------------------|------------|---------------------|
/// | grey            | as it is               | and opaque            | repeated   | repeated, opaque    |
/// | grey and alpha  | alpha dropped          | as it is              | repeated   | repeated, its alpha |
/// | RGB             | luma                   | luma, opaque          | as it is   | and opaque          |
/// | RGB and alpha   | luma, alpha dropped    | luma, its alpha       | dropped    | as it is            |
///
/// Opaque is 255, 65535 or 1. Alpha is dropped, not blended with anything: colours under it are as stored. Luma is Rec.
/// ITU-R BT.601's, 0.299 R + 0.587 G + 0.114 B to the nearest integer; JPEG files store it: theirs is taken. Where
/// `longest_side` shrinks, it does so before that, JPEG files first to 1/2, 1/4 or 1/8 by libjpeg. Orientation, of EXIF
/// (JPEG, PNG) or of TIFF's tag, comes last.
///
/// TIFF: the first page; strips or tiles, channels side by side or in planes, either byte order, BigTIFF; grey
/// (0 is black or white), RGB, JPEG's YCbCr, with or without alpha.
///
/// Throws `error` with path and row or byte for what is cut off, damaged or of another kind, CMYK among them, and
/// `std::invalid_argument` for options.
inline image decode_image(const std::string& path, const image_decode_options& options = {}) {
  detail::check_image_options("decode_image", options);
  return detail::decode_image_file(path, options);
}

}  // namespace penstock
