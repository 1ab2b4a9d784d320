// SPDX-License-Identifier: Apache-2.0
#include <torch/cuda.h>
#include <torch/utils.h>

#include <mutex>

#include <penstock/communicator/nccl_world.hpp>
#include <penstock/device/cuda.hpp>
#include <penstock/interop/torch_cuda.hpp>

#include "../training.hpp"

namespace patch_trainer {

std::string why_no_cuda() { return torch::cuda::is_available() ? "" : "LibTorch finds no GPU"; }

ending train_on_cuda(const settings& s, std::stop_token stop) {
  const clock::time_point begun = clock::now();
  std::printf("device: cuda, %d replica%s\n", s.replicas, s.replicas == 1 ? "" : "s"), std::fflush(stdout);
  held_out seen;
  std::vector<std::unique_ptr<training<penstock::cuda_device>>> all(static_cast<std::size_t>(s.replicas));
  std::mutex one_by_one;  // LibTorch has one stream of random numbers: all begin with the same weights
  const auto make = [&](std::size_t rank, penstock::cuda_device device) -> auto& {
    const std::lock_guard lock(one_by_one);
    torch::manual_seed(static_cast<std::uint64_t>(s.seed));
    const at::Device where(at::kCUDA, static_cast<at::DeviceIndex>(device.ordinal()));
    all[rank] = std::make_unique<training<penstock::cuda_device>>(s, std::move(device), where);
    return *all[rank];
  };
  const ending how = ending_of([&] {
    return with_patches(s, seen, [&](const auto& patches) {
      const auto scope = [](int ordinal) {
        return [ordinal](auto& batch) { return std::make_unique<penstock::torch_stream_guard>(batch, ordinal); };
      };
      if (s.replicas == 1) {
        only_one here;
        return make(0, penstock::cuda_device(0)).template loop<alone>(here, patches, seen, stop, scope(0));
      }
      std::vector<penstock::cuda_device> devices;
      for (int i = 0; i < s.replicas; ++i) devices.emplace_back(i);
      ending of_all{};
      penstock::replicas(penstock::nccl_world(devices),
                         [&](auto& replica) {
                           using replica_type = std::remove_cvref_t<decltype(replica)>;
                           auto& mine = make(replica.rank(), replica.device());
                           const ending one = mine.template loop<penstock::torch_replica<replica_type>>(
                               replica, patches, seen, stop, scope(replica.device().ordinal()));
                           if (replica.rank() == 0) of_all = one;
                         },
                         {.lag = 0});
      return of_all;
    });
  });
  return finish(how, all[0].get(), seen, s, at::Device(at::kCUDA, 0), begun);
}

}  // namespace patch_trainer
