// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a test's own machinery allocates is not the library's: it does not count (see counted_allocations.hpp).
namespace support {

inline thread_local int uncounted_depth = 0;

struct uncounted {
  uncounted() noexcept { ++uncounted_depth; }
  uncounted(const uncounted&) = delete;
  ~uncounted() { --uncounted_depth; }
};

}  // namespace support
