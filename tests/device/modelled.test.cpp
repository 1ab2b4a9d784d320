// SPDX-License-Identifier: Apache-2.0
#include <penstock/device/modelled.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "modelled_fixture.hpp"

namespace {

using namespace std::chrono_literals;
using penstock_test::modelled;
using penstock_test::modelled_device;
using penstock_test::poison;

static_assert(penstock::separate_device<modelled_device>);
static_assert(penstock::device<modelled_device>);

TEST_F(modelled, a_copy_arrives_at_its_end_and_not_before) {
  fill_slot(1);
  copy_up();
  device.record(event, copies.view());
  clock->advance(100us - 1ns);
  EXPECT_FALSE(device.ready(event));
  EXPECT_TRUE(all(twin, poison));
  clock->advance(1ns);
  EXPECT_TRUE(device.ready(event));
  EXPECT_TRUE(all(twin, std::byte{1}));
}

TEST_F(modelled, the_destination_of_a_copy_is_poisoned_when_it_starts_and_not_while_a_kernel_still_reads_it) {
  fill_slot(1);
  copy_up();
  clock->advance(100us);
  kernels.view().launch(50us);
  device.record(event, kernels.view());
  device.wait(copies.view(), event);
  fill_slot(2);
  copy_up();
  clock->advance(50us - 1ns);
  EXPECT_FALSE(device.ready(event));
  EXPECT_TRUE(all(twin, std::byte{1}));
  clock->advance(1ns);
  EXPECT_TRUE(device.ready(event));
  EXPECT_TRUE(all(twin, poison));
  clock->advance(100us);
  copies.view().synchronize();
  EXPECT_TRUE(all(twin, std::byte{2}));
}

TEST_F(modelled, without_poison_the_old_data_stay_until_the_end) {
  const modelled_device plain({.copy_time = 100us, .poison = false, .clock = clock});
  const auto stream = plain.make_stream();
  const auto memory = plain.allocate(64);
  plain.copy_to_device(memory.data(), slot.data(), 64, stream.view());
  clock->advance(50us);
  EXPECT_EQ(plain.counts().pending, 1U);
  EXPECT_TRUE(all(memory, std::byte{0}));
}

TEST_F(modelled, device_memory_is_poisoned_when_allocated) { EXPECT_TRUE(all(twin, poison)); }

TEST_F(modelled, a_kernel_waits_for_its_copy_while_the_next_copy_overlaps_it) {
  const auto other = device.allocate(64);
  std::byte seen{0};
  fill_slot(7);
  copy_up();
  device.record(event, copies.view());
  device.wait(kernels.view(), event);
  kernels.view().launch(100us, [&] { seen = twin.data()[0]; });
  device.copy_to_device(other.data(), slot.data(), 64, copies.view());
  auto computed = device.make_event();
  auto second = device.make_event();
  device.record(computed, kernels.view());
  device.record(second, copies.view());
  EXPECT_EQ(completion(event), 100us);
  EXPECT_EQ(completion(computed), 200us);
  EXPECT_EQ(completion(second), 200us);
  clock->advance(200us - 1ns);
  EXPECT_FALSE(device.ready(computed));
  EXPECT_EQ(seen, std::byte{0});
  clock->advance(1ns);
  EXPECT_TRUE(device.ready(computed));
  EXPECT_EQ(seen, std::byte{7});
}

TEST_F(modelled, both_directions_and_kernels_run_side_by_side) {
  const auto back = device.make_stream();
  auto up = device.make_event();
  auto down = device.make_event();
  const auto result = device.allocate_host(64);
  copy_up();
  device.copy_to_host(result.data(), twin.data(), 64, back.view());
  kernels.view().launch(70us);
  device.record(up, copies.view());
  device.record(down, back.view());
  device.record(event, kernels.view());
  EXPECT_EQ(completion(up), 100us);
  EXPECT_EQ(completion(down), 100us);
  EXPECT_EQ(completion(event), 70us);
  const auto counts = device.counts();
  EXPECT_EQ(counts.busy_to_device, 100us);
  EXPECT_EQ(counts.busy_to_host, 100us);
  EXPECT_EQ(counts.busy_compute, 70us);
}

TEST_F(modelled, SYN_5_copies_of_one_direction_share_their_engine_whatever_their_streams) {
  const auto other = device.make_stream();
  copy_up();
  device.copy_to_device(twin.data(), slot.data(), 64, other.view());
  device.record(event, other.view());
  EXPECT_EQ(completion(event), 200us);
}

TEST_F(modelled, zero_time_operations_that_end_together_take_effect_in_order) {
  std::vector<int> order;
  kernels.view().launch(0us, [&] { order.push_back(1); });
  kernels.view().launch([&] { order.push_back(2); });
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  kernels.view().launch(10us, [&] { order.push_back(3); });
  copy_up();  // ends at 100 us
  device.record(event, copies.view());
  device.wait(kernels.view(), event);
  kernels.view().launch(0us, [&] { order.push_back(twin.data()[0] == std::byte{0} ? 4 : -1); });
  clock->advance(1ms);
  kernels.view().synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(modelled, bandwidth_and_latencies_make_the_times) {
  const modelled_device slow({.bandwidth = 1e9, .copy_latency = 3us, .event_latency = 5us, .clock = clock});
  const auto first = slow.make_stream();
  const auto second = slow.make_stream();
  const auto host = slow.allocate_host(1000);
  const auto memory = slow.allocate(1000);
  auto done = slow.make_event();
  slow.copy_to_device(memory.data(), host.data(), 1000, first.view());
  slow.record(done, first.view());
  EXPECT_EQ(slow.completion(done).time_since_epoch(), 4us);
  slow.wait(first.view(), done);  // its own event costs nothing
  slow.wait(second.view(), done);
  first.view().launch(10us);
  slow.record(done, first.view());
  EXPECT_EQ(slow.completion(done).time_since_epoch(), 14us);
  slow.record(done, second.view());
  EXPECT_EQ(slow.completion(done).time_since_epoch(), 9us);
  EXPECT_EQ(slow.describe(), "modelled (copy 1.0 GB/s, latency 3 us, event latency 5 us)");
}

TEST_F(modelled, an_event_never_recorded_is_complete_and_holds_nobody) {
  EXPECT_TRUE(device.ready(event));
  kernels.view().launch(1ms);
  device.wait(copies.view(), event);
  EXPECT_EQ(device.wait(
                event, [] { return true; }, std::chrono::steady_clock::time_point{}),
            penstock::wait_result::complete);
  EXPECT_EQ(device.counts().blocked_waits, 0U);
}

TEST_F(modelled, a_stream_wait_refers_to_the_record_at_its_call) {
  copy_up();
  device.record(event, copies.view());
  device.wait(kernels.view(), event);
  copy_up();
  device.record(event, copies.view());
  EXPECT_EQ(completion(event), 200us);
  kernels.view().launch(10us);
  device.record(event, kernels.view());
  EXPECT_EQ(completion(event), 110us);
}

// GPU-1: the fault is visible ...

TEST_F(modelled, GPU_1_a_slot_overwritten_before_the_end_of_its_copy_arrives_overwritten) {
  copies.view().launch(200ms);
  fill_slot(1);
  copy_up();
  device.record(event, copies.view());
  fill_slot(0xFF);
  clock->advance(1s);
  EXPECT_TRUE(device.ready(event));
  EXPECT_TRUE(all(twin, std::byte{0xFF}));
}

// ... and the cure works.

TEST_F(modelled, GPU_1_a_slot_overwritten_after_the_event_behind_its_copy_arrives_whole) {
  copies.view().launch(200ms);
  fill_slot(1);
  copy_up();
  device.record(event, copies.view());
  while (!device.ready(event)) clock->advance(10ms);
  fill_slot(0xFF);
  copies.view().synchronize();
  EXPECT_TRUE(all(twin, std::byte{1}));
}

TEST_F(modelled, GPU_10_a_result_read_before_the_end_of_its_copy_is_poison) {
  fill_slot(3);
  copy_up();
  copy_down();
  device.record(event, copies.view());
  clock->advance(150us);
  EXPECT_FALSE(device.ready(event));
  EXPECT_TRUE(all(slot, poison));
  clock->advance(50us);
  EXPECT_TRUE(device.ready(event));
  EXPECT_TRUE(all(slot, std::byte{3}));
}

TEST(modelled_options, are_described) {
  EXPECT_EQ(modelled_device({.bandwidth = 12e9, .copy_latency = 3us}).describe(),
            "modelled (copy 12.0 GB/s, latency 3 us)");
  EXPECT_EQ(modelled_device({.bandwidth = 2.5e8}).describe(), "modelled (copy 250.0 MB/s)");
  EXPECT_EQ(modelled_device({.notice = 1500ns, .copy_time = 2ms}).describe(), "modelled (copy 2 ms, notice 1500 ns)");
  EXPECT_EQ(modelled_device().describe(), "modelled (copy instantaneous)");
}

}  // namespace
