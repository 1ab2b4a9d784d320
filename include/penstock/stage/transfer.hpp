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
  /// delay with which the end of a copy is noticed. `automatic`: up to 16 are made, within `memory`, and 3 are used, or
  /// more while that makes steps shorter; see `feed::tuning`.
  int depth = 3;
  /// Slots on the host, if not `depth`.
  int host_depth = 0;
  /// Of an automatic depth: the most bytes of all slots and buffers together, on the host and on the device. 512 MiB
  /// unless given, or what 3 of them take.
  std::optional<std::uint64_t> memory{};
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

  /// Of an automatic depth: where it begins, the most that it is, and its memory unless given.
  static constexpr std::uint32_t first_depth = 3, most_depth = 16;
  static constexpr std::uint64_t default_memory = std::uint64_t{512} << 20;

  Device device;
  transfer_options<Device> options;

  bool is_automatic() const { return options.depth == automatic; }
  /// Where an automatic depth begins, if `most` is allowed.
  static std::uint32_t begins_at(std::uint32_t most) { return most < first_depth ? most : first_depth; }
  /// Of an automatic depth: the most that the memory allows, each of which takes `bytes`. Throws
  /// `std::invalid_argument` if that is less than 2.
  std::uint32_t allowed_depth(std::uint64_t bytes) const {
    const std::uint64_t least = default_memory < first_depth * bytes ? first_depth * bytes : default_memory;
    const std::uint64_t fits = bytes == 0 ? most_depth : options.memory.value_or(least) / bytes;
    if (fits < 2)
      detail::reject_option("transfer", "memory", detail::concat(*options.memory, " bytes"),
                            detail::concat("at least ", 2 * bytes, ": 2 batches, each of which takes ", bytes,
                                           separate_device<Device> ? " on host and device" : ""));
    return fits < most_depth ? static_cast<std::uint32_t>(fits) : most_depth;
  }

  std::uint32_t host_depth() const {
    return static_cast<std::uint32_t>(options.host_depth != 0 ? options.host_depth : options.depth);
  }
  std::uint32_t device_depth() const { return separate_device<Device> ? static_cast<std::uint32_t>(options.depth) : 0; }
  void validate() const {
    if (!is_automatic() && (options.depth < 1 || options.depth > 64))
      detail::reject_option("transfer", "depth", std::to_string(options.depth), "1 to 64, or automatic");
    if (!is_automatic() && options.memory)
      detail::reject_option("transfer", "memory", detail::concat(*options.memory, " bytes"),
                            "none, as depth is not automatic: it says itself what is allocated");
    if (is_automatic() && options.host_depth != 0)
      detail::reject_option("transfer", "host_depth", std::to_string(options.host_depth), "0, as depth is automatic");
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
