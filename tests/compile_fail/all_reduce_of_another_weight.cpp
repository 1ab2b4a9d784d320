// SPDX-License-Identifier: Apache-2.0
// expect: all_reduce takes a weight that is called with the batch and gives a number
#include <span>
#include <string>
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);
std::vector<float> gradient(3);

int main() {
  auto gradients = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
                   penstock::transfer(penstock::cpu_device{}) |
                   penstock::compute([](const auto&) { return std::span(gradient); });
#ifdef PENSTOCK_REJECTED
  auto work = gradients | penstock::all_reduce(penstock::weighted_mean, [](const std::string&) { return 1.0; });
#else
  auto work = gradients | penstock::all_reduce(penstock::weighted_mean, [](const auto& batch) { return batch.size(); });
#endif
  static_cast<void>(work);
}
