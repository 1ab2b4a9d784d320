// SPDX-License-Identifier: Apache-2.0
// Results on their way back, on a device whose time the test moves. The CUDA device's are in tests/double/cuda.test.cpp.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include <penstock/device/modelled.hpp>
#include <penstock/device/results.hpp>

namespace {

using namespace penstock;
using namespace std::chrono_literals;

TEST(results, are_there_when_the_copy_has_ended_and_not_before) {
  const auto clock = std::make_shared<manual_clock>();
  const modelled_device device({.copy_time = 10us, .clock = clock});
  const auto stream = device.make_stream();
  const auto memory = device.allocate(sizeof(double));
  auto* const loss = reinterpret_cast<double*>(memory.data());
  results<double, modelled_device> losses(device, {.depth = 2});
  stream.view().launch(5us, [=] { *loss = 1.5; });
  losses.enqueue(loss, stream.view(), 7);
  stream.view().launch(5us, [=] { *loss = 2.5; });
  losses.enqueue(loss, stream.view(), 8);
  EXPECT_EQ(losses.pending(), 2U);
  clock->advance(14us);
  EXPECT_FALSE(losses.next());
  clock->advance(1us);
  const auto first = losses.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->step, 7U);
  EXPECT_EQ(first->values[0], 1.5);
  EXPECT_FALSE(losses.next());
  EXPECT_FALSE(losses.wait([] { return true; }, std::chrono::steady_clock::time_point::max())) << "interrupted";
  clock->advance(1ms);
  const auto second = losses.wait();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->step, 8U);
  EXPECT_EQ(second->values[0], 2.5);
  EXPECT_FALSE(losses.wait());
}

}  // namespace
