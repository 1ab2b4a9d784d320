// SPDX-License-Identifier: Apache-2.0
// expect: partition takes a dataset, upstream is a range without random access or size
#include <list>
#include <vector>

#include <penstock/penstock.hpp>

int main() {
#ifdef PENSTOCK_REJECTED
  const std::list<float> samples(10);
#else
  const std::vector<float> samples(10);
#endif
  auto work = samples | penstock::partition();
  static_cast<void>(work);
}
