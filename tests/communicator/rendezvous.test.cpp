// SPDX-License-Identifier: Apache-2.0
// Where ranks of one process meet: all see what all left, and whoever does not come ends it for all alike.
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/communicator/rendezvous.hpp>

#include "../laws/threads.hpp"

namespace {

using namespace std::chrono_literals;
using penstock::replica_error;
using group = penstock::detail::rendezvous<std::uint64_t>;

/// `body(rank)` on a thread for each; what they throw, by rank.
template <class Body>
std::vector<std::string> on_ranks(std::uint64_t n, Body&& body) {
  std::vector<std::string> thrown(n);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t r = 0; r < n; ++r)
      threads.emplace_back([&, r] {
        try {
          body(r);
        } catch (const replica_error& caught) {
          thrown[r] = std::to_string(caught.rank()) + ": " + caught.what();
        }
      });
  }
  return thrown;
}

TEST(rendezvous, all_see_what_all_left_whoever_is_ahead) {
  for (const std::uint64_t n : {1, 2, 3, 4})
    for (const std::uint32_t spins : {0, 100}) {
      group one(n, spins);
      for (const auto& text : on_ranks(n, [&](std::uint64_t rank) {
             for (std::uint64_t i = 0; i < 500; ++i) {
               one.seat(rank) = 1000 * i + rank;
               const std::uint64_t meeting = one.meet(rank, 20s, 0, i);
               for (std::uint64_t r = 0; r < n; ++r) ASSERT_EQ(one.at(meeting, r), 1000 * i + r);
               if (i % 3 != 0) continue;
               one.seat(rank) = 7 * i + rank;
               one.meet_again(rank);
               for (std::uint64_t r = 0; r < n; ++r) ASSERT_EQ(one.at(meeting + 1, r), 7 * i + r);
             }
           }))
        EXPECT_EQ(text, "");
    }
}

TEST(rendezvous, who_does_not_come_in_time_is_named_on_all_ranks) {
  group one(4, 0);
  std::atomic<int> told = 0;
  const auto thrown = on_ranks(4, [&](std::uint64_t rank) {
    one.meet(rank, 20s, 4, 2);
    if (rank == 1 || rank == 3)
      while (told < 2) std::this_thread::sleep_for(1ms);
    try {
      one.meet(rank, 50ms, 5, 6);
    } catch (const replica_error&) {
      ++told;
      throw;
    }
  });
  for (const auto& text : thrown) {
    EXPECT_EQ(text, thrown[0]);
    EXPECT_NE(text.find("1: all_reduce: epoch 5, step 6: rank 1, rank 3 did not come within 50 ms, as seen by rank "),
              text.npos)
        << text;
    EXPECT_TRUE(text.ends_with("; rank 1 came last in epoch 4, step 2; rank 3 came last in epoch 4, step 2")) << text;
  }
}

TEST(rendezvous, the_first_abort_counts_and_wakes_all) {
  group one(3, 0);
  one.throw_if_aborted();
  std::atomic<int> there = 0;
  const auto thrown = on_ranks(3, [&](std::uint64_t rank) {
    if (rank == 2) {
      while (there < 2) std::this_thread::sleep_for(1ms);
      one.abort(2, {.stage = "test"}, "first");
      one.abort(0, {.stage = "test"}, "second");
      one.throw_if_aborted();
    }
    ++there;
    one.meet(rank, std::chrono::nanoseconds::max(), 0, 0);
  });
  for (const auto& text : thrown) EXPECT_EQ(text, "2: test: first");
}

// Who comes last and who aborts decide it by one word: no rank is in while another is out.
TEST(rendezvous, an_abort_that_meets_the_last_one_is_for_all_or_for_none) {
  for (int run = 0; run < 200; ++run) {
    group one(2, 0);
    std::vector<std::string> thrown;
    {
      std::jthread other([&] { one.abort(9, {}, "stop"); });
      thrown = on_ranks(2, [&](std::uint64_t rank) { one.meet(rank, 20s, 0, 0); });
    }
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_THROW(one.throw_if_aborted(), replica_error);
  }
}

TEST(rendezvous, who_is_at_others_memory_leaves_with_all_others_whatever_happens) {
  for (int run = 0; run < 50; ++run) {
    group one(3, 0);
    std::atomic<std::uint64_t> inside = 0;
    const auto thrown = on_ranks(3, [&](std::uint64_t rank) {
      one.meet(rank, 20s, 0, 0);
      ++inside;
      if (rank == 1) one.abort(1, {}, "stop");
      one.meet_again(rank);
      EXPECT_EQ(inside, 3U);
    });
    for (const auto& text : thrown) EXPECT_EQ(text, "");
  }
}

