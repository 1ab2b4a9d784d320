// SPDX-License-Identifier: Apache-2.0
// The shortest loop on a GPU: the sum of a million numbers, batch by batch.
//
//   nvcc -std=c++20 -O3 -arch=native -Iinclude examples/05_on_a_gpu.cu -o 05_on_a_gpu
#include <cstdio>
#include <ranges>
#include <tuple>

#include <penstock/device/cuda.hpp>
#include <penstock/device/results.hpp>
#include <penstock/penstock.hpp>

__global__ void add(const int* numbers, unsigned count, unsigned long long* sum) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(sum, static_cast<unsigned long long>(numbers[i]));
}

int main() {
  if (!penstock::cuda_device::is_available()) return std::puts("there is no GPU here"), 1;
  penstock::cuda_device device(0);
  const auto memory = device.allocate(sizeof(unsigned long long));
  auto* const sum = reinterpret_cast<unsigned long long*>(memory.data());
  penstock::results<unsigned long long, penstock::cuda_device> results(device);

  // Read into pinned memory by two threads, copied on a stream of its own while the batch before is worked on.
  auto numbers = std::views::iota(0, 1'000'000) | std::views::transform([](int n) { return std::tuple(n); });
  auto feed = numbers | penstock::partition() | penstock::read({.readers = 2}) | penstock::batch(10'000) |
              penstock::transfer(device);

  for (auto& batch : feed.epoch(0)) {
    if (batch.step() == 0) cudaMemsetAsync(sum, 0, sizeof(*sum), batch.stream());
    const unsigned count = static_cast<unsigned>(batch.size());
    // Right: on the batch's stream, which waits for the copy, and is waited for before the memory is used again.
    add<<<(count + 255) / 256, 256, 0, batch.stream()>>>(batch.get<0>().data(), count, sum);
    // Wrong: add<<<(count + 255) / 256, 256>>>(...) is on the default stream, which does not wait for the copy.
    if (batch.step() == 99) results.enqueue(sum, batch.stream());
  }
  std::printf("%llu\n", results.wait()->values[0]);  // 499999500000
}
