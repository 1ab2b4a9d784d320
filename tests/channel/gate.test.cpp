// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include <penstock/channel/gate.hpp>

namespace {

using namespace std::chrono_literals;
using penstock::gate;

std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

/// Counts the sleeps and wakes of the real primitives.
struct counting : penstock::std_atomics {
  static inline std::atomic<int> sleeps = 0, wakes = 0;
  static void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                    std::chrono::steady_clock::time_point until) noexcept {
    ++sleeps;
    std_atomics::sleep(word, expected, until);
  }
  static void wake_all(std::atomic<std::uint32_t>& word) noexcept {
    ++wakes;
    std_atomics::wake_all(word);
  }
};

TEST(gate, what_is_true_already_is_not_waited_for) {
  counting::sleeps = 0;
  gate<counting> at;
  EXPECT_TRUE(at.wait([] { return true; }));
  EXPECT_TRUE(at.wait([] { return true; }, now() - 1s)) << "a deadline in the past does not matter";
  EXPECT_EQ(counting::sleeps, 0);
}

TEST(gate, notifying_nobody_wakes_nobody) {
  counting::wakes = 0;
  gate<counting> at;
  at.notify();
  EXPECT_TRUE(at.wait([] { return true; }));
  at.notify();
  EXPECT_EQ(counting::wakes, 0);
}

TEST(gate, a_deadline_ends_the_wait) {
  for (std::uint32_t spins : {0U, 10U}) {
    gate<> at(spins);
    const auto begun = now();
    EXPECT_FALSE(at.wait([] { return false; }, begun + 20ms));
    EXPECT_GE(now() - begun, 20ms);
  }
}

TEST(gate, a_condition_that_throws_leaves_nobody_counted_as_asleep) {
  counting::wakes = 0;
  gate<counting> at;
  int looks = 0;
  EXPECT_THROW(at.wait([&]() -> bool {
    if (++looks == 2) throw std::runtime_error("no");
    return false;
  }),
               std::runtime_error);
  at.notify();
  EXPECT_EQ(counting::wakes, 0);
}

// SHUT-5
TEST(gate, SHUT_5_no_wake_is_lost_between_the_look_and_the_sleep) {
  constexpr int rounds = 3000, waiters = 3;
  for (std::uint32_t spins : {0U, 20U}) {
    gate<> at(spins), back(spins);
    std::atomic<int> round = 0, seen = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < waiters; ++i)
      threads.emplace_back([&] {
        for (int r = 1; r <= rounds; ++r) {
          at.wait([&] { return round.load(std::memory_order_acquire) >= r; });
          seen.fetch_add(1, std::memory_order_acq_rel);
          back.notify();
        }
      });
    for (int r = 1; r <= rounds; ++r) {
      round.store(r, std::memory_order_release);
      at.notify();
      ASSERT_TRUE(back.wait([&] { return seen.load(std::memory_order_acquire) == r * waiters; }, now() + 60s))
          << "round " << r;
    }
  }
}

}  // namespace
