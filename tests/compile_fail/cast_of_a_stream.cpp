// SPDX-License-Identifier: Apache-2.0
// expect: batch takes the element types of a stream's samples as they are: no cast
#include <vector>

#include <penstock/penstock.hpp>

auto rows() {
  return penstock::stream([] { return std::vector<float>(10); });
}

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = rows() | penstock::partition() | penstock::read() | penstock::batch(2, penstock::cast<double>);
#else
  auto work = rows() | penstock::partition() | penstock::read() | penstock::batch(2);
#endif
  static_cast<void>(work);
}
