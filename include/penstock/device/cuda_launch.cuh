// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <string_view>
#include <utility>

#include <penstock/device/cuda_error.hpp>

namespace penstock::detail {

/// Launches a kernel. Unlike `<<<>>>` it says itself what failed, so that nothing has to be asked of the thread's last
/// error, which is the application's. Throws `cuda_error` that names `what`.
template <class... Parameters, class... Arguments>
void cuda_launch(std::string_view what, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                 cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchConfig_t shape{};
  shape.gridDim = dim3(blocks);
  shape.blockDim = dim3(threads);
  shape.stream = stream;
  cuda_check(cudaLaunchKernelEx(&shape, kernel, std::forward<Arguments>(arguments)...), what);
}

/// Loads a kernel to the current device. The runtime would do so at its first launch, and wait for the device there.
template <class... Parameters>
void cuda_preload(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes{};
  cuda_check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
}

}  // namespace penstock::detail
