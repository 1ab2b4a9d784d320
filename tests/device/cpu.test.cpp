// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/device/cpu.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <gtest/gtest.h>
#include <penstock/device/device.hpp>

namespace {

static_assert(penstock::host_device<penstock::cpu_device>);
static_assert(penstock::device<penstock::cpu_device>);
static_assert(!penstock::separate_device<penstock::cpu_device>);

TEST(cpu, work_is_done_before_launch_returns) {
  const penstock::cpu_device device;
  const auto stream = device.make_stream();
  int calls = 0;
  stream.view().launch([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  stream.view().synchronize();
  EXPECT_EQ(calls, 1);
}

TEST(cpu, host_memory_is_aligned_zeroed_and_moves_without_a_copy) {
  const penstock::cpu_device device;
  auto memory = device.allocate_host(1000);
  ASSERT_EQ(memory.size(), 1000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % penstock::detail::aligned_memory::alignment, 0U);
  for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory.data()[i], std::byte{0}) << i;
  const std::byte* const address = memory.data();
  const auto moved = std::move(memory);
  EXPECT_EQ(moved.data(), address);
}

TEST(cpu, no_bytes_are_no_memory) { EXPECT_EQ(penstock::cpu_device{}.allocate_host(0).data(), nullptr); }

TEST(cpu, says_what_it_is) { EXPECT_EQ(penstock::cpu_device{}.describe(), "cpu"); }

}  // namespace
