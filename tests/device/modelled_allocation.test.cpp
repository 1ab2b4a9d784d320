// SPDX-License-Identifier: Apache-2.0
// ctest: plain too: allocations are counted there alone
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include <gtest/gtest.h>
#include <penstock/device/modelled.hpp>

#include "../support/counted_allocations.hpp"

namespace {

using laws::allocations;

using namespace std::chrono_literals;

TEST(modelled_allocation, steps_allocate_nothing) {
  const auto clock = std::make_shared<penstock::simulated_clock>();
  const penstock::modelled_device device({.copy_time = 10us, .clock = clock});
  const auto slot = device.allocate_host(64);
  const auto twin = device.allocate(64);
  const auto copies = device.make_stream();
  const auto kernels = device.make_stream();
  auto copied = device.make_event();
  auto computed = device.make_event();
  std::size_t sum = 0;

  const std::size_t before = allocations;
  for (std::size_t step = 0; step < 1000; ++step) {
    device.wait(copies.view(), computed);
    device.copy_to_device(twin.data(), slot.data(), 64, copies.view());
    device.record(copied, copies.view());
    device.wait(kernels.view(), copied);
    struct {
      std::size_t* sum;
      std::size_t more[7];
    } captured{&sum, {step}};
    kernels.view().launch(10us, [captured] { *captured.sum += captured.more[0]; });
    device.record(computed, kernels.view());
    device.wait(copied, [] { return false; }, std::chrono::steady_clock::time_point::max());
    (void)device.ready(computed);
  }
  kernels.view().synchronize();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum, 999U * 1000U / 2U);
}

TEST(modelled_allocation, more_pending_operations_than_reserved_allocate_once) {
  const auto clock = std::make_shared<penstock::simulated_clock>();
  const penstock::modelled_device device({.clock = clock});
  const auto stream = device.make_stream();
  std::size_t calls = 0;
  const auto burst = [&] {
    for (int i = 0; i < 1000; ++i) stream.view().launch(1us, [&] { ++calls; });
    stream.view().synchronize();
  };
  burst();
  const std::size_t before = allocations;
  burst();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(calls, 2000U);
}

}  // namespace
