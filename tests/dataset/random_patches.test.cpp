// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include <penstock/dataset/random_patches.hpp>

#include "made_images.hpp"

namespace {

using made_images::message;
using made_images::number;
using made_images::source;
using penstock::patch_options;
using penstock::patch_origin;
using penstock::random_patches;

/// Sample `index` of an epoch, its patches and its origin: what a reader does.
template <class T, class Dataset>
auto read(const Dataset& from, std::uint64_t index, std::uint64_t epoch = 0, std::uint64_t seed = 7) {
  const auto schema = from.schema();
  constexpr std::size_t fields = std::tuple_size_v<std::remove_const_t<decltype(schema.fields)>>;
  constexpr std::size_t rank = std::tuple_element_t<0, std::remove_const_t<decltype(schema.fields)>>::rank;
  std::tuple<std::array<std::vector<T>, fields - 1>, patch_origin> out;
  auto& [data, origin] = out;
  penstock::philox random(seed, epoch, index);
  const std::stop_token none;
  penstock::read_context context{random, epoch, none};
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (data[I].resize(std::get<I>(schema.fields).elements()), ...);
    from.read(index,
              {penstock::tensor_view<T, rank>(data[I].data(), std::get<I>(schema.fields).shape)...,
               penstock::tensor_view<patch_origin, 0>(&std::get<1>(out), {})},
              context);
  }(std::make_index_sequence<fields - 1>{});
  return out;
}

// PAT-1
TEST(random_patches, PAT_1_an_image_smaller_than_the_patch_is_named_with_both_sizes) {
  const source<std::uint8_t> photos{{{300, 300}, {277, 300}}};
  const auto patches = random_patches<std::uint8_t>(photos, {.size = {300, 300}});
  EXPECT_EQ(std::get<1>(read<std::uint8_t>(patches, 0)), (patch_origin{0, 0, 0, 0, 0}));
  EXPECT_EQ(
      message([&] { read<std::uint8_t>(patches, 1); }),
      "made/1.png: the image is 277 x 300, wanted 300 x 300 or more for a patch; .small = small_image::pad repeats "
      "its edges, and read({.bad = bad_samples::skip}) leaves it out");
}
TEST(random_patches, PAT_1_a_small_image_may_be_padded_by_its_edges) {
  const source<std::uint8_t> photos{{{3, 2}}};
  const auto patches = random_patches<std::uint8_t>(photos, {.size = {4, 4}, .small = penstock::small_image::pad});
  const auto [data, origin] = read<std::uint8_t>(patches, 0);
  for (std::size_t y = 0; y < 4; ++y)
    for (std::size_t x = 0; x < 4; ++x)
      EXPECT_EQ(data[0][y * 4 + x],
                (number<std::uint8_t>(0, 0, std::min<std::size_t>(y, 2), std::min<std::size_t>(x, 1), 0)));
}

// PAT-2
TEST(random_patches, PAT_2_every_legal_place_is_as_likely) {
  const auto places = [](std::size_t height, std::size_t width, std::uint64_t draws) {
    const auto patches =
        random_patches<std::uint8_t>(source<std::uint8_t>{{{height, width}}}, {.size = {8, 8}, .per_image = draws});
    std::map<std::pair<unsigned, unsigned>, int> count;
    for (std::uint64_t i = 0; i < draws; ++i) {
      const patch_origin at = patches.origin(1, 0, i);
      ++count[{at.y, at.x}];
    }
    return count;
  };
  EXPECT_EQ(places(8, 8, 50).size(), 1u);
  const auto four = places(9, 9, 4000);
  EXPECT_EQ(four.size(), 4u);
  const auto many = places(12, 10, 15000);  // 15 places
  EXPECT_EQ(many.size(), 15u);
  // Six standard deviations of a binomial: sqrt(n p (1 - p)) is 27 and 31.
  for (const auto& [place, count] : four) EXPECT_NEAR(count, 1000, 6 * 27) << place.first << ' ' << place.second;
  for (const auto& [place, count] : many) EXPECT_NEAR(count, 1000, 6 * 31) << place.first << ' ' << place.second;
}

