// SPDX-License-Identifier: Apache-2.0
// The trainer on an NVIDIA GPU. The program has it from the folder cuda/, or, built without CUDA, that there is none
// from the folder no_cuda/.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "train.hpp"

namespace trainer {

/// Nothing if a GPU can be used; else the reason in words.
std::string why_no_cuda();
/// "cuda 0 (NVIDIA H200)"; if one can be used.
std::string cuda_name();

ending train_on_cuda(const settings& s, std::optional<checkpoint> from, const parts& data, std::stop_token stop,
                     const std::string& device);
void predict_on_cuda(const network_layout& layout, const checkpoint& model, const table& rows, const settings& s);

}  // namespace trainer
