// SPDX-License-Identifier: Apache-2.0
// Shutdown, many times over: what hangs once in hundreds of runs.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "../known_failures/support.hpp"

namespace {

using namespace known_failures;

class shutdown_stress : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(stress, shutdown_stress, testing::Values(1, 2, 8));

TEST_P(shutdown_stress, SHUT_2_a_loop_left_after_its_first_batch_always_ends) {
  const hang_limit limit(280);
  const std::size_t threads = threads_alive();
  const auto data = numbers<>{10'000};
  for (int repetition = 0; repetition < 500; ++repetition) {
    auto feed = (data | penstock::partition({.seed = 1}) | penstock::read({.readers = GetParam()}) |
                 penstock::batch(32) | penstock::transfer(penstock::cpu_device{}))
                    .start();
    for (auto& batch : feed.epoch(0)) {
      ASSERT_EQ(batch.size(), 32u);
      break;
    }
  }
  EXPECT_TRUE(threads_come_back_to(threads));
}

TEST_P(shutdown_stress, SHUT_2_so_does_one_that_is_left_and_begun_again) {
  const hang_limit limit(280);
  const auto data = numbers<>{10'000};
  auto feed =
      (data | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = GetParam()}) |
       penstock::batch(32) | penstock::transfer(penstock::cpu_device{}))
          .start();
  for (int repetition = 0; repetition < 500; ++repetition) {
    std::uint64_t steps = 0;
    for (auto& batch : feed.epoch(0)) {
      ASSERT_EQ(batch.step(), steps);
      ASSERT_EQ(numbers_of(batch).front(), steps * 32);
      if (++steps == 1u + static_cast<unsigned>(repetition % 7)) break;
    }
  }
}

// A policy whose waits give the CPU away at each point where a wake-up could be lost.
struct yielding : penstock::std_atomics {
  class asymmetric_fence {
   public:
    bool is_free() const noexcept { return false; }  // so that every notification goes this way
    void full() const noexcept { light(); }
    void light() const noexcept {
      fence_.light();
      std::this_thread::yield();
    }
    void heavy() const noexcept {
      std::this_thread::yield();
      fence_.heavy();
      std::this_thread::yield();
    }

   private:
    penstock::std_atomics::asymmetric_fence fence_;
  };
  static void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                    std::chrono::steady_clock::time_point deadline) noexcept {
    std::this_thread::yield();
    penstock::std_atomics::sleep(word, expected, deadline);
  }
};

TEST(stress, SHUT_5_no_wake_of_10000_closes_is_lost) {
  const hang_limit limit(280);
  constexpr int consumers = 8;
  constexpr int rounds = 10'000;
  penstock::gate<yielding> gate;
  std::atomic<int> items{0};
  std::atomic<bool> closed{false};
  std::atomic<int> popped{0};
  std::atomic<int> ended{0};
  std::barrier<> together(consumers + 1);

  const auto pop = [&] {
    int left = items.load(std::memory_order_acquire);
    while (left > 0)
      if (items.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel)) return true;
    return false;
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < consumers; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        together.arrive_and_wait();
        for (bool open = true; open;) {
          bool got = false;
          gate.wait([&] {
            // In this order: what was pushed before the close is popped before the end.
            const bool last = closed.load(std::memory_order_acquire);
            got = pop();
            open = got || !last;
            return got || last;
          });
          if (got) popped.fetch_add(1, std::memory_order_relaxed);
        }
        ended.fetch_add(1);
        together.arrive_and_wait();
      }
    });
  }
  for (int round = 0; round < rounds; ++round) {
    closed = false;
    popped = 0;
    ended = 0;
    together.arrive_and_wait();
    const int pushed = round % 4;
    for (int i = 0; i < pushed; ++i) {
      items.fetch_add(1, std::memory_order_release);
      gate.notify();
    }
    closed.store(true, std::memory_order_release);
    gate.notify();
    together.arrive_and_wait();
    ASSERT_EQ(ended.load(), consumers);
    ASSERT_EQ(popped.load(), pushed);
  }
}

// The same with what closes in the library: readers that are about to sleep, and a consumer that waits.
TEST(stress, SHUT_5_readers_always_see_their_pool_close) {
  const hang_limit limit(280);
  const std::size_t threads = threads_alive();
  for (int round = 0; round < 1000; ++round) (void)penstock::reader_pool::make(8);
  EXPECT_TRUE(threads_come_back_to(threads));
}

TEST(stress, SHUT_5_a_consumer_always_sees_a_stop) {
  const hang_limit limit(280);
  for (int round = 0; round < 1000; ++round) {
    auto feed = (numbers<>{1'000'000} | penstock::partition() | penstock::read({.readers = 2}) | penstock::batch(4) |
                 penstock::transfer(penstock::cpu_device{}, {.depth = 1}))
                    .start();
    std::jthread stopper([&] { feed.stop(); });
    for (auto& batch : feed.epoch(0)) ASSERT_EQ(batch.size(), 4u);
    EXPECT_TRUE(feed.stopped());
    EXPECT_FALSE(feed.next());
  }
}

}  // namespace
