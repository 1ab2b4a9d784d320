// SPDX-License-Identifier: Apache-2.0
// expect: read takes indices, upstream gives a dataset
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::read();
#else
  auto work = samples | penstock::partition() | penstock::read();
#endif
  static_cast<void>(work);
}
