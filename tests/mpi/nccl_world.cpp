// SPDX-License-Identifier: Apache-2.0
// A process for each GPU, brought together by MPI: that it compiles, as there is no NCCL here that could run it.
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/communicator/mpi.hpp>
#include <penstock/communicator/nccl_world.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

int main() {
  penstock::mpi_world mpi;
  penstock::cuda_device device(mpi.local_rank());
  penstock::nccl_world world(device, std::move(mpi));
  const std::vector<std::tuple<float>> rows(100);
  penstock::replicas(world, [&](auto& replica) {
    const auto gradient = replica.device().allocate(16 * sizeof(float));
    auto feed = replica.start(rows | penstock::partition({.world = replica}) | penstock::read() |
                              penstock::batch({.global = 8}) | penstock::transfer(replica.device()));
    for (auto& batch : feed.epoch(0))
      replica.all_reduce(batch, penstock::buffer(reinterpret_cast<float*>(gradient.data()), 16));
  });
}
