// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/sample/error.hpp>

namespace penstock {

/// A call of the CUDA runtime that failed: "cudaMemcpyAsync: cudaErrorInvalidValue (1): invalid argument".
///
/// Where it comes out of a feed it is the cause inside of a `penstock::error` that names stage, epoch and step.
class cuda_error : public error {
 public:
  cuda_error(cudaError_t code, std::string_view call, provenance where = {})
      : error(text(code, call), std::move(where)), code_(code), call_(call) {}

  cudaError_t code() const noexcept { return code_; }
  /// The function that reported it; not always the one that caused it, see `is_sticky`.
  const std::string& call() const noexcept { return call_; }
  /// The device's context is lost: every later call in this process fails with the same code.
  bool is_sticky() const noexcept { return is_sticky(code_); }

  static bool is_sticky(cudaError_t code) noexcept {
    switch (code) {
      case cudaErrorECCUncorrectable:
      case cudaErrorNvlinkUncorrectable:
#if CUDART_VERSION >= 13000
      case cudaErrorContained:
      case cudaErrorTensorMemoryLeak:
#endif
      case cudaErrorContextIsDestroyed:
      case cudaErrorIllegalAddress:
      case cudaErrorLaunchTimeout:
      case cudaErrorAssert:
      case cudaErrorHardwareStackError:
      case cudaErrorIllegalInstruction:
      case cudaErrorMisalignedAddress:
      case cudaErrorInvalidAddressSpace:
      case cudaErrorInvalidPc:
      case cudaErrorLaunchFailure:
      case cudaErrorUnknown: return true;
      default: return false;
    }
  }

 private:
  static std::string text(cudaError_t code, std::string_view call) {
    std::string result = detail::concat(call, ": ", std::string_view(cudaGetErrorName(code)), " (",
                                        static_cast<int>(code), "): ", std::string_view(cudaGetErrorString(code)));
    if (is_sticky(code)) result += "; a kernel or copy that was enqueued before may be the cause";
    return result;
  }

  cudaError_t code_;
  std::string call_;
};

namespace detail {

/// Throws what a call of ours returned. The thread's last error is then as if there had been no call.
inline void cuda_check(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) [[likely]]
    return;
  if (cudaPeekAtLastError() == code) cudaGetLastError();
  throw cuda_error(code, call);
}

/// For destructors, which cannot pass on what fails. At the process's end the runtime may be gone before our objects.
inline void cuda_log(cudaError_t code, const char* call) noexcept {
  if (code == cudaSuccess || code == cudaErrorCudartUnloading) return;
  if (cudaPeekAtLastError() == code) cudaGetLastError();
  std::fprintf(stderr, "penstock: %s: %s (%d): %s; in a destructor, so this is only reported\n", call,
               cudaGetErrorName(code), static_cast<int>(code), cudaGetErrorString(code));
}

/// An error that an earlier call of the application's own has left on this thread, a launch with a bad configuration
/// say, is reported as such, and stays: `cudaGetLastError()` clears it.
inline void cuda_check_pending(std::string_view doing) {
  const cudaError_t pending = cudaPeekAtLastError();
  if (pending == cudaSuccess || pending == cudaErrorNotReady) [[likely]]
    return;
  if (cuda_error::is_sticky(pending)) throw cuda_error(pending, concat("cudaPeekAtLastError, when ", doing));
  throw cuda_error(pending, concat("an error of the application's own was pending when ", doing,
                                   " (a launch that failed, perhaps; cudaGetLastError() clears it)"));
}

}  // namespace detail
}  // namespace penstock
