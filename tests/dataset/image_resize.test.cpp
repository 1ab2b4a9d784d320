// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include <penstock/dataset/image_resize.hpp>

namespace {

using penstock::image;
using penstock::shrink;

template <penstock::pixel T>
image image_of(std::size_t height, std::size_t width, std::size_t channels, const std::vector<T>& values) {
  image made(penstock::pixel_type_of<T>, height, width, channels);
  for (std::size_t i = 0; i < made.size(); ++i) made.pixels<T>()[i] = values[i % values.size()];
  return made;
}
template <penstock::pixel T>
std::vector<T> values_of(const image& from) {
  const auto all = from.pixels<T>();
  return {all.begin(), all.end()};
}

template <class T>
class image_resize : public testing::Test {};
using pixel_types = testing::Types<std::uint8_t, std::uint16_t, float>;
TYPED_TEST_SUITE(image_resize, pixel_types);

TYPED_TEST(image_resize, an_image_of_one_value_stays_that_at_any_factor) {
  const TypeParam most = std::is_same_v<TypeParam, float> ? TypeParam(0.1f) : std::numeric_limits<TypeParam>::max();
  for (const auto& [height, width] : {std::pair{37, 53}, std::pair{36, 2}, std::pair{1, 1}, std::pair{17, 52}}) {
    const image small = shrink(image_of<TypeParam>(37, 53, 3, {most}), static_cast<std::size_t>(height),
                               static_cast<std::size_t>(width));
    EXPECT_EQ(values_of<TypeParam>(small), std::vector<TypeParam>(small.size(), most)) << height << " x " << width;
  }
}

TYPED_TEST(image_resize, the_mean_of_each_area_pixels_at_its_border_by_their_share) {
  // 2 x 3 to 1 x 2: each pixel covers two rows and one column and a half.
  const image from = image_of<TypeParam>(2, 3, 1, {30, 60, 90, 0, 120, 180});
  // (30 + 0 + (60 + 120) / 2) / 3 and ((60 + 120) / 2 + 90 + 180) / 3
  EXPECT_EQ(values_of<TypeParam>(shrink(from, 1, 2)), (std::vector<TypeParam>{40, 120}));
  EXPECT_EQ(values_of<TypeParam>(shrink(from, 2, 3)), values_of<TypeParam>(from));
  EXPECT_EQ(values_of<TypeParam>(shrink(from, 2, 1)), (std::vector<TypeParam>{60, 100}));
}

TYPED_TEST(image_resize, channels_do_not_mix) {
  const image from = image_of<TypeParam>(2, 2, 2, {10, 100, 20, 100, 10, 200, 20, 200});
  EXPECT_EQ(values_of<TypeParam>(shrink(from, 1, 1)), (std::vector<TypeParam>{15, 150}));
}

TEST(image_resize_integers, means_are_rounded_once_half_up) {
  EXPECT_EQ(values_of<std::uint8_t>(shrink(image_of<std::uint8_t>(1, 2, 1, {1, 2}), 1, 1))[0], 2);
  EXPECT_EQ(values_of<std::uint8_t>(shrink(image_of<std::uint8_t>(2, 2, 1, {0, 0, 0, 1}), 1, 1))[0], 0);
  // Rounded per axis it would be 1: (0 + 0.5) and (0 + 0.5) go up first.
  EXPECT_EQ(values_of<std::uint8_t>(shrink(image_of<std::uint8_t>(2, 2, 1, {0, 1, 0, 0}), 1, 1))[0], 0);
}

TEST(image_resize_integers, sums_that_32_bits_do_not_hold) {
  const image tall = image_of<std::uint16_t>(70000, 1, 1, {65535});
  EXPECT_EQ(values_of<std::uint16_t>(shrink(tall, 1, 1))[0], 65535);
  EXPECT_EQ(values_of<std::uint16_t>(shrink(tall, 3, 1)), (std::vector<std::uint16_t>(3, 65535)));
}

TEST(image_resize_errors, sizes_that_do_not_shrink_are_refused) {
  const image from = image_of<std::uint8_t>(4, 5, 1, {7});
  const auto message = [&](std::size_t height, std::size_t width) {
    try {
      shrink(from, height, width);
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(0, 5), "penstock: shrink: height is 0, wanted 1 to 4, the image's own");
  EXPECT_EQ(message(4, 6), "penstock: shrink: width is 6, wanted 1 to 5, the image's own");
}

}  // namespace
