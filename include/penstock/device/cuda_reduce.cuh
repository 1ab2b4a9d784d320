// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cub/device/device_reduce.cuh>
#include <string>
#include <utility>

#include <penstock/device/cuda.hpp>
#include <penstock/device/fold_rows.hpp>

namespace penstock {

/// Reduces arrays in a device's memory to one value there, by CUB.
///
/// Temporary memory for up to `most` elements is allocated, and the kernels are loaded, by the constructor; `reduce`
/// only enqueues. As the temporary memory is used in the stream's order: one stream at a time. `operation` is
/// associative and commutative, with `initial` folded in once. Equal arrays give equal bits on the same device.
template <class T, class Operation = plus>
class cuda_reducer {
 public:
  cuda_reducer(const cuda_device& device, std::size_t most, T initial = {}, Operation operation = {})
      : device_(device), most_(most), initial_(std::move(initial)), operation_(std::move(operation)) {
    if (most == 0) detail::reject_option("cuda_reducer", "most", "0", "the most elements that will be reduced");
    const detail::cuda_scope scope(device.ordinal());
    std::size_t bytes = 0;
    call(nullptr, bytes, nullptr, most, nullptr, cuda_stream_view::legacy());  // asks for the size, enqueues nothing
    temporary_ = device.allocate(bytes);
    warm_up();
  }

  /// Enqueues `*out = operation(initial, operation(in[0], in[1], ...))`. Throws `std::invalid_argument` for more
  /// elements than the constructor was told of, `cuda_error` for what CUDA refuses.
  void reduce(const T* in, std::size_t n, T* out, cuda_stream_view stream) {
    if (n > most_)
      detail::reject_option("cuda_reducer", "n", std::to_string(n),
                            detail::concat("at most the ", most_, " that it was made for"));
    detail::cuda_check_pending("an array was reduced");
    const detail::cuda_scope scope(device_.ordinal());
    std::size_t bytes = temporary_.size();
    call(temporary_.data(), bytes, in, n, out, stream);
  }
  std::size_t most() const noexcept { return most_; }

 private:
  void call(void* temporary, std::size_t& bytes, const T* in, std::size_t n, T* out, cuda_stream_view stream) const {
    detail::cuda_check(cub::DeviceReduce::Reduce(temporary, bytes, in, out, static_cast<std::int64_t>(n), operation_,
                                                 initial_, stream.get()),
                       "cub::DeviceReduce::Reduce");
  }
  // CUB does not tell its kernels, of which there is one for what fits into a block, and two for more: used once, on
  // zeros, they are loaded.
  void warm_up() const {
    const std::size_t many = most_ < 65536 ? most_ : 65536;
    const auto stream = device_.make_stream();
    const auto in = device_.allocate((many + 1) * sizeof(T));
    auto* const data = reinterpret_cast<T*>(in.data());
    detail::cuda_check(cudaMemsetAsync(data, 0, in.size(), stream.view()), "cudaMemsetAsync");
    std::size_t bytes = temporary_.size();
    for (const std::size_t n : {std::size_t{1}, many})
      call(temporary_.data(), bytes, data, n, data + many, stream.view());
    stream.view().synchronize();
  }

  cuda_device device_;
  std::size_t most_;
  T initial_;
  Operation operation_;
  cuda_memory temporary_;
};

}  // namespace penstock
