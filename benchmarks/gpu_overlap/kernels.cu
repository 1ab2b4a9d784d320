// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <penstock/device/cuda_error.hpp>

namespace gpu_overlap {
namespace {

__device__ std::uint64_t device_time() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ void run_until(std::uint64_t end) {
  while (device_time() < end) __nanosleep(100);
}

__global__ void step(const std::uint64_t* batch, unsigned rows, std::size_t words_a_row, std::uint64_t length,
                     unsigned long long* sum) {
  const std::uint64_t begin = device_time();
  if (threadIdx.x < rows) atomicAdd(sum, static_cast<unsigned long long>(batch[threadIdx.x * words_a_row]));
  if (threadIdx.x == 0) run_until(begin + length);
}

__global__ void signal(std::uint64_t* word, std::uint64_t value, std::uint64_t length) {
  run_until(device_time() + length);
  *word = value;
}

__global__ void nothing() {}

std::uint64_t count(std::chrono::nanoseconds length) { return static_cast<std::uint64_t>(length.count()); }

void launched() { penstock::detail::cuda_check(cudaGetLastError(), "a kernel's launch"); }

}  // namespace

void launch_step(const std::uint64_t* batch, std::size_t rows, std::size_t words_a_row, std::chrono::nanoseconds length,
                 unsigned long long* sum, cudaStream_t stream) {
  const auto threads = static_cast<unsigned>(rows);
  step<<<1, threads, 0, stream>>>(batch, threads, words_a_row, count(length), sum);
  launched();
}

void launch_signal(std::uint64_t* word, std::uint64_t value, std::chrono::nanoseconds length, cudaStream_t stream) {
  signal<<<1, 1, 0, stream>>>(word, value, count(length));
  launched();
}

void launch_nothing(cudaStream_t stream) {
  nothing<<<1, 1, 0, stream>>>();
  launched();
}

}  // namespace gpu_overlap
