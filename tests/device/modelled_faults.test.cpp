// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/device/modelled.hpp>

#include "modelled_fixture.hpp"

namespace {

using namespace std::chrono_literals;
using penstock_test::modelled;
using penstock_test::modelled_device;

struct modelled_faults : modelled {};

TEST_F(modelled_faults, GPU_4_streams_and_events_of_another_device_are_refused) {
  const modelled_device other({.clock = clock});
  const auto stream = other.make_stream();
  const auto foreign = other.make_event();
  EXPECT_FALSE(device == other);
  EXPECT_THROW(device.record(event, stream.view()), penstock::error);
  EXPECT_THROW(device.wait(copies.view(), foreign), penstock::error);
  EXPECT_THROW((void)device.ready(foreign), penstock::error);
  EXPECT_THROW(device.copy_to_device(twin.data(), slot.data(), 64, stream.view()), penstock::error);
  EXPECT_THROW(device.record(event, {}), penstock::error);
  EXPECT_EQ(device.counts().records, 0U);
}

TEST_F(modelled_faults, devices_are_independent) {
  const modelled_device other({.copy_time = 100us, .clock = clock});
  const auto stream = other.make_stream();
  copies.view().launch(1s);
  stream.view().launch(1us);
  auto done = other.make_event();
  other.record(done, stream.view());
  device.record(event, copies.view());
  clock->advance(1us);
  EXPECT_TRUE(other.ready(done));
  EXPECT_FALSE(device.ready(event));
  const auto foreign = other.allocate(64);
  EXPECT_THROW(device.copy_to_device(foreign.data(), slot.data(), 64, copies.view()), penstock::error);
}

TEST_F(modelled_faults, copies_outside_the_devices_memory_are_refused_with_sizes) {
  const auto message = [&](auto&& copy) -> std::string {
    try {
      copy();
    } catch (const penstock::error& caught) {
      return caught.what();
    }
    return "no error";
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  std::array<std::byte, 64> elsewhere{};
  const auto stream = copies.view();
  const std::string beyond = message([&] { device.copy_to_device(twin.data() + 60, slot.data(), 64, stream); });
  EXPECT_TRUE(contains(beyond, "copy of 64 bytes to 0x")) << beyond;
  EXPECT_TRUE(contains(beyond, "4 bytes left of 64 allocated at 0x")) << beyond;
  const std::string nowhere = message([&] { device.copy_to_device(elsewhere.data(), slot.data(), 64, stream); });
  EXPECT_TRUE(contains(nowhere, "none of the device's allocations")) << nowhere;
  const std::string host = message([&] { device.copy_to_host(elsewhere.data(), slot.data(), 64, stream); });
  EXPECT_TRUE(contains(host, "copy of 64 bytes from 0x")) << host;
  EXPECT_TRUE(contains(host, "which is host memory")) << host;
  EXPECT_EQ(device.counts().copies_to_device + device.counts().copies_to_host, 0U);
}

TEST_F(modelled_faults, SYN_1_copies_from_pageable_memory_are_counted) {
  const std::vector<std::byte> pageable(64);
  copy_up();
  EXPECT_EQ(device.counts().pageable_copies, 0U);
  device.copy_to_device(twin.data(), pageable.data(), 64, copies.view());
  EXPECT_EQ(device.counts().pageable_copies, 1U);
}

TEST_F(modelled_faults, the_nth_copy_fails_and_is_not_enqueued) {
  EXPECT_THROW(device.fail_next_copy(0, "never"), std::invalid_argument);
  device.fail_next_copy(2, "out of order");
  copy_up();
  EXPECT_THROW(copy_up(), penstock::error);
  copy_up();
  EXPECT_EQ(device.counts().copies_to_device, 2U);
  EXPECT_EQ(device.counts().bytes_to_device, 128U);
}

TEST_F(modelled_faults, a_failed_record_leaves_the_earlier_one) {
  copy_up();
  device.record(event, copies.view());
  copy_up();
  device.fail_next_record(1, "lost");
  EXPECT_THROW(device.record(event, copies.view()), penstock::error);
  EXPECT_EQ(completion(event), 100us);
}

TEST_F(modelled_faults, a_kernel_that_throws_fails_every_later_call_with_its_exception) {
  kernels.view().launch(10us, [] { throw std::out_of_range("row 3"); });
  device.record(event, kernels.view());
  EXPECT_FALSE(device.ready(event));
  clock->advance(10us);
  for (int i = 0; i < 2; ++i) {
    try {
      copy_up();
      FAIL() << "no error";
    } catch (const penstock::error& caught) {
      EXPECT_THROW(caught.rethrow_cause(), std::out_of_range);
    }
  }
}

TEST_F(modelled_faults, memory_freed_under_a_copy_cancels_it_and_is_counted) {
  copy_up();
  {
    const auto gone = std::move(slot);
  }
  EXPECT_EQ(device.counts().freed_in_use, 1U);
  clock->advance(1ms);
  EXPECT_EQ(device.counts().pending, 0U);
  {
    const auto gone = std::move(twin);
  }
  EXPECT_EQ(device.counts().freed_in_use, 1U);
}

TEST_F(modelled_faults, what_is_alive_is_counted) {
  {
    const auto more = device.allocate(8);
    auto moved = device.make_event();
    moved = device.make_event();
    EXPECT_EQ(device.counts().live_allocations, 2U);
    EXPECT_EQ(device.counts().live_host_allocations, 1U);
    EXPECT_EQ(device.counts().live_streams, 2U);
    EXPECT_EQ(device.counts().live_events, 2U);
  }
  EXPECT_EQ(device.counts().live_allocations, 1U);
  EXPECT_EQ(device.counts().live_events, 1U);
  device.bind_thread();
  EXPECT_EQ(device.counts().bound_threads, 1U);
}

TEST_F(modelled_faults, a_device_may_go_with_operations_pending) {
  auto alive = std::make_shared<int>(1);
  {
    const modelled_device gone({.copy_time = 1s, .clock = clock});
    const auto stream = gone.make_stream();
    const auto memory = gone.allocate(64);
    gone.copy_to_device(memory.data(), slot.data(), 64, stream.view());
    stream.view().launch(1s, [alive, large = std::array<char, 200>{}] { *alive += large[0] + 1; });
    stream.view().launch(1s, [alive] { ++*alive; });
    EXPECT_EQ(alive.use_count(), 3);
  }
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_EQ(*alive, 1);
}

TEST(modelled_options, what_cannot_be_is_refused_by_name) {
  EXPECT_THROW(modelled_device({.bandwidth = -1}), std::invalid_argument);
  EXPECT_THROW(modelled_device({.notice = -1ns}), std::invalid_argument);
  EXPECT_THROW(modelled_device({.copy_time = -1ns}), std::invalid_argument);
  const modelled_device device;
  EXPECT_THROW(device.make_stream().view().launch(-1ns), std::invalid_argument);
}

}  // namespace
