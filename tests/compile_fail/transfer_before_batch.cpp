// SPDX-License-Identifier: Apache-2.0
// expect: transfer takes batches, upstream gives samples
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::partition() | penstock::read() | penstock::transfer(penstock::cpu_device{});
#else
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
              penstock::transfer(penstock::cpu_device{});
#endif
  static_cast<void>(work);
}
