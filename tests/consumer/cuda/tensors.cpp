// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>
#include <memory>
#include <utility>

#include "pipeline.hpp"

/// A batch's temperatures as a tensor on the device, which lets the batch go when it is let go itself. Work on it
/// belongs on the batch's stream.
torch::Tensor temperatures(station::batch&& of) {
  const auto view = of.get<0>();
  auto kept = std::make_shared<station::batch>(std::move(of));
  return torch::from_blob(
      view.data(), {static_cast<std::int64_t>(view.extent(0))}, [kept](void*) mutable { kept.reset(); },
      torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA, 0));
}