// PAT-3: what is drawn is drawn once for a pair.
TEST(random_patches, PAT_3_a_response_is_cut_and_turned_as_its_input) {
  const source<float> inputs{{{20, 31}, {64, 17}, {40, 40}}};
  auto responses = inputs;
  responses.factor = 2;
  const auto pairs = random_patches<float>(
      inputs, responses,
      {.size = {16, 16}, .per_image = 40, .flip_rows = true, .flip_columns = true, .quarter_turns = true});
  std::set<std::uint32_t> turns;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
    for (std::uint64_t i = 0; i < pairs.size(); ++i) {
      const auto [data, origin] = read<float>(pairs, i, epoch);
      for (std::size_t k = 0; k < data[0].size(); ++k) ASSERT_EQ(data[1][k], 2 * data[0][k]);
      turns.insert(origin.turn);
    }
  EXPECT_EQ(turns.size(), 8u);  // all the symmetries of a square
}
TEST(random_patches, PAT_3_a_response_of_another_size_is_named) {
  const auto pairs = random_patches<float>(source<float>{{{20, 31}}}, source<float>{{{31, 20}}}, {.size = {8, 8}});
  EXPECT_EQ(message([&] { read<float>(pairs, 0); }),
            "made/0.png: the response is 31 x 20, wanted 20 x 31 as of made/0.png");
  EXPECT_EQ(message([&] {
              random_patches<float>(source<float>{{{8, 8}, {8, 8}}}, source<float>{{{8, 8}}}, {.size = {8, 8}});
            }),
            "random_patches: 2 images with 1 responses, wanted one response for each");
}

TEST(random_patches, a_patch_says_where_it_is_from_and_holds_those_pixels) {
  const source<std::uint8_t> photos{{{20, 30}, {25, 25}}, 3};
  const auto patches =
      random_patches<std::uint8_t>(photos, {.size = {5, 7}, .per_image = 30, .flip_rows = true, .flip_columns = true});
  for (std::uint64_t i = 0; i < patches.size(); ++i) {
    const auto [data, origin] = read<std::uint8_t>(patches, i, 2);
    ASSERT_EQ(patches.where(i).path, photos.path(origin.image));
    EXPECT_EQ(origin, patches.origin(7, 2, i));
    EXPECT_EQ(origin.image, i / 30);
    const penstock::pixel_box box = origin.box(patches.patch_size());
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t y = 0; y < 5; ++y)
        for (std::size_t x = 0; x < 7; ++x)
          ASSERT_EQ(data[0][(c * 5 + y) * 7 + x],
                    (number<std::uint8_t>(origin.image, 0, origin.y + (box.flip_rows ? 4 - y : y),
                                          origin.x + (box.flip_columns ? 6 - x : x), c)));
  }
}

TEST(random_patches, volumes_are_cut_along_three_axes) {
  const source<float, 3> volumes{{{9, 8, 7}}};
  const auto patches = random_patches<float>(volumes, {.size = {4, 5, 6}, .per_image = 1000, .flip_depth = true});
  EXPECT_EQ((std::get<0>(patches.schema().fields).shape), (std::array<std::size_t, 4>{1, 4, 5, 6}));
  std::set<std::tuple<unsigned, unsigned, unsigned>> places;
  std::set<unsigned> turns;
  for (std::uint64_t i = 0; i < patches.size(); ++i) {
    const auto [data, at] = read<float>(patches, i);
    places.insert({at.z, at.y, at.x});
    turns.insert(at.turn);
    ASSERT_EQ(data[0][1], (number<float>(0, at.z + (at.turn ? 3 : 0), at.y, at.x + 1, 0)));
  }
  EXPECT_EQ(places.size(), 4u * 5u * 3u);
  EXPECT_EQ(turns, (std::set<unsigned>{0, 8}));
}

TEST(random_patches, draws_differ_between_samples_epochs_and_seeds) {
  const auto patches =
      random_patches<std::uint8_t>(source<std::uint8_t>{{{500, 500}}}, {.size = {8, 8}, .per_image = 3});
  EXPECT_NE(patches.origin(1, 0, 0), patches.origin(1, 0, 1));
  EXPECT_NE(patches.origin(1, 0, 0), patches.origin(1, 1, 0));
  EXPECT_NE(patches.origin(1, 0, 0), patches.origin(2, 0, 0));
}

