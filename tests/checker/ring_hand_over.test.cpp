// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread that switches stacks by itself
// ctest: no asan: it copies stacks away and back
//
// The real ring where the host slots themselves go to the consumer.
#include <penstock/channel/ring.hpp>

#include <gtest/gtest.h>

#include "right_ring.hpp"

namespace penstock::checker {
namespace {

constexpr channel_settings any_error{.errors = 1};
constexpr channel_settings any_stop{.stop = true};
constexpr channel_settings any_restart{.restarts = 1};
constexpr channel_settings kept{.first_lease = keep::for_good};
constexpr channel_settings lent{.first_lease = keep::for_another_thread};
constexpr channel_settings lent_restart{.steps = 2, .restarts = 1, .first_lease = keep::for_another_thread};
constexpr channel_settings anything{.restarts = 1, .errors = 1, .stop = true};
constexpr channel_settings lent_anything{.steps = 2,
                                         .restarts = 1,
                                         .steps_after_restart = 1,
                                         .errors = 1,
                                         .stop = true,
                                         .first_lease = keep::for_another_thread};
constexpr channel_settings in_parts{.opened_in_parts = true};
constexpr channel_settings widened{.widens = true};
constexpr channel_settings widened_restart{.steps = 2, .restarts = 1, .widens = true};
constexpr channel_settings two_restarts{.steps = 2, .restarts = 2, .steps_after_restart = 1};
constexpr channel_settings empty_restart{.steps = 2, .restarts = 1, .steps_after_restart = 0};

INSTANTIATE_TEST_SUITE_P(
    hand_over, right_ring,
    testing::Values(configuration{"3 steps", 1, 0}, configuration{"3 steps", 2, 0}, configuration{"3 steps", 3, 0},
                    configuration{"3 steps, an error anywhere", 1, 0, any_error},
                    configuration{"3 steps, an error anywhere", 2, 0, any_error},
                    configuration{"3 steps, a stop anywhere", 1, 0, any_stop},
                    configuration{"3 steps, a stop anywhere", 2, 0, any_stop},
                    configuration{"3 steps, a restart anywhere, 2 more", 1, 0, any_restart},
                    configuration{"3 steps, a restart anywhere, 2 more", 2, 0, any_restart},
                    configuration{"2 steps, a restart anywhere, none more", 1, 0, empty_restart},
                    configuration{"2 steps, two restarts anywhere, 1 more each", 2, 0, two_restarts},
                    configuration{"3 steps, the first lease kept", 2, 0, kept},
                    configuration{"3 steps, the first lease released by another thread", 2, 0, lent},
                    configuration{"2 steps, that and a restart anywhere, 2 more", 2, 0, lent_restart},
                    configuration{"3 steps, the limit raised meanwhile", 2, 0, in_parts},
                    configuration{"3 steps, a slot given in after the first", 2, 0, widened},
                    configuration{"2 steps, that and a restart anywhere, 2 more", 2, 0, widened_restart},
                    configuration{"3 steps, restart, stop and error anywhere", 1, 0, anything},
                    configuration{"3 steps, restart, stop and error anywhere", 2, 0, anything, true},
                    configuration{"2 steps, all that and a lease of another thread's", 2, 0, lent_anything, true}));

constexpr ring_shape one_reader{.ranges = 1, .readers = 1};
constexpr channel_settings alone{.shape = one_reader, .steps = 4};
constexpr channel_settings alone_error{.shape = one_reader, .errors = 1};
constexpr channel_settings alone_stop{.shape = one_reader, .stop = true};
constexpr channel_settings alone_restart{.shape = one_reader, .restarts = 2};
constexpr channel_settings alone_widened{.shape = one_reader, .restarts = 1, .widens = true};
constexpr channel_settings alone_lent_anything{.shape = one_reader,
                                               .restarts = 1,
                                               .steps_after_restart = 2,
                                               .errors = 1,
                                               .stop = true,
                                               .first_lease = keep::for_another_thread};

INSTANTIATE_TEST_SUITE_P(
    hand_over_by_one_reader, right_ring,
    testing::Values(configuration{"one reader, 4 steps", 1, 0, alone},
                    configuration{"one reader, 4 steps", 2, 0, alone},
                    configuration{"one reader, 4 steps", 3, 0, alone},
                    configuration{"one reader, 3 steps, an error anywhere", 2, 0, alone_error},
                    configuration{"one reader, 3 steps, a stop anywhere", 2, 0, alone_stop},
                    configuration{"one reader, 3 steps, two restarts anywhere, 2 more each", 1, 0, alone_restart},
                    configuration{"one reader, 3 steps, a slot given in, a restart", 3, 0, alone_widened},
                    configuration{"one reader, 3 steps, two restarts anywhere, 2 more each", 2, 0, alone_restart},
                    configuration{"one reader, 3 steps, another thread's lease, restart, stop and error anywhere", 2, 0,
                                  alone_lent_anything}));

}  // namespace
}  // namespace penstock::checker
