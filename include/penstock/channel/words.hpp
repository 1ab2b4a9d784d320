// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <penstock/channel/atomics.hpp>

namespace penstock {

/// One word for each of the last `size` steps, side by side in cache lines that hold nothing else. `size` is a power of
/// two; a step's word is that of the step `size` before it.
template <class Atomic>
class words {
 public:
  template <class Value>
  words(std::size_t size, Value initial) : mask_(size - 1), data_(allocate(size)) {
    for (std::size_t i = 0; i < size; ++i) ::new (static_cast<void*>(data_ + i)) Atomic(initial);
  }
  words(const words&) = delete;
  words& operator=(const words&) = delete;
  ~words() {
    for (std::size_t i = 0; i <= mask_; ++i) data_[i].~Atomic();
    ::operator delete(data_, std::align_val_t{cache_line});
  }

  Atomic& operator[](std::uint64_t step) noexcept { return data_[step & mask_]; }
  const Atomic& operator[](std::uint64_t step) const noexcept { return data_[step & mask_]; }

 private:
  static Atomic* allocate(std::size_t size) {
    const std::size_t bytes = (size * sizeof(Atomic) + cache_line - 1) / cache_line * cache_line;
    return static_cast<Atomic*>(::operator new(bytes, std::align_val_t{cache_line}));
  }

  std::size_t mask_;
  Atomic* data_;
};

}  // namespace penstock
