// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include <penstock/dataset/image_channels.hpp>

namespace {

using penstock::image;

template <penstock::pixel T>
std::vector<T> converted(const std::vector<T>& two_pixels, std::size_t wanted) {
  const std::size_t channels = two_pixels.size() / 2;
  image from(penstock::pixel_type_of<T>, 1, 2, channels);
  for (std::size_t i = 0; i < two_pixels.size(); ++i) from.pixels<T>()[i] = two_pixels[i];
  const image to = penstock::detail::with_channels(std::move(from), wanted);
  EXPECT_EQ(to.channels(), wanted);
  const auto all = to.pixels<T>();
  return {all.begin(), all.end()};
}

template <class T>
class image_channels : public testing::Test {};
using integers = testing::Types<std::uint8_t, std::uint16_t>;
TYPED_TEST_SUITE(image_channels, integers);

// IMG-2: the whole table.
TYPED_TEST(image_channels, IMG_2_every_number_of_channels_to_every_other) {
  using numbers = std::vector<TypeParam>;
  constexpr TypeParam max = penstock::detail::opaque<TypeParam>;
  EXPECT_EQ(max, sizeof(TypeParam) == 1 ? 255 : 65535);
  const numbers grey{10, 200}, grey_alpha{10, 7, 200, 9}, rgb{100, 20, 30, 40, 50, 60},
      rgb_alpha{100, 20, 30, 7, 40, 50, 60, 9};
  // (19595 R + 38470 G + 7471 B) / 65536 is 45.06 and 48.15.
  const numbers results[4][4] = {
      {grey, {10, max, 200, max}, {10, 10, 10, 200, 200, 200}, {10, 10, 10, max, 200, 200, 200, max}},
      {grey, grey_alpha, {10, 10, 10, 200, 200, 200}, {10, 10, 10, 7, 200, 200, 200, 9}},
      {{45, 48}, {45, max, 48, max}, rgb, {100, 20, 30, max, 40, 50, 60, max}},
      {{45, 48}, {45, 7, 48, 9}, rgb, rgb_alpha}};
  const numbers* const sources[] = {&grey, &grey_alpha, &rgb, &rgb_alpha};
  for (std::size_t from = 0; from < 4; ++from)
    for (std::size_t to = 0; to < 4; ++to)
      EXPECT_EQ(converted(*sources[from], to + 1), results[from][to]) << from + 1 << " channels to " << to + 1;
}

TYPED_TEST(image_channels, greys_as_RGB_come_back_as_they_were) {
  for (std::uint32_t value = 0; value <= penstock::detail::opaque<TypeParam>; ++value) {
    const auto grey = static_cast<TypeParam>(value);
    ASSERT_EQ(penstock::detail::luma(grey, grey, grey), grey);
  }
}

TYPED_TEST(image_channels, luma_is_the_nearest_integer) {
  constexpr double max = penstock::detail::opaque<TypeParam>;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const auto part = [&](std::uint32_t factor) { return static_cast<TypeParam>(i * factor >> 3); };
    const TypeParam r = part(40503), g = part(30011), b = part(20021);
    const double exact = 0.299 * r + 0.587 * g + 0.114 * b;
    ASSERT_NEAR(penstock::detail::luma(r, g, b), exact, 0.5 + max * 3 / 131072)
        << int{r} << ' ' << int{g} << ' ' << int{b};
  }
}

TEST(image_channels_float, opaque_is_1_and_luma_is_not_rounded) {
  using numbers = std::vector<float>;
  EXPECT_EQ(converted(numbers{0.5f, 2.0f}, 4), (numbers{0.5f, 0.5f, 0.5f, 1, 2, 2, 2, 1}));
  const numbers grey = converted(numbers{1, 0, 0, 0.25f, 0.5f, 1}, 1);
  EXPECT_FLOAT_EQ(grey[0], 0.299f);
  EXPECT_FLOAT_EQ(grey[1], 0.25f * 0.299f + 0.5f * 0.587f + 0.114f);
}

}  // namespace
