// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include <penstock/sample/tensor_view.hpp>

namespace penstock {

namespace detail {

/// Zeroed memory at a cache line's, and a vector register's, alignment.
class aligned_memory {
 public:
  static constexpr std::size_t alignment = 128;

  aligned_memory() = default;
  explicit aligned_memory(std::size_t bytes)
      : data_(bytes == 0 ? nullptr : static_cast<std::byte*>(::operator new(bytes, std::align_val_t{alignment}))),
        size_(bytes) {
    for (std::size_t i = 0; i < bytes; ++i) data_[i] = std::byte{0};
  }
  aligned_memory(aligned_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  aligned_memory& operator=(aligned_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~aligned_memory() { ::operator delete(data_, std::align_val_t{alignment}); }

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace detail

/// The stream of a CPU: work is done at once, by the thread that launches it.
class cpu_stream {
 public:
  using stream_view = cpu_stream;
  cpu_stream view() const noexcept { return *this; }

  /// Calls `work()` before returning.
  template <class Work>
  void launch(Work&& work) const {
    std::forward<Work>(work)();
  }
  void synchronize() const noexcept {}
  bool operator==(const cpu_stream&) const = default;
};

/// Training on the CPU: the slot itself is handed over, there is no copy and no event.
class cpu_device {
 public:
  using memory_space = host_memory;
  using stream = cpu_stream;
  using stream_view = cpu_stream;

  detail::aligned_memory allocate_host(std::size_t bytes) const { return detail::aligned_memory(bytes); }
  cpu_stream make_stream() const noexcept { return {}; }
  std::string describe() const { return "cpu"; }
  bool operator==(const cpu_device&) const = default;
};

}  // namespace penstock
