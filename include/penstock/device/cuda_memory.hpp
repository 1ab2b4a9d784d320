// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <penstock/device/cuda_error.hpp>
#include <penstock/device/cuda_scope.hpp>

namespace penstock {

namespace detail {

/// How much host memory may be pinned, and is.
struct pinned_budget {
  pinned_budget(int device_, std::size_t most) noexcept : device(device_), limit(most != 0 ? most : half_of_memory()) {}

  void take(std::size_t bytes) {
    const std::size_t before = used.fetch_add(bytes, std::memory_order_relaxed);
    if (before + bytes <= limit) return;
    used.fetch_sub(bytes, std::memory_order_relaxed);
    throw error(concat("pinned memory: ", bytes, " bytes more than the ", before, " in use are over the budget of ",
                       limit, " bytes: use smaller batches or less depth, or raise cuda_options::pinned_budget"));
  }
  void give(std::size_t bytes) noexcept { used.fetch_sub(bytes, std::memory_order_relaxed); }

  static std::size_t half_of_memory() noexcept {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || size <= 0) return SIZE_MAX;
    return static_cast<std::size_t>(pages) * static_cast<std::size_t>(size) / 2;
  }

  const int device;  // whose context pins
  const std::size_t limit;
  std::atomic<std::size_t> used{0};
  std::atomic<bool> told_of_pageable{false};
};

}  // namespace detail

/// Host memory that a device copies from and to by itself. Move-only.
///
/// It is mapped first, which takes no page yet; then touched, by the threads that will write it, so that it lies with
/// them; then pinned, for all devices. Copies need it pinned.
class cuda_host_memory {
 public:
  cuda_host_memory() = default;
  cuda_host_memory(cuda_host_memory&& other) noexcept
      : budget_(std::move(other.budget_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        pinned_(std::exchange(other.pinned_, false)) {}
  cuda_host_memory& operator=(cuda_host_memory&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(pinned_, other.pinned_);
    return *this;
  }
  ~cuda_host_memory() {
    if (data_ == nullptr) return;
    bool is_free = true;
    if (pinned_) {
      const cudaError_t code = cudaHostUnregister(data_);
      detail::cuda_log(code, "cudaHostUnregister");
      is_free = code == cudaSuccess || code == cudaErrorCudartUnloading;
    }
    // What is still registered would be copied from, or to, wherever the address leads then.
    if (is_free) ::munmap(data_, mapped_bytes(size_));
    budget_->give(size_);
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool is_pinned() const noexcept { return pinned_; }

  /// Takes the pages of part `part` of `parts`, for the calling thread's sake; they hold zeros.
  void touch(std::size_t part = 0, std::size_t parts = 1) noexcept {
    const std::size_t pages = (size_ + page() - 1) / page();
    for (std::size_t at = pages * part / parts; at < pages * (part + 1) / parts; ++at)
      reinterpret_cast<volatile std::byte*>(data_)[at * page()] = std::byte{0};
  }
  /// Throws `cuda_error` where the system refuses.
  void pin() {
    if (pinned_ || data_ == nullptr) return;
    const detail::cuda_scope scope(budget_->device);
    const cudaError_t code = cudaHostRegister(data_, size_, cudaHostRegisterPortable);
    if (code != cudaSuccess)
      detail::cuda_check(code, detail::concat("cudaHostRegister of ", size_, " bytes, beside ",
                                              budget_->used.load(std::memory_order_relaxed) - size_,
                                              " that are wanted elsewhere (is ulimit -l too low, or memory short?)"));
    pinned_ = true;
  }

 private:
  friend class cuda_device;
  cuda_host_memory(std::shared_ptr<detail::pinned_budget> budget, std::size_t bytes)
      : budget_(std::move(budget)), size_(bytes) {
    if (bytes == 0) return;
    budget_->take(bytes);
    void* const mapped =
        ::mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      budget_->give(bytes);
      throw error(detail::concat("the system gave no ", bytes, " bytes of host memory for batches"));
    }
    data_ = static_cast<std::byte*>(mapped);
  }

  static std::size_t page() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  static std::size_t mapped_bytes(std::size_t bytes) noexcept { return (bytes + page() - 1) / page() * page(); }

  std::shared_ptr<detail::pinned_budget> budget_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool pinned_ = false;
};

/// Memory of a device. Move-only. Freeing it waits for the device, so it is kept as long as a feed lives.
class cuda_memory {
 public:
  cuda_memory() = default;
  cuda_memory(cuda_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  cuda_memory& operator=(cuda_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~cuda_memory() {
    if (data_ != nullptr) detail::cuda_log(cudaFree(data_), "cudaFree");
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  friend class cuda_device;
  explicit cuda_memory(std::size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, bytes);
    if (code != cudaSuccess) detail::cuda_check(code, detail::concat("cudaMalloc of ", bytes, " bytes"));
    data_ = static_cast<std::byte*>(memory);
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace penstock
