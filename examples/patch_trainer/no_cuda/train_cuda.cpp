// SPDX-License-Identifier: Apache-2.0
// In place of cuda/train_cuda.cpp where LibTorch has no CUDA, or there is no NCCL.
#include <stdexcept>

#include "../train.hpp"

namespace patch_trainer {

std::string why_no_cuda() { return "built without it"; }
ending train_on_cuda(const settings&, std::stop_token) { throw std::logic_error("built without CUDA"); }

}  // namespace patch_trainer
