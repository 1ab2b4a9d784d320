// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/dataset/image_options.hpp>

namespace penstock::detail {

/// One TIFF file in memory, by libtiff: its first page. What libtiff says is kept for the error's sentence; with
/// versions before 4.5, which know only a handler for the whole process, it goes where that one sends it.
class tiff_reader {
 public:
  tiff_reader(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {
#if TIFFLIB_VERSION >= 20221213
    const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(::TIFFOpenOptionsAlloc(),
                                                                               &::TIFFOpenOptionsFree);
    ::TIFFOpenOptionsSetErrorHandlerExtR(options.get(), &tiff_reader::on_error, this);
    ::TIFFOpenOptionsSetWarningHandlerExtR(options.get(), &tiff_reader::on_warning, this);
    tiff_.reset(::TIFFClientOpenExt(path.c_str(), "r", this, on_read, on_write, on_seek, on_close, on_size, on_map,
                                    on_unmap, options.get()));
#else
    tiff_.reset(
        ::TIFFClientOpen(path.c_str(), "r", this, on_read, on_write, on_seek, on_close, on_size, on_map, on_unmap));
#endif
    if (!tiff_) fail({}, "the file is damaged");
  }
  tiff_reader(const tiff_reader&) = delete;
  tiff_reader& operator=(const tiff_reader&) = delete;

  decoded_image read(const image_decode_options& options) {
    const std::size_t height = tag<std::uint32_t>(TIFFTAG_IMAGELENGTH, 0);
    const std::size_t width = tag<std::uint32_t>(TIFFTAG_IMAGEWIDTH, 0);
    check_image_size(path_, height, width, options);
    const std::size_t channels = tag<std::uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1);
    check_colours(channels);
    decoded_image result{
        image(find_type(), height, width, channels), tag<std::uint16_t>(TIFFTAG_ORIENTATION, 1), {height, width}};
    in_pixels_ = true;
    warned_ = false;
    const bool separate =
        channels > 1 && tag<std::uint16_t>(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_SEPARATE;
    for (std::size_t plane = 0; plane < (separate ? channels : 1); ++plane) {
      const region whole{result.pixels, plane, separate ? 1 : channels};
      if (::TIFFIsTiled(tiff_.get()) != 0)
        read_tiles(whole, options);
      else
        read_strips(whole);
    }
    if (inverted_) invert(result.pixels);
    return result;
  }

 private:
  struct closes {
    void operator()(TIFF* tiff) const { ::TIFFClose(tiff); }
  };
  /// Channels of an image that are stored together, from `first` on.
  struct region {
    image& to;
    std::size_t first, channels;
    std::size_t pixel_bytes() const { return channels * size_of(to.type()); }
    /// Copies a stored block of `columns` pixels a row to its place, as far as it lies within the image.
    void put(const std::byte* block, std::size_t top, std::size_t left, std::size_t rows, std::size_t columns) const {
      const std::size_t all = to.channels() * size_of(to.type()), part = pixel_bytes();
      const std::size_t height = std::min(rows, to.height() - top), width = std::min(columns, to.width() - left);
      for (std::size_t y = 0; y < height; ++y) {
        const std::byte* from = block + y * columns * part;
        std::byte* place = to.data() + ((top + y) * to.width() + left) * all + first * size_of(to.type());
        if (part == all) {
          std::memcpy(place, from, width * part);
        } else {
          for (std::size_t x = 0; x < width; ++x) std::memcpy(place + x * all, from + x * part, part);
        }
      }
    }
  };

  void check_colours(std::size_t channels) {
    const unsigned compression = tag<std::uint16_t>(TIFFTAG_COMPRESSION, COMPRESSION_NONE);
    if (::TIFFIsCODECConfigured(static_cast<std::uint16_t>(compression)) == 0)
      refuse(concat("the compression is number ", compression, ", which this libtiff cannot read"));
    const unsigned meaning =
        tag<std::uint16_t>(TIFFTAG_PHOTOMETRIC, channels < 3 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB);
    std::size_t colours = 1;
    if (meaning == PHOTOMETRIC_MINISWHITE)
      inverted_ = true;
    else if (meaning == PHOTOMETRIC_RGB)
      colours = 3;
    else if (meaning == PHOTOMETRIC_YCBCR && compression == COMPRESSION_JPEG)
      colours = 3, ::TIFFSetField(tiff_.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    else if (meaning != PHOTOMETRIC_MINISBLACK)
      refuse(concat("the colours are ", colours_name(meaning), ", wanted grey or RGB"));
    if (channels < colours || channels > colours + 1)
      refuse(concat("the image has ", channels, " channels, wanted ", colours, ", or ", colours + 1, " with alpha"));
  }

  pixel_type find_type() {
    const unsigned bits = tag<std::uint16_t>(TIFFTAG_BITSPERSAMPLE, 1);
    const unsigned format = tag<std::uint16_t>(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
    const bool integers = format == SAMPLEFORMAT_UINT || format == SAMPLEFORMAT_VOID;
    if (integers && bits == 8) return pixel_type::uint8;
    if (integers && bits == 16) return pixel_type::uint16;
    if (format == SAMPLEFORMAT_IEEEFP && bits == 32 && !inverted_) return pixel_type::float32;
    const std::string_view kind = integers                        ? "unsigned integers"
                                  : format == SAMPLEFORMAT_IEEEFP ? "floating point"
                                  : format == SAMPLEFORMAT_INT    ? "signed integers"
                                                                  : "complex numbers";
    refuse(concat("the channels are ", bits, "-bit ", kind, inverted_ ? " where 0 is white" : "",
                  ", wanted unsigned integers of 8 or 16 bits, or 32-bit floating point"));
  }

  void read_strips(const region& to) {
    const std::size_t height = to.to.height(), width = to.to.width();
    const std::size_t rows = std::min<std::size_t>(tag<std::uint32_t>(TIFFTAG_ROWSPERSTRIP, ~0u), height);
    if (rows == 0) refuse("the strips are said to have no rows");
    const std::size_t row_bytes = width * to.pixel_bytes();
    if (size_from(::TIFFScanlineSize64(tiff_.get())) != row_bytes) refuse("the rows are of another size than expected");
    const bool whole = to.channels == to.to.channels();  // strips are decoded in place
    const std::unique_ptr<std::byte[]> buffer(whole ? nullptr : new std::byte[rows * row_bytes]);
    for (std::size_t top = 0; top < height; top += rows) {
      const std::size_t count = std::min(rows, height - top);
      std::byte* const place = whole ? to.to.data() + top * row_bytes : buffer.get();
      const auto strip =
          ::TIFFComputeStrip(tiff_.get(), static_cast<std::uint32_t>(top), static_cast<std::uint16_t>(to.first));
      decoded(::TIFFReadEncodedStrip(tiff_.get(), strip, place, static_cast<tmsize_t>(count * row_bytes)),
              count * row_bytes, concat("row ", top));
      if (!whole) to.put(place, top, 0, count, width);
    }
  }

  void read_tiles(const region& to, const image_decode_options& options) {
    const std::size_t rows = tag<std::uint32_t>(TIFFTAG_TILELENGTH, 0);
    const std::size_t columns = tag<std::uint32_t>(TIFFTAG_TILEWIDTH, 0);
    check_image_size(path_, rows, columns, options);
    const std::size_t bytes = rows * columns * to.pixel_bytes();
    if (size_from(::TIFFTileSize64(tiff_.get())) != bytes) refuse("the tiles are of another size than expected");
    const std::unique_ptr<std::byte[]> buffer(new std::byte[bytes]);
    for (std::size_t top = 0; top < to.to.height(); top += rows)
      for (std::size_t left = 0; left < to.to.width(); left += columns) {
        const auto tile = ::TIFFComputeTile(tiff_.get(), static_cast<std::uint32_t>(left),
                                            static_cast<std::uint32_t>(top), 0, static_cast<std::uint16_t>(to.first));
        decoded(::TIFFReadEncodedTile(tiff_.get(), tile, buffer.get(), static_cast<tmsize_t>(bytes)), bytes,
                concat("row ", top, ", column ", left));
        to.put(buffer.get(), top, left, rows, columns);
      }
  }

  /// Some of libtiff's codecs only warn of data that are missing.
  void decoded(tmsize_t got, std::size_t wanted, std::string position) const {
    if (got < 0 || static_cast<std::size_t>(got) != wanted || warned_)
      fail(std::move(position), "the file is damaged or ends too early");
  }

  static void invert(image& pixels) {
    for (std::size_t i = 0; i < pixels.bytes(); i += pixels.channels() * size_of(pixels.type()))
      for (std::size_t k = 0; k < size_of(pixels.type()); ++k) pixels.data()[i + k] = ~pixels.data()[i + k];
  }

  template <class Value>
  Value tag(std::uint32_t name, Value otherwise) const {
    Value value{};
    return ::TIFFGetFieldDefaulted(tiff_.get(), name, &value) == 0 ? otherwise : value;
  }
  static std::size_t size_from(std::uint64_t size) { return static_cast<std::size_t>(size); }
  static std::string colours_name(unsigned meaning) {
    switch (meaning) {
      case PHOTOMETRIC_PALETTE: return "a palette";
      case PHOTOMETRIC_MASK: return "a mask";
      case PHOTOMETRIC_SEPARATED: return "CMYK (inks)";
      case PHOTOMETRIC_YCBCR: return "YCbCr outside of JPEG data";
      case PHOTOMETRIC_CIELAB: return "CIE L*a*b*";
      default: return concat("of photometric interpretation ", meaning);
    }
  }

  [[noreturn]] void refuse(std::string problem) const { throw_image_error(path_, {}, std::move(problem)); }
  [[noreturn]] void fail(std::string position, std::string_view problem) const {
    throw_image_error(path_, std::move(position),
                      problem_[0] == '\0' ? std::string(problem) : concat(problem, ", libtiff says: ", problem_));
  }

  static int on_error(TIFF*, void* own, const char*, const char* format, std::va_list values) {
    auto& self = *static_cast<tiff_reader*>(own);
    if (self.problem_[0] == '\0') std::vsnprintf(self.problem_, sizeof self.problem_, format, values);
    return 1;  // no other handler is to be called
  }
  static int on_warning(TIFF* tiff, void* own, const char* module, const char* format, std::va_list values) {
    auto& self = *static_cast<tiff_reader*>(own);
    if (!self.in_pixels_) return 1;
    self.warned_ = true;
    return on_error(tiff, own, module, format, values);
  }

  static tmsize_t on_read(thandle_t own, void* to, tmsize_t count) {
    auto& self = *static_cast<tiff_reader*>(own);
    if (self.at_ >= self.file_.size() || count <= 0) return 0;
    const std::size_t got = std::min(static_cast<std::size_t>(count), self.file_.size() - self.at_);
    std::memcpy(to, self.file_.data() + self.at_, got);
    self.at_ += got;
    return static_cast<tmsize_t>(got);
  }
  static tmsize_t on_write(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t on_seek(thandle_t own, toff_t offset, int whence) {
    auto& self = *static_cast<tiff_reader*>(own);
    const toff_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? self.at_ : self.file_.size();
    self.at_ = static_cast<std::size_t>(base + offset);
    return self.at_;
  }
  static int on_close(thandle_t) { return 0; }
  static toff_t on_size(thandle_t own) { return static_cast<tiff_reader*>(own)->file_.size(); }
  static int on_map(thandle_t own, void** base, toff_t* size) {
    const auto& self = *static_cast<tiff_reader*>(own);
    *base = const_cast<std::byte*>(self.file_.data());  // libtiff only reads it
    *size = self.file_.size();
    return 1;
  }
  static void on_unmap(thandle_t, void*, toff_t) {}

  std::span<const std::byte> file_;
  const std::string& path_;
  std::size_t at_ = 0;
  bool inverted_ = false;
  bool in_pixels_ = false;
  bool warned_ = false;
  char problem_[200] = "";
  std::unique_ptr<TIFF, closes> tiff_;  // destroyed first
};

inline decoded_image read_tiff(std::span<const std::byte> file, const std::string& path,
                               const image_decode_options& options) {
  return tiff_reader(file, path).read(options);
}

}  // namespace penstock::detail
