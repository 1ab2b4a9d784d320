// SPDX-License-Identifier: Apache-2.0
// Thrust and CUB in `compute`, and a fold that stays on the device: the distribution of the prices' logarithms.
//
//   nvcc -std=c++20 -O3 -arch=native -Iinclude examples/07_thrust_and_cub.cu -o 07_thrust_and_cub
//
// prints: 53940 prices up to 18823; the logarithm has mean 7.7868 and standard deviation 1.0146
#include <thrust/transform.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <penstock/dataset/csv.hpp>
#include <penstock/device/cuda.cuh>
#include <penstock/device/results.hpp>
#include <penstock/penstock.hpp>

// Functions of elements are what a kernel is made of here. They are host functions, too, to be tested without a GPU.
struct logarithm {
  __host__ __device__ float operator()(float x) const { return std::log(x); }
};
struct maximum {
  __host__ __device__ float operator()(float a, float b) const { return a < b ? b : a; }
};

// Count, sum and sum of squares; two of them add up.
struct moments {
  double count, sum, squares;
  __host__ __device__ friend moments operator+(const moments& a, const moments& b) {
    return {a.count + b.count, a.sum + b.sum, a.squares + b.squares};
  }
};
/// Of one row of a batch.
struct moments_of {
  const float* values;
  __host__ __device__ moments operator()(std::size_t row) const {
    const double value = values[row];
    return {1, value, value * value};
  }
};

int main(int argc, char** argv) {
  const char* file = argc > 1 ? argv[1] : "examples/data/diamonds.csv";
  if (!penstock::cuda_device::is_available()) {
    std::puts("there is no GPU here; examples/04_statistics.cpp does the like on the CPU");
    return 1;
  }

  // Memory and kernels come before the first batch; in the run there is only enqueuing.
  penstock::cuda_device device;
  constexpr std::size_t size = 1024;
  const auto memory = device.allocate((size + 1) * sizeof(float));
  auto* const logarithms = reinterpret_cast<float*>(memory.data());
  float* const highest = logarithms + size;
  penstock::cuda_reducer<float, maximum> reducer(device, size);
  penstock::device_fold<moments_of> fold(device);
  penstock::cuda_scratch scratch(device);                          // for algorithms with temporaries: not this one
  penstock::results<float, penstock::cuda_device> maxima(device);  // on their way back, one a batch

  auto work = penstock::csv_table(file, {.target = "price", .columns = {"carat"}}) | penstock::partition({.seed = 7}) |
              penstock::read({.readers = 2}) | penstock::batch(size) | penstock::transfer(device) |
              penstock::compute([&](auto& batch) {
                const float* prices = batch.template get<1>().data();
                const std::size_t n = batch.size();
                thrust::transform(penstock::on(batch.stream(), scratch), prices, prices + n, logarithms, logarithm{});
                reducer.reduce(prices, n, highest, batch.stream());
                maxima.enqueue(highest, batch.stream(), batch.step());
              }) |
              penstock::reduce(fold.initial(), fold.over([&](auto&) { return moments_of{logarithms}; }));

  const moments all = penstock::run(work).value();  // the only wait
  float top = 0;
  while (auto result = maxima.next()) top = std::max(top, result->values[0]);
  const double mean = all.sum / all.count;
  std::printf("%.0f prices up to %.0f; the logarithm has mean %.4f and standard deviation %.4f\n", all.count, top, mean,
              std::sqrt(all.squares / all.count - mean * mean));
}
