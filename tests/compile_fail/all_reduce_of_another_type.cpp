// SPDX-License-Identifier: Apache-2.0
// expect: all_reduce takes values that can be changed in place, .* but upstream's compute returns something else
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);
std::vector<std::string> texts(3);
std::vector<float> gradient(3);
std::vector<int> counts(2);

int main() {
  auto batches = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
                 penstock::transfer(penstock::cpu_device{});
#ifdef PENSTOCK_REJECTED
  auto work = batches | penstock::compute([](const auto&) { return std::span(texts); }) | penstock::all_reduce();
#else
  auto work = batches | penstock::compute([](const auto&) {
                return std::tuple(std::span(gradient), penstock::buffer(counts, penstock::reduction::sum));
              }) |
              penstock::all_reduce();
#endif
  static_cast<void>(work);
}
