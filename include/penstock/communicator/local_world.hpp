// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <penstock/communicator/local.hpp>
#include <penstock/device/cpu.hpp>

namespace penstock {

/// Ranks that are threads of this process, one for each device, in their order.
///
/// What `replicas` and `run` take as a world has `size()`, the ranks of all processes; `local_size()`, those of this
/// one; `threads`, whether each is to run on a thread of its own; `begin(options, spins)`, called once before the ranks
/// are made; `abort`, as a communicator has; and `join(n)`, which makes the n-th local rank's communicator on that
/// rank's thread. All of them are asked for once a run, and a world may be used for several runs, one after the other.
template <host_device Device = cpu_device>
class local_world {
 public:
  using communicator_type = local_communicator<Device>;
  static constexpr bool threads = true;

  /// `replicas` ranks, all on the host. Throws `std::invalid_argument` unless there are 1 to 1024.
  explicit local_world(int replicas, Device device = {})
      : local_world(std::vector<Device>(checked(replicas), std::move(device))) {}
  explicit local_world(std::vector<Device> devices) : devices_(std::move(devices)) {
    if (devices_.empty()) detail::reject_option("replicas", "number of devices", "0", "1 or more");
  }

  std::uint64_t size() const noexcept { return devices_.size(); }
  std::size_t local_size() const noexcept { return devices_.size(); }
  void begin(const replica_options& options, std::uint32_t spins) {
    options_ = options;
    group_ = std::make_shared<detail::local_group>(devices_.size(), spins);
  }
  /// Nobody waits any longer; from any thread.
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    group_->abort(rank, std::move(where), std::move(problem));
  }
  communicator_type join(std::size_t n) { return {group_, n, devices_[n], options_}; }

 private:
  static std::size_t checked(int replicas) {
    if (replicas < 1 || replicas > 1024)
      detail::reject_option("replicas", "number", std::to_string(replicas), "1 to 1024");
    return static_cast<std::size_t>(replicas);
  }

  std::vector<Device> devices_;
  replica_options options_;
  std::shared_ptr<detail::local_group> group_;
};

}  // namespace penstock