TEST(random_patches, an_image_that_cannot_be_decoded_is_an_error_with_its_name) {
  source<std::uint8_t> photos{{{20, 20}, {20, 20}}};
  photos.broken = {1};
  const auto patches = random_patches<std::uint8_t>(photos, {.size = {5, 7}});
  EXPECT_EQ(message([&] { read<std::uint8_t>(patches, 1); }), "made/1.png, row 3: the file is cut");
  // What cannot be written tells the rectangle, too.
  const auto lossy = random_patches<std::uint8_t>(source<float>{{{5, 7}}}, {.size = {5, 7}});
  EXPECT_EQ(message([&] { read<std::uint8_t>(lossy, 0); }),
            "made/0.png, rows 0 to 4, columns 0 to 6: the image has float32 pixels, wanted uint8 ones or smaller: "
            "others would "
            "lose bits");
}

TEST(random_patches, options_that_make_no_sense_are_refused_by_name) {
  const auto make = [](const patch_options& options) {
    return message([&] { random_patches<float>(source<float>{{{9, 9}}}, options); });
  };
  EXPECT_EQ(make({}), "penstock: random_patches: size is 0 extents long, wanted height and width");
  EXPECT_EQ(make({.size = {3, 0}}), "penstock: random_patches: size is 0 along an axis, wanted 1 or more");
  EXPECT_EQ(make({.size = {3, 3}, .per_image = 0}), "penstock: random_patches: per_image is 0, wanted 1 or more");
  EXPECT_EQ(make({.size = {3, 4}, .quarter_turns = true}),
            "penstock: random_patches: quarter_turns is true for patches of 3 x 4, wanted as many rows as columns");
  EXPECT_EQ(make({.size = {3, 3}, .flip_depth = true}),
            "penstock: random_patches: flip_depth is true, wanted false, as these are images and not volumes");
}

struct mapped {
  static constexpr std::size_t dimensions = 2;
  std::uint64_t size() const { return 50; }
  std::size_t channels() const { return 1; }
  std::string path(std::uint64_t) const { return "mapped.npy"; }
  penstock::image load(std::uint64_t) const {
    const std::shared_ptr<std::byte> bytes(new std::byte[64](), std::default_delete<std::byte[]>());
    return {penstock::pixel_type::uint8, 8, 8, 1, 1, bytes};
  }
};

// A process may have some ten thousand maps only.
TEST(random_patches, maps_of_files_are_in_the_budget) {
  for (const std::size_t most : {0u, 4u}) {
    const auto patches = random_patches<std::uint8_t>(mapped{}, {.size = {2, 2}, .cache_bytes = most << 16});
    for (std::uint64_t i = 0; i < 50; ++i) read<std::uint8_t>(patches, i);
    EXPECT_EQ(patches.decoded().bytes, most << 16);
    EXPECT_EQ(patches.decoded().dropped, most == 0 ? 0 : 46u);
  }
}

TEST(group_shuffled_plan, has_each_sample_once_and_groups_together) {
  for (const auto& [groups, each, together] :
       {std::array<std::uint64_t, 3>{10, 7, 3}, {1, 5, 4}, {8, 1, 2}, {6, 4, 6}, {5, 3, 1}}) {
    const penstock::group_shuffled_plan plan(groups, each, together);
    ASSERT_EQ(plan.size(), groups * each);
    std::vector<std::uint64_t> order(groups * each);
    plan.order(3, 1, 0, order);
    EXPECT_EQ(std::set<std::uint64_t>(order.begin(), order.end()).size(), groups * each);
    for (std::uint64_t first = 0; first < order.size(); first += together * each) {
      std::set<std::uint64_t> seen;
      for (std::uint64_t i = first; i < std::min<std::uint64_t>(first + together * each, order.size()); ++i)
        seen.insert(order[i] / each);
      EXPECT_LE(seen.size(), together);
    }
    // Any part of the epoch is the same by itself.
    for (std::uint64_t first = 0; first < order.size(); ++first) {
      std::vector<std::uint64_t> part(std::min<std::uint64_t>(5, order.size() - first));
      plan.order(3, 1, first, part);
      for (std::size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], order[first + i]);
    }
  }
}
TEST(group_shuffled_plan, differs_between_epochs_and_in_which_groups_are_together) {
  const penstock::group_shuffled_plan plan(40, 8, 4);
  std::set<std::set<std::uint64_t>> together;
  std::vector<std::uint64_t> order(4 * 8);
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    plan.order(1, epoch, 0, order);
    std::set<std::uint64_t> groups;
    for (const std::uint64_t one : order) groups.insert(one / 8);
    together.insert(groups);
  }
  EXPECT_EQ(together.size(), 20u);
}

}  // namespace
