// SPDX-License-Identifier: Apache-2.0
// expect: run.world, .... needs pipelines with all_reduce, which keeps the ranks in step
#include <span>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

const std::vector<float> samples(10);
std::vector<float> gradient(3);

int main() {
  const auto make = [](const auto& replica) {
    auto batches = samples | penstock::partition({.world = replica}) | penstock::read() | penstock::batch(2);
#ifdef PENSTOCK_REJECTED
    return batches | penstock::transfer(replica.device());
#else
    return batches | penstock::transfer(replica.device()) |
           penstock::compute([](const auto&) { return std::span(gradient); }) | penstock::all_reduce();
#endif
  };
  penstock::run(penstock::local_world<>(2), make);
}
