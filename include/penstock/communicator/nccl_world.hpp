// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <penstock/communicator/local_world.hpp>
#include <penstock/communicator/nccl.hpp>

namespace penstock {

/// Ranks on NVIDIA GPUs, by NCCL. Link `penstock::nccl`. Two ways:
/// - `nccl_world({cuda_device(0), cuda_device(1)})`: one process, with a thread for each device;
/// - `nccl_world(device, std::move(mpi))`, with `mpi_world mpi; cuda_device device(mpi.local_rank());`: one process for
///   each device. The other world brings the processes together, carries NCCL's id, and tells others of a failure.
///
/// Two ranks on one device are refused. Like `local_world` it is a world that `replicas` and `run` take.
template <class HostWorld = local_world<>, class Kernels = no_nccl_kernels>
class nccl_world {
 public:
  using communicator_type = nccl_communicator<typename HostWorld::communicator_type, Kernels>;
  static constexpr bool threads = HostWorld::threads;

  /// `adopt`: communicators that exist, one for each device, in the order of the ranks. They are used, and not
  /// destroyed; after an error their owner aborts them.
  explicit nccl_world(std::vector<cuda_device> devices, std::vector<ncclComm_t> adopt = {})
    requires std::same_as<HostWorld, local_world<>>
      : nccl_world(devices, HostWorld(static_cast<int>(devices.size())), std::move(adopt)) {}
  nccl_world(cuda_device device, HostWorld host, ncclComm_t adopt = nullptr)
      : nccl_world(std::vector<cuda_device>{std::move(device)}, std::move(host),
                   adopt == nullptr ? std::vector<ncclComm_t>{} : std::vector<ncclComm_t>{adopt}) {}
  nccl_world(std::vector<cuda_device> devices, HostWorld host, std::vector<ncclComm_t> adopt = {})
      : devices_(std::move(devices)), adopted_(std::move(adopt)), host_(std::make_unique<HostWorld>(std::move(host))) {
    if (devices_.size() != host_->local_size())
      detail::reject_option("nccl_world", "number of devices", std::to_string(devices_.size()),
                            detail::concat(host_->local_size(), ", one for each rank of the process"));
    if (!adopted_.empty() && adopted_.size() != devices_.size())
      detail::reject_option("nccl_world", "number of communicators to adopt", std::to_string(adopted_.size()),
                            detail::concat(devices_.size(), ", one for each device, or none"));
  }

  std::uint64_t size() const noexcept { return host_->size(); }
  std::size_t local_size() const noexcept { return devices_.size(); }
  void begin(const replica_options& options, std::uint32_t spins) {
    options_ = options;
    host_->begin(options, spins);
    process_ = std::make_shared<detail::nccl_process>(
        devices_.size(), options.timeout, options.warns_after(),
        [host = host_.get()](std::uint64_t rank, const provenance& where, const std::string& problem) {
          host->abort(rank, where, problem);
        });
  }
  /// Nobody waits any longer; from any thread.
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    process_->abort(rank, std::move(where), std::move(problem));
  }
  communicator_type join(std::size_t n) {
    return {process_, n, host_->join(n), devices_[n], options_, adopted_.empty() ? nullptr : adopted_[n]};
  }

 private:
  std::vector<cuda_device> devices_;
  std::vector<ncclComm_t> adopted_;
  std::unique_ptr<HostWorld> host_;
  replica_options options_;
  std::shared_ptr<detail::nccl_process> process_;
};
nccl_world(std::vector<cuda_device>) -> nccl_world<local_world<>>;
nccl_world(std::vector<cuda_device>, std::vector<ncclComm_t>) -> nccl_world<local_world<>>;

}  // namespace penstock
