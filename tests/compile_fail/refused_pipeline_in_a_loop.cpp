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
  float sum = 0;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : work.epoch(0)) {
      auto [x] = batch.fields();
      sum += x[0];
    }
  return sum > 0;
}
