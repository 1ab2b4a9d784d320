// SPDX-License-Identifier: Apache-2.0
// expect: reduce takes batches on a device or results of compute, upstream gives batches on the host
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);
constexpr auto count = [](int n, auto& batch) { return n + static_cast<int>(batch.size()); };

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2) | penstock::reduce(0, count);
#else
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
              penstock::transfer(penstock::cpu_device{}) | penstock::reduce(0, count);
#endif
  static_cast<void>(work);
}
