// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread but for what shared_cache's own test covers
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include <penstock/penstock.hpp>

#include "tile_support.hpp"

namespace {

using namespace tile_test;
using penstock::small_image;
using penstock::tile_grid;
using penstock::tile_place;
using source = made_images::source<std::uint16_t>;

// PAT-5
TEST(tile_grid, PAT_5_the_last_tile_ends_with_the_image) {
  const tile_grid grid({300, 300}, {128, 128}, {32, 32});
  EXPECT_EQ(grid.size(), 9u);
  for (std::size_t axis : {1u, 2u}) {
    ASSERT_EQ(grid.counts()[axis], 3u);
    EXPECT_EQ(grid.start(axis, 0), 0u);
    EXPECT_EQ(grid.start(axis, 1), 96u);
    EXPECT_EQ(grid.start(axis, 2), 172u);
  }
  EXPECT_EQ(grid.place(5, 7), (tile_place{7, 0, 96, 172}));
  EXPECT_EQ(grid.text(grid.place(5)), "rows 96 to 223, columns 172 to 299");
}

// PAT-5
TEST(tile_grid, PAT_5_every_pixel_is_covered_and_owned_by_the_nearest_tile_for_all_sizes) {
  for (std::size_t extent = 1; extent <= 24; ++extent)
    for (std::size_t size = 1; size <= extent; ++size)
      for (std::size_t overlap = 0; overlap < size; ++overlap) {
        const tile_grid grid({1, extent}, {1, size}, {0, overlap});
        const std::size_t count = grid.counts()[2];
        SCOPED_TRACE(testing::Message() << extent << ", tiles of " << size << ", overlap " << overlap);
        std::vector<int> covered(extent), owned(extent);
        for (std::size_t k = 0; k < count; ++k) {
          const std::size_t start = grid.start(2, k);
          ASSERT_LE(start + size, extent);
          if (k > 0) {
            ASSERT_GE(grid.start(2, k - 1) + size, start + overlap);  // no less than the overlap asked for
          }
          for (std::size_t i = 0; i < size; ++i) ++covered[start + i];
          for (std::size_t p = grid.own(2, k); p < grid.own(2, k + 1); ++p) {
            ++owned[p];
            ASSERT_TRUE(p >= start && p < start + size) << "pixel " << p << " of tile " << k;
            const auto distance = [&](std::size_t tile) {
              const auto twice = static_cast<long>(2 * p + 1) - static_cast<long>(2 * grid.start(2, tile) + size);
              return twice < 0 ? -twice : twice;
            };
            for (std::size_t other = 0; other < count; ++other)
              ASSERT_TRUE(other < k ? distance(other) > distance(k) : distance(other) >= distance(k));
          }
          ASSERT_EQ(grid.number(grid.place(k)), k);
        }
        for (std::size_t p = 0; p < extent; ++p) {
          ASSERT_GE(covered[p], 1) << p;
          ASSERT_EQ(owned[p], 1) << p;
        }
        // As few tiles as do it: without the last one the end is not covered.
        if (count > 1) {
          ASSERT_LT(grid.start(2, count - 2) + size, extent);
        }
      }
}

TEST(tile_grid, a_place_that_is_no_tiles_has_no_number) {
  const tile_grid grid({300, 300}, {128, 128}, {32, 32});
  EXPECT_EQ(grid.number({0, 0, 96, 172}), 5u);
  for (const tile_place& odd : {tile_place{0, 0, 95, 0}, {0, 0, 192, 0}, {0, 0, 0, 171}, {0, 1, 0, 0}, {0, 0, 288, 0}})
    EXPECT_EQ(grid.number(odd), grid.size()) << grid.text(odd);
}

TEST(tile_grid, options_that_do_not_fit_are_refused_by_name) {
  const std::pair<std::function<void()>, const char*> cases[] = {
      {[] { tile_grid({300}, {128}); }, "size is 1 numbers, wanted height and width"},
      {[] { tile_grid({300, 300, 300}, {128, 128}); }, "the image's size is 3 numbers, wanted 2"},
      {[] { tile_grid({300, 300}, {128, 128}, {1}); }, "overlap is 1 numbers, wanted 2"},
      {[] { tile_grid({300, 300}, {128, 0}); }, "size is 0 along an axis, wanted 1 or more"},
      {[] { tile_grid({300, 0}, {128, 128}); }, "the image's size is 0 along an axis"},
      {[] { tile_grid({300, 300}, {128, 128}, {0, 128}); }, "overlap is 128, wanted less than the tile's size of 128"},
      {[] { tile_grid({300, 100}, {128, 128}); }, "size is 128 where the image has 100"}};
  for (const auto& [make, wanted] : cases) {
    const std::string found = message_of<std::invalid_argument>(make);
    EXPECT_NE(found.find(wanted), std::string::npos) << found << "\nwanted " << wanted;
  }
}

TEST(tiles, come_image_after_image_and_tile_after_tile) {
  const source images{{{5, 7}, {4, 4}}, 2};
  const auto data = penstock::tiles<std::uint16_t>(images, {.size = {4, 4}, .overlap = {1, 1}});
  EXPECT_EQ(data.images(), 2u);
  EXPECT_EQ(data.describe(), "tiles of 4 x 4 of 2 images, C x H x W uint16 as stored");
  ASSERT_EQ(data.size(), 5u);  // 2 x 2, and 1
  EXPECT_EQ(std::get<0>(data.schema().fields).shape, (std::array<std::size_t, 3>{2, 4, 4}));
  const tile_place places[] = {{0, 0, 0, 0}, {0, 0, 0, 3}, {0, 0, 1, 0}, {0, 0, 1, 3}, {1, 0, 0, 0}};
  for (std::uint64_t index = 0; index < data.size(); ++index) {
    const auto [numbers, place] = sample_of(data, index);
    ASSERT_EQ(place, places[index]);
    for (std::size_t c = 0, at = 0; c < 2; ++c)
      for (std::size_t y = 0; y < 4; ++y)
        for (std::size_t x = 0; x < 4; ++x, ++at)
          ASSERT_EQ(numbers[at], number<std::uint16_t>(place.image, 0, place.y + y, place.x + x, c));
  }
}

TEST(tiles, the_dataset_goes_through_a_feed_and_each_image_is_decoded_once) {
  const source images{{{20, 30}, {20, 30}, {33, 21}}};
  // What is told of the sizes saves even the first decoding, which is the one when nothing is told.
  for (const std::vector<std::vector<std::size_t>>& told :
       {std::vector<std::vector<std::size_t>>{}, {{20, 30}, {20, 30}, {33, 21}}}) {
    *images.loads = 0;
    const auto data = penstock::tiles(images, {.size = {8, 8}, .overlap = {2, 2}, .extents = told});
    EXPECT_EQ(*images.loads, told.empty() ? 3u : 0u);
    auto feed = data | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 2}) |
                penstock::batch(16) | penstock::transfer(penstock::cpu_device{});
    std::uint64_t index = 0;
    for (auto& batch : feed.epoch(0)) {
      const auto [pixels, places] = batch.fields();
      for (std::size_t row = 0; row < batch.size(); ++row, ++index) {
        const auto [numbers, place] = sample_of(data, index);
        ASSERT_EQ(places[row], place);
        ASSERT_EQ(data.where(index).path, images.path(place.image));
        ASSERT_TRUE(std::equal(numbers.begin(), numbers.end(), pixels.sub(row).begin()));
      }
    }
    EXPECT_EQ(index, data.size());
    EXPECT_EQ(*images.loads, 3u);
  }
}

