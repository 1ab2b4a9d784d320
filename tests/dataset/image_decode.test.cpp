// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <penstock/dataset/image_decode.hpp>

#include "image_bytes.hpp"
#include "image_exif_block.hpp"

namespace {

using namespace image_test;
using penstock::decode_image;
using penstock::image_decode_options;
using penstock::pixel_type;

class image_decode : public testing::Test {
 protected:
  image decoded(std::string_view bytes, const image_decode_options& options = {}) {
    return decode_image(directory.file("a", bytes), options);
  }
  template <penstock::pixel T = std::uint8_t>
  std::vector<T> values(std::string_view bytes, std::size_t channels) {
    return values_of<T>(decoded(bytes, {.channels = channels}));
  }
  std::string message(std::string_view bytes, const image_decode_options& options = {}) {
    return message_of([&] { decoded(bytes, options); });
  }
  /// Every shorter file is an error that names the file.
  void expect_every_cut_is_an_error(const std::string& bytes) {
    for (std::size_t size = 0; size < bytes.size(); ++size)
      ASSERT_EQ(missing(message(bytes.substr(0, size)), {"/a, "}), "") << size << " of " << bytes.size() << " bytes";
  }
  /// Changed files decode or are an error that names them; the address sanitizer sees the rest.
  void expect_changes_are_errors_or_images(const std::string& bytes, std::size_t step) {
    std::size_t errors = 0;
    for (std::size_t i = 0; i < bytes.size(); i += step)
      for (const char change : {'\x01', '\x80', '\xff'}) {
        std::string changed = bytes;
        changed[i] = static_cast<char>(changed[i] ^ change);
        const std::string text = message(changed, {.max_pixels = 100'000});
        if (text.empty()) continue;
        ++errors;
        ASSERT_EQ(missing(text, {"/a"}), "") << i;
      }
    EXPECT_GT(errors, 0u);
  }
  temporary_directory directory;
};

// IMG-1
TEST_F(image_decode, IMG_1_a_16_bit_PNG_stays_16_bits_and_its_values_are_right) {
  std::string rows;
  for (int value = 0; value < 65536; ++value) rows += {static_cast<char>(value >> 8), static_cast<char>(value & 0xff)};
  const image ramp = decoded(png_bytes(256, 256, rows, {.depth = 16}), {.channels = 1});
  ASSERT_EQ(shape_of(ramp), "256 x 256 x 1 uint16");
  for (std::size_t i = 0; i < 65536; ++i) ASSERT_EQ(ramp.pixels<std::uint16_t>()[i], i);
}

// IMG-2
TEST_F(image_decode, IMG_2_grey_alpha_palette_and_colours_as_RGB) {
  const std::string grey = png_bytes(1, 2, "\x0a\x14");
  const std::string grey_alpha = png_bytes(1, 2, "\x0a\x7f\x14\x7e", {.colours = PNG_COLOR_TYPE_GRAY_ALPHA});
  const std::string palette =
      png_bytes(1, 2, {"\x01\x00", 2}, {.colours = PNG_COLOR_TYPE_PALETTE, .palette = {{1, 2, 3}, {4, 5, 6}}});
  const std::string rgb = png_bytes(1, 2, "\x01\x02\x03\x04\x05\x06", {.colours = PNG_COLOR_TYPE_RGB});
  const std::string rgb_alpha =
      png_bytes(1, 2, "\x01\x02\x03\x7f\x04\x05\x06\x7e", {.colours = PNG_COLOR_TYPE_RGB_ALPHA});
  using bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(values(grey, 3), (bytes{10, 10, 10, 20, 20, 20}));
  EXPECT_EQ(values(grey_alpha, 3), (bytes{10, 10, 10, 20, 20, 20}));
  EXPECT_EQ(values(palette, 3), (bytes{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(values(rgb, 3), (bytes{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values(rgb_alpha, 3), (bytes{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values(rgb_alpha, 4), (bytes{1, 2, 3, 127, 4, 5, 6, 126}));
  EXPECT_EQ(values(grey_alpha, 2), (bytes{10, 127, 20, 126}));
  EXPECT_EQ(values(rgb, 1), (bytes{2, 5}));
}

TEST_F(image_decode, PNG_of_1_2_and_4_bits_is_scaled_to_8) {
  using bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(values(png_bytes(1, 4, "\x50", {.depth = 1}), 1), (bytes{0, 255, 0, 255}));
  EXPECT_EQ(values(png_bytes(1, 4, "\x1b", {.depth = 2}), 1), (bytes{0, 85, 170, 255}));
  EXPECT_EQ(values(png_bytes(1, 2, "\x1f", {.depth = 4}), 1), (bytes{17, 255}));
}

TEST_F(image_decode, PNG_transparency_without_an_alpha_channel) {
  using bytes = std::vector<std::uint8_t>;
  const std::string palette = png_bytes(1, 4, "\x1b",
                                        {.colours = PNG_COLOR_TYPE_PALETTE,
                                         .depth = 2,
                                         .palette = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}},
                                         .palette_alpha = {9, 128}});
  EXPECT_EQ(values(palette, 4), (bytes{1, 2, 3, 9, 4, 5, 6, 128, 7, 8, 9, 255, 10, 11, 12, 255}));
  EXPECT_EQ(values(palette, 3), (bytes{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  const std::string key = png_bytes(1, 2, "\x0a\x14", {.transparent_grey = 20});
  EXPECT_EQ(values(key, 2), (bytes{10, 255, 20, 0}));
  EXPECT_EQ(values(key, 1), (bytes{10, 20}));
}

TEST_F(image_decode, an_interlaced_PNG_is_the_same_image) {
  const image from = made<std::uint8_t>(13, 11, 3);
  for (const bool interlaced : {false, true}) {
    const image got =
        decoded(png_bytes(13, 11, bytes_of(from), {.colours = PNG_COLOR_TYPE_RGB, .interlaced = interlaced}));
    EXPECT_TRUE(bytes_of(got) == bytes_of(from));
  }
}

// IMG-4
TEST_F(image_decode, IMG_4_a_PNG_cut_anywhere_is_an_error_with_the_byte) {
  const std::string bytes = png_bytes(12, 10, bytes_of(made<std::uint8_t>(12, 10, 3)), {.colours = PNG_COLOR_TYPE_RGB});
  expect_every_cut_is_an_error(bytes);
  EXPECT_EQ(missing(message(bytes.substr(0, 200)), {"/a, byte 200: the file ends here, within the image"}), "");
  expect_every_cut_is_an_error(png_bytes(8, 8, bytes_of(made<std::uint8_t>(8, 8, 1)), {.interlaced = true}));
}

TEST_F(image_decode, a_PNG_with_damaged_bytes) {
  const std::string bytes = png_bytes(9, 8, bytes_of(made<std::uint8_t>(9, 8, 1)), {.exif = exif_block(6, true)});
  expect_changes_are_errors_or_images(bytes, 1);
  // Whatever byte of the pixels' chunk it is.
  const std::size_t data = bytes.find("IDAT") + 4, end = bytes.find("IEND") - 4;
  for (std::size_t i = data; i < end; ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    ASSERT_NE(message(changed), "") << i;
  }
}

// IMG-4
TEST_F(image_decode, IMG_4_a_JPEG_cut_anywhere_is_an_error_with_row_or_byte) {
  for (const bool progressive : {false, true}) {
    const std::string bytes = jpeg_bytes(smooth(48, 64, 3), {.progressive = progressive});
    expect_every_cut_is_an_error(bytes);
    const std::size_t size = bytes.size() * 6 / 10;
    EXPECT_EQ(missing(message(bytes.substr(0, size)),
                      {progressive ? "/a, byte " + std::to_string(size) : "/a, row ", "the file ends here"}),
              "");
  }
}

TEST_F(image_decode, a_JPEG_with_damaged_bytes) {
  const std::string bytes = jpeg_bytes(smooth(48, 48, 3), {.restart = 2, .exif = exif_block(8, false)});
  expect_changes_are_errors_or_images(bytes, 3);
  std::string wrong = bytes;
  const std::size_t marker = wrong.find("\xff\xd1");
  ASSERT_NE(marker, wrong.npos);
  EXPECT_EQ(
      missing(message(wrong.insert(marker, std::string(40, 'a'))), {"/a, row ", "libjpeg says: ", "extraneous bytes"}),
      "");
}

TEST_F(image_decode, a_JPEG_with_bytes_before_its_end_and_after_it_is_whole) {
  const image from = smooth(24, 24, 1);
  const std::string bytes = jpeg_bytes(from);
  std::string longer = bytes;
  longer.insert(longer.size() - 2, 4, '\0');
  EXPECT_TRUE(bytes_of(decoded(longer + "more")) == bytes_of(decoded(bytes)));
}

TEST_F(image_decode, JPEG_colours_grey_and_progressive) {
  const image colours = smooth(40, 56, 3), grey = smooth(40, 56, 1);
  const auto farthest = [](const image& one, const image& other) {
    const auto a = one.pixels<std::uint8_t>(), b = other.pixels<std::uint8_t>();
    int most = a.size() == b.size() ? 0 : 999;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  };
  for (const bool progressive : {false, true}) {
    const std::string bytes = jpeg_bytes(colours, {.progressive = progressive});
    EXPECT_LE(farthest(decoded(bytes), colours), 6);
    // The stored luma is that of the colours.
    const image luma = penstock::detail::with_channels(decoded(bytes), 1);
    EXPECT_LE(farthest(decoded(bytes, {.channels = 1}), luma), 2);
    const image four = decoded(bytes, {.channels = 4});
    EXPECT_TRUE(bytes_of(four) == bytes_of(penstock::detail::with_channels(decoded(bytes), 4)));
  }
  EXPECT_LE(farthest(decoded(jpeg_bytes(grey), {.channels = 1}), grey), 3);
  EXPECT_EQ(shape_of(decoded(jpeg_bytes(grey), {.channels = 3})), "40 x 56 x 3 uint8");
}

TEST_F(image_decode, a_CMYK_JPEG_is_refused_by_name) {
  EXPECT_EQ(missing(message(jpeg_bytes(made<std::uint8_t>(8, 8, 4), {.cmyk = true})),
                    {"/a: the colours are CMYK (four inks), wanted grey, YCbCr or RGB"}),
            "");
}

TEST_F(image_decode, all_orientations_of_a_JPEG_of_4_x_2_pixels_and_of_a_PNG) {
  const image from = smooth(2, 4, 3);
  const std::string rows = bytes_of(made<std::uint16_t>(2, 4, 3));
  for (unsigned orientation = 1; orientation <= 8; ++orientation) {
    const std::string exif = exif_block(orientation, orientation % 2 == 0);
    const std::string files[] = {jpeg_bytes(from, {.exif = exif}),
                                 png_bytes(2, 4, rows, {.colours = PNG_COLOR_TYPE_RGB, .depth = 16, .exif = exif})};
    for (const std::string& file : files) {
      image stored = decoded(file, {.orient = false});
      EXPECT_EQ(stored.height(), 2u);
      EXPECT_EQ(stored.width(), 4u);
      const image seen = decoded(file);
      EXPECT_EQ(seen.height(), orientation < 5 ? 2u : 4u) << orientation;
      EXPECT_TRUE(bytes_of(seen) == bytes_of(penstock::detail::upright(std::move(stored), orientation))) << orientation;
    }
  }
}

TEST_F(image_decode, an_EXIF_block_after_another_APP1_segment_counts) {
  std::string bytes = jpeg_bytes(smooth(2, 4, 1), {.exif = exif_block(6, true)});
  bytes.insert(2, std::string("\xff\xe1\x00\x08http:/", 10));
  EXPECT_EQ(shape_of(decoded(bytes)), "4 x 2 x 3 uint8");
}

// libjpeg may scale to a size that is just under a side that is wanted.
TEST_F(image_decode, a_JPEG_of_any_proportions_is_shrunk_to_any_size) {
  for (const auto& [height, width, side] : {std::array<std::size_t, 3>{401, 400, 101},
                                            {400, 401, 100},
                                            {257, 256, 129},
                                            {255, 33, 32},
                                            {63, 64, 9},
                                            {129, 64, 65}}) {
    const image small = decoded(jpeg_bytes(smooth(height, width, 1)), {.channels = 1, .longest_side = side});
    EXPECT_EQ(std::max(small.height(), small.width()), side);
  }
}

TEST_F(image_decode, larger_images_are_shrunk_to_the_longest_side) {
  const image from = smooth(48, 112, 3);
  const std::string files[] = {jpeg_bytes(from), png_bytes(48, 112, bytes_of(from), {.colours = PNG_COLOR_TYPE_RGB})};
  for (const std::string& file : files)
    for (const std::size_t side : {1u, 5u, 14u, 15u, 28u, 55u, 56u, 57u, 111u}) {
      const image small = decoded(file, {.longest_side = side});
      const auto height = static_cast<std::size_t>(std::max(1.0, std::round(48.0 * static_cast<double>(side) / 112)));
      ASSERT_EQ(small.width(), side);
      ASSERT_EQ(small.height(), height);
      const image wanted = penstock::shrink(from, height, side);
      for (std::size_t i = 0; i < small.size(); ++i)
        ASSERT_NEAR(small.pixels<std::uint8_t>()[i], wanted.pixels<std::uint8_t>()[i], 7) << side << ", number " << i;
    }
}

TEST_F(image_decode, shrunk_images_of_odd_sizes_have_the_size_that_is_said) {
  for (const std::size_t side : {1u, 12u, 13u, 14u, 26u, 50u, 51u, 100u, 101u, 1000u}) {
    const std::size_t width = std::min<std::size_t>(side, 101);
    const image small = decoded(jpeg_bytes(smooth(37, 101, 3)), {.longest_side = side});
    EXPECT_EQ(small.width(), width);
    EXPECT_EQ(small.height(), std::max<std::size_t>(1, (37 * width + 50) / 101));
  }
  EXPECT_EQ(shape_of(decoded(jpeg_bytes(smooth(20, 40, 1), {.exif = exif_block(6, true)}), {.longest_side = 10})),
            "10 x 5 x 3 uint8");
}

TEST_F(image_decode, a_JPEG_of_one_value_is_that_at_every_size) {
  image flat(pixel_type::uint8, 90, 70, 1);
  std::fill(flat.pixels<std::uint8_t>().begin(), flat.pixels<std::uint8_t>().end(), std::uint8_t{200});
  const std::string bytes = jpeg_bytes(flat, {.quality = 100});
  for (const std::size_t side : {0u, 89u, 45u, 44u, 20u, 7u}) {
    const image got = decoded(bytes, {.channels = 1, .longest_side = side});
    EXPECT_EQ(values_of<std::uint8_t>(got), std::vector<std::uint8_t>(got.size(), 200)) << side;
  }
}

TEST_F(image_decode, a_small_file_that_says_it_is_huge_is_refused_before_memory_is_taken) {
  const std::string png = with_png_size(png_bytes(1, 2, "\x0a\x14"), 100'000, 100'000);
  EXPECT_EQ(missing(message(png), {"/a: the image is said to be 100000 x 100000, wanted 268435456 pixels or fewer; the "
                                   "option max_pixels allows more"}),
            "");
  std::string jpeg = jpeg_bytes(smooth(16, 16, 1));
  const std::size_t frame = jpeg.find("\xff\xc0") + 5;
  for (const std::size_t i : {0u, 1u, 2u, 3u}) jpeg[frame + i] = static_cast<char>(0xf0);
  EXPECT_EQ(missing(message(jpeg), {"said to be 61680 x 61680"}), "");
  EXPECT_EQ(missing(message(jpeg_bytes(smooth(16, 17, 1)), {.max_pixels = 271}), {"16 x 17, wanted 271 pixels"}), "");
  EXPECT_EQ(message(jpeg_bytes(smooth(16, 17, 1)), {.max_pixels = 272}), "");
}

TEST_F(image_decode, the_format_is_what_the_first_bytes_say) {
  const std::string png = png_bytes(1, 2, "\x0a\x14");
  EXPECT_EQ(shape_of(decode_image(directory.file("a.jpg", png))), "1 x 2 x 3 uint8");
  const std::pair<std::string, const char*> others[] = {{"", "the file is empty"},
                                                        {"GIF89a", "this is GIF"},
                                                        {std::string("RIFF\x1\0\0\0WEBPVP8 ", 16), "this is WebP"},
                                                        {std::string("\0\0\0\x18"
                                                                     "ftypheic",
                                                                     12),
                                                         "HEIC, AVIF or a video"},
                                                        {"P6\n1 1\n255\nabc", "PPM"},
                                                        {"<!DOCTYPE html>", "HTML"},
                                                        {"\x93NUMPY", "npy_images"},
                                                        {std::string(20, '\0'), "begins with zeros"},
                                                        {"hello", "no image that is known"}};
  for (const auto& [bytes, wanted] : others)
    EXPECT_EQ(missing(message(bytes), {"/a, byte 0: ", wanted, ", wanted PNG, JPEG or TIFF"}), "");
  EXPECT_EQ(missing(message_of([&] { decode_image(directory / "none.png"); }), {"none.png: cannot open: "}), "");
  EXPECT_EQ(missing(message_of([&] { decode_image(directory.path()); }), {"directory"}), "");
}

TEST_F(image_decode, options_are_checked) {
  const std::string png = png_bytes(1, 2, "\x0a\x14");
  for (const std::size_t channels : {0u, 5u})
    EXPECT_EQ(message(png, {.channels = channels}), "penstock: decode_image: channels is " + std::to_string(channels) +
                                                        ", wanted 1 (grey), 2 (grey and alpha), 3 (RGB) or 4 (RGB and "
                                                        "alpha)");
  EXPECT_EQ(message(png, {.max_pixels = 0}), "penstock: decode_image: max_pixels is 0, wanted 1 or more");
}

}  // namespace
