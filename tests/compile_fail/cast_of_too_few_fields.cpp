// SPDX-License-Identifier: Apache-2.0
// expect: batch's cast<...> has one element type, or keep, for each field, but upstream's samples have another number
#include <tuple>
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<std::tuple<float, int>> samples(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = samples | penstock::partition() | penstock::read() | penstock::batch(2, penstock::cast<double>);
#else
  auto work =
      samples | penstock::partition() | penstock::read() | penstock::batch(2, penstock::cast<double, penstock::keep>);
#endif
  static_cast<void>(work);
}
