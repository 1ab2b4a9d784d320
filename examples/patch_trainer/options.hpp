// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace patch_trainer {

/// What a run is. The checkpoint keeps it, so that `--resume FILE` needs no other option.
struct settings {
  std::string photos, inputs, responses;  // a folder of photos to make noisy, or pairs
  bool colour = false;
  std::int64_t longest_side = 1024, held_out = 5, crop = 480;
  double sigma = 25;  // of 255
  std::int64_t patch = 40, per_image = 256, together = 16, batch = 64;
  std::int64_t layers = 6, width = 32, epochs = 27;
  double rate = 2e-3;
  std::int64_t seed = 1;
  /// `io(name, value)` for each of them.
  void each(auto&& io) {
    io("photos", photos), io("inputs", inputs), io("responses", responses), io("colour", colour);
    io("longest_side", longest_side), io("held_out", held_out), io("crop", crop), io("sigma", sigma);
    io("patch", patch), io("per_image", per_image), io("together", together), io("batch", batch);
    io("layers", layers), io("width", width), io("epochs", epochs), io("rate", rate), io("seed", seed);
  }

  // Of this process only.
  std::string device = "auto", loader = "penstock", precision = "auto", out = "denoiser", resume;
  int readers = 1, depth = 3, replicas = 1, cache_mb = 1024;
  double timeout = 600;

  bool pairs() const { return !inputs.empty(); }
  std::size_t channels() const { return colour ? 3 : 1; }
};

/// Puts what the command line says into `to`, and leaves the rest as it is. `--help` and bad options end the program.
void parse(int argc, char** argv, settings& to);

}  // namespace patch_trainer
