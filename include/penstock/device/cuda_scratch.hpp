// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <penstock/device/cuda.hpp>

namespace penstock {

/// Memory of a device for the temporaries of algorithms on one stream: an allocator for Thrust, see `on()`.
///
/// All of it is allocated by the constructor; `allocate` only moves a mark, and what was given back is given out again
/// at once. That is right without any wait: the next algorithm on the stream comes after the one that gave it back.
/// So it calls nothing of CUDA, can neither block nor be blocked, and works while a graph is captured. A pool of
/// `cudaMallocAsync` would do without a size, at some microseconds a call, and by growing in mid-training.
///
/// One stream at a time, and one thread: it goes to another stream only when what was enqueued on the first has
/// completed. It outlives that work, too.
class cuda_scratch {
 public:
  using value_type = char;  // for Thrust

  explicit cuda_scratch(const cuda_device& device, std::size_t bytes = std::size_t{32} << 20)
      : memory_(device.allocate(rounded(bytes))) {}
  cuda_scratch(const cuda_scratch&) = delete;
  cuda_scratch& operator=(const cuda_scratch&) = delete;

  /// Aligned to 256. Throws `penstock::error` when there is not enough.
  template <class Integer>
  char* allocate(Integer wanted) {
    const std::size_t bytes = rounded(static_cast<std::size_t>(wanted));
    if (bytes > memory_.size() - used_)
      throw error(detail::concat("cuda_scratch: an algorithm wants ", bytes, " bytes beside the ", used_,
                                 " in use, of ", memory_.size(), " in all: give the constructor more"));
    char* const result = data() + used_;
    used_ += bytes;
    if (used_ > most_used_) most_used_ = used_;
    ++blocks_;
    return result;
  }
  /// Algorithms give back in the reverse order; what is given back before later blocks are is free when these are.
  template <class Integer>
  void deallocate(char* block, Integer wanted) noexcept {
    const auto at = static_cast<std::size_t>(block - data());
    if (--blocks_ == 0)
      used_ = 0;
    else if (at + rounded(static_cast<std::size_t>(wanted)) == used_)
      used_ = at;
  }

  std::size_t size() const noexcept { return memory_.size(); }
  /// The most bytes that were in use at a time: what the constructor is to be given.
  std::size_t most_used() const noexcept { return most_used_; }

 private:
  static constexpr std::size_t alignment = 256;
  static std::size_t rounded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  char* data() const noexcept { return reinterpret_cast<char*>(memory_.data()); }

  cuda_memory memory_;
  std::size_t used_ = 0;
  std::size_t most_used_ = 0;
  std::size_t blocks_ = 0;
};

}  // namespace penstock
