// SPDX-License-Identifier: Apache-2.0
// expect: transfer takes batches, upstream gives samples
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto read = samples | penstock::partition() | penstock::read();
#else
  auto read = samples | penstock::partition() | penstock::read() | penstock::batch(2);
#endif
  auto work = read | penstock::transfer(penstock::cpu_device{}) |
              penstock::compute([](auto& batch) { return batch.size(); }) |
              penstock::reduce(0UL, [](auto sum, auto size) { return sum + size; });
  penstock::run(work, {.epochs = 2});
}
