// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <penstock/dataset/images.hpp>
#include <penstock/penstock.hpp>

#include "image_bytes.hpp"
#include "made_images.hpp"

namespace {

using namespace image_test;
using made_images::source;
using penstock::image_files;
using penstock::images;

template <class T, class Dataset>
std::vector<T> sample_of(const Dataset& from, std::uint64_t index) {
  const auto field = std::get<0>(from.schema().fields);
  std::vector<T> values(field.elements());
  from.read(index, {penstock::tensor_view<T, 3>(values.data(), field.shape)});
  return values;
}

TEST(images, whole_images_as_fields) {
  const source<std::uint8_t> photos{{{2, 3}, {2, 3}}, 3};
  const auto data = images<float>(photos);
  EXPECT_EQ(photos.loads->load(), 0u);  // not in the constructor
  EXPECT_EQ(data.size(), 2u);
  EXPECT_EQ(data.where(1).path, photos.path(1));
  const auto field = std::get<0>(data.schema().fields);
  EXPECT_EQ(field.name, "image");
  EXPECT_EQ(field.shape, (std::array<std::size_t, 3>{3, 2, 3}));
  EXPECT_EQ(photos.loads->load(), 1u);
  const std::vector<float> sample = sample_of<float>(data, 1);
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t y = 0; y < 2; ++y)
      for (std::size_t x = 0; x < 3; ++x)
        EXPECT_FLOAT_EQ(sample[(c * 2 + y) * 3 + x],
                        static_cast<float>(made_images::number<std::uint8_t>(1, 0, y, x, c)) / 255);
  EXPECT_EQ(photos.loads->load(), 2u);  // the size is learnt once
  EXPECT_EQ(data.describe(), "2 images, C x H x W float32 in [0, 1]");
}

TEST(images, size_name_and_layout_as_told) {
  const source<std::uint8_t> photos{{{2, 3}}, 3};
  const auto data = images<std::uint8_t>(
      photos, {.height = 2, .width = 3, .pixels = {.channels = penstock::channel_axis::last}, .name = "photo"});
  const auto field = std::get<0>(data.schema().fields);
  EXPECT_EQ(field.name, "photo");
  EXPECT_EQ(field.shape, (std::array<std::size_t, 3>{2, 3, 3}));
  EXPECT_EQ(photos.loads->load(), 0u);
  EXPECT_EQ(sample_of<std::uint8_t>(data, 0), values_of<std::uint8_t>(made_images::make<std::uint8_t>(0, {2, 3}, 3)));
}

TEST(images, another_size_is_an_error_with_path_found_and_wanted) {
  const source<std::uint8_t> photos{{{2, 3}, {3, 2}}};
  EXPECT_EQ(message_of([&] { sample_of<float>(images<float>(photos), 1); }),
            "made/1.png: the image is 3 x 2, wanted 2 x 3 as the first one");
  EXPECT_EQ(message_of([&] { sample_of<float>(images<float>(photos, {.height = 9, .width = 8}), 1); }),
            "made/1.png: the image is 3 x 2, wanted 9 x 8");
}

TEST(images, a_first_image_that_cannot_be_decoded_says_what_it_was_for) {
  source<std::uint8_t> photos{{{2, 3}, {2, 3}}};
  photos.broken = {0};
  EXPECT_EQ(message_of([&] { images<float>(photos).schema(); }),
            "made/0.png, row 3: the file is cut; as the first image it gives the size of all, which .height and .width "
            "say, too");
  EXPECT_EQ(sample_of<float>(images<float>(photos, {.height = 2, .width = 3}), 1).size(), 6u);
}

TEST(images, options_are_checked) {
  const source<std::uint8_t> photos{{{2, 3}}};
  EXPECT_EQ(message_of([&] { images<float>(photos, {.height = 2}); }),
            "penstock: images: width is 0, wanted both height and width, or none: the first image's");
  EXPECT_EQ(message_of([&] { images<float>(source<std::uint8_t>{}); }),
            "penstock: images: the number of images is 0, wanted 1 or more");
}

// IMG-1, IMG-2 and IMG-4: files of all kinds in one batch, a cut one is left out and told.
TEST(images, IMG_4_files_of_all_kinds_in_one_feed_and_cut_ones_are_left_out_and_told) {
  const temporary_directory directory;
  const std::string words = bytes_of(made<std::uint16_t>(4, 4, 1));
  const std::string cut = jpeg_bytes(smooth(4, 4, 3));
  directory.file("a.png", png_bytes(4, 4, words, {.depth = 16}));
  directory.file("b.png", png_bytes(4, 4, std::string(32, 'g'), {.colours = PNG_COLOR_TYPE_GRAY_ALPHA}));
  directory.file("c.png", png_bytes(4, 4, std::string(16, '\1'),
                                    {.colours = PNG_COLOR_TYPE_PALETTE, .palette = {{1, 2, 3}, {51, 102, 153}}}));
  directory.file("d.jpg", jpeg_bytes(smooth(4, 4, 3)));
  directory.file("e.jpg", cut.substr(0, cut.size() * 6 / 10));
  directory.file("f.png", png_bytes(4, 4, std::string(64, 'r'), {.colours = PNG_COLOR_TYPE_RGB_ALPHA}));
  auto feed = images(image_files(directory.path())) | penstock::partition({.seed = 3}) |
              penstock::read({.readers = 2, .bad = penstock::bad_samples::skip}) | penstock::batch(8) |
              penstock::transfer(penstock::cpu_device{});
  auto running = feed.start();
  std::set<std::uint64_t> seen;
  for (auto& batch : running.epoch(0)) {
    const auto field = batch.template host<0>();
    for (std::size_t row = 0; row < batch.size(); ++row) {
      const auto index = batch.indices()[row];
      seen.insert(index);
      const auto at = [&](std::size_t channel) { return field(row, channel, 0, 0); };
      const float first_word =
          static_cast<float>(static_cast<unsigned char>(words[0]) << 8 | static_cast<unsigned char>(words[1]));
      for (std::size_t c = 0; c < 3; ++c) {
        if (index > 2) continue;
        const float wanted[] = {first_word / 65535, 'g' / 255.0f, static_cast<float>(c + 1) / 5};
        EXPECT_FLOAT_EQ(at(c), wanted[index]);
      }
    }
  }
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 1, 2, 3, 5}));
  ASSERT_EQ(running.faults().size(), 1u);
  EXPECT_EQ(running.faults()[0].where.path, directory / "e.jpg");
}

}  // namespace
