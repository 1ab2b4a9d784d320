// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "uncounted.hpp"

/// Counts the allocations of a whole program, by any thread. Include in one source file of it.
///
/// The allocating functions of C are replaced, under which also those of C++ lie; under sanitizers, which replace them
/// themselves, those of C++.
namespace laws {
inline std::atomic<std::size_t> allocations = 0;
inline void count_allocation() {
  if (support::uncounted_depth == 0) ++allocations;
}
/// The next allocation of so many bytes fails; 0: none does.
inline std::atomic<std::size_t> refused = 0;
inline bool refuses(std::size_t bytes) {
  return bytes != 0 && bytes == refused.load(std::memory_order_relaxed) && refused.exchange(0) == bytes;
}
}  // namespace laws

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && defined(__GLIBC__)

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  laws::count_allocation();
  return laws::refuses(bytes) ? nullptr : __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  laws::count_allocation();
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  laws::count_allocation();
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  laws::count_allocation();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  laws::count_allocation();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? 12 : 0;
}
}

#else

// Not inlined: g++ would take new and free in one function for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  laws::count_allocation();
  if (laws::refuses(bytes)) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  laws::count_allocation();
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
