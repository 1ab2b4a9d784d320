// SPDX-License-Identifier: Apache-2.0
// Law 6 and 7 with replicas: whatever one rank does, all leave at the same step, with the first cause.
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <thread>

#include "support.hpp"

namespace {

using namespace replicated;
using penstock::replica_error;
using penstock::replicas;

// 13 rows in steps of 4.
constexpr std::uint64_t all_steps = 4;

struct came_to {
  std::uint64_t updates = 0;
  penstock::feed_state state{};
  line model{};
  bool operator==(const came_to&) const = default;
};

class leaving : public testing::Test {
 protected:
  // `act(replica, feed, epoch, step)` on each rank, before what a step does; true: leave the loop.
  template <class Act>
  penstock::replica_summary train(std::uint64_t n, Act&& act, penstock::replica_options options = {},
                                  std::uint64_t epochs = 2) {
    ends = std::make_unique<by_rank<came_to>>(n);
    return replicas(
        static_cast<int>(n),
        [&](auto& replica) {
          line model;
          std::array<float, 2> gradient{};
          came_to mine;
          auto feed = replica.start(work_of(data, replica));
          for (std::uint64_t epoch = 0; epoch < epochs && !replica.stopped(); ++epoch)
            for (auto& batch : feed.epoch(epoch)) {
              if (act(replica, feed, epoch, batch.step())) break;
              model.gradient(batch, gradient);
              if (!replica.all_reduce(batch, gradient)) continue;
              model.update(gradient);
              mine = {replica.steps(), replica.state(), model};
              ends->tell(replica, mine);
            }
          EXPECT_EQ(feed.state(), replica.state());
        },
        options);
  }

  const rows data{13};
  std::unique_ptr<by_rank<came_to>> ends;
  const std::size_t threads = laws::threads_now();

