// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <penstock/dataset/image_exif.hpp>

#include "image_exif_block.hpp"

namespace {

using image_test::exif_block;

unsigned orientation_of(std::string_view block) {
  // At its exact size, so that the address sanitizer sees a byte too many.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[block.size()]);
  for (std::size_t i = 0; i < block.size(); ++i) bytes[i] = static_cast<std::byte>(block[i]);
  return penstock::exif_orientation({bytes.get(), block.size()});
}

TEST(image_exif, all_values_in_both_byte_orders) {
  for (const bool big : {false, true})
    for (unsigned value = 1; value <= 8; ++value) EXPECT_EQ(orientation_of(exif_block(value, big)), value) << big;
}

TEST(image_exif, other_tags_before_it_and_a_directory_that_is_not_the_first_thing) {
  for (const bool big : {false, true})
    EXPECT_EQ(orientation_of(exif_block(6, big, {.tags_before = 3, .gap = 5})), 6u) << big;
}

TEST(image_exif, what_is_no_orientation_is_upright) {
  EXPECT_EQ(orientation_of(exif_block(0, false)), 1u);
  EXPECT_EQ(orientation_of(exif_block(9, false)), 1u);
  EXPECT_EQ(orientation_of(exif_block(0x106, true)), 1u);
  EXPECT_EQ(orientation_of(exif_block(6, false, {.type = 4})), 1u);
  EXPECT_EQ(orientation_of(exif_block(6, false, {.count = 2})), 1u);
  EXPECT_EQ(orientation_of(exif_block(6, false, {.tag = 0x0111})), 1u);
  EXPECT_EQ(orientation_of("Exif"), 1u);
  EXPECT_EQ(orientation_of(""), 1u);
}

TEST(image_exif, cut_anywhere_or_with_any_byte_changed_nothing_beyond_it_is_read) {
  for (const bool big : {false, true}) {
    const std::string block = exif_block(6, big, {.tags_before = 2, .gap = 1});
    // The last entry ends 4 bytes before the block does, where the next directory's place is.
    for (std::size_t size = 0; size < block.size(); ++size)
      EXPECT_EQ(orientation_of(block.substr(0, size)), size + 4 < block.size() ? 1u : 6u) << size;
    for (std::size_t i = 0; i < block.size(); ++i)
      for (unsigned value = 0; value < 256; ++value) {
        std::string changed = block;
        changed[i] = static_cast<char>(static_cast<unsigned char>(value));
        const unsigned got = orientation_of(changed);
        EXPECT_TRUE(got >= 1 && got <= 8);
      }
  }
}

/// 2 x 3 pixels 1 to 6, row by row, each of `channels` bytes or more.
template <penstock::pixel T>
penstock::image numbered(std::size_t channels) {
  penstock::image made(penstock::pixel_type_of<T>, 2, 3, channels);
  for (std::size_t i = 0; i < made.size(); ++i)
    made.pixels<T>()[i] = static_cast<T>((i / channels + 1) * 10 + i % channels);
  return made;
}

template <penstock::pixel T>
void all_orientations(std::size_t channels) {
  struct seen {
    std::size_t height, width;
    std::vector<int> pixels;
  };
  // What EXIF 2.32 says of row 0 and column 0, drawn by hand; stored are 1 2 3 / 4 5 6.
  const seen wanted[] = {{2, 3, {1, 2, 3, 4, 5, 6}}, {2, 3, {3, 2, 1, 6, 5, 4}}, {2, 3, {6, 5, 4, 3, 2, 1}},
                         {2, 3, {4, 5, 6, 1, 2, 3}}, {3, 2, {1, 4, 2, 5, 3, 6}}, {3, 2, {4, 1, 5, 2, 6, 3}},
                         {3, 2, {6, 3, 5, 2, 4, 1}}, {3, 2, {3, 6, 2, 5, 1, 4}}};
  for (unsigned orientation = 1; orientation <= 8; ++orientation) {
    const penstock::image got = penstock::detail::upright(numbered<T>(channels), orientation);
    const seen& as = wanted[orientation - 1];
    ASSERT_EQ(got.height(), as.height) << orientation;
    ASSERT_EQ(got.width(), as.width) << orientation;
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got.pixels<T>()[i],
                static_cast<T>(static_cast<std::size_t>(as.pixels[i / channels]) * 10 + i % channels))
          << orientation << ", number " << i;
  }
}

TEST(image_exif, upright_images_of_all_orientations_and_sizes_of_pixels) {
  for (std::size_t channels = 1; channels <= 4; ++channels) {
    all_orientations<std::uint8_t>(channels);
    all_orientations<std::uint16_t>(channels);
    all_orientations<float>(channels);
  }
}

TEST(image_exif, an_image_of_more_than_one_square_is_turned_whole) {
  penstock::image stored(penstock::pixel_type::uint16, 70, 45, 1);
  for (std::size_t i = 0; i < stored.size(); ++i) stored.pixels<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
  const penstock::image seen = penstock::detail::upright(std::move(stored), 6);  // a quarter turn to the right
  ASSERT_EQ(seen.height(), 45u);
  ASSERT_EQ(seen.width(), 70u);
  for (std::size_t y = 0; y < 45; ++y)
    for (std::size_t x = 0; x < 70; ++x) ASSERT_EQ(seen.pixels<std::uint16_t>()[y * 70 + x], (69 - x) * 45 + y);
}

}  // namespace
