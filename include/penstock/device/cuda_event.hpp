// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include <penstock/device/cuda_error.hpp>

namespace penstock {

/// An event that somebody else owns.
class cuda_event_view {
 public:
  cuda_event_view(cudaEvent_t event) noexcept : event_(event) {}
  cuda_event_view(int) = delete;
  cuda_event_view(std::nullptr_t) = delete;

  cudaEvent_t get() const noexcept { return event_; }
  operator cudaEvent_t() const noexcept { return event_; }
  friend bool operator==(cuda_event_view a, cuda_event_view b) noexcept { return a.event_ == b.event_; }

 private:
  cudaEvent_t event_;
};

/// A point in a stream, without timing unless made by `make_timing_event`. Move-only; may be recorded again and again,
/// on streams of the device that made it. Made by `cuda_device`.
class cuda_event {
 public:
  cuda_event(cuda_event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  cuda_event& operator=(cuda_event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~cuda_event() {
    if (event_ != nullptr) detail::cuda_log(cudaEventDestroy(event_), "cudaEventDestroy");
  }

  cuda_event_view view() const noexcept { return event_; }

 private:
  friend class cuda_device;
  explicit cuda_event(unsigned flags) {
    detail::cuda_check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreateWithFlags");
  }

  cudaEvent_t event_ = nullptr;
};

}  // namespace penstock
