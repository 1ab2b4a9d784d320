// SPDX-License-Identifier: Apache-2.0
#include "../train_mpi.hpp"

#include <penstock/communicator/mpi.hpp>

#include "../cpu_network.hpp"
#include "../replicated.hpp"

namespace trainer {

ending train_on_mpi(const settings& s, const std::optional<checkpoint>& from, const parts& data, std::stop_token stop,
                    const std::string& device) {
  return train_replicas<cpu_network>(penstock::mpi_world(), s, from, data, stop, device);
}

}  // namespace trainer
