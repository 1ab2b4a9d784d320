// SPDX-License-Identifier: Apache-2.0
// expect: partition takes a dataset, upstream is a range that cannot be iterated as const
#include <ranges>
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);
constexpr auto large = [](float x) { return x > 1; };

int main() {
#ifdef PENSTOCK_REJECTED
  auto work = std::views::filter(samples, large) | penstock::partition();
#else
  auto work = penstock::stream([] { return std::views::filter(samples, large); }) | penstock::partition();
#endif
  static_cast<void>(work);
}
