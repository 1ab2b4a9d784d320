// SPDX-License-Identifier: Apache-2.0
// expect: LibTorch has no tensors of this field's element type.*int32 for uint16
#include <cstdint>
#include <tuple>
#include <vector>

#include <penstock/interop/torch.hpp>
#include <penstock/penstock.hpp>

#ifdef PENSTOCK_REJECTED
using stored = std::uint16_t;
#else
using stored = std::int16_t;
#endif
const std::vector<std::tuple<float, stored>> samples(10);

int main() {
  auto feed = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
              penstock::transfer(penstock::cpu_device{});
  for (auto& batch : feed.epoch(0)) static_cast<void>(penstock::to_tensors(batch));
}
