// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <penstock/dataset/image_files.hpp>

#include "image_bytes.hpp"

namespace {

using namespace image_test;
using penstock::decode_image;

/// Odd files that Debian's packages python3-skimage and python3-sklearn hold; unpacked by tests/real_inputs.sh.
class image_real : public testing::Test {
 protected:
  void SetUp() override {
    const char* const root = std::getenv("PENSTOCK_REAL_INPUTS");
    if (root == nullptr) GTEST_SKIP() << "PENSTOCK_REAL_INPUTS is not set; tests/real_inputs.sh fetches the files";
    packages = std::string(root) + "/usr/lib/python3/dist-packages/";
    if (!std::filesystem::exists(packages + "skimage/data")) GTEST_SKIP() << packages << "skimage is not there";
  }
  std::string file(const std::string& name) { return packages + "skimage/data/" + name; }
  std::string packages;
};

TEST_F(image_real, sixteen_bits_in_either_byte_order_are_the_same_image) {
  const image little = decode_image(file("chessboard_GRAY_U16.tif"), {.channels = 1});
  const image big = decode_image(file("chessboard_GRAY_U16B.tif"), {.channels = 1});
  EXPECT_EQ(shape_of(little), "200 x 200 x 1 uint16");
  EXPECT_TRUE(bytes_of(little) == bytes_of(big));
  // numpy saved the same pixels with 8 bits, at the end of a file.
  std::ifstream in(file("chessboard_GRAY_U8.npy"), std::ios::binary);
  const std::string saved(std::istreambuf_iterator<char>(in), {});
  ASSERT_GT(saved.size(), 40000u);
  for (std::size_t i = 0; i < 40000; ++i)
    ASSERT_EQ(little.pixels<std::uint16_t>()[i], static_cast<unsigned char>(saved[saved.size() - 40000 + i])) << i;
}

TEST_F(image_real, a_16_bit_PNG_and_one_of_8_bits) {
  EXPECT_EQ(shape_of(decode_image(file("chessboard_RGB.png"))), "200 x 200 x 3 uint16");
  EXPECT_EQ(shape_of(decode_image(file("chessboard_GRAY.png"), {.channels = 1})), "200 x 200 x 1 uint8");
}

TEST_F(image_real, one_bit_palettes_and_alpha) {
  const image bits = decode_image(file("checker_bilevel.png"), {.channels = 1});
  EXPECT_EQ(shape_of(bits), "10 x 10 x 1 uint8");
  for (const std::uint8_t value : bits.pixels<std::uint8_t>()) EXPECT_TRUE(value == 0 || value == 255);
  EXPECT_EQ(shape_of(decode_image(file("foo3x5x4indexed.png"))), "3 x 5 x 3 uint8");
  EXPECT_EQ(shape_of(decode_image(file("palette_gray.png"))), "10 x 10 x 3 uint8");
  EXPECT_EQ(shape_of(decode_image(file("palette_color.png"), {.channels = 4})), "10 x 10 x 4 uint8");
  EXPECT_EQ(shape_of(decode_image(file("horse.png"), {.channels = 4})), "328 x 400 x 4 uint8");
}

// IMG-4
TEST_F(image_real, IMG_4_a_truncated_JPEG_and_photos_cut_to_60_percent) {
  EXPECT_EQ(missing(message_of([&] { decode_image(file("truncated.jpg")); }),
                    {"truncated.jpg, byte 400: the file ends here"}),
            "");
  const temporary_directory directory;
  for (const std::string& path : {packages + "sklearn/datasets/images/china.jpg", file("coffee.png")}) {
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    const std::string cut = directory / "cut";
    std::filesystem::copy_file(path, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, std::filesystem::file_size(path) * 6 / 10);
    EXPECT_EQ(missing(message_of([&] { decode_image(cut); }), {"/cut, ", "the file ends here"}), "") << path;
    EXPECT_EQ(message_of([&] { decode_image(path); }), "");
  }
}

TEST_F(image_real, other_types_and_formats_are_refused_by_name) {
  EXPECT_EQ(missing(message_of([&] { decode_image(file("multipage_rgb.tif")); }), {"64-bit floating point"}), "");
  EXPECT_EQ(missing(message_of([&] { decode_image(file("no_time_for_that_tiny.gif")); }), {"this is GIF"}), "");
}

// The values were read with Pillow 13.
TEST_F(image_real, a_photo_has_the_values_that_another_program_reads) {
  const std::string path = packages + "sklearn/datasets/images/china.jpg";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const image photo = decode_image(path);
  ASSERT_EQ(shape_of(photo), "427 x 640 x 3 uint8");
  struct place {
    std::size_t y, x;
    std::array<int, 3> colours;
  };
  const place places[] = {{0, 0, {174, 201, 231}},     {10, 20, {179, 204, 234}},  {100, 300, {211, 230, 245}},
                          {213, 320, {214, 191, 199}}, {300, 77, {151, 162, 168}}, {426, 639, {15, 24, 7}}};
  const auto pixels = photo.pixels<std::uint8_t>();
  // Within what libraries' roundings differ by.
  for (const auto& [y, x, colours] : places)
    for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(pixels[(y * 640 + x) * 3 + c], colours[c], 2) << y << ", " << x;
  std::array<double, 3> sums{};
  for (std::size_t i = 0; i < pixels.size(); ++i) sums[i % 3] += pixels[i];
  const double wanted[] = {39548995, 39753680, 38510237};
  for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(sums[c] / wanted[c], 1, 1e-3) << c;
}

TEST_F(image_real, the_folder_reads_whole_but_for_what_is_no_photo) {
  const penstock::image_files files(packages + "skimage/data", {.decode = {.channels = 1, .longest_side = 100}});
  // Each is an image of that size or an error with its path.
  std::vector<std::string> refused;
  for (std::uint64_t i = 0; i < files.size(); ++i) {
    const std::string problem = message_of([&] {
      const image one = files.load(i);
      EXPECT_LE(std::max(one.height(), one.width()), 100u) << files.path(i);
    });
    if (problem.empty()) continue;
    EXPECT_EQ(missing(problem, {files.path(i)}), "");
    refused.push_back(files.stem(i));
  }
  EXPECT_NE(std::find(refused.begin(), refused.end(), "truncated"), refused.end());
  EXPECT_LT(refused.size(), files.size() / 4);
}

}  // namespace
