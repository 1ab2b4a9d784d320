// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <penstock/device/cast_normalise.hpp>
#include <penstock/device/cuda.hpp>
#include <penstock/device/cuda_launch.cuh>

namespace penstock {

namespace detail {

template <std::size_t Width, class From>
__global__ void __launch_bounds__(256)
    cast_normalise_kernel(cast_normalise convert, const From* from, float* to, std::size_t n, channel_cursor stride) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  convert.part<Width>(from, to, n, thread, std::size_t{gridDim.x} * blockDim.x, stride);
}

}  // namespace detail

/// Turns elements that travel small, `std::uint8_t` or `__half`, into normalised floats on the device, in one pass:
/// `(x - mean[channel]) * scale[channel]`. For images of bytes that is a quarter of the bus.
///
///     penstock::cuda_cast_normalise<std::uint8_t> normalise(device, mean, scale);   // before the loop
///     normalise(batch.get<0>(), images, batch.stream());                            // in it: only enqueues
///
/// The tables are copied to the device, and the kernels loaded, by the constructor. A value of it may be used on
/// several streams at once, and outlives the work there.
template <class From>
class cuda_cast_normalise {
 public:
  /// `mean` and `scale` have an entry for each channel; see `channel_order` for `inner`.
  cuda_cast_normalise(const cuda_device& device, std::span<const float> mean, std::span<const float> scale,
                      std::uint32_t inner = 1)
      : device_(device),
        order_{static_cast<std::uint32_t>(mean.size()), inner},
        tables_(device.allocate((mean.size() + scale.size()) * sizeof(float))) {
    constexpr const char* stage = "cuda_cast_normalise";
    if (mean.empty()) detail::reject_option(stage, "mean", "empty", "an entry for each channel");
    if (mean.size() != scale.size())
      detail::reject_option(stage, "scale", detail::concat("of ", scale.size(), " entries"),
                            detail::concat(mean.size(), ", as mean has"));
    if (inner == 0) detail::reject_option(stage, "inner", "0", "the elements in a run of one channel, 1 or more");
    const detail::cuda_scope scope(device.ordinal());
    detail::cuda_preload(&detail::cast_normalise_kernel<wide, From>);
    detail::cuda_preload(&detail::cast_normalise_kernel<1, From>);
    const auto host = device.allocate_host(tables_.size());
    auto* const tables = reinterpret_cast<float*>(host.data());
    for (std::size_t i = 0; i < mean.size(); ++i) {
      tables[i] = mean[i];
      tables[mean.size() + i] = scale[i];
    }
    const auto stream = device.make_stream();
    device.copy_to_device(tables_.data(), host.data(), host.size(), stream.view());
    stream.view().synchronize();
  }

  /// Enqueues the conversion of `n` elements, whole samples, from and to the device's memory.
  void operator()(const From* from, float* to, std::size_t n, cuda_stream_view stream) const {
    if (n % order_.sample() != 0)
      throw std::invalid_argument(detail::concat("penstock: cuda_cast_normalise: ", n,
                                                 " elements, wanted a multiple of ", order_.sample(),
                                                 ", as channels * inner is"));
    if (n == 0) return;
    detail::cuda_check_pending("elements were cast and normalised");
    const detail::cuda_scope scope(device_.ordinal());
    // Fields of a batch are aligned; a row in its midst may not be.
    const bool aligned = reinterpret_cast<std::uintptr_t>(from) % (wide * sizeof(From)) == 0 &&
                         reinterpret_cast<std::uintptr_t>(to) % (wide * sizeof(float)) == 0;
    if (aligned)
      launch<wide>(from, to, n, stream);
    else
      launch<1>(from, to, n, stream);
  }
  /// The same of a batch's field.
  template <class Element, std::size_t Rank>
    requires std::is_same_v<std::remove_const_t<Element>, From>
  void operator()(const tensor_view<Element, Rank, device_memory>& from, float* to, cuda_stream_view stream) const {
    (*this)(from.data(), to, from.size(), stream);
  }

 private:
  static constexpr std::size_t wide = 4;
  static constexpr unsigned threads = 256;
  static constexpr std::size_t most_blocks = 2048;  // fills a large GPU

  template <std::size_t Width>
  void launch(const From* from, float* to, std::size_t n, cuda_stream_view stream) const {
    const std::size_t wanted = (n / Width + threads - 1) / threads;
    const std::size_t blocks = wanted == 0 ? 1 : wanted < most_blocks ? wanted : most_blocks;
    const auto* const tables = reinterpret_cast<const float*>(tables_.data());
    detail::cuda_launch("launch of cuda_cast_normalise's kernel", &detail::cast_normalise_kernel<Width, From>,
                        static_cast<unsigned>(blocks), threads, stream,
                        cast_normalise{tables, tables + order_.channels, order_}, from, to, n,
                        detail::channel_cursor(order_, Width * threads * blocks));
  }

  cuda_device device_;
  channel_order order_;
  cuda_memory tables_;
};

}  // namespace penstock
