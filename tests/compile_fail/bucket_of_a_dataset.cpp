// SPDX-License-Identifier: Apache-2.0
// expect: batch takes bucket_by_length for a stream, whose order is its own, upstream is a dataset
#include <vector>

#include <penstock/penstock.hpp>

int main() {
  const std::vector<std::vector<float>> rows(10);
#ifdef PENSTOCK_REJECTED
  auto work = rows | penstock::partition() | penstock::read() |
              penstock::batch(2, penstock::bucket_by_length({.bounds = {4, 8}}));
#else
  auto work = penstock::stream([rows] { return rows; }) | penstock::partition() | penstock::read() |
              penstock::batch(2, penstock::bucket_by_length({.bounds = {4, 8}}));
#endif
  static_cast<void>(work);
}
