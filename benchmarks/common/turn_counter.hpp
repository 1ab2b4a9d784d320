// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <penstock/channel/atomics.hpp>

namespace contest {

/// A counter that one thread raises and another waits for: looks a while, then sleeps.
class turn_counter {
 public:
  void set(std::uint32_t value) {
    value_.store(value, std::memory_order_release);
    value_.notify_one();
  }
  void wait_beyond(std::uint32_t value) const {
    for (int look = 0; look < 400; ++look) {
      if (value_.load(std::memory_order_acquire) > value) return;
      penstock::std_atomics::pause();
    }
    for (std::uint32_t seen; (seen = value_.load(std::memory_order_acquire)) <= value;) value_.wait(seen);
  }

 private:
  alignas(128) std::atomic<std::uint32_t> value_{0};
};

}  // namespace contest