  void TearDown() override { EXPECT_EQ(laws::threads_left(threads), threads); }
};

TEST_F(leaving, a_rank_that_breaks_out_ends_the_epoch_for_all) {
  for (const std::uint64_t n : worlds)
    for (std::uint64_t who = 0; who < n; ++who)
      for (std::uint64_t when = 0; when < all_steps; ++when) {
        const auto summary = train(n, [&](auto& replica, auto&, std::uint64_t epoch, std::uint64_t step) {
          return replica.rank() == who && epoch == 0 && step == when;
        });
        // The first epoch's steps before, and the second's.
        EXPECT_EQ(summary.steps, when + all_steps);
        EXPECT_FALSE(summary.stopped);
        EXPECT_EQ(ends->same().updates, summary.steps);
      }
}

TEST_F(leaving, a_stop_anywhere_ends_the_run_for_all_at_the_same_step) {
  for (const std::uint64_t n : worlds)
    for (std::uint64_t who = 0; who < n; ++who)
      for (std::uint64_t when = 0; when < all_steps; ++when)
        for (const bool by_feed : {false, true}) {
          const auto summary = train(n, [&](auto& replica, auto& feed, std::uint64_t epoch, std::uint64_t step) {
            if (replica.rank() != who || epoch != 1 || step != when) return false;
            if (by_feed)
              feed.stop();
            else
              replica.stop();
            return false;
          });
          EXPECT_TRUE(summary.stopped);
          EXPECT_EQ(summary.stopped_by, who);
          // A feed that is stopped ends its loop before the next batch, so that the step at hand still counts.
          const std::uint64_t counted = when + (by_feed ? 1 : 0);
          EXPECT_EQ(summary.steps, all_steps + counted);
          if (counted == all_steps)
            EXPECT_EQ(summary.state.epoch, 2U);
          else
            EXPECT_EQ(summary.state.samples, 4 * counted);
          EXPECT_EQ(ends->same().updates, summary.steps);
        }
}

TEST_F(leaving, a_token_stops_all_from_another_thread) {
  for (const std::uint64_t n : worlds) {
    std::stop_source source;
    signpost begun, asked;
    std::jthread other([&] {
      begun.await(n);
      source.request_stop();
      asked.reach(100);
    });
    const auto summary = train(n,
                               [&](auto&, auto&, std::uint64_t epoch, std::uint64_t step) {
                                 if (epoch == 0 && step == 2) begun.reach(), asked.await();
                                 return false;
                               },
                               {.stop = source.get_token()});
    EXPECT_TRUE(summary.stopped);
    EXPECT_EQ(summary.steps, 2U);
    EXPECT_EQ(summary.state.samples, 8U);
    EXPECT_EQ(ends->same().updates, 2U);
  }
}

TEST_F(leaving, a_rank_that_throws_ends_the_run_for_all_with_its_cause) {
  struct bad_luck {  // no std::exception, no text
    int number;
  };
  for (const std::uint64_t n : worlds)
    for (std::uint64_t who = 0; who < n; ++who)
      for (std::uint64_t when = 0; when < all_steps; ++when)
        for (const bool standard : {true, false}) {
          try {
            train(n, [&](auto& replica, auto&, std::uint64_t epoch, std::uint64_t step) {
              if (replica.rank() == who && epoch == 1 && step == when) {
                if (standard) throw std::out_of_range("the body's own");
                throw bad_luck{7};
              }
              return false;
            });
            FAIL();
          } catch (const replica_error& caught) {
            EXPECT_EQ(caught.rank(), who);
            EXPECT_EQ(caught.where().epoch, 1U);
            EXPECT_EQ(caught.where().step, when);
            const std::string text = caught.what();
            EXPECT_NE(text.find("rank " + std::to_string(who) + " failed"), text.npos) << text;
            if (standard) {
              EXPECT_NE(text.find("the body's own"), text.npos) << text;
              EXPECT_THROW(caught.rethrow_cause(), std::out_of_range);
            } else {
              try {
                caught.rethrow_cause();
                FAIL();
              } catch (const bad_luck& original) {
                EXPECT_EQ(original.number, 7);
              }
            }
          }
          // All made the steps before.
          EXPECT_EQ(ends->same().updates, all_steps + when);
        }
}

TEST_F(leaving, ERR_5_of_several_that_throw_the_lowest_rank_is_named) {
  for (const std::uint64_t n : worlds) try {
      train(n, [&](auto& replica, auto&, std::uint64_t, std::uint64_t step) {
        if (step == 2) throw std::runtime_error("thrown by " + std::to_string(replica.rank()));
        return false;
      });
      FAIL();
    } catch (const replica_error& caught) {
      EXPECT_EQ(caught.rank(), 0U);
      EXPECT_NE(std::string(caught.what()).find("thrown by 0"), std::string::npos) << caught.what();
    }
}

TEST_F(leaving, REP_3_others_get_the_cause_and_the_process_stays_usable) {
  for (const std::uint64_t n : {2, 3, 4}) {
    const std::uint64_t who = n - 1;
    std::vector<std::string> told(n);
    EXPECT_THROW(replicas(static_cast<int>(n),
                          [&](auto& replica) {
                            auto feed = replica.start(work_of(data, replica));
                            float value[1] = {};
                            try {
                              for (auto& batch : feed.epoch(0)) {
                                if (batch.step() == 2 && replica.rank() == who) throw std::runtime_error("disk full");
                                replica.all_reduce(batch, std::span(value));
                              }
                            } catch (const replica_error& caught) {
                              told[replica.rank()] = caught.what();
                              // What is asked for afterwards says so, and waits for nobody.
                              EXPECT_THROW(replica.barrier(), penstock::error);
                              throw;
                            }
                          }),
                 replica_error);
    for (std::uint64_t r = 0; r < n; ++r)
      EXPECT_EQ(told[r],
                r == who ? "" : "all_reduce: epoch 0, step 2: rank " + std::to_string(who) + " failed: disk full");
    EXPECT_EQ(train(n, [](auto&&...) { return false; }).steps, 2 * all_steps);
  }
}

TEST_F(leaving, an_exception_that_the_body_deals_with_ends_the_epoch_alone) {
  for (const std::uint64_t n : worlds) {
    by_rank<std::uint64_t> updates(n);
    const auto summary = replicas(static_cast<int>(n), [&](auto& replica) {
      auto feed = replica.start(work_of(data, replica));
      float value[1] = {};
      std::uint64_t counted = 0;
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) try {
          for (auto& batch : feed.epoch(epoch)) {
            if (replica.rank() == n - 1 && epoch == 0 && batch.step() == 1) throw std::runtime_error("a bad batch");
            if (replica.all_reduce(batch, std::span(value))) ++counted;
          }
        } catch (const std::runtime_error& caught) {
          EXPECT_STREQ(caught.what(), "a bad batch");
        }
      updates.tell(replica, counted);
    });
    EXPECT_EQ(updates.same(), 1 + all_steps);
    EXPECT_EQ(summary.steps, 1 + all_steps);
  }
}

