// SPDX-License-Identifier: Apache-2.0
// expect: run.. needs a pipeline that reaches transfer.device.
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
  penstock::run(work);
}
