// SPDX-License-Identifier: Apache-2.0
// How many random patches of photos are read, against decoding alone, and against cutting them out by plain copies?
//   benchmarks/run.sh patches [--photos FOLDER] [--images N] [--per-image N] [--patch N] [--readers N]
// Without a folder the photos are made: noise and waves, as JPEG would not have them smaller, written as PNG.
// packages: libpng-dev libjpeg-dev libtiff-dev
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <contest.hpp>

#include <penstock/dataset/image_files.hpp>
#include <penstock/dataset/image_write.hpp>
#include <penstock/dataset/random_patches.hpp>
#include <penstock/penstock.hpp>

namespace {

using penstock::image;

/// A folder that goes with the program.
struct scratch {
  scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock_patches_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path = name;
  }
  ~scratch() {
    std::error_code none;
    std::filesystem::remove_all(path, none);
  }
  std::filesystem::path path;
};

void make_photo(const std::filesystem::path& path, std::uint64_t number) {
  image photo(penstock::pixel_type::uint8, 512, 768, 3);
  penstock::philox random(1, 0, number, penstock::random_domain::user);
  std::uint8_t* to = photo.pixels<std::uint8_t>().data();
  for (int y = 0; y < 512; ++y)
    for (int x = 0; x < 768; ++x)
      for (int c = 0; c < 3; ++c)
        *to++ = static_cast<std::uint8_t>(128 + 90 * std::sin(0.01 * x * (c + 1)) * std::cos(0.013 * y) +
                                          8 * random.normal());
  penstock::write_png(path.string(), photo);
}

/// What extraction is compared with: rows copied to their places, each number converted, as one writes it by hand.
template <class To>
void cut_by_hand(const image& from, std::size_t y0, std::size_t x0, std::size_t side, To* to) {
  const std::uint8_t* const pixels = from.pixels<std::uint8_t>().data();
  const std::size_t channels = from.channels();
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t y = 0; y < side; ++y) {
      const std::uint8_t* row = pixels + ((y0 + y) * from.width() + x0) * channels + c;
      for (std::size_t x = 0; x < side; ++x)
        if constexpr (std::is_same_v<To, float>)
          *to++ = static_cast<float>(row[x * channels]) / 255.0f;
        else
          *to++ = row[x * channels];
    }
}

template <class To>
double extraction(const image& from, std::size_t side, bool by_hand) {
  const penstock::pixel_writer<To> writer("patches", {}, from.channels());
  std::vector<To> batch(64 * writer.elements({1, side, side}));
  constexpr std::size_t rounds = 200;
  penstock::philox random(3, 0, 0);
  const contest::watch time;
  for (std::size_t r = 0; r < rounds; ++r)
    for (std::size_t i = 0; i < 64; ++i) {
      const auto y = random.below(from.height() - side + 1), x = random.below(from.width() - side + 1);
      To* const to = batch.data() + i * writer.elements({1, side, side});
      if (by_hand)
        cut_by_hand(from, y, x, side, to);
      else
        writer.write(from, {.origin = {0, y, x}, .size = {1, side, side}}, to, "");
      benchmark::DoNotOptimize(to);
    }
  return time.seconds() / (rounds * 64) * 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  contest::question ask("patches", "ns per patch", argc, argv);
  const auto folder = ask.sizes.text("photos", "");
  const auto images = static_cast<std::uint64_t>(ask.sizes.integer("images", 24));
  const auto per_image = static_cast<std::uint64_t>(ask.sizes.integer("per-image", 64));
  const auto side = static_cast<std::size_t>(ask.sizes.integer("patch", 40));
  const auto together = static_cast<std::uint64_t>(ask.sizes.integer("together", 6));
  scratch own;
  std::string place = folder;
  ask.guarded([&] {
    if (!place.empty()) return;
    for (std::uint64_t i = 0; i < images; ++i) make_photo(own.path / ("made" + std::to_string(100 + i) + ".png"), i);
    place = own.path.string();
  });
  const auto files = std::make_shared<const penstock::image_files>(place);
  ask.fact("photos", std::to_string(files->size()) + (folder.empty() ? " made, 768 x 512, PNG" : " of " + folder) +
                         ", " + std::to_string(per_image) + " patches of " + std::to_string(side) + " x " +
                         std::to_string(side) + " x 3 of each");
  const double count = static_cast<double>(files->size() * per_image);

  ask.add("decoding alone", [=] {
    const contest::watch time;
    for (std::uint64_t i = 0; i < files->size(); ++i) benchmark::DoNotOptimize(files->load(i).data());
    return contest::figures{time.seconds() / count * 1e9};
  });
  for (const int readers : {1, 2}) {
    const auto feed_with = [=](bool blocks) {
      return [=] {
        // The cache holds two blocks, and not all of it.
        const std::size_t bytes = files->load(0).bytes();
        const auto patches = penstock::random_patches<float>(
            *files, {.size = {side, side}, .per_image = per_image, .cache_bytes = (2 * together + 1) * bytes});
        const auto drain = [&](auto feed) {
          const contest::watch time;
          std::uint64_t samples = 0;
          for (auto& batch : feed.epoch(0)) samples += batch.size();
          const double seconds = time.seconds();
          const double decodes = static_cast<double>(patches.decoded().made) / static_cast<double>(files->size());
          return contest::figures{seconds / static_cast<double>(samples) * 1e9, {{"decodes per image", decodes}}};
        };
        const penstock::read_options read{.readers = readers, .next_epoch = false};
        if (blocks)
          return drain((patches | penstock::partition(patches.blocks(together), {.seed = 7}) | penstock::read(read) |
                        penstock::batch(64) | penstock::transfer(penstock::cpu_device{}))
                           .start());
        return drain((patches | penstock::partition({.seed = 7}) | penstock::read(read) | penstock::batch(64) |
                      penstock::transfer(penstock::cpu_device{}))
                         .start());
      };
    };
    const std::string who = std::to_string(readers) + (readers == 1 ? " reader" : " readers");
    ask.add("penstock, " + who, feed_with(true));
    if (readers == 2) ask.add("the same, shuffled over all photos", feed_with(false));
  }
  // Cutting out alone, of a photo that is decoded.
  const auto photo = std::make_shared<const image>(files->load(0));
  ask.add("cut out, float", [=] { return contest::figures{extraction<float>(*photo, side, false)}; });
  ask.add("cut out by hand, float", [=] { return contest::figures{extraction<float>(*photo, side, true)}; });
  ask.add("cut out, uint8", [=] { return contest::figures{extraction<std::uint8_t>(*photo, side, false)}; });
  ask.add("cut out by hand, uint8", [=] { return contest::figures{extraction<std::uint8_t>(*photo, side, true)}; });
  return ask.run([](contest::line& line) {
    line.ratio("with_decoding_1", "penstock, 1 reader", "decoding alone");
    line.ratio("with_decoding_2", "penstock, 2 readers", "decoding alone");
    line.value("decode_once", "penstock, 2 readers", "decodes per image");
    line.ratio("extract", "cut out, float", "cut out by hand, float");
    line.ratio("extract_uint8", "cut out, uint8", "cut out by hand, uint8");
  });
}
