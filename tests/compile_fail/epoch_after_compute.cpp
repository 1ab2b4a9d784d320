// SPDX-License-Identifier: Apache-2.0
// expect: epoch.. and its like give batches, for which the pipeline ends in transfer.device.
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
  auto batches = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
                 penstock::transfer(penstock::cpu_device{});
  auto work = batches | penstock::compute([](auto&) {});
#ifdef PENSTOCK_REJECTED
  for (auto& batch : work.epoch(0)) static_cast<void>(batch);
#else
  penstock::run(work);
#endif
}