TEST_F(leaving, law_7_what_a_rank_cannot_read_reaches_all) {
  for (const std::uint64_t n : worlds)
    for (const std::uint64_t sample : {0, 5, 12}) {
      const rows bad{13, [sample](std::uint64_t index) {
                       if (index == sample) throw std::runtime_error("cannot be read");
                     }};
      std::mutex mutex;
      std::set<std::uint64_t> counted;
      try {
        replicas(static_cast<int>(n), [&](auto& replica) {
          auto feed = replica.start(work_of(bad, replica));
          float value[1] = {};
          std::uint64_t steps = 0;
          try {
            for (auto& batch : feed.epoch(0))
              if (replica.all_reduce(batch, std::span(value))) ++steps;
          } catch (...) {
            const std::scoped_lock lock(mutex);
            counted.insert(steps);
            throw;
          }
        });
        FAIL();
      } catch (const replica_error& caught) {
        EXPECT_EQ(caught.where().sample, sample);
        EXPECT_EQ(caught.where().stage, "read");
        EXPECT_NE(std::string(caught.what()).find("cannot be read"), std::string::npos) << caught.what();
        EXPECT_EQ(counted.size(), 1U);
        EXPECT_EQ(caught.where().step, *counted.begin());
      }
    }
}

TEST_F(leaving, REP_1_a_rank_that_does_an_epoch_less_or_returns_early_is_named) {
  for (const std::uint64_t n : {2, 3})
    for (const bool in_the_loop : {true, false}) try {
        replicas(static_cast<int>(n), [&](auto& replica) {
          auto feed = replica.start(work_of(data, replica));
          float value[1] = {};
          const std::uint64_t epochs = replica.rank() == 1 ? 1 : 2;
          for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
            for (auto& batch : feed.epoch(epoch)) {
              if (in_the_loop && replica.rank() == 1 && batch.step() == 3) return;
              replica.all_reduce(batch, std::span(value));
            }
        });
        FAIL();
      } catch (const replica_error& caught) {
        EXPECT_EQ(caught.rank(), 1U);
        EXPECT_NE(std::string(caught.what()).find("rank 1 has returned from its body"), std::string::npos)
            << caught.what();
      }
}

TEST_F(leaving, law_6_a_rank_that_does_not_come_in_time_is_named) {
  for (const std::uint64_t n : {2, 3}) {
    signpost go_on;
    std::atomic<std::uint64_t> told = 0;
    try {
      replicas(static_cast<int>(n),
               [&](auto& replica) {
                 auto feed = replica.start(work_of(data, replica));
                 float value[1] = {};
                 try {
                   for (auto& batch : feed.epoch(0)) {
                     // Held until all others have been told.
                     if (replica.rank() == 1 && batch.step() == 2) go_on.await(n - 1);
                     replica.all_reduce(batch, std::span(value));
                   }
                 } catch (const replica_error& caught) {
                   EXPECT_EQ(caught.rank(), 1U);
                   EXPECT_EQ(caught.where().step, 2U);
                   EXPECT_NE(std::string(caught.what()).find("rank 1 did not come within 200 ms"), std::string::npos)
                       << caught.what();
                   ++told;
                   go_on.reach();
                   throw;
                 }
               },
               {.timeout = std::chrono::milliseconds(200)});
      FAIL();
    } catch (const replica_error& caught) {
      EXPECT_EQ(caught.rank(), 1U);
    }
    EXPECT_EQ(told, n);
  }
}

TEST_F(leaving, a_feed_or_a_rank_that_never_began_leaves_the_others_nothing_to_wait_for) {
  for (const std::uint64_t n : {2, 3}) {
    // One throws before its feed, one between start and the loop, one behind it.
    for (int where = 0; where < 3; ++where) try {
        replicas(static_cast<int>(n), [&](auto& replica) {
          const auto maybe = [&](int here) {
            if (replica.rank() == n - 1 && where == here) throw std::logic_error("not today");
          };
          maybe(0);
          auto feed = replica.start(work_of(data, replica));
          maybe(1);
          float value[1] = {};
          for (auto& batch : feed.epoch(0)) replica.all_reduce(batch, std::span(value));
          maybe(2);
        });
        FAIL();
      } catch (const replica_error& caught) {
        EXPECT_EQ(caught.rank(), n - 1);
        EXPECT_THROW(caught.rethrow_cause(), std::logic_error);
      }
  }
}

