// SPDX-License-Identifier: Apache-2.0
// expect: partition takes a dataset, upstream is a range whose elements are not samples
#include <tuple>
#include <vector>

#include <penstock/penstock.hpp>

struct person {
  const char* name;
  int age;
};

int main() {
#ifdef PENSTOCK_REJECTED
  const std::vector<person> samples(10);
#else
  const std::vector<std::tuple<int, float> > samples(10);
#endif
  auto work = samples | penstock::partition();
  static_cast<void>(work);
}
