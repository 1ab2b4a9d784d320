// SPDX-License-Identifier: Apache-2.0
#include "photos.hpp"

#include <algorithm>
#include <filesystem>

namespace patch_trainer {

photos split(const penstock::image_files& all, const settings& s) {
  const auto held_out = static_cast<std::uint64_t>(s.held_out);
  if (all.size() <= held_out)
    throw penstock::error(penstock::detail::concat("the folder has ", all.size(), " images, wanted more than the ",
                                                   held_out, " that are held out (--held-out)"),
                          {.path = std::filesystem::path(all.path(0)).parent_path().string()});
  photos result;
  for (std::uint64_t i = 0; i < all.size(); ++i)
    (i + held_out < all.size() ? result.train : result.held_out).push_back(all.path(i));
  return result;
}

penstock::image_files_options decoding(const settings& s) {
  return {.decode = {.channels = s.channels(), .longest_side = static_cast<std::size_t>(s.longest_side)}};
}

namespace {

penstock::patch_options patches(const settings& s) {
  penstock::patch_options options;
  options.size = {static_cast<std::size_t>(s.patch), static_cast<std::size_t>(s.patch)};
  options.per_image = static_cast<std::uint64_t>(s.per_image);
  options.flip_rows = options.flip_columns = options.quarter_turns = true;
  options.cache_bytes = static_cast<std::size_t>(s.cache_mb) << 20;
  return options;
}

}  // namespace

noisy_patches noisy(const photos& from, const settings& s) {
  return {penstock::random_patches<float>(penstock::image_files(from.train, decoding(s)), patches(s)),
          static_cast<float>(s.sigma / 255)};
}

pair_patches pairs(const photos& inputs, const photos& responses, const settings& s) {
  return penstock::random_patches<float>(penstock::image_files(inputs.train, decoding(s)),
                                         penstock::image_files(responses.train, decoding(s)), patches(s));
}

picture corner(const std::string& path, const settings& s) {
  const penstock::image_files files(std::vector<std::string>{path}, decoding(s));
  const penstock::image all = files.load(0);
  picture result{std::filesystem::path(path).stem().string(),
                 std::min<std::size_t>(all.height(), s.crop),
                 std::min<std::size_t>(all.width(), s.crop),
                 s.channels(),
                 {}};
  result.values.resize(result.height * result.width * result.channels);
  penstock::pixel_writer<float>("patch_trainer", {}, result.channels)
      .write(all, {{0, 0, 0}, {1, result.height, result.width}}, result.values.data(), path);
  return result;
}

picture with_noise(picture clean, std::uint64_t number, const settings& s) {
  penstock::philox random(static_cast<std::uint64_t>(s.seed), 0, number, penstock::random_domain::user);
  for (float& value : clean.values) value += static_cast<float>(s.sigma / 255) * random.normal();
  return clean;
}

}  // namespace patch_trainer
