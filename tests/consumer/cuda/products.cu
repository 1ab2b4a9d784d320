// SPDX-License-Identifier: Apache-2.0
#include "pipeline.hpp"
#include "weight.cuh"

namespace station {
namespace {

__global__ void products(penstock::tensor_view<float, 1, penstock::device_memory> temperatures,
                         penstock::tensor_view<std::int32_t, 1, penstock::device_memory> times, double* sum) {
  const std::size_t row = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (row < temperatures.extent(0)) atomicAdd(sum, weight(temperatures(row), times(row)));
}

}  // namespace

void add_products(const batch& of, double* sum) {
  const auto [temperatures, times] = of.fields();
  const auto blocks = static_cast<unsigned>((of.rows() + 127) / 128);
  products<<<blocks, 128, 0, of.stream()>>>(temperatures, times, sum);
}

void add_all(const table& all, const penstock::cuda_device& device, double* sum) {
  auto own = pipeline(all, device).start();
  for (auto& each : own.epoch(0)) add_products(each, sum);
}

}  // namespace station
