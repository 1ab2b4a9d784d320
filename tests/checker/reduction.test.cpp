// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread that switches stacks by itself
// ctest: no asan: it copies stacks away and back
//
// The explorer itself: that what it leaves out makes no difference.
#include <penstock/channel/ring.hpp>

#include <string>

#include <gtest/gtest.h>

#include "configuration.hpp"

namespace penstock::checker {
namespace {

// The reductions are arguments about this model; here they are put to the test.
class reduction : public testing::TestWithParam<configuration> {};

TEST_P(reduction, comes_to_the_same_ends_as_plain_search) {
  const auto settings = GetParam().settings_for_model();
  const std::string name = GetParam().name;
  const auto explore = [&](const char* how_named, explorer::options how) {
    return explore_channel(name + how_named, settings, how, [](auto&, auto&) {});
  };
  const auto plain = explore(", no reduction", {.reduce = false, .exchange = false, .shorten = false});
  const auto persistent = explore(", persistent sets", {.exchange = false, .shorten = false});
  const auto all = explore(", all reductions", {});
  EXPECT_TRUE(plain.complete && persistent.complete && all.complete);
  EXPECT_EQ(persistent.ends_hash, plain.ends_hash);
  EXPECT_EQ(all.ends_hash, plain.ends_hash);
  const auto unexchanged = explore(", readers told apart", {.exchange = false});
  EXPECT_EQ(unexchanged.ends_hash, plain.ends_hash);
  EXPECT_LE(all.states, persistent.states);
}
INSTANTIATE_TEST_SUITE_P(
    checker, reduction,
    testing::Values(configuration{"1 step", 1, 1, {.steps = 1}}, configuration{"2 steps", 2, 0, {.steps = 2}},
                    configuration{"1 step, an error", 1, 1, {.steps = 1, .errors = 1}},
                    configuration{"1 step, a restart", 1, 0, {.steps = 1, .restarts = 1, .steps_after_restart = 1}},
                    configuration{"1 step, a restart", 1, 1, {.steps = 1, .restarts = 1, .steps_after_restart = 1}},
                    configuration{"1 step, a stop", 1, 0, {.steps = 1, .stop = true}}));

}  // namespace
}  // namespace penstock::checker
