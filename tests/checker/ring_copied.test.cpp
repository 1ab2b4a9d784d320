// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread that switches stacks by itself
// ctest: no asan: it copies stacks away and back
//
// The real ring where slots are copied into twins.
#include <penstock/channel/ring.hpp>

#include <gtest/gtest.h>

#include "right_ring.hpp"

namespace penstock::checker {
namespace {

constexpr channel_settings any_error{.errors = 1};
constexpr channel_settings any_stop{.stop = true};
constexpr channel_settings any_restart{.restarts = 1};
constexpr channel_settings kept{.first_lease = keep::for_good};
constexpr channel_settings lent_short_restart{
    .steps = 2, .restarts = 1, .steps_after_restart = 1, .first_lease = keep::for_another_thread};
constexpr channel_settings short_restart{.steps = 2, .restarts = 1, .steps_after_restart = 1};
constexpr channel_settings kept_short_restart{
    .steps = 2, .restarts = 1, .steps_after_restart = 1, .first_lease = keep::for_good};
constexpr channel_settings anything{.restarts = 1, .errors = 1, .stop = true};
constexpr channel_settings short_anything{
    .steps = 1, .restarts = 1, .steps_after_restart = 1, .errors = 1, .stop = true};
constexpr channel_settings in_parts{.opened_in_parts = true};
constexpr channel_settings short_error{.steps = 2, .errors = 1};
constexpr channel_settings short_stop{.steps = 2, .stop = true};
constexpr channel_settings empty_restart{.steps = 2, .restarts = 1, .steps_after_restart = 0};

INSTANTIATE_TEST_SUITE_P(
    copied, right_ring,
    testing::Values(
        configuration{"3 steps", 1, 1}, configuration{"3 steps", 1, 2}, configuration{"3 steps", 2, 1},
        configuration{"3 steps", 2, 2}, configuration{"3 steps, the limit raised meanwhile", 1, 1, in_parts},
        configuration{"3 steps, an error anywhere", 1, 1, any_error},
        configuration{"2 steps, an error anywhere", 2, 2, short_error},
        configuration{"3 steps, a stop anywhere", 1, 1, any_stop},
        configuration{"2 steps, a stop anywhere", 2, 2, short_stop},
        configuration{"2 steps, a restart anywhere, none more", 1, 1, empty_restart},
        configuration{"2 steps, a restart anywhere, none more", 2, 2, empty_restart},
        configuration{"2 steps, a restart anywhere, 1 more", 1, 1, short_restart},
        configuration{"2 steps, a restart anywhere, 1 more", 2, 1, short_restart},
        configuration{"2 steps, a restart anywhere, 1 more", 1, 2, short_restart},
        configuration{"2 steps, a restart anywhere, 1 more", 2, 2, short_restart},
        configuration{"3 steps, the first lease kept", 1, 2, kept},
        configuration{"3 steps, the first lease kept", 2, 2, kept},
        configuration{"1 step, restart, stop and error anywhere, 1 more", 1, 1, short_anything},
        configuration{"1 step, restart, stop and error anywhere, 1 more", 2, 2, short_anything},
        configuration{"3 steps, an error anywhere", 1, 2, any_error, true},
        configuration{"3 steps, an error anywhere", 2, 1, any_error, true},
        configuration{"3 steps, an error anywhere", 2, 2, any_error, true},
        configuration{"3 steps, a stop anywhere", 1, 2, any_stop, true},
        configuration{"3 steps, a stop anywhere", 2, 1, any_stop, true},
        configuration{"3 steps, a stop anywhere", 2, 2, any_stop, true},
        configuration{"3 steps, a restart anywhere, 2 more", 1, 1, any_restart, true},
        configuration{"3 steps, a restart anywhere, 2 more", 2, 1, any_restart, true},
        configuration{"3 steps, a restart anywhere, 2 more", 1, 2, any_restart, true},
        configuration{"3 steps, a restart anywhere, 2 more", 2, 2, any_restart, true},
        configuration{"2 steps, the first lease kept, a restart anywhere, 1 more", 2, 2, kept_short_restart, true},
        configuration{"2 steps, another thread's lease, a restart anywhere, 1 more", 1, 2, lent_short_restart, true},
        configuration{"2 steps, another thread's lease, a restart anywhere, 1 more", 2, 2, lent_short_restart, true},
        configuration{"3 steps, restart, stop and error anywhere", 1, 1, anything, true}));

constexpr ring_shape one_reader{.ranges = 1, .readers = 1};
constexpr channel_settings alone{.shape = one_reader, .steps = 4};
constexpr channel_settings alone_restart{.shape = one_reader, .restarts = 1};
constexpr channel_settings alone_widened{
    .shape = one_reader, .steps = 2, .restarts = 1, .steps_after_restart = 3, .widens = true};
constexpr channel_settings alone_lent_anything{.shape = one_reader,
                                               .steps = 2,
                                               .restarts = 1,
                                               .steps_after_restart = 1,
                                               .errors = 1,
                                               .stop = true,
                                               .first_lease = keep::for_another_thread};

INSTANTIATE_TEST_SUITE_P(
    copied_by_one_reader, right_ring,
    testing::Values(configuration{"one reader, 4 steps", 1, 1, alone},
                    configuration{"one reader, 4 steps", 2, 2, alone},
                    configuration{"one reader, 3 steps, a restart anywhere, 2 more", 1, 1, alone_restart},
                    configuration{"one reader, 3 steps, a restart anywhere, 2 more", 2, 2, alone_restart},
                    configuration{"one reader, 2 steps, slot and twin given in, a restart, 3 more", 2, 2,
                                  alone_widened},
                    configuration{"one reader, 2 steps, another thread's lease, restart, stop and error anywhere", 2, 2,
                                  alone_lent_anything}));

}  // namespace
}  // namespace penstock::checker
