// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the CUDA device offers to .cu files, beside what all may include. Thrust and CUB take seconds to compile: a file
// that needs one of these alone includes that.
#include <penstock/device/cast_normalise.cuh>
#include <penstock/device/cuda.hpp>
#include <penstock/device/cuda_policy.cuh>
#include <penstock/device/cuda_reduce.cuh>
#include <penstock/device/device_fold.cuh>
