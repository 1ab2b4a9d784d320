// SPDX-License-Identifier: Apache-2.0
// expect: batch takes bucket_by_length for samples with a row of varying length
#include <array>
#include <tuple>
#include <vector>

#include <penstock/penstock.hpp>

int main() {
#ifdef PENSTOCK_REJECTED
  using row = std::array<float, 4>;
#else
  using row = std::vector<float>;
#endif
  auto work = penstock::stream([] { return std::vector<std::tuple<row, int>>(10); }) | penstock::partition() |
              penstock::read() | penstock::batch(2, penstock::bucket_by_length({.bounds = {4, 8}}));
  static_cast<void>(work);
}