/// What a rank is told while it waits.
struct listener {
  std::vector<std::uint64_t> awaited;  // just these
  std::function<void(const penstock::late_event&, bool speaks, int times)> when_awaited;
  int times = 0;

  penstock::detail::late_watch watch(std::uint64_t rank) {
    penstock::detail::late_watch result(rank, 1ms);
    result.warn_by({&listener::hear, this});
    return result;
  }
  static void hear(void* whom, const penstock::late_event& event, bool speaks) noexcept {
    auto& self = *static_cast<listener*>(whom);
    std::vector<std::uint64_t> missing;
    for (const auto& one : event.missing) missing.push_back(one.rank);
    // On a slow machine others may be late, too, at first.
    if (missing == self.awaited) self.when_awaited(event, speaks, ++self.times);
  }
};

TEST(rendezvous, who_waits_for_long_is_told_of_whom_again_and_again_and_then_they_meet) {
  group one(4, 0);
  laws::signpost told;
  const auto thrown = on_ranks(4, [&](std::uint64_t rank) {
    one.meet(rank, 20s, 4, 2);
    if (rank == 3) {
      EXPECT_TRUE(told.await(3));
    }
    std::chrono::nanoseconds before{};
    listener ears{
        {3}, [&](const penstock::late_event& event, bool speaks, int times) {
          EXPECT_EQ(event.rank, rank);
          EXPECT_EQ(event.where.epoch, 5U);
          EXPECT_EQ(event.where.step, 6U);
          EXPECT_EQ(event.missing[0].epoch, 4U);
          EXPECT_EQ(event.missing[0].step, 2U);
          EXPECT_FALSE(event.missing[0].never_came);
          const std::string text(event.message), self = std::to_string(rank);
          EXPECT_TRUE(text.starts_with("all_reduce: epoch 5, step 6: rank " + self + " has waited for rank 3 for "))
              << text;
          EXPECT_TRUE(text.ends_with("; rank 3 came last in epoch 4, step 2")) << text;
          EXPECT_GE(event.waited, std::max<std::chrono::nanoseconds>(1ms, before));
          before = event.waited;
          EXPECT_EQ(speaks, rank == 0);
          if (times == 2) told.reach();
        }};
    EXPECT_EQ(one.meet(rank, 60s, 5, 6, ears.watch(rank)), 2U);
    if (rank != 3) {
      EXPECT_GE(ears.times, 2);
    }
  });
  for (const auto& text : thrown) EXPECT_EQ(text, "");
}

TEST(rendezvous, who_never_came_is_told_as_that_and_the_lowest_of_those_who_wait_speaks) {
  group one(3, 0);
  laws::signpost told;
  const auto thrown = on_ranks(3, [&](std::uint64_t rank) {
    if (rank == 0) {
      EXPECT_TRUE(told.await(2));
    }
    listener ears{{0}, [&](const penstock::late_event& event, bool speaks, int times) {
                    EXPECT_TRUE(event.message.ends_with("; rank 0 has never come")) << event.message;
                    EXPECT_TRUE(event.missing[0].never_came);
                    EXPECT_EQ(speaks, rank == 1);
                    if (times == 1) told.reach();
                  }};
    one.meet(rank, 60s, 0, 0, ears.watch(rank));
  });
  for (const auto& text : thrown) EXPECT_EQ(text, "");
}

// No lock is held while it is told.
TEST(rendezvous, who_is_told_may_end_it_for_all) {
  group one(3, 0);
  laws::signpost told;
  const auto thrown = on_ranks(3, [&](std::uint64_t rank) {
    if (rank == 1) {
      EXPECT_TRUE(told.await());
    }
    listener ears{{1}, [&](const penstock::late_event&, bool, int times) {
                    one.abort(rank, {.stage = "test"}, "enough");
                    EXPECT_THROW(one.throw_if_aborted(), replica_error);
                    if (times == 1) told.reach();
                  }};
    one.meet(rank, std::chrono::nanoseconds::max(), 0, 0, ears.watch(rank));
  });
  for (const auto& text : thrown) {
    EXPECT_EQ(text, thrown[0]);
    EXPECT_TRUE(text.ends_with(": test: enough")) << text;
  }
}

TEST(rendezvous, a_warning_that_would_come_after_the_end_does_not) {
  group one(2, 0);
  const auto thrown = on_ranks(2, [&](std::uint64_t rank) {
    if (rank == 1) return;
    penstock::detail::late_watch watch(rank, 10min);
    watch.warn_by({[](void*, const penstock::late_event&, bool) noexcept { ADD_FAILURE(); }, nullptr});
    one.meet(rank, 5ms, 0, 0, watch);
  });
  EXPECT_NE(thrown[0].find("rank 1 did not come within 5 ms"), std::string::npos) << thrown[0];
}

}  // namespace
