// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <penstock/channel/layout.hpp>
#include <penstock/channel/record.hpp>
#include <penstock/channel/step_header.hpp>
#include <penstock/device/device.hpp>

namespace penstock::detail {

inline void prepare(batch_record& record, std::size_t capacity, std::size_t ranges) {
  record.indices.resize(capacity);
  record.range_rows.resize(ranges);
}

/// In front of the fields of a slot or twin that is copied, for the step's header.
inline constexpr std::size_t front_bytes = 256;

/// What a slot takes, in bytes; a twin's buffer on the device takes as much.
template <bool Copied>
std::uint64_t bytes_of_slot(const auto& layout) {
  return layout.bytes() + (Copied ? front_bytes : 0);
}
/// What one more of depth takes, in bytes: a slot, and, if batches are copied, a twin with what is kept on the host.
template <bool Copied, template <class> class Layout, class Schema>
std::uint64_t bytes_of_depth(const Layout<Schema>& layout) {
  if (!Copied) return bytes_of_slot<false>(layout);
  std::uint64_t result = 2 * bytes_of_slot<true>(layout);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((result += field_t<I, Schema>::rank == 0 ? layout.row_bytes(I) * layout.capacity() : 0), ...);
  }(std::make_index_sequence<Schema::size>{});
  return result;
}

/// A device whose host memory can be had untouched, so that its readers are the first to touch it.
template <class Device>
concept reserves_host_memory = requires(const Device& device) {
  device.reserve_host(std::size_t{1}).touch(std::size_t{0}, std::size_t{1});
  device.reserve_host(std::size_t{1}).pin();
};

/// Where a batch is put together: its bytes, what is known of it, and whether they may be overwritten.
template <class Device, bool Separate = separate_device<Device>>
struct host_slot {
  host_slot(host_slot&&) noexcept = default;  // only while nobody else knows it
  template <class Layout>
  host_slot(const Device& device, const Layout& layout, std::size_t ranges)
      : memory(device.allocate_host(layout.bytes())) {
    prepare(record, layout.capacity(), ranges);
  }
  std::byte* data() const noexcept { return memory.data(); }

  decltype(std::declval<const Device&>().allocate_host(1)) memory;
  batch_record record;
};

template <class Device>
struct host_slot<Device, true> {
  /// Of the memory, before the fields: the header.
  static constexpr std::size_t front = front_bytes;
  static_assert(sizeof(step_header) <= front);

  host_slot(host_slot&& other) noexcept  // only while nobody else knows it
      : memory(std::move(other.memory)), record(std::move(other.record)), copied(std::move(other.copied)) {}
  template <class Layout>
  host_slot(const Device& device, const Layout& layout, std::size_t ranges)
      : memory(memory_of(device, front + layout.bytes())), copied(device.make_event()) {
    prepare(record, layout.capacity(), ranges);
  }
  static auto memory_of(const Device& device, std::size_t bytes) {
    if constexpr (reserves_host_memory<Device>)
      return device.reserve_host(bytes);
    else
      return device.allocate_host(bytes);
  }
  std::byte* data() const noexcept { return memory.data() + front; }
  step_header& header() const noexcept { return *reinterpret_cast<step_header*>(memory.data()); }

  decltype(memory_of(std::declval<const Device&>(), 1)) memory;
  batch_record record;
  typename Device::event copied;  // the copy out of the slot has completed
  // Read also by a reader that is about to lose the race for a ticket, hence atomic.
  std::atomic<bool> fenced{false};  // `copied` was recorded
  std::atomic<bool> lost{false};    // a copy is in flight that no event will tell the end of
};

/// The buffer on the device that a batch is consumed from. Nothing, where there is none.
template <class Device, bool Separate = separate_device<Device>>
struct device_twin {};

template <class Device>
struct device_twin<Device, true> {
  using stream_view = typename Device::stream_view;
  static constexpr std::size_t front = host_slot<Device>::front;
  static constexpr std::size_t most_streams = 4;

  template <class Layout>
  device_twin(const Device& device, const Layout& layout, std::size_t ranges, std::size_t small_bytes)
      : memory(device.allocate(front + layout.bytes())),
        ready(device.make_event()),
        released(device.make_event()),
        other(device.make_event()),
        small(small_bytes) {
    prepare(record, layout.capacity(), ranges);
  }
  std::byte* data() const noexcept { return memory.data() + front; }

  decltype(std::declval<const Device&>().allocate(1)) memory;
  batch_record record;
  typename Device::event ready;     // the copy into the twin has completed
  typename Device::event released;  // the consumer's work on the twin has completed
  typename Device::event other;     // its work on further streams
  std::vector<std::byte> small;     // scalar fields, for the host
  std::array<std::optional<stream_view>, most_streams> streams{};
  // There is work on the twin that no event will tell the end of: why, for the steps that get the twin until it is let
  // go in order.
  std::exception_ptr release_failure;
  bool received = false;  // the consumer's stream waits for the copy
};

}  // namespace penstock::detail
