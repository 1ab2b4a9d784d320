// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include <penstock/device/cuda.hpp>

/// The laws of tests/laws/ on a real GPU: what PENSTOCK_TEST_CUDA makes of tests/laws/configurations.hpp.
#define PENSTOCK_TEST_CUDA 1

namespace on_a_gpu {

/// Ends the program with 77 where there is no GPU. The driver's own threads are started before any test counts threads.
class environment : public testing::Environment {
  void SetUp() override {
    if (!penstock::cuda_device::is_available()) {
      std::puts("skipped: there is no GPU");
      std::fflush(stdout);
      std::_Exit(77);
    }
    const penstock::cuda_device device(0);
    const auto stream = device.make_stream();
    auto event = device.make_event();
    const auto memory = device.allocate(4096);
    const auto pinned = device.allocate_host(4096);
    device.copy_to_device(memory.data(), pinned.data(), 4096, stream.view());
    device.record(event, stream.view());
    stream.view().synchronize();
  }
};
inline testing::Environment* const there = testing::AddGlobalTestEnvironment(new environment);

}  // namespace on_a_gpu
