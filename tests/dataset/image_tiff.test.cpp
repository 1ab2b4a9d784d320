// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <penstock/dataset/image_decode.hpp>

#include "image_bytes.hpp"

namespace {

using namespace image_test;
using penstock::decode_image;
using penstock::image_decode_options;
using penstock::pixel_type;

struct tiff_options {
  const char* mode = "wl";  // little-endian; "wb" big, "w8" BigTIFF
  unsigned compression = COMPRESSION_NONE;
  unsigned predictor = 1;
  bool tiles = false;
  bool separate = false;
  unsigned photometric = 0;  // 0: grey or RGB
  unsigned orientation = 0;
  unsigned bits = 0;    // others than the image's
  unsigned format = 0;  // the same
};

void write_tiff(const std::string& path, const image& from, const tiff_options& options = {}) {
  TIFF* const tiff = ::TIFFOpen(path.c_str(), options.mode);
  ASSERT_NE(tiff, nullptr);
  const std::size_t height = from.height(), width = from.width(), channels = from.channels();
  const std::size_t size = penstock::size_of(from.type());
  const auto set = [&](std::uint32_t tag, std::size_t value) { ::TIFFSetField(tiff, tag, static_cast<int>(value)); };
  set(TIFFTAG_IMAGEWIDTH, width);
  set(TIFFTAG_IMAGELENGTH, height);
  set(TIFFTAG_SAMPLESPERPIXEL, channels);
  set(TIFFTAG_BITSPERSAMPLE, options.bits != 0 ? options.bits : 8 * size);
  if (options.format != 0 || from.type() == pixel_type::float32)
    set(TIFFTAG_SAMPLEFORMAT, options.format != 0 ? options.format : static_cast<unsigned>(SAMPLEFORMAT_IEEEFP));
  set(TIFFTAG_COMPRESSION, options.compression);
  if (options.predictor != 1) set(TIFFTAG_PREDICTOR, options.predictor);
  set(TIFFTAG_PHOTOMETRIC, options.photometric != 0 || channels == 0 ? options.photometric
                           : channels < 3                            ? PHOTOMETRIC_MINISBLACK
                                                                     : PHOTOMETRIC_RGB);
  std::uint16_t map[256] = {};
  if (options.photometric == PHOTOMETRIC_PALETTE) ::TIFFSetField(tiff, TIFFTAG_COLORMAP, map, map, map);
  if (options.photometric == PHOTOMETRIC_YCBCR) set(TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  set(TIFFTAG_PLANARCONFIG, options.separate ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
  if (options.orientation != 0) set(TIFFTAG_ORIENTATION, options.orientation);
  const std::uint16_t alpha = EXTRASAMPLE_UNASSALPHA;
  if (channels % 2 == 0) ::TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &alpha);
  const std::size_t rows = options.tiles ? 16 : options.compression == COMPRESSION_JPEG ? 16 : 3;
  const std::size_t columns = options.tiles ? 32 : width;
  if (options.tiles) {
    set(TIFFTAG_TILELENGTH, rows);
    set(TIFFTAG_TILEWIDTH, columns);
  } else {
    set(TIFFTAG_ROWSPERSTRIP, rows);
  }
  const std::size_t planes = options.separate ? channels : 1, part = (options.separate ? 1 : channels) * size;
  for (std::size_t plane = 0; plane < planes; ++plane)
    for (std::size_t top = 0; top < height; top += rows)
      for (std::size_t left = 0; left < width; left += columns) {
        const std::size_t count = options.tiles ? rows : std::min(rows, height - top);
        std::string block(count * columns * part, '\x55');
        for (std::size_t y = 0; y < count && top + y < height; ++y)
          for (std::size_t x = 0; x < columns && left + x < width; ++x)
            std::copy_n(
                reinterpret_cast<const char*>(from.data()) + (((top + y) * width + left + x) * channels + plane) * size,
                part, block.data() + (y * columns + x) * part);
        const auto number = [](std::size_t value) { return static_cast<std::uint32_t>(value); };
        const auto sample = static_cast<std::uint16_t>(plane);
        const auto bytes = static_cast<tmsize_t>(block.size());
        if (options.tiles)
          ::TIFFWriteEncodedTile(tiff, ::TIFFComputeTile(tiff, number(left), number(top), 0, sample), block.data(),
                                 bytes);
        else
          ::TIFFWriteEncodedStrip(tiff, ::TIFFComputeStrip(tiff, number(top), sample), block.data(), bytes);
      }
  ::TIFFClose(tiff);
}

/// Grey, 4 rows of 5 pixels of a byte, in two strips; unlike libtiff's files with the pixels last.
struct plain_tiff {
  std::uint32_t height = 4, width = 5, rows_per_strip = 2, photometric = 1;
  std::uint32_t bits = 8;
  std::string pixels = "abcdefghijklmnopqrst";
  std::string bytes() const {
    std::string out("II*\0\x08\0\0\0", 8);
    const auto put = [&](std::uint32_t value, int size) {
      for (int i = 0; i < size; ++i) out += static_cast<char>(static_cast<unsigned char>(value >> 8 * i & 0xff));
    };
    constexpr std::uint32_t tags = 8, end = 8 + 2 + tags * 12 + 4;
    put(tags, 2);
    const auto tag = [&](std::uint32_t name, std::uint32_t count, std::uint32_t value) {
      put(name, 2);
      put(4, 2);  // a 32-bit number
      put(count, 4);
      put(value, 4);
    };
    tag(TIFFTAG_IMAGEWIDTH, 1, width);
    tag(TIFFTAG_IMAGELENGTH, 1, height);
    tag(TIFFTAG_BITSPERSAMPLE, 1, bits);
    tag(TIFFTAG_COMPRESSION, 1, COMPRESSION_NONE);
    tag(TIFFTAG_PHOTOMETRIC, 1, photometric);
    tag(TIFFTAG_STRIPOFFSETS, 2, end);
    tag(TIFFTAG_ROWSPERSTRIP, 1, rows_per_strip);
    tag(TIFFTAG_STRIPBYTECOUNTS, 2, end + 8);
    put(0, 4);
    put(end + 16, 4);
    put(end + 26, 4);
    put(10, 4);
    put(10, 4);
    return out + pixels;
  }
};

class image_tiff : public testing::Test {
 protected:
  image written(const image& from, const tiff_options& how, const image_decode_options& options) {
    write_tiff(path, from, how);
    return decode_image(path, options);
  }
  std::string refusal(const image& from, const tiff_options& how) {
    return message_of([&] { written(from, how, {}); });
  }
  image decoded(std::string_view bytes, const image_decode_options& options = {}) {
    return decode_image(directory.file("a.tif", bytes), options);
  }
  std::string file_bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  temporary_directory directory;
  std::string path = directory / "a.tif";
};

TEST_F(image_tiff, all_types_channels_and_layouts) {
  const auto check = [&]<penstock::pixel T>(T) {
    for (std::size_t channels = 1; channels <= 4; ++channels) {
      const image from = made<T>(35, 43, channels);
      for (const bool tiles : {false, true})
        for (const bool separate : {false, true})
          for (const char* mode : {"wl", "wb", "w8b"}) {
            const unsigned compressions[] = {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE};
            for (const unsigned compression : compressions) {
              // libtiff reads big-endian files with the predictor of floating point, but writes them wrong.
              const bool little = mode == std::string("wl");
              const unsigned predictor = compression == COMPRESSION_NONE ? 1u
                                         : !std::is_same_v<T, float>     ? 2u
                                         : little                        ? 3u
                                                                         : 1u;
              const image got = written(from,
                                        {.mode = mode,
                                         .compression = compression,
                                         .predictor = predictor,
                                         .tiles = tiles,
                                         .separate = separate},
                                        {.channels = channels});
              ASSERT_EQ(shape_of(got), shape_of(from));
              ASSERT_TRUE(bytes_of(got) == bytes_of(from))
                  << shape_of(from) << ", " << mode << ", compression " << compression << (tiles ? ", tiles" : "")
                  << (separate ? ", planes" : "");
            }
          }
    }
  };
  check(std::uint8_t{});
  check(std::uint16_t{});
  check(float{});
}

TEST_F(image_tiff, zero_as_white_is_turned_round) {
  // The photometric interpretation "white is zero" has number 0: by hand.
  plain_tiff file;
  file.photometric = PHOTOMETRIC_MINISWHITE;
  const image got = decoded(file.bytes(), {.channels = 1});
  EXPECT_EQ(got.pixels<std::uint8_t>()[0], 255 - 'a');
  EXPECT_EQ(got.pixels<std::uint8_t>()[19], 255 - 't');
  file.photometric = PHOTOMETRIC_MINISBLACK;
  EXPECT_EQ(bytes_of(decoded(file.bytes(), {.channels = 1})), file.pixels);
}

TEST_F(image_tiff, JPEG_within_with_colours_as_YCbCr) {
  const image from = smooth(32, 48, 3);
  const image got = written(from, {.compression = COMPRESSION_JPEG, .photometric = PHOTOMETRIC_YCBCR}, {});
  ASSERT_EQ(shape_of(got), shape_of(from));
  for (std::size_t i = 0; i < from.size(); ++i)
    ASSERT_NEAR(got.pixels<std::uint8_t>()[i], from.pixels<std::uint8_t>()[i], 20) << i;
}

TEST_F(image_tiff, all_orientations) {
  const image from = made<std::uint16_t>(2, 4, 3);
  for (unsigned orientation = 1; orientation <= 8; ++orientation) {
    image stored = written(from, {.orientation = orientation}, {.orient = false});
    EXPECT_TRUE(bytes_of(stored) == bytes_of(from));
    const image seen = written(from, {.orientation = orientation}, {});
    EXPECT_EQ(seen.height(), orientation < 5 ? 2u : 4u) << orientation;
    EXPECT_TRUE(bytes_of(seen) == bytes_of(penstock::detail::upright(std::move(stored), orientation))) << orientation;
  }
}

TEST_F(image_tiff, shrunk_with_its_own_type) {
  const image from = made<float>(20, 30, 1);
  EXPECT_TRUE(bytes_of(written(from, {}, {.channels = 1, .longest_side = 7})) ==
              bytes_of(penstock::shrink(from, 5, 7)));
}

TEST_F(image_tiff, what_is_not_supported_is_refused_by_name) {
  const image bytes = made<std::uint8_t>(4, 8, 1), words = made<std::uint16_t>(4, 8, 1);
  constexpr const char* wanted = "wanted unsigned integers of 8 or 16 bits, or 32-bit floating point";
  EXPECT_EQ(missing(refusal(words, {.format = SAMPLEFORMAT_INT}), {"a.tif: ", "16-bit signed integers", wanted}), "");
  EXPECT_EQ(missing(refusal(words, {.format = SAMPLEFORMAT_IEEEFP}), {"16-bit floating point", wanted}), "");
  const image doubles = made<float>(4, 16, 1);
  EXPECT_EQ(missing(refusal(doubles, {.bits = 64}), {"64-bit floating point", wanted}), "");
  EXPECT_EQ(missing(refusal(bytes, {.bits = 1}), {"1-bit unsigned integers", wanted}), "");
  EXPECT_EQ(missing(refusal(bytes, {.photometric = PHOTOMETRIC_PALETTE}), {"the colours are a palette", "wanted grey"}),
            "");
  EXPECT_EQ(missing(refusal(made<std::uint8_t>(4, 8, 4), {.photometric = PHOTOMETRIC_SEPARATED}), {"CMYK"}), "");
  EXPECT_EQ(missing(refusal(made<std::uint8_t>(4, 8, 5), {}), {"the image has 5 channels, wanted 3, or 4 with alpha"}),
            "");
  EXPECT_EQ(missing(refusal(made<std::uint8_t>(4, 8, 3), {.photometric = PHOTOMETRIC_MINISBLACK}),
                    {"the image has 3 channels, wanted 1, or 2 with alpha"}),
            "");
}

// IMG-4
TEST_F(image_tiff, IMG_4_a_file_cut_anywhere_is_an_error_with_the_row_where_it_lacks) {
  const plain_tiff plain;
  const std::string file = plain.bytes();
  for (std::size_t size = 4; size < file.size(); ++size)
    ASSERT_EQ(missing(message_of([&] { decoded(std::string_view(file).substr(0, size)); }), {"a.tif"}), "") << size;
  EXPECT_EQ(missing(message_of([&] { decoded(std::string_view(file).substr(0, file.size() - 1)); }),
                    {"a.tif, row 2: the file is damaged or ends too early, libtiff says: "}),
            "");
  for (const int compression : {COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_JPEG}) {
    write_tiff(path, smooth(40, 40, 3), {.compression = static_cast<unsigned>(compression)});
    std::string bytes = file_bytes();
    for (std::size_t size = 4; size < bytes.size(); size += 31)
      ASSERT_EQ(missing(message_of([&] { decoded(std::string_view(bytes).substr(0, size)); }), {"a.tif"}), "")
          << compression << ", " << size;
  }
}

TEST_F(image_tiff, damaged_files_are_errors_or_images) {
  const std::string plain = plain_tiff().bytes();
  std::vector<std::string> files{plain};
  for (const int compression : {COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_JPEG})
    for (const bool tiles : {false, true}) {
      write_tiff(path, smooth(16, 16, 3), {.compression = static_cast<unsigned>(compression), .tiles = tiles});
      files.push_back(file_bytes());
    }
  std::size_t errors = 0;
  for (const std::string& file : files)
    for (std::size_t i = 4; i < file.size(); i += 1 + file.size() / 60)
      for (const char change : {'\x01', '\x80', '\xff'}) {
        std::string changed = file;
        changed[i] = static_cast<char>(changed[i] ^ change);
        const std::string text = message_of([&] { decoded(changed, {.max_pixels = 100'000}); });
        if (text.empty()) continue;
        ++errors;
        ASSERT_EQ(missing(text, {"a.tif"}), "") << i;
      }
  EXPECT_GT(errors, 100u);
}

TEST_F(image_tiff, JPEG_within_that_ends_too_early_is_an_error) {
  // libtiff only warns of it, and gives grey.
  write_tiff(path, smooth(64, 64, 1), {.compression = COMPRESSION_JPEG});
  std::string bytes = file_bytes();
  const std::size_t scan = bytes.find("\xff\xda");
  ASSERT_NE(scan, bytes.npos);
  bytes.replace(scan + 12, 2, "\xff\xd9");
  EXPECT_EQ(missing(message_of([&] { decoded(bytes); }), {"a.tif, row 0: ", "libtiff says: "}), "");
}

TEST_F(image_tiff, a_small_file_that_says_it_is_huge_is_refused_before_memory_is_taken) {
  plain_tiff file;
  file.height = file.width = 100'000;
  EXPECT_EQ(missing(message_of([&] { decoded(file.bytes()); }), {"a.tif: the image is said to be 100000 x 100000"}),
            "");
  file.height = file.width = 0;
  EXPECT_NE(message_of([&] { decoded(file.bytes()); }), "");
}

}  // namespace
