// SPDX-License-Identifier: Apache-2.0
// expect: partition takes a dataset, upstream gives what an earlier stage made of one
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::partition() | penstock::partition();
#else
  auto work = samples | penstock::partition();
#endif
  static_cast<void>(work);
}
