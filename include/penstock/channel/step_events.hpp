// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>

#include <penstock/device/device.hpp>

namespace penstock::detail {

/// A device whose events tell when they completed, in a time of its own.
template <class Device>
concept states_times = requires(const Device& device, const typename Device::event& event) {
  device.completion(event);
  device.now();
};
/// A device that measures the time between two events that were made for it.
template <class Device>
concept measures_times = requires(const Device& device, const typename Device::event& event) {
  { device.make_timing_event() } -> std::same_as<typename Device::event>;
  { device.elapsed(event, event) } -> std::convertible_to<std::chrono::nanoseconds>;
};
/// Copies and kernels can be timed.
template <class Device>
concept tells_times = separate_device<Device> && (states_times<Device> || measures_times<Device>);

/// The events of one step on a device that tells times.
template <class Device, bool Tells = tells_times<Device>>
struct step_events {
  explicit step_events(const Device&) {}
};
template <class Device>
struct step_events<Device, true> {
  static auto make(const Device& device) {
    if constexpr (measures_times<Device>)
      return device.make_timing_event();
    else
      return device.make_event();
  }
  explicit step_events(const Device& device)
      : copy_begin(make(device)), copy_end(make(device)), compute_begin(make(device)), compute_end(make(device)) {}

  typename Device::event copy_begin, copy_end, compute_begin, compute_end;
};

}  // namespace penstock::detail
