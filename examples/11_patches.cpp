// SPDX-License-Identifier: Apache-2.0
// Random patches of photos: which is the brightest, and where is it?
#include <cstdio>

#include <penstock/dataset/image_files.hpp>
#include <penstock/dataset/random_patches.hpp>
#include <penstock/penstock.hpp>

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : "examples/data/photos";

  const penstock::image_files photos(folder, {.decode = {.channels = 1}});  // PNG, JPEG, TIFF, as grey
  const auto patches = penstock::random_patches(photos, {.size = {40, 40},  // float32 in [0, 1]
                                                         .per_image = 64,
                                                         .flip_columns = true,
                                                         .quarter_turns = true});
  auto feed = patches | penstock::partition(patches.blocks(4), {.seed = 7})  // of four photos at a time
              | penstock::read({.readers = 2, .bad = penstock::bad_samples::skip}) | penstock::batch(32) |
              penstock::transfer(penstock::cpu_device{});

  float most = 0;
  penstock::patch_origin where;
  for (auto& batch : feed.epoch(0)) {
    auto [patch, origin] = batch.fields();  // patch is 32 by 1 by 40 by 40
    for (std::size_t i = 0; i < batch.size(); ++i) {
      float sum = 0;
      for (const float pixel : patch[i]) sum += pixel;
      if (sum > most) most = sum, where = origin(i);
    }
  }
  std::printf("%s, rows from %u, columns from %u: %.3f on average\n", photos.path(where.image).c_str(), where.y,
              where.x, most / (40 * 40));
}
