// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "pipeline.hpp"

int main() {
  if (!penstock::cuda_device::is_available()) {
    std::puts("no GPU here: built, and not run");
    return 0;
  }
  station::table all;
  double wanted = 0;
  for (int i = 0; i < 1050; ++i) {
    all.emplace_back(0.5F * static_cast<float>(i), i % 7);
    wanted += 0.5 * i * (i % 7);
  }

  const penstock::cuda_device device(0);
  const auto sum = device.allocate(sizeof(double));
  auto* const on_device = reinterpret_cast<double*>(sum.data());
  if (cudaMemset(on_device, 0, sizeof(double)) != cudaSuccess) return 1;
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;

  auto feed = station::pipeline(all, device).start();
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : feed.epoch(static_cast<std::uint64_t>(epoch))) station::add_products(batch, on_device);
  station::add_all(all, device, on_device);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;

  double found = 0;
  if (cudaMemcpy(&found, on_device, sizeof(double), cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  std::printf("%g of %g\n", found, 3 * wanted);
  return found > 2.999999 * wanted && found < 3.000001 * wanted ? 0 : 1;
}
