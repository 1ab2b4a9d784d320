// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include <penstock/communicator/local_device.hpp>
#include <penstock/device/cuda.hpp>

namespace penstock::detail {

/// What replicas on NVIDIA GPUs need beside kernels: copies from one to another, through the host's memory where the
/// two do not reach each other.
class cuda_peer_copies {
 public:
  static bool same(const cuda_device& a, const cuda_device& b) noexcept { return a.ordinal() == b.ordinal(); }
  template <class Device>
  static void check(std::span<const Device>) noexcept {}

  template <class Device>
  void prepare(const Device& device, std::span<const Device> others) {
    const cuda_scope scope(device.ordinal());
    for (std::size_t i = 0; i < others.size(); ++i) {
      const int other = others[i].ordinal();
      bool first = other != device.ordinal();
      for (std::size_t before = 0; before < i; ++before) first = first && others[before].ordinal() != other;
      if (!first) continue;
      int reaches = 0;
      cuda_check(cudaDeviceCanAccessPeer(&reaches, device.ordinal(), other), "cudaDeviceCanAccessPeer");
      if (reaches == 0) continue;
      const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
      if (code != cudaErrorPeerAccessAlreadyEnabled)
        cuda_check(code, "cudaDeviceEnablePeerAccess");
      else if (cudaPeekAtLastError() == code)
        cudaGetLastError();
    }
  }
  void copy(void* to, const cuda_device& to_device, const void* from, const cuda_device& from_device, std::size_t bytes,
            cuda_stream_view on) const {
    cuda_check(cudaMemcpyPeerAsync(to, to_device.ordinal(), from, from_device.ordinal(), bytes, on),
               "cudaMemcpyPeerAsync");
  }
};

}  // namespace penstock::detail
