// SPDX-License-Identifier: Apache-2.0
// expect: compute takes batches on a device, upstream gives batches on the host
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);
constexpr auto count = [](auto& batch) { return batch.size(); };

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2) | penstock::compute(count);
#else
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
              penstock::transfer(penstock::cpu_device{}) | penstock::compute(count);
#endif
  static_cast<void>(work);
}
