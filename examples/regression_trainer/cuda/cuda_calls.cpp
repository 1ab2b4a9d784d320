// SPDX-License-Identifier: Apache-2.0
#include "cuda_calls.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include <penstock/channel/atomics.hpp>

namespace trainer {
namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw penstock::error(std::string(call) + ": " + cublasGetStatusName(status) + ": " +
                          cublasGetStatusString(status));
}
void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw penstock::cuda_error(code, call);
}

}  // namespace

cuda_calls::cuda_calls(penstock::cuda_device device, std::chrono::nanoseconds timeout)
    : device_(std::move(device)), timeout_(timeout), stream_(device_.make_stream()) {
  check(cudaSetDevice(device_.ordinal()), "cudaSetDevice");  // for kernels and cuBLAS, on this thread
  cublasHandle_t handle = nullptr;
  check(cublasCreate(&handle), "cublasCreate");
  cublas_.reset(handle);
  // In this order: naming the stream would put cuBLAS's own workspace back. 32 MiB are what it wants on sm_90.
  check(cublasSetStream(handle, stream()), "cublasSetStream");
  constexpr std::size_t workspace = std::size_t{32} << 20;
  memory_.push_back(device_.allocate(workspace));
  check(cublasSetWorkspace(handle, memory_.back().data(), workspace), "cublasSetWorkspace");
  check(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH),
        "cublasSetMathMode");  // float32; TF32 would have to be asked for
  check(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");  // the same bits every time
}

cuda_calls::~cuda_calls() {
  bool done = false;
  try {
    done = stream().synchronize([] { return false; }, penstock::deadline_after(std::min<std::chrono::nanoseconds>(
                                                          timeout_, std::chrono::seconds(10)))) ==
           penstock::wait_result::complete;
  } catch (...) {
  }
  if (done) return;
  // What a copy may still reach stays.
  std::fputs("regression_trainer: the GPU did not finish its work; its memory is not freed\n", stderr);
  new auto(std::move(memory_));
  new auto(std::move(pinned_));
}

float* cuda_calls::device_floats(std::size_t count) {
  memory_.push_back(device_.allocate(count * sizeof(float)));
  float* const result = reinterpret_cast<float*>(memory_.back().data());
  zero(result, count);
  return result;
}
float* cuda_calls::host_floats(std::size_t count) {
  pinned_.push_back(device_.allocate_host(count * sizeof(float)));
  return reinterpret_cast<float*>(pinned_.back().data());
}
void cuda_calls::to_device(float* to, const float* pinned, std::size_t count) {
  device_.copy_to_device(to, pinned, count * sizeof(float), stream());
}
void cuda_calls::to_host(float* pinned, const float* from, std::size_t count) {
  device_.copy_to_host(pinned, from, count * sizeof(float), stream());
}
void cuda_calls::copy(float* to, const float* from, std::size_t count) {
  check(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToDevice, stream()), "cudaMemcpyAsync");
}
void cuda_calls::zero(float* at, std::size_t count) {
  check(cudaMemsetAsync(at, 0, count * sizeof(float), stream()), "cudaMemsetAsync");
}

void cuda_calls::sgemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float* a, int lda, const float* b,
                       int ldb, float* c, int ldc) {
  const float one = 1, zero = 0;
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  check(cublasSgemm(cublas_.get(), operation(transpose_a), operation(transpose_b), m, n, k, &one, a, lda, b, ldb, &zero,
                    c, ldc),
        "cublasSgemm");
}

std::size_t cuda_calls::make_mark() {
  events_.push_back(device_.make_event());
  return events_.size() - 1;
}
void cuda_calls::wait(std::size_t mark) const {
  if (device_.wait(
          events_[mark], [] { return false; }, penstock::deadline_after(timeout_)) != penstock::wait_result::complete)
    throw penstock::timeout_error("the GPU did not finish a step's work in time", {.stage = "compute"});
}

}  // namespace trainer
