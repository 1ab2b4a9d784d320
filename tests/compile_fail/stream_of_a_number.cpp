// SPDX-License-Identifier: Apache-2.0
// expect: stream takes a factory of input ranges, but what this one makes is not an input range
#include <ranges>

#include <penstock/penstock.hpp>

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = penstock::stream([] { return 10; });
#else
  auto work = penstock::stream([] { return std::views::iota(0, 10); });
#endif
  auto next = work | penstock::partition() | penstock::read();
  static_cast<void>(next);
}
