// SPDX-License-Identifier: Apache-2.0
// expect: all_reduce takes values that can be changed in place
#include <span>
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);
std::vector<float> gradient(3);

int main() {
  auto batches = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
                 penstock::transfer(penstock::cpu_device{});
#ifdef PENSTOCK_REJECTED
  auto work = batches | penstock::compute([](const auto&) { return std::span<const float>(gradient); }) |
              penstock::all_reduce();
#else
  auto work =
      batches | penstock::compute([](const auto&) { return std::span<float>(gradient); }) | penstock::all_reduce();
#endif
  static_cast<void>(work);
}
