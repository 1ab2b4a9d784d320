// SPDX-License-Identifier: Apache-2.0
#include "weight.cuh"

__device__ double station::weight(float temperature, std::int32_t times) {
  return static_cast<double>(temperature) * times;
}
