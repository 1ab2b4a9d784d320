// SPDX-License-Identifier: Apache-2.0
// expect: batch takes samples, upstream gives indices
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::partition() | penstock::batch(2);
#else
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2);
#endif
  static_cast<void>(work);
}
