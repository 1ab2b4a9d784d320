// SPDX-License-Identifier: Apache-2.0
// Law 6 and 7 with replicas: whatever one rank does, all leave at the same step, with the first cause.
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "../laws/heard_on_stderr.hpp"
#include "support.hpp"

namespace {

using namespace replicated;
using laws::heard_on_stderr;
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

/// Whom a replica waits for.
std::set<std::uint64_t> of(const penstock::late_event& event) {
  std::set<std::uint64_t> missing;
  for (const auto& one : event.missing) missing.insert(one.rank);
  return missing;
}
template <class Hear>
struct hears_late {
  Hear hear;
  void on_late(const penstock::late_event& event) { hear(event); }
};
template <class Hear>
hears_late(Hear) -> hears_late<Hear>;

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
    by_rank<int> warned(n);
    try {
      replicas(static_cast<int>(n),
               [&](auto& replica) {
                 auto feed = replica.start(work_of(data, replica));
                 feed.observe(hears_late{[&](const penstock::late_event& event) {
                   if (event.where.step == 2U && of(event).contains(1)) warned.tell(replica, 1);
                 }});
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
               {.timeout = std::chrono::milliseconds(200), .warn_after = std::chrono::milliseconds(1)});
      FAIL();
    } catch (const replica_error& caught) {
      EXPECT_EQ(caught.rank(), 1U);
      // Who gives up has warned before.
      const std::string text = caught.what(), by = "as seen by rank ";
      const auto at = text.find(by);
      ASSERT_NE(at, text.npos) << text;
      EXPECT_EQ(warned[static_cast<std::size_t>(text[at + by.size()] - '0')], 1) << text;
    }
    EXPECT_EQ(told, n);
  }
}

// With `warn_after` of a millisecond others may be late, too, at first: what counts is who is told of rank 1 alone.
const penstock::replica_options soon{.warn_after = std::chrono::milliseconds(1)};

TEST_F(leaving, law_6_who_waits_for_a_rank_is_told_of_it_and_goes_on_when_it_comes) {
  for (const std::uint64_t n : {2, 3, 4}) {
    const auto usual = train(n, [](auto&&...) { return false; });
    const came_to wanted = ends->same();
    signpost warned;
    ends = std::make_unique<by_rank<came_to>>(n);
    const auto summary = replicas(
        static_cast<int>(n),
        [&](auto& replica) {
          line model;
          std::array<float, 2> gradient{};
          auto feed = replica.start(work_of(data, replica));
          int times = 0;
          feed.observe(hears_late{[&](const penstock::late_event& event) {
            if (event.where.epoch != 1U || event.where.step != 2U || of(event) != std::set<std::uint64_t>{1}) return;
            EXPECT_EQ(event.rank, replica.rank());
            EXPECT_EQ(event.where.stage, "all_reduce");
            EXPECT_EQ(event.missing[0].epoch, 1U);
            EXPECT_EQ(event.missing[0].step, 1U);
            EXPECT_GE(event.waited, *soon.warn_after);
            const std::string text(event.message);
            EXPECT_TRUE(text.starts_with("all_reduce: epoch 1, step 2: rank " + std::to_string(replica.rank()) +
                                         " has waited for rank 1 for ") &&
                        text.ends_with(" ms; rank 1 came last in epoch 1, step 1"))
                << text;
            EXPECT_FALSE(replica.stopped());
            if (++times == 2) warned.reach();
          }});
          for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
            for (auto& batch : feed.epoch(epoch)) {
              if (replica.rank() == 1 && epoch == 1 && batch.step() == 2) {
                EXPECT_TRUE(warned.await(n - 1));
              }
              model.gradient(batch, gradient);
              if (!replica.all_reduce(batch, gradient)) continue;
              model.update(gradient);
              ends->tell(replica, {replica.steps(), replica.state(), model});
            }
        },
        soon);
    EXPECT_EQ(summary.steps, usual.steps);
    EXPECT_EQ(ends->same(), wanted);
  }
}

TEST_F(leaving, of_several_that_nobody_hears_the_lowest_that_waits_says_it) {
  for (const std::uint64_t late : {0, 1}) {
    const std::uint64_t lowest = late == 0 ? 1 : 0;
    heard_on_stderr lines;
    const auto says = [&](std::uint64_t rank) {
      return "rank " + std::to_string(rank) + " has waited for rank " + std::to_string(late) + " for ";
    };
    replicas(
        4,
        [&](auto& replica) {
          auto feed = replica.start(work_of(data, replica));
          float value[1] = {};
          for (auto& batch : feed.epoch(0)) {
            if (replica.rank() == late && batch.step() == 1) {
              EXPECT_TRUE(lines.await("penstock: all_reduce: epoch 0, step 1: " + says(lowest)));
            }
            replica.all_reduce(batch, std::span(value));
          }
        },
        soon);
    for (const std::string& text : lines.lines())
      for (std::uint64_t r = lowest + 1; r < 4; ++r) EXPECT_TRUE(r == late || text.find(says(r)) == text.npos) << text;
  }
}

