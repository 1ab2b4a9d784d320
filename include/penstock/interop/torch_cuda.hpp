// SPDX-License-Identifier: Apache-2.0
#pragma once

// For a LibTorch that was built with CUDA; with another one there is nothing here.
#if __has_include(<c10/cuda/impl/cuda_cmake_macros.h>)

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <penstock/device/cuda_stream.hpp>

namespace penstock {

/// While it lives, LibTorch works on the batch's stream, on this thread: behind the copy of the batch, and before its
/// memory is used again. First in the loop's body, before `to_tensors`; its end puts back what was current before.
///
///   for (auto& batch : feed.epoch(0)) {
///     const penstock::torch_stream_guard on(batch, replica.device().ordinal());
///
/// What other streams of LibTorch's do with the batch's tensors is named by `batch.used_on`. (Needs a GPU, and is not
/// among the tests that run without one.)
class torch_stream_guard {
 public:
  /// `ordinal`: of the device that the batch is on, as in `cuda_device`.
  template <class Batch>
  torch_stream_guard(const Batch& batch, int ordinal)
      : guard_(c10::cuda::getStreamFromExternal(cuda_stream_view(batch.stream()).get(),
                                                static_cast<c10::DeviceIndex>(ordinal))) {}
  torch_stream_guard(const torch_stream_guard&) = delete;
  torch_stream_guard& operator=(const torch_stream_guard&) = delete;

 private:
  c10::cuda::CUDAStreamGuard guard_;
};

}  // namespace penstock

#endif
