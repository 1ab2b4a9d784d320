// SPDX-License-Identifier: Apache-2.0
// expect: batch takes the samples of a stream as they are: no cast and no collate
#include <vector>

#include <penstock/penstock.hpp>

auto rows() {
  return penstock::stream([] { return std::vector<std::vector<float>>(10); });
}

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = rows() | penstock::partition() | penstock::read() | penstock::batch(2, penstock::pad_to({.length = 3}));
#else
  auto work = rows() | penstock::partition() | penstock::read() | penstock::batch(2);
#endif
  static_cast<void>(work);
}
