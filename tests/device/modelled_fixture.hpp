// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>
#include <penstock/device/modelled.hpp>

namespace penstock_test {

using penstock::modelled_device;
using penstock::modelled_options;

inline constexpr std::byte poison{0xDB};

/// A device on manual time, whose copies take 100 us, with one slot, its twin and two streams.
struct modelled : testing::Test {
  std::shared_ptr<penstock::manual_clock> clock = std::make_shared<penstock::manual_clock>();
  modelled_device device{modelled_options{.copy_time = std::chrono::microseconds(100), .clock = clock}};
  penstock::modelled_memory slot = device.allocate_host(64);
  penstock::modelled_memory twin = device.allocate(64);
  penstock::modelled_stream copies = device.make_stream();
  penstock::modelled_stream kernels = device.make_stream();
  penstock::modelled_event event = device.make_event();

  void fill_slot(unsigned char value) { std::memset(slot.data(), value, slot.size()); }
  void copy_up() { device.copy_to_device(twin.data(), slot.data(), slot.size(), copies.view()); }
  void copy_down() { device.copy_to_host(slot.data(), twin.data(), slot.size(), copies.view()); }
  std::chrono::nanoseconds completion(const penstock::modelled_event& of) const {
    return device.completion(of).time_since_epoch();
  }
  static bool all(const penstock::modelled_memory& memory, std::byte value) {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (memory.data()[i] != value) return false;
    }
    return true;
  }
};

}  // namespace penstock_test
