// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublas_v2.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <penstock/communicator/local_cuda.hpp>
#include <penstock/device/cuda.hpp>

namespace trainer {

/// `device_calls` on a GPU: cuBLAS and kernels of our own, all on one stream. One thread at a time.
///
/// Everything is made before the first step, the workspace of cuBLAS included. Products are computed in float32 as it
/// is, without TF32, so that a loss curve is that of the CPU but for the order of summation. No call but `wait` blocks;
/// that throws `penstock::timeout_error` once it took the time-out. Failures throw `penstock::error`.
class cuda_calls {
 public:
  cuda_calls(penstock::cuda_device device, std::chrono::nanoseconds timeout);
  cuda_calls(const cuda_calls&) = delete;
  cuda_calls& operator=(const cuda_calls&) = delete;
  ~cuda_calls();

  /// Whether the kernels were built for the current device, or for one that it can stand in for.
  static bool has_kernels();

  const penstock::cuda_device& device() const { return device_; }
  penstock::cuda_stream_view stream() const { return stream_.view(); }

  float* device_floats(std::size_t count);
  float* host_floats(std::size_t count);
  void to_device(float* to, const float* pinned, std::size_t count);
  void to_host(float* pinned, const float* from, std::size_t count);
  void copy(float* to, const float* from, std::size_t count);
  void zero(float* at, std::size_t count);

  /// c = a b, column-major, m by n, summed over k; a and b transposed if asked for.
  void sgemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float* a, int lda, const float* b, int ldb,
             float* c, int ldc);
  // For the function objects of device_math.hpp; defined, and instantiated for these, in cuda_calls.cu.
  template <class Function>
  void each(std::size_t count, const Function& f);
  template <class Function>
  void cells(std::size_t rows, std::size_t columns, const Function& f);
  template <class Terms>
  void sums(std::size_t rows, std::size_t columns, const Terms& f);

  std::size_t make_mark();
  void record(std::size_t mark) { device_.record(events_[mark], stream()); }
  bool ready(std::size_t mark) const { return device_.ready(events_[mark]); }
  void wait(std::size_t mark) const;

 private:
  struct handle_end {
    void operator()(cublasContext* handle) const { cublasDestroy(handle); }
  };

  penstock::cuda_device device_;
  std::chrono::nanoseconds timeout_;
  penstock::cuda_stream stream_;
  std::vector<penstock::cuda_memory> memory_;
  std::vector<penstock::cuda_host_memory> pinned_;
  std::vector<penstock::cuda_event> events_;
  std::unique_ptr<cublasContext, handle_end> cublas_;
};

/// Of gradients, over replicas on one GPU or on several: `penstock::cuda_kernels`, for files that g++ compiles.
class cuda_reduction : public penstock::detail::cuda_peer_copies {
 public:
  void prepare(const penstock::cuda_device& device, std::span<const penstock::cuda_device> others);
  void sum(const penstock::cuda_device& device, const penstock::local_sum& what, penstock::cuda_stream_view on) const;
};

}  // namespace trainer
