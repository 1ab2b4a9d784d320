// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/communicator/host_reduce.hpp>
#include <penstock/communicator/reduce_buffer.hpp>

namespace penstock {

/// One kernel of `local_device_communicator`: elements that lie in one device's memory are added up (or their maximum
/// is taken) in the order in which they are named, and written to all of `to`. `to` may be some of `from`.
struct local_sum {
  static constexpr std::size_t most = 64;  // ranks; the whole fits a kernel's parameters

  const void* from[most];
  double factors[most];
  void* to[most];
  std::uint32_t ranks = 0;    // of from; none: zeros are written
  std::uint32_t targets = 0;  // of to
  std::size_t count = 0;
  element_type type = element_type::float32;
  bool maximum = false;

  /// What is read and written.
  std::size_t bytes() const noexcept { return (std::size_t{ranks} + targets) * count * size_of(type); }
};

namespace detail {

/// The same on the host; every element goes through the operations that the kernel has.
inline void sum_on_host(const local_sum& what) {
  with_element(what.type, [&](auto zero) {
    using element = decltype(zero);
    for (std::size_t i = 0; i < what.count; ++i) {
      element sum{};
      for (std::uint32_t r = 0; r < what.ranks; ++r) {
        const element one =
            static_cast<element>(static_cast<element>(what.factors[r]) * static_cast<const element*>(what.from[r])[i]);
        if (r == 0)
          sum = one;
        else if (what.maximum)
          sum = one > sum || one != one ? one : sum;  // NaN stays
        else
          sum = static_cast<element>(sum + one);
      }
      for (std::uint32_t t = 0; t < what.targets; ++t) static_cast<element*>(what.to[t])[i] = sum;
    }
  });
}

}  // namespace detail
}  // namespace penstock
