// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include <penstock/dataset/atomic_file.hpp>

#include "archive.hpp"
#include "data.hpp"
#include "mlp.hpp"

namespace trainer {

/// All that predicting, or going on, needs.
struct checkpoint {
  static constexpr std::uint32_t format = std::endian::native == std::endian::little ? 1 : 2;

  settings options;
  standardise inputs;
  network_state network;
  std::vector<double> training, validation;  // RMSE after each epoch
  double loss = 0;                           // sum over the samples of this epoch so far
  std::uint64_t seen = 0;                    // their number
  std::string feed;                          // where the batches go on
  void each(auto& io) { io(options, inputs, network, training, validation, loss, seen, feed); }
};

/// Whole or not at all; errors are `penstock::error`.
inline void save(const std::string& path, checkpoint& state) {
  archive bytes;
  state.each(bytes);
  penstock::write_checked(path, bytes.bytes(), checkpoint::format);
}

inline checkpoint load(const std::string& path) {
  archive bytes(penstock::read_checked(path, checkpoint::format));
  checkpoint result;
  result.each(bytes);
  bytes.finish();
  return result;
}

}  // namespace trainer
