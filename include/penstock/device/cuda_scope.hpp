// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include <penstock/device/cuda_error.hpp>

namespace penstock::detail {

/// Makes a device the thread's current one as long as it lives, and leaves the one that was.
///
/// Only for calls that depend on it: making things, and the default streams. A thread that is on the device already is
/// not touched.
class cuda_scope {
 public:
  explicit cuda_scope(int device) : cuda_scope(true, device) {}
  /// For work on a stream: a handle names its device, unless it is one of the default streams'.
  cuda_scope(int device, cudaStream_t stream) : cuda_scope(is_default(stream), device) {}
  cuda_scope(const cuda_scope&) = delete;
  cuda_scope& operator=(const cuda_scope&) = delete;
  ~cuda_scope() {
    if (changed_) cuda_log(cudaSetDevice(before_), "cudaSetDevice");
  }

  static bool is_default(cudaStream_t stream) noexcept {
    return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  }

 private:
  cuda_scope(bool needed, int device) {
    if (!needed) return;
    cuda_check(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ == device) return;
    cuda_check(cudaSetDevice(device), "cudaSetDevice");
    changed_ = true;
  }

  int before_ = 0;
  bool changed_ = false;
};

}  // namespace penstock::detail
