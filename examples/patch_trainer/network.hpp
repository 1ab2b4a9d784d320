// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>

namespace patch_trainer {

/// 3 x 3 convolutions with rectifiers between them. With `residual` they find what is to be taken from the input, such
/// as its noise (Zhang and others: "Beyond a Gaussian denoiser", 2017; without batch norm). Any `torch::nn::Module`
/// with such a `forward` can take its place.
class convolutions : public torch::nn::Module {
 public:
  convolutions(std::int64_t layers, std::int64_t width, std::int64_t inputs, std::int64_t outputs, bool residual)
      : residual_(residual) {
    for (std::int64_t i = 0; i < layers; ++i) {
      const bool last = i + 1 == layers;
      const auto shape = torch::nn::Conv2dOptions(i == 0 ? inputs : width, last ? outputs : width, 3).padding(1);
      torch::nn::Conv2d layer(shape);
      torch::nn::init::kaiming_normal_(layer->weight);
      torch::nn::init::zeros_(layer->bias);
      all_->push_back(layer);
      if (!last) all_->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    }
    register_module("layers", all_);
  }

  at::Tensor forward(const at::Tensor& x) { return residual_ ? x - all_->forward(x) : all_->forward(x); }

 private:
  torch::nn::Sequential all_;
  bool residual_;
};

}  // namespace patch_trainer
