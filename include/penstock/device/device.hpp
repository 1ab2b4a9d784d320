// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

#include <penstock/sample/tensor_view.hpp>

namespace penstock {

/// How a wait for a device event ended.
enum class wait_result { complete, interrupted, timed_out };

/// What a wait on the host may be ended by: a predicate that turns true, or a point in time.
template <class Interrupt>
concept interrupt = std::predicate<const Interrupt&>;

/// A device whose batches are the host slots themselves: nothing is copied, every fence is a sequence number.
template <class Device>
concept host_device = requires(const Device& device, std::size_t bytes) {
  requires std::copyable<Device>;
  requires std::same_as<typename Device::memory_space, host_memory>;
  typename Device::stream;
  { device.allocate_host(bytes).data() } -> std::same_as<std::byte*>;
  { device.make_stream().view() } -> std::same_as<typename Device::stream_view>;
  { device.describe() } -> std::convertible_to<std::string>;
};

/// A device with memory of its own: slots are copied to twins on a stream, fences are events.
///
/// A device is a small copyable value that refers to the hardware or its model. Owners (`stream`, `event`, memory) are
/// move-only and release what they hold; `stream_view` is a copyable handle. `record`, `wait` on a stream and the copy
/// only enqueue; `ready` never blocks; the `wait` on an event blocks the calling thread only, spinning a little and
/// then sleeping, until the event's last record has completed, `interrupt()` is true, or the deadline has passed. An
/// event that was never recorded counts as complete. Failures throw `penstock::error`.
template <class Device>
concept separate_device =
    requires(const Device& device, std::size_t bytes, void* to, const void* from, typename Device::stream_view stream,
             typename Device::event& event, const typename Device::event& recorded, bool (*stopped)(),
             std::chrono::steady_clock::time_point deadline) {
      requires std::copyable<Device>;
      requires !std::same_as<typename Device::memory_space, host_memory>;
      typename Device::stream;
      { device.allocate_host(bytes).data() } -> std::same_as<std::byte*>;
      { device.allocate(bytes).data() } -> std::same_as<std::byte*>;
      { device.make_stream().view() } -> std::same_as<typename Device::stream_view>;
      { device.make_event() } -> std::same_as<typename Device::event>;
      device.copy_to_device(to, from, bytes, stream);
      device.copy_to_host(to, from, bytes, stream);
      device.record(event, stream);
      device.wait(stream, recorded);
      { device.ready(recorded) } -> std::same_as<bool>;
      { device.wait(recorded, stopped, deadline) } -> std::same_as<wait_result>;
      device.bind_thread();
      { device.describe() } -> std::convertible_to<std::string>;
    };

template <class Device>
concept device = host_device<Device> || separate_device<Device>;

}  // namespace penstock
