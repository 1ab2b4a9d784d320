// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <penstock/replicas.hpp>

#include "training.hpp"

namespace trainer {

/// The same training by several replicas, each with a network and readers of its own. They give the curve of one alone,
/// but for the order of summation. The first one writes the files and prints the report.
template <class Network, penstock::replica_world World>
ending train_replicas(World world, const settings& s, const std::optional<checkpoint>& from, const parts& data,
                      std::stop_token stop, const std::string& device) {
  std::vector<std::unique_ptr<training<Network>>> all(world.size());
  const ending how = ending_of([&] {
    ending of_all{};
    // Who waits for a batch says so first.
    const auto patience = std::chrono::seconds(static_cast<std::int64_t>(s.timeout)) + std::chrono::minutes(10);
    const auto body = [&](penstock::replica_of<World>& replica) {
      auto& mine = all[replica.rank()] = std::make_unique<training<Network>>(s, from, data, replica.device());
      const ending one = mine->loop(replica, stop);
      if (replica.rank() == 0 || !World::threads) of_all = one;
    };
    penstock::replicas(world, body, {.timeout = patience});
    return of_all;
  });
  return all[0] ? all[0]->finish(how, device) : how;
}

}  // namespace trainer
