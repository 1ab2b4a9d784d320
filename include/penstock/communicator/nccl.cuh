// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/communicator/control_words.hpp>
#include <penstock/communicator/nccl_world.hpp>
#include <penstock/device/cuda_launch.cuh>

namespace penstock {

namespace detail {

template <class T>
__global__ void divide_by_weight(T* values, std::size_t count, const control_words* reduced) {
  const double weight = reduced->total_weight();
  const T divisor = weight > 0 ? static_cast<T>(weight) : T(1);
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) values[i] /= divisor;
}

}  // namespace detail

/// Means by weights that the device alone knows, such as tokens, or of streams: `nccl_world<local_world<>,
/// nccl_kernels>`.
struct nccl_kernels {
  static constexpr bool available = true;
  static void divide(cuda_stream_view on, void* values, std::size_t count, element_type type,
                     const control_words* reduced) {
    const std::size_t blocks = (count + 255) / 256;
    const auto shape = static_cast<unsigned>(blocks < 1024 ? blocks : 1024);
    if (count == 0) return;
    if (type == element_type::float32)
      detail::cuda_launch("divide_by_weight", detail::divide_by_weight<float>, shape, 256U, on.get(),
                          static_cast<float*>(values), count, reduced);
    else
      detail::cuda_launch("divide_by_weight", detail::divide_by_weight<double>, shape, 256U, on.get(),
                          static_cast<double*>(values), count, reduced);
  }
};

}  // namespace penstock
