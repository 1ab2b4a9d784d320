// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <penstock/dataset/csv_options.hpp>

namespace trainer {

struct category : penstock::csv_categories {
  void each(auto& io) { io(column, order, as); }
};

/// What a run is. The checkpoint keeps it, so that `--resume FILE` needs no other option.
struct settings {
  std::string data = "examples/data/diamonds.csv", target = "price", x, y;
  std::vector<category> categories;
  bool indexed = false, adam = true;
  std::uint64_t layers = 2, width = 64, epochs = 60, patience = 20, seed = 1;
  std::int64_t batch = 256;
  float rate = 0.016f, momentum = 0.9f, squash = 3;
  double validation = 0.1, test = 0.2;
  void each(auto& io) {
    io(data, target, x, y, categories, indexed, adam, layers, width, epochs, patience, seed, batch, rate, momentum,
       squash, validation, test);
  }

  // Of this process only.
  int readers = 1, depth = 3, replicas = 1;
  double timeout = 600;
  std::string device = "auto", out = "trained", resume, model, predict;
};

/// Puts what the command line says into `to`, and leaves the rest as it is. `--help` and bad options end the program.
void parse(int argc, char** argv, settings& to);

}  // namespace trainer
