// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <penstock/channel/step_header.hpp>
#include <penstock/device/device.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/stage/stage.hpp>

namespace penstock {

template <class Device>
struct transfer_options {
  /// Batches in existence: buffers on the device, and as many slots on the host. 2 is double buffering; 3 hides the
  /// delay with which the end of a copy is noticed.
  int depth = 3;
  /// Slots on the host, if not `depth`.
  int host_depth = 0;
  /// A stream of the user's on which batches are consumed, in place of one of the library's own. It outlives the feed
  /// and its leases.
  std::optional<typename Device::stream_view> consumer{};
  /// Numbers of the step that kernels read from the device's memory: `[](const batch_info& at, std::span<float> to)`,
  /// see `step_header`. Called when the copy is enqueued: ahead of the loop by up to the depth, by readers or by the
  /// loop's thread, also for batches that are then skipped; so it looks at `at` alone.
  step_scalars scalars{};
};

/// Where batches go, and how many are under way. Takes batches on the host, gives batches on the device.
template <class Device>
struct transfer_stage {
  static constexpr stage_kind kind = stage_kind::transfer;

  Device device;
  transfer_options<Device> options;

  std::uint32_t host_depth() const {
    return static_cast<std::uint32_t>(options.host_depth != 0 ? options.host_depth : options.depth);
  }
  std::uint32_t device_depth() const { return separate_device<Device> ? static_cast<std::uint32_t>(options.depth) : 0; }
  void validate() const {
    if (options.depth < 1 || options.depth > 64)
      detail::reject_option("transfer", "depth", std::to_string(options.depth), "1 to 64");
    if (options.host_depth < 0 || options.host_depth > 64)
      detail::reject_option("transfer", "host_depth", std::to_string(options.host_depth), "0 (as depth) to 64");
  }
};

/// Batches are consumed on `device`, copied there in the background if it has memory of its own.
template <device Device>
transfer_stage<Device> transfer(Device device, transfer_options<std::type_identity_t<Device>> options = {}) {
  return {std::move(device), std::move(options)};
}

}  // namespace penstock
