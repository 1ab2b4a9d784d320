// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/conv2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <cstddef>
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

  /// Convolve in 16 bits while gradients are computed: where the processor has instructions for that, some two or three
  /// times as fast. Parameters and their gradients stay float32, and so does what is computed without gradients.
  void train_in_bfloat16() { in_bfloat16_ = true; }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor found = in_bfloat16_ && torch::GradMode::is_enabled() ? in_bfloat16(x) : all_->forward(x);
    return residual_ ? x - found : found;
  }

 private:
  at::Tensor in_bfloat16(const at::Tensor& x) {
    at::Tensor now = x.to(at::kBFloat16, false, false, at::MemoryFormat::ChannelsLast);
    for (std::size_t i = 0; i < all_->size(); i += 2) {
      const auto& layer = *all_->ptr<torch::nn::Conv2dImpl>(i);
      const at::Tensor weight = layer.weight.to(at::kBFloat16, false, false, at::MemoryFormat::ChannelsLast);
      now = at::conv2d(now, weight, layer.bias.to(at::kBFloat16), 1, 1);
      if (i + 1 < all_->size()) now = now.relu_();
    }
    return now.to(at::kFloat);
  }

  torch::nn::Sequential all_;
  bool residual_, in_bfloat16_ = false;
};

}  // namespace patch_trainer
