// SPDX-License-Identifier: Apache-2.0
// Laws over patches: the same ones, in the same places of the same batches, for any number of readers and replicas and
// any cache.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/dataset/random_patches.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

#include "../dataset/made_images.hpp"

namespace {

using made_images::source;
using penstock::patch_origin;

constexpr std::uint64_t epochs = 3;

struct sample_seen {
  std::uint64_t index;
  std::vector<float> input;
  patch_origin origin;
  bool operator==(const sample_seen&) const = default;
};
using steps_seen = std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<sample_seen>>;  // by epoch and step

auto pairs_of(std::size_t cache_bytes) {
  source<float> inputs{{{20, 31}, {64, 17}, {40, 40}, {16, 16}, {33, 90}}};
  auto responses = inputs;
  responses.factor = 2;
  return penstock::random_patches<float>(
      inputs, responses,
      {.size = {16, 16}, .per_image = 9, .flip_rows = true, .quarter_turns = true, .cache_bytes = cache_bytes});
}

// PAT-3 in a feed: what it delivers, with each response checked against its input.
template <class Batch>
void look(Batch& batch, steps_seen& to) {
  const auto [input, response, origin] = batch.fields();
  auto& samples = to[{batch.epoch(), batch.step()}];
  for (std::size_t row = 0; row < batch.size(); ++row) {
    sample_seen one{batch.indices()[row], {}, origin(row)};
    const auto x = input[row], y = response[row];
    one.input.assign(x.data(), x.data() + x.size());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y.data()[i], 2 * x.data()[i]);
    samples.push_back(std::move(one));
  }
}

steps_seen expected() {
  static const steps_seen all = [] {
    steps_seen seen;
    auto pairs = pairs_of(1 << 30);
    auto feed = pairs | penstock::partition(pairs.blocks(2), {.seed = 3}) | penstock::read({.readers = 0}) |
                penstock::batch(8) | penstock::transfer(penstock::cpu_device{});
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
      for (auto& batch : feed.epoch(epoch)) look(batch, seen);
    return seen;
  }();
  return all;
}

TEST(patches, are_the_same_for_any_number_of_readers_and_any_cache) {
  ASSERT_EQ(expected().size(), epochs * 6);
  for (const int readers : {1, 2, 4})
    for (const std::size_t budget : {std::size_t{0}, std::size_t{6000}, std::size_t{1} << 30}) {
      steps_seen seen;
      auto pairs = pairs_of(budget);
      auto feed = pairs | penstock::partition(pairs.blocks(2), {.seed = 3}) | penstock::read({.readers = readers}) |
                  penstock::batch(8) | penstock::transfer(penstock::cpu_device{});
      for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
        for (auto& batch : feed.epoch(epoch)) look(batch, seen);
      EXPECT_EQ(seen, expected()) << readers << " readers, a cache of " << budget;
      EXPECT_LE(pairs.decoded().most, budget);
    }
}

TEST(patches, are_the_same_for_any_number_of_replicas) {
  for (const int ranks : {2, 3}) {
    std::mutex mutex;
    std::map<std::uint64_t, steps_seen> of_rank;
    const auto pairs = pairs_of(1 << 30);  // copies share the cache
    penstock::replicas(ranks, [&](auto& replica) {
      steps_seen seen;
      auto feed = replica.start(pairs | penstock::partition(pairs.blocks(2), {.seed = 3, .world = replica}) |
                                penstock::read({.readers = 2}) | penstock::batch({.global = 8}) |
                                penstock::transfer(replica.device()));
      for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
        for (auto& batch : feed.epoch(epoch)) {
          look(batch, seen);
          std::array<float, 1> nothing{};
          replica.all_reduce(batch, nothing);
        }
      const std::lock_guard lock(mutex);
      of_rank[replica.rank()] = std::move(seen);
    });
    steps_seen all;
    for (auto& [rank, seen] : of_rank)  // in rank order, as a step's samples are shared out
      for (auto& [step, samples] : seen) all[step].insert(all[step].end(), samples.begin(), samples.end());
    EXPECT_EQ(all, expected()) << ranks << " ranks";
  }
}

TEST(patches, an_image_is_decoded_once_in_an_epoch_if_the_cache_holds_two_blocks) {
  source<std::uint8_t> photos;
  for (std::size_t i = 0; i < 24; ++i) photos.sizes.push_back({100, 100});
  for (const int readers : {1, 3}) {
    const auto before = photos.loads->load();
    const auto patches = penstock::random_patches<float>(
        photos, {.size = {16, 16}, .per_image = 32, .cache_bytes = 8 * 10'000});  // 8 images: two blocks of 4
    auto feed = patches | penstock::partition(patches.blocks(4), {.seed = 3}) |
                penstock::read({.readers = readers, .next_epoch = false}) | penstock::batch(16) |
                penstock::transfer(penstock::cpu_device{});
    std::uint64_t samples = 0;
    for (auto& batch : feed.epoch(0)) samples += batch.size();
    EXPECT_EQ(samples, 24u * 32u);
    EXPECT_EQ(photos.loads->load() - before, 24u) << readers << " readers";
    EXPECT_EQ(patches.decoded().made, 24u);
  }
}

// Provenance: on a device the origin is kept on the host.
TEST(patches, a_batch_on_a_device_says_where_its_patches_are_from) {
  const source<std::uint8_t> photos{{{50, 60}, {60, 50}}};
  const auto patches = penstock::random_patches<std::uint8_t>(photos, {.size = {8, 8}, .per_image = 20});
  auto feed = patches | penstock::partition({.seed = 3}) | penstock::read({.readers = 2}) | penstock::batch(8) |
              penstock::transfer(penstock::modelled_device());
  for (auto& batch : feed.epoch(1))
    for (std::size_t row = 0; row < batch.size(); ++row)
      EXPECT_EQ(batch.template host<1>()(row), patches.origin(3, 1, batch.indices()[row]));
}

// PAT-1 and IMG-4: images that are too small or cut are left out, and told with their names.
TEST(patches, images_that_cannot_be_used_are_left_out_and_told) {
  source<std::uint8_t> photos{{{30, 30}, {10, 30}, {30, 30}, {30, 30}}};
  photos.broken = {2};
  auto feed = penstock::random_patches<float>(photos, {.size = {16, 16}, .per_image = 5}) |
              penstock::partition({.seed = 3}) | penstock::read({.readers = 2, .bad = penstock::bad_samples::skip}) |
              penstock::batch(4) | penstock::transfer(penstock::cpu_device{});
  auto running = feed.start();
  std::uint64_t samples = 0;
  for (auto& batch : running.epoch(0)) samples += batch.size();
  EXPECT_EQ(samples, 10u);
  std::multiset<std::string> paths;
  for (const auto& fault : running.faults()) paths.insert(fault.where.path);
  EXPECT_EQ(paths.count("made/1.png"), 5u);
  EXPECT_EQ(paths.count("made/2.png"), 5u);
}

TEST(patches, a_table_of_the_pipeline_says_layout_and_range) {
  const source<std::uint8_t> photos{{{50, 60}}, 3};
  const auto table = penstock::describe(
      penstock::random_patches<float>(photos, {.size = {8, 9}, .per_image = 20, .pixels = {.range = {-1, 1}}}) |
      penstock::partition() | penstock::read() | penstock::batch(4) | penstock::transfer(penstock::cpu_device{}));
  EXPECT_NE(table.find("20 samples: 20 patches of 8 x 9 of each of 1 images, C x H x W float32 in [-1, 1]"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("patch float32[4, 3, 8, 9], origin 20-byte element[4]"), std::string::npos) << table;
}

}  // namespace
