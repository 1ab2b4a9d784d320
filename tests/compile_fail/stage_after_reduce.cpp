// SPDX-License-Identifier: Apache-2.0
// expect: nothing comes after reduce, which gives one value an epoch: use what run.. returns
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);
constexpr auto count = [](int n, auto&&) { return n + 1; };

int main() {
  auto batches = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
                 penstock::transfer(penstock::cpu_device{});
#ifdef PENSTOCK_REJECTED
  auto work = batches | penstock::reduce(0, count) | penstock::compute([](int n) { return n + 1; });
#else
  auto work = batches | penstock::compute([](auto&) { return 1; }) | penstock::reduce(0, count);
#endif
  static_cast<void>(work);
}
