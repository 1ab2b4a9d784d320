// SPDX-License-Identifier: Apache-2.0
// expect: host<I>.. of a batch on a device is for scalar fields, which are kept on the host. this field has a shape
#include <array>
#include <cstddef>
#include <tuple>
#include <vector>

#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>

const std::vector<std::tuple<std::array<float, 3>, int>> samples(10);

#ifdef PENSTOCK_REJECTED
constexpr std::size_t which = 0;
#else
constexpr std::size_t which = 1;
#endif

int main() {
  auto feed = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
              penstock::transfer(penstock::modelled_device{});
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch.host<which>());
}
