// SPDX-License-Identifier: Apache-2.0
// The same numbers without fast_float.
#define PENSTOCK_FAST_FLOAT 0
#include "csv_number_cases.hpp"
