// SPDX-License-Identifier: Apache-2.0
// expect: stream takes a factory of ranges of samples, but the elements are not samples
#include <vector>

#include <penstock/penstock.hpp>

struct person {
  const char* name;
  int age;
};

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = penstock::stream([] { return std::vector<person>(10); });
#else
  auto work = penstock::stream([] { return std::vector<float>(10); });
#endif
  auto next = work | penstock::partition() | penstock::read();
  static_cast<void>(next);
}
