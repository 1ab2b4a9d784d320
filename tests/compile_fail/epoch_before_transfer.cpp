// SPDX-License-Identifier: Apache-2.0
// expect: epoch.. and its like give batches, for which the pipeline ends in transfer.device.
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2);
#else
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
              penstock::transfer(penstock::cpu_device{});
#endif
  for (auto& batch : work.epoch(0)) static_cast<void>(batch);
}
