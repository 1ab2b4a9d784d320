// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <penstock/cache/shared_cache.hpp>

namespace {

using cache = penstock::shared_cache<int>;

std::shared_ptr<const int> get(cache& from, std::uint64_t key, std::size_t bytes = 10) {
  return from.get(key, [&] { return static_cast<int>(key); }, [&](int) { return bytes; });
}

TEST(shared_cache, what_was_not_asked_for_longest_goes_first) {
  cache all(30);
  for (std::uint64_t key : {0u, 1u, 2u}) EXPECT_EQ(*get(all, key), static_cast<int>(key));
  EXPECT_EQ(*get(all, 0), 0);  // 1 is the oldest now
  get(all, 3);
  EXPECT_EQ(all.counts().made, 4u);
  EXPECT_EQ(all.counts().dropped, 1u);
  get(all, 0), get(all, 2), get(all, 3);
  EXPECT_EQ(all.counts().made, 4u);
  get(all, 1);
  EXPECT_EQ(all.counts().made, 5u);
}

TEST(shared_cache, never_keeps_more_than_its_budget) {
  cache all(100);
  for (std::uint64_t key = 0; key < 200; ++key) {
    get(all, key * 7 % 31, key * 13 % 60);
    EXPECT_LE(all.counts().bytes, 100u);
  }
  EXPECT_LE(all.counts().most, 100u);
  EXPECT_GT(all.counts().most, 60u);
}

TEST(shared_cache, what_is_larger_than_the_budget_is_handed_out_and_drops_nothing) {
  cache all(30);
  get(all, 0), get(all, 1);
  EXPECT_EQ(*get(all, 2, 31), 2);
  EXPECT_EQ(*get(all, 2, 31), 2);
  EXPECT_EQ(all.counts().made, 4u);
  EXPECT_EQ(all.counts().dropped, 0u);
}

TEST(shared_cache, who_holds_a_value_keeps_it) {
  cache all(10);
  const auto held = get(all, 5);
  for (std::uint64_t key = 6; key < 9; ++key) get(all, key);
  EXPECT_EQ(*held, 5);
}

TEST(shared_cache, threads_that_ask_at_once_make_a_value_once) {
  constexpr int threads = 8;
  cache all(1000);
  std::atomic<int> made{0};
  std::latch asked(threads);
  std::vector<std::jthread> crew;
  for (int i = 0; i < threads; ++i)
    crew.emplace_back([&] {
      asked.arrive_and_wait();
      const auto value = all.get(
          42,
          [&] {
            ++made;
            return 42;
          },
          [](int) { return std::size_t{8}; });
      EXPECT_EQ(*value, 42);
    });
  crew.clear();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(all.counts().found, 7u);
}

// A budget of nothing still shares what is being made, and keeps no entry of it.
TEST(shared_cache, one_who_waits_is_given_what_is_not_kept) {
  cache all(0);
  std::latch begun(1), go(1);
  std::shared_ptr<const int> first;
  std::jthread maker([&] {
    first = all.get(
        1,
        [&] {
          begun.count_down();
          go.wait();
          return 7;
        },
        [](int) { return std::size_t{8}; });
  });
  begun.wait();
  std::jthread opener([&] { go.count_down(); });
  const auto second = all.get(1, [] { return 7; }, [](int) { return std::size_t{8}; });
  maker.join();
  EXPECT_EQ(*second, 7);
  EXPECT_EQ(all.counts().bytes, 0u);
}

TEST(shared_cache, an_error_reaches_who_made_it_and_the_next_tries_anew) {
  cache all(100);
  std::latch begun(1), go(1);
  std::jthread failing([&] {
    EXPECT_THROW(all.get(
                     1,
                     [&]() -> int {
                       begun.count_down();
                       go.wait();
                       throw std::runtime_error("cut");
                     },
                     [](int) { return std::size_t{8}; }),
                 std::runtime_error);
  });
  begun.wait();
  std::jthread opener([&] { go.count_down(); });
  EXPECT_EQ(*get(all, 1), 1);
  failing.join();
  EXPECT_EQ(all.counts().made, 1u);
}

TEST(shared_cache, who_makes_it_for_too_long_is_not_waited_for) {
  for (const bool fails : {false, true}) {
    cache all(100);
    get(all, 0);  // tells what is usual
    std::latch begun(1), go(1);
    std::jthread stuck([&] {
      const auto make = [&] {
        begun.count_down();
        go.wait();
        return fails ? throw std::runtime_error("cut") : 7;
      };
      try {
        EXPECT_EQ(*all.get(1, make, [](int) { return std::size_t{8}; }), 7);
        EXPECT_FALSE(fails);
      } catch (const std::runtime_error&) {
        EXPECT_TRUE(fails);
      }
    });
    begun.wait();
    const auto quick = get(all, 1);
    EXPECT_EQ(*quick, 1);
    EXPECT_EQ(get(all, 1), quick);
    EXPECT_EQ(all.counts().made, 2u);
    EXPECT_EQ(all.counts().bytes, 20u);
    go.count_down();
    stuck.join();
    EXPECT_EQ(get(all, 1), quick);  // what came late changes nothing
    EXPECT_EQ(all.counts().bytes, 20u);
  }
}

// Of two who make a value the one that fails leaves it to the other.
TEST(shared_cache, one_of_two_makers_may_fail) {
  cache all(100);
  get(all, 0);
  std::latch begun(1), go(1);
  std::jthread stuck([&] {
    EXPECT_EQ(*all.get(
                  1,
                  [&] {
                    begun.count_down();
                    go.wait();
                    return 7;
                  },
                  [](int) { return std::size_t{8}; }),
              7);
  });
  begun.wait();
  EXPECT_THROW(all.get(
                   1, []() -> int { throw std::runtime_error("cut"); }, [](int) { return std::size_t{8}; }),
               std::runtime_error);
  go.count_down();
  stuck.join();
  EXPECT_EQ(*get(all, 1), 7);
  EXPECT_EQ(all.counts().bytes, 18u);
}

TEST(shared_cache, many_threads_under_eviction_get_right_values) {
  cache all(55);
  std::vector<std::jthread> crew;
  for (std::uint64_t t = 0; t < 4; ++t)
    crew.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t key = (i * (t + 3)) % 17;
        EXPECT_EQ(*get(all, key), static_cast<int>(key));
      }
    });
  crew.clear();
  EXPECT_LE(all.counts().most, 55u);
  EXPECT_EQ(all.counts().made + all.counts().found, 8000u);
}

}  // namespace
