// SPDX-License-Identifier: Apache-2.0
// expect: partition takes a plan for a dataset with random access, upstream is a stream
#include <penstock/penstock.hpp>

int main() {
  auto numbers = penstock::stream([] { return std::views::iota(0, 10); });
#ifdef PENSTOCK_REJECTED
  auto work = numbers | penstock::partition(penstock::sequential_plan(10), {.shuffle = penstock::shuffle::none});
#else
  auto work = numbers | penstock::partition({.shuffle = penstock::shuffle::none});
#endif
  (void)work;
}
