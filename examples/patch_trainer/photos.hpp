// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/dataset/image_files.hpp>
#include <penstock/dataset/random_patches.hpp>

#include "options.hpp"

namespace patch_trainer {

/// Patches of clean photos, and the same with noise added: fields "input", "response" and "origin". The noise is drawn
/// from the sample's stream, so that it is the same for any number of readers, and other noise in each epoch.
class noisy_patches {
 public:
  using schema_type =
      penstock::schema<penstock::field<float, 3>, penstock::field<float, 3>, penstock::field<penstock::patch_origin>>;
  using clean_patches = penstock::patch_dataset<float, penstock::image_files>;

  noisy_patches(clean_patches clean, float sigma) : clean_(std::move(clean)), sigma_(sigma) {}

  std::uint64_t size() const { return clean_.size(); }
  auto blocks(std::uint64_t together) const { return clean_.blocks(together); }
  std::string describe() const { return clean_.describe() + ", and noise"; }
  schema_type schema() const {
    const auto [patch, origin] = clean_.schema().fields;
    auto input = patch, response = patch;
    input.name = "input";
    response.name = "response";
    return schema_type(input, response, origin);
  }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to, penstock::read_context& context) const {
    const auto& [noisy, clean, origin] = to;
    clean_.read(index, {clean, origin}, context);
    for (std::size_t i = 0; i < noisy.size(); ++i) noisy.data()[i] = clean.data()[i] + sigma_ * context.random.normal();
  }

 private:
  clean_patches clean_;
  float sigma_;
};

/// The files of a run: those to train on, and those that only the report sees.
struct photos {
  std::vector<std::string> train, held_out;
};
photos split(const penstock::image_files& all, const settings& s);

penstock::image_files_options decoding(const settings& s);
noisy_patches noisy(const photos& from, const settings& s);
using pair_patches = penstock::patch_dataset<float, penstock::image_files, penstock::image_files>;
pair_patches pairs(const photos& inputs, const photos& responses, const settings& s);

/// The upper left corner of an image, planes of numbers from 0 to 1.
struct picture {
  std::string name;
  std::size_t height, width, channels;
  std::vector<float> values;
};
picture corner(const std::string& path, const settings& s);
/// The same with the noise of picture `number`, which no training sees.
picture with_noise(picture clean, std::uint64_t number, const settings& s);

}  // namespace patch_trainer
