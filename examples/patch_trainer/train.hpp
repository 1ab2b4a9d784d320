// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>

#include "options.hpp"

namespace patch_trainer {

/// How a run ends; the program's exit status.
enum class ending { done = 0, error = 1, not_a_number = 11, timeout = 12, interrupted = 130 };

/// Puts the options of the checkpoint `s.resume` into `s`.
void recall(settings& s);

/// Whether convolutions are to be computed in bfloat16: where that is asked for, or where the CPU multiplies matrices
/// of it (AMX).
bool uses_bfloat16(const settings& s);

/// Trains until it is done or something ends it, and prints the report on photos that the training never saw. However
/// it ends, what was learnt is in the folder `s.out`: model.ckpt, and report.html, steps.csv and strip.svg.
ending train(const settings& s, std::stop_token stop);

/// Why LibTorch cannot use CUDA here, or nothing; and the same training there.
std::string why_no_cuda();
ending train_on_cuda(const settings& s, std::stop_token stop);

}  // namespace patch_trainer
