// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include <penstock/device/cuda.hpp>

#include "atomics.hpp"
#include "cuda_double.hpp"

namespace cuda_double {

/// The production device, with the channel's atomics watched.
struct watched_device : penstock::cuda_device {
  using cuda_device::cuda_device;
  using atomics = cuda_double::atomics;
};

/// PENSTOCK_SEED, or what is given.
inline std::uint64_t seed_or(std::uint64_t given) {
  const char* const wanted = std::getenv("PENSTOCK_SEED");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : given;
}

/// Each test begins with a fresh double and ends without faults and with nothing left alive.
class watcher : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { reset({.seed = seed_or(1)}); }
  void OnTestEnd(const testing::TestInfo&) override {
    for (const std::string& fault : take_faults()) ADD_FAILURE() << fault;
    EXPECT_TRUE(some_may_be_alive() || alive().empty()) << "still alive: " << alive();
  }
};
inline const bool watching = (testing::UnitTest::GetInstance()->listeners().Append(new watcher), true);

}  // namespace cuda_double
