// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "configuration.hpp"

namespace penstock::checker {

class right_ring : public testing::TestWithParam<configuration> {};

TEST_P(right_ring, keeps_its_laws_in_every_interleaving) {
  if (GetParam().large && !check_all()) GTEST_SKIP() << "large: set PENSTOCK_CHECK_ALL=1";
  const auto found = explore_channel(GetParam().name, GetParam().settings_for_model(), {}, [](auto&, auto&) {});
  EXPECT_EQ(found.violation, "") << found.trace;
  EXPECT_TRUE(found.complete);
}

}  // namespace penstock::checker
