// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace station {

/// Of one measurement; with separable compilation it is in a file of its own.
#if defined(CONSUMER_SEPARABLE)
__device__ double weight(float temperature, std::int32_t times);
#else
__device__ inline double weight(float temperature, std::int32_t times) {
  return static_cast<double>(temperature) * times;
}
#endif

}  // namespace station
