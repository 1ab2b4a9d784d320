// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "checkpoint.hpp"

namespace trainer {

/// How a run ends; the program's exit status.
enum class ending { done = 0, error = 1, early_stop = 10, not_a_number = 11, timeout = 12, interrupted = 130 };

/// Whether to use CUDA, and in words what is used. Throws `penstock::error` if CUDA is asked for and cannot be used.
struct device_choice {
  bool cuda;
  std::string text;
};
device_choice choose_device(const settings& s);

/// Trains until it is done or something ends it, and prints the report. However it ends, best.ckpt, last.ckpt and
/// loss.svg are in the folder `s.out`, whole. `from`: the checkpoint to go on from, of a run on whatever device.
ending train(const settings& s, std::optional<checkpoint> from, const parts& data, std::stop_token stop);

/// Prints the outputs of the model `s.model` for the rows of the file `s.predict`.
void predict(const settings& s);

}  // namespace trainer
