// SPDX-License-Identifier: Apache-2.0
// expect: batch takes samples, upstream gives batches
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2) | penstock::batch(4);
#else
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(4);
#endif
  static_cast<void>(work);
}
