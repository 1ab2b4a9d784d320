// SPDX-License-Identifier: Apache-2.0
// The double bites: each of these feeds has a bug of the kind that it is there to find, and is found out.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/device/results.hpp>

#include "../laws/configurations.hpp"
#include "../laws/threads.hpp"

namespace {

using namespace laws;
using cuda_double::reads;
using cuda_double::watched_device;
using cuda_double::writes;
using stream_view = penstock::cuda_stream_view;

/// The faults so far, joined; the test's own from here on.
std::string faults() {
  std::string result;
  for (const auto& fault : cuda_double::take_faults()) result += fault + '\n';
  return result;
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A kernel that reads the whole batch, on `stream`.
template <class Batch>
void look_at(Batch& batch, stream_view stream) {
  const auto [id, values] = batch.fields();
  cuda_double::launch(stream, {reads(id.data(), id.size_bytes()), reads(values.data(), values.size_bytes())});
}

/// Some epochs of a loop that launches on each batch's stream; what the double found.
template <class Device>
std::string train(const Device& device, configuration one = {.readers = 2, .depth = 2}) {
  const samples<> data{23};
  try {
    auto feed = feed_of(data, device, one);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
      for (auto& batch : feed.epoch(epoch)) look_at(batch, batch.stream());
  } catch (const penstock::error& caught) {
    return faults() + caught.what();
  }
  return faults();
}

TEST(bites, not_where_nothing_is_wrong) {
  for (int readers : all_readers) EXPECT_EQ(train(watched_device(0), {.readers = readers, .depth = 2}), "");
}

/// The consumer's stream does not wait for the copy.
struct no_wait_for_copies : watched_device {
  using watched_device::watched_device;
  void wait(stream_view, const event&) const {}
  using watched_device::wait;
};
TEST(bites, on_a_missing_wait_of_a_stream) {
  // Without readers nobody learns by asking that the copy is done.
  const std::string found = train(no_wait_for_copies(0), {.readers = 0, .depth = 2});
  EXPECT_TRUE(says(found, "a kernel #") && says(found, "reads at byte")) << found;
}

/// Slots are taken for copied as soon as they are enqueued.
struct early_slots : watched_device {
  using watched_device::watched_device;
  bool ready(const event&) const { return true; }
};
TEST(bites, on_a_slot_that_is_written_before_its_copy_has_ended) {
  const std::string found = train(early_slots(0));
  EXPECT_TRUE(says(found, "a reader on a host thread writes") && says(found, "cudaMemcpyAsync #")) << found;
}

TEST(bites, on_one_event_for_two_steps) {
  const watched_device device(0);
  const auto copies = device.make_stream(), work = device.make_stream();
  const auto on_device = device.allocate(64);
  const auto on_host = device.allocate_host(64);
  auto event = device.make_event();
  device.copy_to_device(on_device.data(), on_host.data(), 64, copies.view());
  device.record(event, copies.view());  // step 1 has arrived
  device.record(event, work.view());    // step 0 was released: the same event
  device.wait(work.view(), event);
  cuda_double::launch(work.view(), {reads(on_device.data(), 64)});
  const std::string found = faults();
  EXPECT_TRUE(says(found, "a kernel #") && says(found, "cudaMemcpyAsync #")) << found;
  work.view().synchronize();
  copies.view().synchronize();
}

/// Events and memory of a second device.
struct other_devices_events : watched_device {
  using watched_device::watched_device;
  event make_event() const { return penstock::cuda_device(1).make_event(); }
};
TEST(bites, on_an_event_of_another_device) {
  EXPECT_TRUE(says(train(other_devices_events(0)), "an event of device 1 on a stream of device 0"));
}

TEST(bites, on_a_kernel_launched_while_another_device_is_current) {
  const samples<> data{23};
  auto feed = feed_of(data, watched_device(1), {.readers = 2});
  auto batch = feed.next();
  look_at(batch, batch.stream());
  EXPECT_TRUE(says(faults(), "a stream of device 1 while the thread's current device is 0"));
}

/// Slots in memory that the system may move.
struct pageable_slots : watched_device {
  using watched_device::watched_device;
  struct slot_memory {
    std::unique_ptr<std::byte[]> bytes;
    std::byte* data() const { return bytes.get(); }
  };
  slot_memory allocate_host(std::size_t bytes) const { return {std::make_unique<std::byte[]>(bytes)}; }
  void reserve_host() = delete;
};
TEST(bites, on_pageable_memory_in_a_copy) {
  EXPECT_TRUE(says(train(pageable_slots(0)), "the host's memory is pageable"));
  EXPECT_GT(cuda_double::pageable_copies(), 0U);
}

TEST(bites, on_results_that_are_read_before_they_have_come_back) {
  const watched_device device(0);
  const auto stream = device.make_stream();
  const auto on_device = device.allocate(64);
  const auto on_host = device.allocate_host(64);
  cuda_double::launch(stream.view(), {writes(on_device.data(), 64)});
  device.copy_to_host(on_host.data(), on_device.data(), 64, stream.view());
  cuda_double::host_access(reads(on_host.data(), 4), "the progress monitor");
  const std::string found = faults();
  EXPECT_TRUE(says(found, "the progress monitor on a host thread reads") && says(found, "cudaMemcpyAsync")) << found;
  stream.view().synchronize();
  cuda_double::host_access(reads(on_host.data(), 4), "the progress monitor");
  EXPECT_EQ(faults(), "");
}

TEST(bites, on_a_kernel_on_a_stream_that_nothing_orders_with_the_batch) {
  const samples<> data{23};
  const watched_device device(0);
  const auto other = device.make_stream();
  auto feed = feed_of(data, device, {.readers = 0, .depth = 2});
  for (auto& batch : feed.epoch(0)) look_at(batch, other.view());
  const std::string found = faults();
  EXPECT_TRUE(says(found, "a kernel #") && says(found, "cudaMemcpyAsync #")) << found;
}

TEST(bites, on_a_further_stream_that_was_not_named) {
  const samples<> data{23};
  const watched_device device(0);
  const auto other = device.make_stream();
  auto arrived = device.make_event();
  auto feed = feed_of(data, device, {.readers = 2, .depth = 2});
  for (auto& batch : feed.epoch(0)) {
    device.record(arrived, batch.stream());
    device.wait(other.view(), arrived);
    look_at(batch, other.view());  // no used_on: the twin comes back too early
  }
  const std::string found = faults();
  EXPECT_TRUE(says(found, " writes at byte") && says(found, "a kernel #")) << found;
}

TEST(bites, on_a_kernel_on_the_legacy_stream_that_nobody_named) {
  const samples<> data{23};
  auto feed = feed_of(data, watched_device(0), {.readers = 0, .depth = 2});
  for (auto& batch : feed.epoch(0)) look_at(batch, stream_view::legacy());
  EXPECT_TRUE(says(faults(), "with nothing that orders it after"));
}

/// Copies on the legacy stream.
struct copies_on_legacy : watched_device {
  using watched_device::watched_device;
  void copy_to_device(void* to, const void* from, std::size_t bytes, stream_view) const {
    watched_device::copy_to_device(to, from, bytes, stream_view::legacy());
  }
};
TEST(bites, on_use_of_the_legacy_stream) {
  EXPECT_TRUE(says(train(copies_on_legacy(0)), "cudaMemcpyAsync on the legacy stream"));
}

TEST(bites, on_memory_that_is_freed_in_use) {
  const watched_device device(0);
  const auto stream = device.make_stream();
  cuda_double::hold(stream.view());
  {
    const auto on_device = device.allocate(64);
    const auto on_host = device.allocate_host(64);
    device.copy_to_device(on_device.data(), on_host.data(), 64, stream.view());
  }
  const std::string found = faults();
  EXPECT_TRUE(says(found, "cudaFree: memory that an operation still uses")) << found;
  EXPECT_TRUE(says(found, "cudaHostUnregister: memory that an operation still uses")) << found;
}

TEST(bites, on_allocations_and_frees_on_the_hot_path) {
  const watched_device device(0);
  cuda_double::hot_path(true);
  {
    const auto memory = device.allocate(64);
    const auto event = device.make_event();
  }
  cuda_double::hot_path(false);
  const std::string found = faults();
  for (const char* call : {"cudaMalloc", "cudaFree", "cudaEventCreateWithFlags", "cudaEventDestroy"})
    EXPECT_TRUE(says(found, std::string(call) + " on the hot path")) << found;
}

TEST(bites, on_copies_out_of_bounds_and_writes_beside_memory) {
  const watched_device device(0);
  const auto stream = device.make_stream();
  {
    const auto on_device = device.allocate(64);
    const auto on_host = device.allocate_host(128);
    EXPECT_THROW(device.copy_to_device(on_device.data(), on_host.data(), 65, stream.view()), penstock::cuda_error);
    EXPECT_TRUE(says(faults(), "65 bytes that are not within a device's memory"));
    on_device.data()[64] = std::byte{0};
  }
  EXPECT_TRUE(says(faults(), "something was written outside of the memory"));
}

TEST(bites, on_a_hand_over_between_threads_that_orders_nothing) {
  // The production device as it is: its channel tells the double of no order between threads. Each reads a half of the
  // first batch, so that one of them copies what the other has written.
  signpost second;
  const samples data{24, [&](std::uint64_t index, penstock::read_context&) {
                       if (index == 0) second.await();
                       if (index == 2) second.reach();
                     }};
  {
    auto feed = feed_of(data, penstock::cuda_device(0), {.readers = 2, .depth = 2, .how = shuffle::none});
    feed.next().stream().synchronize();
  }
  const std::string found = faults();
  EXPECT_TRUE(says(found, "cudaMemcpyAsync #") && says(found, "a reader on a host thread writes")) << found;
}

}  // namespace
