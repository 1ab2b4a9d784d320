// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <penstock/device/cuda.hpp>

#include "on_a_gpu.hpp"
// after what makes it the GPU's
#include "../laws/law_6_leaving.test.cpp"
