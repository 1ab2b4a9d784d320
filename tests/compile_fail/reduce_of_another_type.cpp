// SPDX-License-Identifier: Apache-2.0
// expect: reduce takes an operation .value, item., item being what is upstream
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
  auto batches = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
                 penstock::transfer(penstock::cpu_device{});
#ifdef PENSTOCK_REJECTED
  auto work = batches | penstock::reduce(0.0, [](double sum, float loss) { return sum + loss; });
#else
  auto work = batches | penstock::compute([](auto&) { return 1.F; }) |
              penstock::reduce(0.0, [](double sum, float loss) { return sum + loss; });
#endif
  static_cast<void>(work);
}
