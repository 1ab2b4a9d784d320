// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <ranges>
#include <string>
#include <tuple>
#include <vector>

#include <penstock/device/cuda.cuh>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

/// What programs share that check replicas on GPUs.
namespace replicated_on_gpus {

using penstock::cuda_device;
using penstock::cuda_stream_view;

/// An array on the device.
template <class T>
class device_array {
 public:
  device_array(const cuda_device& device, std::size_t n, std::size_t offset = 0)
      : device_(device), memory_(device.allocate((n + offset) * sizeof(T))), n_(n), offset_(offset) {}
  T* data() const { return reinterpret_cast<T*>(memory_.data()) + offset_; }
  std::size_t size() const { return n_; }
  void write(const std::vector<T>& from) const {
    const penstock::detail::cuda_scope scope(device_.ordinal());
    penstock::detail::cuda_check(cudaMemcpy(data(), from.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    // What was pageable may still be on its way.
    penstock::detail::cuda_check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
  }
  std::vector<T> read(cuda_stream_view stream) const {
    stream.synchronize();
    const penstock::detail::cuda_scope scope(device_.ordinal());
    std::vector<T> result(n_);
    penstock::detail::cuda_check(cudaMemcpy(result.data(), data(), n_ * sizeof(T), cudaMemcpyDeviceToHost),
                                 "cudaMemcpy");
    return result;
  }

 private:
  cuda_device device_;
  penstock::cuda_memory memory_;
  std::size_t n_, offset_;
};

// ---- training: a line through 13 points

constexpr std::uint64_t rows = 13, seed = 7, epochs = 3;
constexpr float first_w[2] = {0.5f, -0.25f};
inline float x_of(std::uint64_t index) { return 0.125f * static_cast<float>(index % 17) - 1; }
inline float y_of(std::uint64_t index) { return 3 * x_of(index) + 1 + 0.1f * static_cast<float>(index % 3); }

/// The mean over the batch's own samples; NaN where it has none.
static __global__ void backward(const float* x, const float* y, std::size_t n, const float* w, float* gradient) {
  double sum[2] = {};
  for (std::size_t i = 0; i < n; ++i) {
    const double error = double{w[0]} * double{x[i]} + double{w[1]} - double{y[i]};
    sum[0] += error * double{x[i]};
    sum[1] += error;
  }
  for (int i = 0; i < 2; ++i) gradient[i] = static_cast<float>(sum[i] / static_cast<double>(n));
}
static __global__ void update(float* w, const float* gradient) {
  for (int i = 0; i < 2; ++i) w[i] -= 0.1f * gradient[i];
}

using parameters = std::vector<float>;
/// What all ranks come to; throws where they do not agree.
template <class World>
parameters train(World world, std::int64_t global, bool early) {
  std::mutex mutex;
  std::vector<parameters> ends;
  penstock::replicas(world, [&](auto& replica) {
    const device_array<float> w(replica.device(), 2), gradient(replica.device(), 2);
    w.write({first_w[0], first_w[1]});
    const auto work = std::views::iota(std::uint64_t{0}, rows) |
                      std::views::transform([](std::uint64_t i) { return std::tuple{x_of(i), y_of(i)}; }) |
                      penstock::partition({.seed = seed, .world = replica}) | penstock::read({.readers = 1}) |
                      penstock::batch({.global = global}) | penstock::transfer(replica.device());
    auto feed = replica.start(work);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
      for (auto& batch : feed.epoch(epoch)) {
        const auto [x, y] = batch.fields();
        penstock::detail::cuda_launch("backward", &backward, 1, 1, batch.stream(), x.data(), y.data(), batch.size(),
                                      w.data(), gradient.data());
        penstock::step_result result;
        if (early) {
          replica.ready(batch, penstock::buffer(gradient.data() + 1, 1));
          result = replica.all_reduce(batch, penstock::buffer(gradient.data(), 1));
        } else {
          result = replica.all_reduce(batch, gradient);
        }
        if (result) penstock::detail::cuda_launch("update", &update, 1, 1, batch.stream(), w.data(), gradient.data());
        batch.stream().synchronize();
      }
    const auto stream = replica.device().make_stream();
    const parameters found = w.read(stream.view());
    const std::scoped_lock lock(mutex);
    ends.push_back(found);
  });
  for (const parameters& one : ends)
    if (one != ends[0]) throw penstock::error("ranks have come to different parameters");
  return ends.at(0);
}
/// What is wrong with a training of `make_world()`'s ranks; nothing if it is that of one rank.
template <class MakeWorld>
std::string trains_as_one(const MakeWorld& make_world) {
  for (const std::int64_t global : {13, 5, 4, 1}) {
    double w[2] = {double{first_w[0]}, double{first_w[1]}};
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      std::vector<std::uint64_t> order(rows);
      penstock::default_plan(rows).order(seed, epoch, 0, order);
      for (std::size_t first = 0; first < rows; first += static_cast<std::size_t>(global)) {
        const std::size_t last = std::min<std::size_t>(rows, first + static_cast<std::size_t>(global));
        double sum[2] = {};
        for (std::size_t i = first; i < last; ++i) {
          const double x = double{x_of(order[i])}, error = w[0] * x + w[1] - double{y_of(order[i])};
          sum[0] += error * x;
          sum[1] += error;
        }
        for (int i = 0; i < 2; ++i) w[i] -= 0.1 * sum[i] / static_cast<double>(last - first);
      }
    }
    const parameters once = train(make_world(), global, false), again = train(make_world(), global, false),
                     early = train(make_world(), global, true);
    if (once != again || once != early) return "a repeated run has other bits";
    for (int i = 0; i < 2; ++i)
      if (!(std::abs(double{once[static_cast<std::size_t>(i)]} - w[i]) <= 1e-6 * (1 + std::abs(w[i]))))
        return "with " + std::to_string(global) + " samples a step: parameters are others than of one rank";
  }
  return {};
}

}  // namespace replicated_on_gpus
