// SPDX-License-Identifier: Apache-2.0
// expect: partition takes a dataset, upstream is neither a range of samples nor a type with size
#include <ranges>

#include <penstock/penstock.hpp>

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = 10 | penstock::partition();
#else
  auto work = std::views::iota(0, 10) | penstock::partition();
#endif
  static_cast<void>(work);
}