TEST_F(leaving, law_9_a_run_goes_on_exactly_with_another_number_of_ranks) {
  // What a run of one rank comes to.
  const auto whole = train(1, [](auto&&...) { return false; });
  EXPECT_EQ(whole.steps, 2 * all_steps);
  std::mutex mutex;
  for (const std::uint64_t n : worlds)
    for (const std::uint64_t then : worlds)
      for (std::uint64_t when = 0; when < all_steps; ++when) {
        std::vector<std::uint64_t> seen;
        const auto note = [&](auto& batch) {
          const std::scoped_lock lock(mutex);
          seen.insert(seen.end(), batch.indices().begin(), batch.indices().end());
        };
        const auto first = replicas(static_cast<int>(n), [&](auto& replica) {
          auto feed = replica.start(work_of(data, replica));
          float value[1] = {};
          for (auto& batch : feed.epoch(0)) {
            if (batch.step() == when && replica.rank() == n - 1) replica.stop();
            if (replica.all_reduce(batch, std::span(value))) note(batch);
          }
        });
        EXPECT_EQ(first.state.samples, 4 * when);
        replicas(static_cast<int>(then), [&](auto& replica) {
          auto feed = replica.start(work_of(data, replica));
          feed.resume(penstock::feed_state::parse(first.state.text()));
          float value[1] = {};
          for (auto& batch : feed.epoch(0))
            if (replica.all_reduce(batch, std::span(value))) note(batch);
        });
        std::sort(seen.begin(), seen.end());
        ASSERT_EQ(seen.size(), 13U);
        for (std::uint64_t i = 0; i < 13; ++i) ASSERT_EQ(seen[i], i);
      }
}

// What was told is told again, whatever the body makes of it; and the step that failed is in no state.
TEST_F(leaving, an_error_that_the_body_catches_or_wraps_leaves_state_and_rank_right) {
  for (const bool wraps : {false, true}) {
    signpost go_on;
    by_rank<std::uint64_t> steps(3), samples(3);
    try {
      replicas(3,
               [&](auto& replica) {
                 auto feed = replica.start(work_of(data, replica));
                 float value[1] = {};
                 for (auto& batch : feed.epoch(0)) try {
                     if (replica.rank() == 2 && batch.step() == 2) go_on.await(2);
                     replica.all_reduce(batch, std::span(value));
                   } catch (const replica_error& caught) {
                     go_on.reach();
                     steps.tell(replica, replica.steps());
                     samples.tell(replica, replica.state().samples);
                     if (wraps) throw std::runtime_error(std::string("training failed: ") + caught.what());
                     break;
                   }
                 EXPECT_EQ(replica.state().samples, 8U);
                 EXPECT_EQ(replica.steps(), 2U);
               },
               {.timeout = std::chrono::milliseconds(200)});
      FAIL();
    } catch (const replica_error& caught) {
      EXPECT_EQ(caught.rank(), 2U);
      EXPECT_NE(std::string(caught.what()).find("rank 2 did not come within 200 ms"), std::string::npos)
          << caught.what();
    }
    EXPECT_EQ(steps.same(), 2U);
    EXPECT_EQ(samples.same(), 8U);
  }
}

TEST_F(leaving, a_replica_error_of_the_bodys_own_reaches_all_as_its_failure) {
  try {
    replicas(2, [&](auto& replica) {
      auto feed = replica.start(work_of(data, replica));
      float value[1] = {};
      for (auto& batch : feed.epoch(0)) {
        if (replica.rank() == 1 && batch.step() == 1)
          replicas(3, [](auto& inner) {
            if (inner.rank() == 2) throw std::runtime_error("within");
          });
        replica.all_reduce(batch, std::span(value));
      }
    });
    FAIL();
  } catch (const replica_error& caught) {
    EXPECT_EQ(caught.rank(), 1U);
    EXPECT_EQ(caught.where().step, 1U);
    EXPECT_NE(std::string(caught.what()).find("rank 1 failed: rank 2 failed: within"), std::string::npos)
        << caught.what();
  }
}

TEST_F(leaving, a_stop_that_meets_a_break_leaves_all_at_one_place) {
  by_rank<std::string> states(2);
  const auto summary = replicas(2, [&](auto& replica) {
    float value[1] = {};
    {
      auto feed = replica.start(work_of(data, replica));
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
        for (auto& batch : feed.epoch(epoch)) {
          if (epoch == 0 && batch.step() == 1 && replica.rank() == 0) feed.stop();
          if (epoch == 0 && batch.step() == 1 && replica.rank() == 1) break;
          replica.all_reduce(batch, std::span(value));
        }
    }
    states.tell(replica, replica.state().text());
  });
  EXPECT_TRUE(summary.stopped);
  states.same();
}

}  // namespace
