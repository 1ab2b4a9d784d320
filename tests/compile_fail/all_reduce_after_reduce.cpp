// SPDX-License-Identifier: Apache-2.0
// expect: nothing comes after reduce, which gives one value an epoch
#include <cstddef>
#include <span>
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);
std::vector<float> gradient(3);
constexpr auto count = [](std::size_t so_far, std::span<float> values) { return so_far + values.size(); };

int main() {
  auto gradients = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
                   penstock::transfer(penstock::cpu_device{}) |
                   penstock::compute([](const auto&) { return std::span(gradient); });
#ifdef PENSTOCK_REJECTED
  auto work = gradients | penstock::reduce(std::size_t{0}, count) | penstock::all_reduce();
#else
  auto work = gradients | penstock::all_reduce() | penstock::reduce(std::size_t{0}, count);
#endif
  static_cast<void>(work);
}
