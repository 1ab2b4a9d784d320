// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include "csv_number_cases.hpp"

namespace {

TEST(csv_number, uses_fast_float_where_it_is_installed) {
#if __has_include(<fast_float/fast_float.h>)
  EXPECT_EQ(PENSTOCK_FAST_FLOAT, 1);
#else
  EXPECT_EQ(PENSTOCK_FAST_FLOAT, 0);
#endif
}

}  // namespace