// Its feed is no more, and it waits without a time-out.
TEST_F(leaving, who_has_returned_says_for_whom_it_waits) {
  heard_on_stderr lines;
  const auto summary = replicas(
      2,
      [&](auto& replica) {
        float value[1] = {};
        {
          auto feed = replica.start(work_of(data, replica));
          for (auto& batch : feed.epoch(0)) replica.all_reduce(batch, std::span(value));
        }
        if (replica.rank() == 1) {
          EXPECT_TRUE(lines.await("rank 0 has waited for rank 1 for "));
        }
      },
      soon);
  EXPECT_EQ(summary.steps, all_steps);
}

TEST_F(leaving, what_an_observer_throws_while_its_replica_waits_ends_that_when_the_step_is_over) {
  for (const std::uint64_t n : {2, 3})
    for (const int does : {0, 1, 2}) {  // it throws, or calls what it cannot
      signpost warned;
      std::atomic<int> counted = 0;
      try {
        replicas(
            static_cast<int>(n),
            [&](auto& replica) {
              auto feed = replica.start(work_of(data, replica));
              if (replica.rank() == 0)
                feed.observe(hears_late{[&](const penstock::late_event& event) {
                  if (event.where.step != 2U || of(event) != std::set<std::uint64_t>{1}) return;
                  warned.reach();
                  if (does == 0) throw std::runtime_error("I have had enough");
                  if (does == 1) replica.barrier();
                  if (does == 2) feed.epoch(1);
                }});
              float value[1] = {1};
              try {
                for (auto& batch : feed.epoch(0)) {
                  if (replica.rank() == 1 && batch.step() == 2) {
                    EXPECT_TRUE(warned.await());
                  }
                  value[0] = 1;
                  const bool counts = static_cast<bool>(replica.all_reduce(batch, std::span(value)));
                  if (batch.step() == 2 && counts) ++counted;
                  EXPECT_EQ(value[0], 1.0F);
                }
              } catch (const replica_error&) {
                throw;
              } catch (const std::exception& caught) {
                EXPECT_EQ(replica.rank(), 0U);
                EXPECT_NE(std::string(caught.what())
                              .find(does == 0   ? "I have had enough"
                                    : does == 1 ? "an observer that is told"
                                                : "observer that is told of a wait uses the feed"),
                          std::string::npos)
                    << caught.what();
                EXPECT_EQ(replica.steps(), 3U);
                EXPECT_EQ(value[0], 1.0F);
                throw;
              }
            },
            soon);
        FAIL();
      } catch (const replica_error& caught) {
        EXPECT_EQ(caught.rank(), 0U);
        EXPECT_NE(std::string(caught.what()).find("rank 0 failed: "), std::string::npos) << caught.what();
      }
      EXPECT_EQ(counted, static_cast<int>(n) - 1);
    }
}

// All ranks have ended then: there is nobody to tell, nor to wait for.
TEST_F(leaving, what_an_observer_throws_while_its_replica_waits_at_the_end_is_that_ranks_failure_alone) {
  signpost warned;
  std::mutex mutex;
  std::vector<std::shared_ptr<void>> feeds;  // which live longer than the replicas
  try {
    replicas(
        2,
        [&](auto& replica) {
          const auto feed =
              std::make_shared<decltype(replica.start(work_of(data, replica)))>(replica.start(work_of(data, replica)));
          {
            const std::scoped_lock lock(mutex);
            feeds.push_back(feed);
          }
          float value[1] = {};
          for (auto& batch : feed->epoch(0)) replica.all_reduce(batch, std::span(value));
          if (replica.rank() == 1) {
            EXPECT_TRUE(warned.await());
          } else {
            feed->observe(hears_late{[&](const penstock::late_event&) {
              warned.reach();
              throw std::runtime_error("I have had enough");
            }});
          }
        },
        soon);
    FAIL();
  } catch (const replica_error& caught) {
    EXPECT_EQ(caught.rank(), 0U);
    EXPECT_NE(std::string(caught.what()).find("rank 0 failed: I have had enough"), std::string::npos) << caught.what();
  }
  feeds.clear();
}

/// Notes who is told of its waits.
struct noting : penstock::local_communicator<penstock::cpu_device> {
  std::shared_ptr<penstock::late_hook> told;
  void warn_by(penstock::late_hook hook) noexcept { *told = hook; }
};

// A communicator that goes waits, too.
TEST_F(leaving, who_is_told_of_waits_is_told_no_more_when_its_replica_goes) {
  const auto told = std::make_shared<penstock::late_hook>();
  const auto group = std::make_shared<penstock::detail::local_group>(1, 0);
  const penstock::replica_options options;
  {
    penstock::replica<noting> one(noting{{group, 0, penstock::cpu_device{}, options}, told}, options);
    EXPECT_NE(told->tell, nullptr);
  }
  EXPECT_EQ(told->tell, nullptr);
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
