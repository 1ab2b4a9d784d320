// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread that switches stacks by itself
// ctest: no asan: it copies stacks away and back
#include <penstock/channel/gate.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "buffered_atomics.hpp"
#include "report.hpp"

namespace penstock::checker {
namespace {

struct gate_settings {
  const char* name;
  std::uint32_t waiters = 1, notifiers = 1;
  bool wants_all = false;  ///< every waiter waits for all conditions, else waiter i for condition i
  std::uint32_t spins = 0;
  bool both_full = false;  ///< as where membarrier is refused
  std::uint32_t sleeps_before_both_pay = 1000;
  // Seeded faults.
  bool no_heavy_fence = false, no_second_look = false, no_comparison = false, wakes_one = false, notifies_first = false,
       no_turn = false, pays_at_once = false;

  friend void PrintTo(const gate_settings& of, std::ostream* to) { *to << of.name; }
};

/// The real gate, on store buffers and futexes that are modelled: every interleaving, by their own stores' delay, too.
explorer::outcome explore_gate(const gate_settings& settings) {
  explorer x;
  store_buffers buffers(x);
  buffers.no_heavy_fence = settings.no_heavy_fence;
  buffers.no_comparison = settings.no_comparison;
  buffers.wakes_one = settings.wakes_one;
  buffers.both_full = settings.both_full;
  buffers.sleeps_before_both_pay = settings.sleeps_before_both_pay;
  gate<buffered_atomics> tested(settings.spins);
  std::vector<std::unique_ptr<buffered_atomics::atomic<std::uint32_t>>> conditions;
  for (std::uint32_t i = 0; i < settings.notifiers; ++i)
    conditions.push_back(std::make_unique<buffered_atomics::atomic<std::uint32_t>>(0));
  const char* const names[] = {"sleepers", "turns", "sleeps", "both_pay"};
  for (object i = 0; i < 4; ++i) x.rename(i, names[i]);
  for (std::uint32_t i = 0; i < settings.notifiers; ++i) x.rename(4 + i, "condition" + std::to_string(i));

  for (std::uint32_t i = 0; i < settings.waiters; ++i)
    x.add_fiber("waiter" + std::to_string(i), [&, i] {
      x.at(1);
      std::uint32_t looks = 0;
      tested.wait([&] {
        if (settings.no_second_look && looks++ == 1) return false;
        if (!settings.wants_all) return conditions[i % settings.notifiers]->load(std::memory_order_acquire) == 1;
        for (const auto& each : conditions)
          if (each->load(std::memory_order_acquire) != 1) return false;
        return true;
      });
      x.at(2);
    });
  for (std::uint32_t i = 0; i < settings.notifiers; ++i)
    x.add_fiber("notifier" + std::to_string(i), [&, i] {
      x.at(1);
      if (settings.notifies_first) tested.notify();
      conditions[i]->store(1, std::memory_order_release);
      if (!settings.notifies_first) tested.notify();
      x.at(2);
    });
  buffers.add_drains(settings.waiters, settings.waiters + settings.notifiers);
  if (settings.no_turn)
    x.tamper = [](operation& op) {
      if (op.on == 1 && op.kind == std::string_view("add")) op.after = op.before;
    };

  if (settings.pays_at_once)
    x.tamper = [&x](operation& op) {
      if (op.on == 3 && op.kind == std::string_view("load")) op.returned = x.value(0) >> 31;
    };

  auto found = x.explore({.reduce = false});
  tell(settings.name, found);
  return found;
}

class right_gate : public testing::TestWithParam<gate_settings> {};

TEST_P(right_gate, loses_no_wake_up_in_any_interleaving) {
  const auto found = explore_gate(GetParam());
  EXPECT_EQ(found.violation, "") << found.trace;
  EXPECT_TRUE(found.complete);
}
INSTANTIATE_TEST_SUITE_P(
    gate, right_gate,
    testing::Values(gate_settings{.name = "1 waiter, 1 notifier"},
                    gate_settings{.name = "1 waiter, 1 notifier, one spin", .spins = 1},
                    gate_settings{.name = "2 waiters for one condition", .waiters = 2},
                    gate_settings{.name = "1 waiter for two conditions", .notifiers = 2, .wants_all = true},
                    gate_settings{.name = "2 waiters, each for its own condition", .waiters = 2, .notifiers = 2},
                    gate_settings{.name = "full fences on both sides", .waiters = 2, .notifiers = 2, .both_full = true},
                    gate_settings{.name = "1 waiter for two conditions, from the first sleep on both pay",
                                  .notifiers = 2,
                                  .wants_all = true,
                                  .sleeps_before_both_pay = 1},
                    gate_settings{.name = "2 waiters, from the first sleep on both pay",
                                  .waiters = 2,
                                  .notifiers = 2,
                                  .sleeps_before_both_pay = 1},
                    gate_settings{.name = "2 waiters, from the second sleep on both pay",
                                  .waiters = 2,
                                  .notifiers = 2,
                                  .sleeps_before_both_pay = 2}));

TEST(gate, loses_no_wake_up_with_2_waiters_for_both_of_2_conditions) {
  if (!check_all()) GTEST_SKIP() << "5 million states: set PENSTOCK_CHECK_ALL=1";
  const auto found =
      explore_gate({.name = "2 waiters for two conditions", .waiters = 2, .notifiers = 2, .wants_all = true});
  EXPECT_EQ(found.violation, "") << found.trace;
  EXPECT_TRUE(found.complete);
}

class faulty_gate : public testing::TestWithParam<gate_settings> {};

TEST_P(faulty_gate, is_found) {
  const auto found = explore_gate(GetParam());
  EXPECT_NE(found.violation.find("deadlock"), std::string::npos);
  std::printf("  found: %s%s\n", found.violation.c_str(), found.trace.c_str());
}
INSTANTIATE_TEST_SUITE_P(
    gate, faulty_gate,
    testing::Values(gate_settings{.name = "FAULT: no fence in the other processors", .no_heavy_fence = true},
                    gate_settings{.name = "FAULT: both pay before notifiers were told",
                                  .waiters = 2,
                                  .notifiers = 2,
                                  .sleeps_before_both_pay = 1,
                                  .pays_at_once = true},
                    gate_settings{.name = "FAULT: the sleeper does not look again", .no_second_look = true},
                    gate_settings{.name = "FAULT: the sleep does not compare", .no_comparison = true},
                    gate_settings{.name = "FAULT: notified before the store", .notifies_first = true},
                    gate_settings{.name = "FAULT: the turn is not counted", .no_turn = true},
                    gate_settings{
                        .name = "FAULT: one is woken, not all", .waiters = 2, .notifiers = 2, .wakes_one = true}));

}  // namespace
}  // namespace penstock::checker
