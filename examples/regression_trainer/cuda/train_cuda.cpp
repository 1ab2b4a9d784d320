// SPDX-License-Identifier: Apache-2.0
#include "../train_cuda.hpp"

#include "../batches.hpp"
#include "../device_network.hpp"
#include "../replicated.hpp"
#include "cuda_calls.hpp"

namespace trainer {
namespace {

/// The network on the GPU. Its feeds hand their batches over on the network's stream: training and validation are in
/// order without a wait.
class cuda_network : public device_network<cuda_calls> {
 public:
  cuda_network(const network_layout& layout, const settings& s, penstock::cuda_device device = {})
      : device_network(layout, s, std::move(device), std::chrono::minutes(2)) {}

  auto batches(const table& data, const settings& s, penstock::shuffle order, const standardise& inputs,
               penstock::world world = {}) {
    return trainer::batches(data, s, order, inputs, world, calls().device(), {.consumer = calls().stream()});
  }
};

}  // namespace

std::string why_no_cuda() try {
  if (penstock::cuda_device::count() == 0) return "there is no device that this process can see";
  if (!cuda_calls::has_kernels()) return "this program was built for other devices than " + cuda_name();
  return "";
} catch (const penstock::cuda_error& problem) {
  return problem.what();
}

std::string cuda_name() { return penstock::cuda_device().describe(); }

ending train_on_cuda(const settings& s, std::optional<checkpoint> from, const parts& data, std::stop_token stop,
                     const std::string& device) {
  if (s.replicas > 1) {
    std::vector<penstock::cuda_device> devices;
    for (int i = 0; i < s.replicas; ++i) devices.emplace_back(i % penstock::cuda_device::count());
    using world = penstock::local_device_world<penstock::cuda_device, cuda_reduction>;
    return train_replicas<cuda_network>(world(std::move(devices)), s, from, data, stop, device);
  }
  return training<cuda_network>(s, std::move(from), data).run(stop, device);
}

void predict_on_cuda(const network_layout& layout, const checkpoint& model, const table& rows, const settings& s) {
  predict_on(cuda_network(layout, s), model, rows, s);
}

}  // namespace trainer
