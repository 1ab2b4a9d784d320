// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
// The same numbers without fast_float.
#define PENSTOCK_FAST_FLOAT 0
#include "csv_number_cases.hpp"
