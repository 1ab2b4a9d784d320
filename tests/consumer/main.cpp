// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>

#include <penstock/device/cpu.hpp>
#include <penstock/device/device.hpp>
#include <penstock/sample/schema.hpp>

std::size_t elements_elsewhere();

int main() {
  static_assert(penstock::device<penstock::cpu_device>);
  std::array<float, 6> values{0, 1, 2, 3, 4, 5};
  const penstock::tensor_view<float, 2> view(values.data(), {2, 3});
  return view(1, 2) == 5.0F && elements_elsewhere() == view.size() ? 0 : 1;
}
