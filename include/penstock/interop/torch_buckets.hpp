// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>  // before the operators, which in 1.13 do not compile as C++20 by clang otherwise
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <penstock/interop/torch_structure.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// The gradients of some parameters in one piece of memory, which is what ranks exchange.
///
/// Behind them lies a number for each parameter: 1 if this rank has a gradient for it, else 0. Their weighted mean is
/// 0 where no rank that counts had one.
class torch_bucket {
 public:
  /// All of one type, on one device.
  explicit torch_bucket(std::vector<torch_entry> parameters) : parameters_(std::move(parameters)) {
    std::int64_t count = 0;
    for (const torch_entry& one : parameters_) count += one.tensor.numel();
    const auto number = static_cast<std::int64_t>(parameters_.size());
    const at::TensorOptions like = parameters_[0].tensor.options().requires_grad(false);
    flat_ = at::zeros({count + number}, like);
    used_ = flat_.narrow(0, count, number);
    used_here_ = at::zeros({number}, like.device(at::kCPU));
    std::int64_t at = 0;
    for (const torch_entry& one : parameters_) {
      places_.push_back(flat_.narrow(0, at, one.tensor.numel()).view(one.tensor.sizes()));
      at += one.tensor.numel();
    }
  }

  std::size_t size() const noexcept { return parameters_.size(); }
  const std::vector<torch_entry>& parameters() const noexcept { return parameters_; }
  reduce_buffer buffer() const { return buffer_of(flat_, reduction::weighted_mean); }

  /// Takes this rank's gradients, times `factor`.
  void fill(double factor) {
    const at::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < size(); ++i) {
      const at::Tensor& gradient = parameters_[i].tensor.grad();
      note(i, gradient.defined());
      if (!gradient.defined()) {
        places_[i].zero_();
        continue;
      }
      if (gradient.layout() != at::kStrided)
        throw error(concat("torch_replica: the gradient of ", text_of(parameters_[i]),
                           " is sparse; wanted a dense one: ranks exchange whole tensors"));
      places_[i].copy_(gradient);
      if (factor != 1) places_[i].mul_(factor);
    }
    used_.copy_(used_here_);
  }
  /// Gives the parameters the gradients of all ranks.
  void hand_out() {
    const at::NoGradGuard no_gradients;
    used_here_.copy_(used_);
    for (std::size_t i = 0; i < size(); ++i) {
      at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
      if (!used(i))
        gradient.reset();
      else if (gradient.defined())
        gradient.detach_().copy_(places_[i]);
      else
        gradient = at::empty_like(parameters_[i].tensor).copy_(places_[i]);
    }
  }

 private:
  void note(std::size_t i, bool has) {
    if (used_here_.scalar_type() == at::kFloat)
      used_here_.data_ptr<float>()[i] = has ? 1 : 0;
    else
      used_here_.data_ptr<double>()[i] = has ? 1 : 0;
  }
  bool used(std::size_t i) const {
    return used_here_.scalar_type() == at::kFloat ? used_here_.data_ptr<float>()[i] != 0
                                                  : used_here_.data_ptr<double>()[i] != 0;
  }

  std::vector<torch_entry> parameters_;
  at::Tensor flat_, used_, used_here_;
  std::vector<at::Tensor> places_;  // one in flat_ for each parameter
};

/// Parameters that are trained, in buckets of about so many bytes, the last registered first: the order in which
/// gradients come. Throws for what has none that could be reduced.
inline std::vector<torch_bucket> make_buckets(const std::vector<torch_entry>& all, std::size_t first_bytes,
                                              std::size_t bytes) {
  std::vector<torch_bucket> buckets;
  std::vector<torch_entry> now;
  std::size_t filled = 0;
  const auto close = [&] {
    if (!now.empty()) buckets.emplace_back(std::exchange(now, {}));
    filled = 0;
  };
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    if (!one->parameter || !one->tensor.requires_grad()) continue;
    const at::ScalarType type = one->tensor.scalar_type();
    if (type != at::kFloat && type != at::kDouble)
      throw error(concat("torch_replica: the gradient of ", text_of(*one),
                         " cannot be reduced; wanted parameters of float or double"));
    const std::size_t more = one->tensor.nbytes();
    if (!now.empty() &&
        (filled + more > (buckets.empty() ? first_bytes : bytes) || now[0].tensor.scalar_type() != type))
      close();
    now.push_back(*one);
    filled += more;
  }
  close();
  if (buckets.empty()) throw error("torch_replica: the module has no parameter that requires a gradient");
  return buckets;
}

}  // namespace penstock::detail
