// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/dataset/pixels.hpp>

#include "made_images.hpp"

namespace {

using made_images::message;
using made_images::number;
using penstock::channel_axis;
using penstock::image;
using penstock::pixel_box;
using penstock::pixel_options;
using penstock::pixel_writer;

template <class From, class To>
To as(From value) {
  if constexpr (std::is_same_v<To, float>)
    return static_cast<float>(value) / penstock::detail::white_of<From>;
  else
    return static_cast<To>(sizeof(From) == sizeof(To) ? value : value * 257);
}

/// What a box is, said pixel by pixel: turned back and clamped to the image.
template <class From, class To>
std::vector<To> expected(const image& from, const pixel_box& box, channel_axis order) {
  const auto pixels = from.pixels<From>();
  const std::size_t channels = from.channels();
  std::vector<To> out;
  const auto put = [&](std::size_t z, std::size_t y, std::size_t x, std::size_t c) {
    if (box.transpose) std::swap(y, x);
    if (box.flip_depth) z = box.size[0] - 1 - z;
    if (box.flip_rows) y = box.size[1] - 1 - y;
    if (box.flip_columns) x = box.size[2] - 1 - x;
    z = std::min(z + box.origin[0], from.depth() - 1);
    y = std::min(y + box.origin[1], from.height() - 1);
    x = std::min(x + box.origin[2], from.width() - 1);
    out.push_back(as<From, To>(pixels[((z * from.height() + y) * from.width() + x) * channels + c]));
  };
  const bool first = order == channel_axis::first;
  for (std::size_t a = 0; a < (first ? channels : 1); ++a)
    for (std::size_t z = 0; z < box.size[0]; ++z)
      for (std::size_t y = 0; y < box.size[1]; ++y)
        for (std::size_t x = 0; x < box.size[2]; ++x)
          for (std::size_t b = 0; b < (first ? 1 : channels); ++b) put(z, y, x, first ? a : b);
  return out;
}

template <class From, class To>
void check_all(std::size_t channels, std::size_t depth) {
  const image from = made_images::make<From>(3, {23, 41, depth}, channels);
  for (const channel_axis order : {channel_axis::first, channel_axis::last}) {
    const pixel_writer<To> writer("test", {.channels = order}, channels);
    for (unsigned turn = 0; turn < 16; ++turn) {
      if ((turn & 8) != 0 && depth == 1) continue;
      // Inside; at the last corner; and beyond the end.
      for (const auto& origin : {std::array<std::size_t, 3>{0, 1, 2}, {depth - 1, 4, 22}, {depth - 1, 20, 30}}) {
        pixel_box box{origin, {origin[0] == 0 ? depth : 1, 19, 19}};
        box.flip_rows = (turn & 1) != 0;
        box.flip_columns = (turn & 2) != 0;
        box.transpose = (turn & 4) != 0;
        box.flip_depth = (turn & 8) != 0;
        std::vector<To> to(writer.elements(box.size));
        writer.write(from, box, to.data(), "made.png");
        EXPECT_EQ(to, (expected<From, To>(from, box, order))) << box.text() << " turned by " << turn;
      }
    }
  }
}

TEST(pixels, every_turn_order_and_type_is_what_single_pixels_are) {
  check_all<std::uint8_t, float>(1, 1);
  check_all<std::uint8_t, float>(3, 1);
  check_all<std::uint8_t, std::uint8_t>(1, 1);
  check_all<std::uint8_t, std::uint8_t>(4, 1);
  check_all<std::uint16_t, float>(3, 1);
  check_all<std::uint16_t, std::uint16_t>(2, 1);
  check_all<float, float>(1, 5);
  check_all<std::uint8_t, std::uint16_t>(3, 3);
}

TEST(pixels, white_is_one_to_the_bit_for_8_and_16_bits) {
  image from(penstock::pixel_type::uint16, 256, 256, 1);
  for (std::size_t i = 0; i < 65536; ++i) from.pixels<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
  std::vector<float> to(65536);
  pixel_writer<float>("test", {}, 1).write(from, {{0, 0, 0}, {1, 256, 256}}, to.data(), "ramp.png");
  for (std::size_t i = 0; i < 65536; ++i) ASSERT_EQ(to[i], static_cast<float>(i) / 65535.0f);
  EXPECT_EQ(to[65535], 1.0f);
}

TEST(pixels, range_mean_and_deviation_apply_channel_by_channel) {
  image from(penstock::pixel_type::uint8, 1, 2, 3);
  for (std::size_t i = 0; i < 6; ++i) from.pixels<std::uint8_t>()[i] = static_cast<std::uint8_t>(51 * i);
  std::vector<float> to(6);
  const pixel_box box{{0, 0, 0}, {1, 1, 2}};
  pixel_writer<float>("test", {.range = {-1, 1}, .mean = {0.5f, 0, 0}, .deviation = {1, 2, 4}}, 3)
      .write(from, box, to.data(), "");
  const std::vector<float> wanted{-1.5f, -0.3f, -0.3f, 0.3f, -0.05f, 0.25f};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(to[i], wanted[i], 1e-6f) << i;
  pixel_writer<float>("test", {.channels = channel_axis::last, .mean = {1, 2, 3}}, 3).write(from, box, to.data(), "");
  EXPECT_NEAR(to[4], 0.8f - 2, 1e-6f);
}

// A stored float is scaled like any other.
TEST(pixels, floats_take_the_range_too) {
  image from(penstock::pixel_type::float32, 1, 32, 1);
  for (float& one : from.pixels<float>()) one = 0.5f;
  std::vector<float> to(32);
  pixel_writer<float>("test", {.range = {0, 255}}, 1).write(from, {{0, 0, 0}, {1, 1, 32}}, to.data(), "");
  EXPECT_EQ(to, std::vector<float>(32, 127.5f));
}

TEST(pixels, what_would_lose_bits_or_channels_is_refused_by_name) {
  std::vector<std::uint8_t> bytes(4);
  const pixel_box box{{0, 0, 0}, {1, 2, 2}};
  const auto write = [&](const image& from, std::size_t channels) {
    return message([&] { pixel_writer<std::uint8_t>("test", {}, channels).write(from, box, bytes.data(), "a.png"); });
  };
  EXPECT_EQ(write(made_images::make<std::uint16_t>(0, {2, 2}, 1), 1),
            "a.png: the image has uint16 pixels, wanted uint8 ones or smaller: others would lose bits");
  EXPECT_EQ(write(made_images::make<std::uint8_t>(0, {2, 2}, 3), 1), "a.png: the image has 3 channels, wanted 1");
}

TEST(pixels, options_that_do_not_fit_are_refused_by_name) {
  const auto make = []<class T>(T, const pixel_options& options) {
    return message([&] { pixel_writer<T>("images", options, 3); });
  };
  EXPECT_EQ(make(0.0f, {.mean = {1, 2}}),
            "penstock: images: mean is 2 numbers, wanted 3, one for each channel, or none");
  EXPECT_EQ(make(0.0f, {.deviation = {1, 0, 1}}),
            "penstock: images: deviation is 0.000000, wanted finite numbers other than 0");
  EXPECT_NE(make(0.0f, {.range = {1, 1}}).find("two finite numbers that differ"), std::string::npos);
  EXPECT_NE(make(std::uint8_t{}, {.range = {0, 255}}).find("integers travel as they are"), std::string::npos);
}

TEST(pixels, the_shape_of_a_box_says_its_channels_first_or_last) {
  const pixel_writer<float> first("test", {}, 3), last("test", {.channels = channel_axis::last}, 3);
  EXPECT_EQ(first.shape<2>({1, 5, 7}), (std::array<std::size_t, 3>{3, 5, 7}));
  EXPECT_EQ(last.shape<2>({1, 5, 7}), (std::array<std::size_t, 3>{5, 7, 3}));
  EXPECT_EQ(first.shape<3>({4, 5, 7}), (std::array<std::size_t, 4>{3, 4, 5, 7}));
  EXPECT_EQ(last.shape<3>({4, 5, 7}), (std::array<std::size_t, 4>{4, 5, 7, 3}));
}

}  // namespace
