// SPDX-License-Identifier: Apache-2.0
// expect: compute takes a function of what is upstream
#include <cstddef>
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
  auto batches = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
                 penstock::transfer(penstock::cpu_device{});
#ifdef PENSTOCK_REJECTED
  auto work =
      batches | penstock::compute([](auto& batch) { return batch.size(); }) | penstock::compute([](const char*) {});
#else
  auto work =
      batches | penstock::compute([](auto& batch) { return batch.size(); }) | penstock::compute([](std::size_t) {});
#endif
  static_cast<void>(work);
}
