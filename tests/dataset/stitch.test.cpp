// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include <penstock/dataset/stitch.hpp>

#include "tile_support.hpp"

namespace {

using namespace tile_test;
using penstock::channel_axis;
using penstock::stitcher;
using penstock::tensor_view;
using penstock::tile_grid;
using penstock::tile_overlap;
using penstock::tile_place;

/// Adds tile `index` of the dataset.
template <class Stitcher, class Dataset>
void add(Stitcher& to, const Dataset& data, std::uint64_t index) {
  const auto field = std::get<0>(data.schema().fields);
  const auto [numbers, place] = sample_of(data, index);
  to.add(tensor_view<const typename Stitcher::value_type, std::remove_cvref_t<decltype(field)>::rank>(numbers.data(),
                                                                                                      field.shape),
         place);
}

/// All pixels of an image as one field, by what writes tiles.
template <class T, class Source>
std::vector<T> whole_of(const Source& images, const penstock::pixel_options& options) {
  const penstock::image one = images.load(0);
  const penstock::pixel_writer<T> writer("test", options, images.channels());
  std::vector<T> result(one.size());
  writer.write(one, {.size = {one.depth(), one.height(), one.width()}}, result.data(), "");
  return result;
}

/// Cuts an image into tiles, stitches these in another order, and compares all bytes.
template <std::size_t Dimensions>
void round_trip(made_images::extents extent, const penstock::tile_options& options) {
  const made_images::source<std::uint16_t, Dimensions> images{{extent}, 2};
  const auto data = penstock::tiles<std::uint16_t>(images, options);
  stitcher<std::uint16_t, Dimensions> whole(data.grid(0), 2, {.channels = options.pixels.channels});
  const std::uint64_t count = data.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_FALSE(whole.finished());
    add(whole, data, (i % 2 == 0 ? i / 2 : count - 1 - i / 2));
  }
  ASSERT_TRUE(whole.finished());
  const auto result = whole.result();
  const auto wanted = whole_of<std::uint16_t>(images, options.pixels);
  ASSERT_EQ(result.size(), wanted.size());
  ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), result.begin()));
}

TEST(stitch, is_the_inverse_of_tiles_byte_for_byte) {
  for (std::size_t height : {1u, 4u, 7u, 13u})
    for (std::size_t width : {5u, 8u, 12u})
      for (std::size_t size : {1u, 4u, 6u})
        for (std::size_t overlap : {0u, 1u, 3u, 5u}) {
          if (overlap >= size) continue;
          SCOPED_TRACE(testing::Message() << height << " x " << width << ", " << size << ", overlap " << overlap);
          round_trip<2>({height, width},
                        {.size = {size, size}, .overlap = {overlap, overlap}, .small = penstock::small_image::pad});
        }
}

TEST(stitch, of_volumes_and_with_the_channels_last) {
  for (const channel_axis order : {channel_axis::first, channel_axis::last}) {
    round_trip<3>({9, 11, 5}, {.size = {3, 4, 5}, .overlap = {1, 2, 0}, .pixels = {.channels = order}});
    round_trip<3>({3, 4, 2}, {.size = {3, 4, 5}, .small = penstock::small_image::pad, .pixels = {.channels = order}});
    round_trip<2>({9, 11}, {.size = {4, 5}, .overlap = {3, 1}, .pixels = {.channels = order}});
  }
}

TEST(stitch, an_overlap_is_taken_from_the_tile_whose_middle_is_nearest) {
  // Starts 0, 3, 4: middles 1.5, 4.5, 5.5. Pixel 3 is as near to both of the first two.
  stitcher<int> whole(tile_grid({1, 8}, {1, 4}, {0, 1}), 1);
  for (const std::uint32_t k : {2u, 0u, 1u}) {
    const std::array<int, 4> numbers{10 * static_cast<int>(k), 10 * static_cast<int>(k) + 1,
                                     10 * static_cast<int>(k) + 2, 10 * static_cast<int>(k) + 3};
    whole.add({numbers.data(), {1, 1, 4}}, whole.grid().place(k));
  }
  const auto result = whole.result();
  EXPECT_EQ(std::vector<int>(result.begin(), result.end()), (std::vector<int>{0, 1, 2, 3, 11, 12, 22, 23}));
}

