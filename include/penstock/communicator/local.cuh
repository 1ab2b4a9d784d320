// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <penstock/communicator/local_cuda.hpp>
#include <penstock/communicator/local_sum.hpp>
#include <penstock/device/cuda.hpp>
#include <penstock/device/cuda_launch.cuh>

namespace penstock {

namespace detail {

/// Rounded as on the host: no product and sum in one.
template <class T>
__device__ T times(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return __fmul_rn(a, b);
  else if constexpr (std::is_same_v<T, double>)
    return __dmul_rn(a, b);
  else
    return a * b;
}

template <std::size_t Width, class T>
struct alignas(Width * sizeof(T)) local_pack {
  T values[Width];
};

/// `Width` elements at a time, then what is left.
template <std::size_t Width, class T>
__global__ void __launch_bounds__(256) local_sum_kernel(const __grid_constant__ local_sum what) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  const auto reduce = [&](std::size_t at, auto width) {
    using pack = local_pack<decltype(width)::value, T>;
    pack sum{};
#pragma unroll 4
    for (std::uint32_t r = 0; r < what.ranks; ++r) {
      const pack one = reinterpret_cast<const pack*>(what.from[r])[at];
      const T factor = static_cast<T>(what.factors[r]);
#pragma unroll
      for (std::size_t i = 0; i < decltype(width)::value; ++i) {
        const T scaled = times(factor, one.values[i]);
        if (r == 0)
          sum.values[i] = scaled;
        else if (what.maximum)
          sum.values[i] = scaled > sum.values[i] || scaled != scaled ? scaled : sum.values[i];
        else
          sum.values[i] += scaled;
      }
    }
    for (std::uint32_t t = 0; t < what.targets; ++t) reinterpret_cast<pack*>(what.to[t])[at] = sum;
  };
  const std::size_t packs = what.count / Width;
  for (std::size_t at = thread; at < packs; at += threads) reduce(at, std::integral_constant<std::size_t, Width>{});
  for (std::size_t at = packs * Width + thread; at < what.count; at += threads)
    reduce(at, std::integral_constant<std::size_t, 1>{});
}

}  // namespace detail

/// Kernels of replicas on NVIDIA GPUs.
class cuda_kernels : public detail::cuda_peer_copies {
 public:
  void prepare(const cuda_device& device, std::span<const cuda_device> others) {
    cuda_peer_copies::prepare(device, others);
    const detail::cuda_scope scope(device.ordinal());
    for (int type = 0; type <= static_cast<int>(element_type::uint64); ++type)
      detail::with_element(static_cast<element_type>(type), [](auto element) {
        using T = decltype(element);
        detail::cuda_preload(&detail::local_sum_kernel<16 / sizeof(T), T>);
        detail::cuda_preload(&detail::local_sum_kernel<1, T>);
      });
  }
  void sum(const cuda_device& device, const local_sum& what, cuda_stream_view on) const {
    const detail::cuda_scope scope(device.ordinal());
    std::uintptr_t addresses = 0;
    for (std::uint32_t r = 0; r < what.ranks; ++r) addresses |= reinterpret_cast<std::uintptr_t>(what.from[r]);
    for (std::uint32_t t = 0; t < what.targets; ++t) addresses |= reinterpret_cast<std::uintptr_t>(what.to[t]);
    detail::with_element(what.type, [&](auto element) {
      using T = decltype(element);
      if (addresses % 16 == 0)
        launch<16 / sizeof(T), T>(what, on);
      else
        launch<1, T>(what, on);
    });
  }

 private:
  static constexpr unsigned threads = 256;
  static constexpr std::size_t most_blocks = 2048;  // fills a large GPU

  template <std::size_t Width, class T>
  static void launch(const local_sum& what, cuda_stream_view on) {
    const std::size_t wanted = (what.count / Width + threads - 1) / threads;
    const std::size_t blocks = wanted == 0 ? 1 : wanted < most_blocks ? wanted : most_blocks;
    detail::cuda_launch("launch of all_reduce's kernel", &detail::local_sum_kernel<Width, T>,
                        static_cast<unsigned>(blocks), threads, on, what);
  }
};

/// Ranks on the GPUs of one machine, several on one if they are named so, without NCCL.
using local_cuda_world = local_device_world<cuda_device, cuda_kernels>;

}  // namespace penstock