TEST(tiles, one_size_serves_all_images_and_another_is_an_error_with_the_path) {
  const source images{{{8, 8}, {8, 9}}};
  const auto data = penstock::tiles(images, {.size = {4, 4}, .extents = {{8, 8}}});
  ASSERT_EQ(data.size(), 8u);
  sample_of(data, 3);
  EXPECT_EQ(message_of<penstock::error>([&] { sample_of(data, 4); }),
            "made/1.png: the image is 8 x 9, wanted 8 x 8 as it was or was said to be when the dataset was made");
}

TEST(tiles, an_image_smaller_than_a_tile_is_an_error_or_padded) {
  const source images{{{8, 8}, {3, 9}}};
  EXPECT_EQ(message_of<penstock::error>([&] { penstock::tiles(images, {.size = {4, 4}}); }),
            "made/1.png: the image is 3 x 9, smaller than a tile; .small = small_image::pad repeats its edges");
  const auto data = penstock::tiles<std::uint16_t>(images, {.size = {4, 4}, .small = small_image::pad});
  ASSERT_EQ(data.size(), 4u + 3u);
  const auto [numbers, place] = sample_of(data, 6);
  EXPECT_EQ(place, (tile_place{1, 0, 0, 5}));
  for (std::size_t y = 0, at = 0; y < 4; ++y)
    for (std::size_t x = 0; x < 4; ++x, ++at)
      EXPECT_EQ(numbers[at], number<std::uint16_t>(1, 0, y < 3 ? y : 2, 5 + x, 0));
}

TEST(tiles, volumes) {
  const made_images::source<std::uint16_t, 3> images{{{6, 7, 5}}};
  const auto data = penstock::tiles<std::uint16_t>(images, {.size = {2, 4, 4}, .overlap = {1, 0, 0}});
  ASSERT_EQ(data.size(), 4u * 2 * 2);
  EXPECT_EQ(data.describe(), "tiles of 2 x 4 x 4 of 1 volumes, C x D x H x W uint16 as stored");
  EXPECT_EQ(std::get<0>(data.schema().fields).shape, (std::array<std::size_t, 4>{1, 2, 4, 4}));
  const auto [numbers, place] = sample_of(data, 15);
  EXPECT_EQ(place, (tile_place{0, 3, 2, 3}));
  EXPECT_EQ(numbers.front(), number<std::uint16_t>(0, 3, 2, 3, 0));
  EXPECT_EQ(numbers.back(), number<std::uint16_t>(0, 4, 5, 6, 0));
}

TEST(tiles, options_that_do_not_fit_are_refused_by_name) {
  const source images{{{8, 8}, {8, 9}, {8, 8}}};
  EXPECT_EQ(message_of<std::invalid_argument>([&] { penstock::tiles(images, {.size = {4, 4, 4}}); }),
            "penstock: tiles: size is 3 numbers, wanted height and width");
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { penstock::tiles(images, {.size = {4, 4}, .extents = {{8, 8}, {8, 9}}}); }),
            "penstock: tiles: extents is 2 sizes, wanted 3, one for each image, or one for all");
}

}  // namespace