TEST(stitch, averages_weigh_by_the_distance_from_a_tiles_edge) {
  // Starts 0 and 2; in the overlap, pixels 2 and 3, the first tile weighs 2 and 1, the second 1 and 2.
  stitcher<float> whole(tile_grid({1, 6}, {1, 4}, {0, 2}), 2, {.overlap = tile_overlap::average});
  const std::vector<float> zeros(8, 3.0f), ones(8, 6.0f);
  whole.add({zeros.data(), {2, 1, 4}}, {0, 0, 0, 0});
  whole.add({ones.data(), {2, 1, 4}}, {0, 0, 0, 2});
  const auto result = whole.result();
  const float wanted[] = {3, 3, 4, 5, 6, 6};
  for (std::size_t c = 0; c < 2; ++c)
    for (std::size_t x = 0; x < 6; ++x) EXPECT_NEAR(result(c, 0, x), wanted[x], 1e-6f);
}

TEST(stitch, averages_of_tiles_of_one_image_are_that_image) {
  for (const channel_axis order : {channel_axis::first, channel_axis::last}) {
    const made_images::source<std::uint16_t, 3> images{{{9, 11, 4}}, 3};
    const auto data = penstock::tiles(images, {.size = {3, 4, 5}, .overlap = {2, 1, 3}, .pixels = {.channels = order}});
    stitcher<float, 3> whole(data.grid(0), 3, {.overlap = tile_overlap::average, .channels = order});
    for (int again = 0; again < 2; ++again) {
      whole.clear();
      for (std::uint64_t i = 0; i < data.size(); ++i) add(whole, data, i);
      const auto result = whole.result();
      const auto wanted = whole_of<float>(images, {.channels = order});
      for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(result.data()[i], wanted[i], 1e-5f) << i;
    }
  }
}

TEST(stitch, missing_and_double_tiles_and_those_of_others_are_errors_that_name_them) {
  stitcher<float> whole(tile_grid({300, 300}, {128, 128}, {32, 32}), 1);
  const std::vector<float> numbers(128 * 128);
  const tensor_view<const float, 3> tile(numbers.data(), {1, 128, 128});
  for (const std::size_t k : {0u, 1u, 3u, 8u, 7u, 6u, 5u}) whole.add(tile, whole.grid().place(k, 4));
  EXPECT_EQ(whole.missing(), (std::vector<std::size_t>{2, 4}));
  const auto message = [&](const auto& action) { return message_of<penstock::error>(action); };
  EXPECT_EQ(message([&] { whole.result(); }),
            "stitcher: 2 of 9 tiles are missing, first tile 2, rows 0 to 127, columns 172 to 299");
  EXPECT_EQ(message([&] { whole.add(tile, whole.grid().place(3, 4)); }),
            "stitcher: tile 3 of image 4, rows 96 to 223, columns 0 to 127, was added twice");
  EXPECT_EQ(message([&] { whole.add(tile, whole.grid().place(2, 5)); }),
            "stitcher: a tile of image 5, wanted 2 more of image 4; clear() begins another");
  EXPECT_EQ(message([&] { whole.add(tile, {4, 0, 1, 0}); }),
            "stitcher: image 4 has no tile of rows 1 to 128, columns 0 to 127 in this grid");
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { whole.add({numbers.data(), {128, 128, 1}}, whole.grid().place(2, 4)); }),
      "penstock: stitcher: the tile's shape is 128 x 128 x 1, wanted 1 x 128 x 128");
  for (const std::size_t k : {2u, 4u}) whole.add(tile, whole.grid().place(k, 4));
  EXPECT_TRUE(whole.finished());
  EXPECT_EQ(message([&] { whole.result(); }), "");
  whole.clear();
  EXPECT_FALSE(whole.finished());
  EXPECT_EQ(whole.missing().size(), 9u);
}

TEST(stitch, options_that_do_not_fit_are_refused_by_name) {
  const tile_grid grid({8, 8}, {4, 4});
  const auto message = [&](const auto& action) { return message_of<std::invalid_argument>(action); };
  EXPECT_EQ(message([&] { stitcher<float, 3>(grid, 1); }),
            "penstock: stitcher: grid is one of 2 dimensions, wanted one of 3");
  EXPECT_EQ(message([&] { stitcher<float>(grid, 0); }), "penstock: stitcher: channels is 0, wanted 1 or more");
  EXPECT_EQ(message([&] { stitcher<int>(grid, 1, {.overlap = tile_overlap::average}); }),
            "penstock: stitcher: overlap is average, wanted nearest, as these are not floating-point numbers");
}

}  // namespace
