// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <penstock/device/cuda_error.hpp>
#include <penstock/device/cuda_scope.hpp>
#include <penstock/device/cuda_wait.hpp>
#include <penstock/device/device.hpp>

namespace penstock {

/// A stream that somebody else owns. Converts to and from `cudaStream_t`, so that it goes into a launch's `<<<>>>` and
/// into any library as it is, and to `cuda::stream_ref`.
class cuda_stream_view {
 public:
  cuda_stream_view(cudaStream_t stream) noexcept : stream_(stream) {}
  cuda_stream_view(int) = delete;             // a stream 0 by accident: say legacy() or per_thread()
  cuda_stream_view(std::nullptr_t) = delete;  // the same
  /// The streams that kernels without one are launched on; of the device that the feed is for.
  static cuda_stream_view legacy() noexcept { return cudaStreamLegacy; }
  /// Of the calling thread: batches are then received and let go on one thread.
  static cuda_stream_view per_thread() noexcept { return cudaStreamPerThread; }

  cudaStream_t get() const noexcept { return stream_; }
  operator cudaStream_t() const noexcept { return stream_; }
  /// To a reference of libcu++'s, which need not be there.
  template <class Ref>
    requires std::is_class_v<Ref> &&
             requires(const Ref& ref) {
               { ref.get() } -> std::same_as<cudaStream_t>;
             } && std::constructible_from<Ref, cudaStream_t>
  operator Ref() const {
    return Ref(stream_);
  }

  /// Blocks the calling thread until everything enqueued before has completed. Throws `cuda_error`.
  void synchronize() const {
    synchronize([] { return false; }, std::chrono::steady_clock::time_point::max());
  }
  /// The same, ended early by `interrupted()` or the deadline.
  template <interrupt Interrupt>
  wait_result synchronize(const Interrupt& interrupted, std::chrono::steady_clock::time_point deadline) const {
    return detail::cuda_wait([&] { return is_done(); }, interrupted, deadline);
  }
  /// Whether everything enqueued before has completed.
  bool is_done() const {
    return detail::cuda_done([this] { return cudaStreamQuery(stream_); }, "cudaStreamQuery",
                             !detail::cuda_scope::is_default(stream_));
  }

  friend bool operator==(cuda_stream_view a, cuda_stream_view b) noexcept { return a.stream_ == b.stream_; }

 private:
  cudaStream_t stream_;
};

/// A stream of ours: does not wait for the legacy stream, nor the other way round. Move-only; what was enqueued still
/// runs after its destruction. Made by `cuda_device::make_stream`.
class cuda_stream {
 public:
  using stream_view = cuda_stream_view;

  cuda_stream(cuda_stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  cuda_stream& operator=(cuda_stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~cuda_stream() {
    if (stream_ != nullptr) detail::cuda_log(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

  cuda_stream_view view() const noexcept { return stream_; }

 private:
  friend class cuda_device;
  explicit cuda_stream(int priority) {
    detail::cuda_check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority),
                       "cudaStreamCreateWithPriority");
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace penstock
