// SPDX-License-Identifier: Apache-2.0
// Ranks that do not fit together, and bad options: one clear error, on all ranks, and no wait.
#include <stdexcept>
#include <thread>

#include "support.hpp"

namespace {

using namespace replicated;
using penstock::reduction;
using penstock::replica_error;
using penstock::replicas;

// What `body` ends in; its text.
template <class Body>
std::string ends_in(std::uint64_t n, Body&& body) {
  std::string text = "nothing";
  const std::size_t threads = laws::threads_now();
  try {
    replicas(static_cast<int>(n), body, {.timeout = std::chrono::seconds(30)});
  } catch (const replica_error& caught) {
    text = caught.what();
  }
  EXPECT_EQ(laws::threads_left(threads), threads);
  return text;
}
void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
}

const rows data{13};

TEST(misuse, REP_2_values_of_different_sizes_are_refused_on_all_ranks) {
  for (const std::uint64_t n : {2, 3, 4}) {
    std::atomic<std::uint64_t> told = 0;
    const std::string text = ends_in(n, [&](auto& replica) {
      auto feed = replica.start(work_of(data, replica));
      for (auto& batch : feed.epoch(0)) {
        std::vector<float> values(replica.rank() == 1 && batch.step() == 1 ? 1000 : 1024);
        try {
          replica.all_reduce(batch, values);
        } catch (const replica_error& caught) {
          expect_part(caught.what(), "epoch 0, step 1: ranks bring values of different sizes: 1000 and 1024 elements");
          ++told;
          throw;
        }
      }
    });
    expect_part(text, "rank 0 brings 1024, rank 1 1000 elements");
    EXPECT_EQ(told, n);
  }
}

TEST(misuse, REP_2_buckets_in_another_order_are_refused) {
  for (const std::uint64_t n : {2, 3}) {
    const std::string early = ends_in(n, [&](auto& replica) {
      auto feed = replica.start(work_of(data, replica));
      std::vector<float> first(1000), second(1024);
      for (auto& batch : feed.epoch(0)) {
        const bool swapped = replica.rank() == 1;
        replica.ready(batch, swapped ? second : first);
        replica.ready(batch, swapped ? first : second);
        replica.all_reduce(batch);
      }
    });
    expect_part(early, "1000 and 1024 elements");
    // The same sizes in sum.
    expect_part(ends_in(n,
                        [&](auto& replica) {
                          auto feed = replica.start(work_of(data, replica));
                          std::vector<float> first(10), second(12);
                          for (auto& batch : feed.epoch(0)) {
                            if (replica.rank() == 1)
                              replica.all_reduce(batch, second, first);
                            else
                              replica.all_reduce(batch, first, second);
                          }
                        }),
                "in another order, of other types");
  }
}

TEST(misuse, other_types_reductions_and_steps_are_refused) {
  for (int what = 0; what < 3; ++what)
    expect_part(ends_in(2,
                        [&](auto& replica) {
                          const bool other = replica.rank() == 1;
                          auto feed = replica.start(work_of(data, replica));
                          std::vector<std::int32_t> signed_values(4);
                          std::vector<std::uint32_t> values(4);
                          for (auto& batch : feed.epoch(0)) {
                            if (other && what == 2 && batch.step() == 0) continue;
                            const auto how = other && what == 1 ? reduction::maximum : reduction::sum;
                            if (other && what == 0)
                              replica.all_reduce(batch, penstock::buffer(signed_values, how));
                            else
                              replica.all_reduce(batch, penstock::buffer(values, how));
                          }
                        }),
                "ranks are at different steps");
}

TEST(misuse, REP_7_another_thread_than_the_bodys_is_refused) {
  for (const std::uint64_t n : {1, 2})
    expect_part(ends_in(n,
                        [&](auto& replica) {
                          auto feed = replica.start(work_of(data, replica));
                          std::vector<float> values(4);
                          std::exception_ptr problem;
                          for (auto& batch : feed.epoch(0)) {
                            std::thread([&] {
                              try {
                                replica.ready(batch, values);
                              } catch (...) {
                                problem = std::current_exception();
                              }
                            }).join();
                            if (problem) std::rethrow_exception(problem);
                          }
                        }),
                "used by another thread than the one that runs the body");
}

TEST(misuse, ranks_with_other_data_seed_or_batch_are_refused_at_the_start) {
  const rows less{12};
  for (int what = 0; what < 3; ++what)
    expect_part(ends_in(3,
                        [&](auto& replica) {
                          const bool other = replica.rank() == 2;
                          settings s;
                          if (other && what == 1) s.seed = 8;
                          if (other && what == 2) s.global = 5;
                          auto feed = replica.start(work_of(other && what == 0 ? less : data, replica, s));
                          ADD_FAILURE() << "it began";
                        }),
                "replicas have different data, plans or batches: rank 0 has seed 7, fingerprint ");
}

TEST(misuse, a_pipeline_of_another_world_is_refused) {
  for (const std::uint64_t n : {1, 2})
    expect_part(ends_in(n,
                        [&](auto& replica) {
                          auto feed = replica.start(data | penstock::partition({.world = {.rank = 1, .size = 5}}) |
                                                    penstock::read() | penstock::batch(2) |
                                                    penstock::transfer(replica.device()));
                        }),
                "partition: world is rank 1 of 5, wanted rank 0 of " + std::to_string(n));
}

TEST(misuse, a_mean_of_integers_is_refused) {
  expect_part(ends_in(2,
                      [&](auto& replica) {
                        auto feed = replica.start(work_of(data, replica));
                        std::vector<std::int32_t> values(4);
                        for (auto& batch : feed.epoch(0)) replica.all_reduce(batch, values);
                      }),
              "a mean of integers was asked for");
}

TEST(misuse, weights_and_metrics_out_of_range_are_refused) {
  const double many[9] = {};
  for (int what = 0; what < 3; ++what)
    expect_part(ends_in(2,
                        [&](auto& replica) {
                          auto feed = replica.start(work_of(data, replica));
                          for (auto& batch : feed.epoch(0)) {
                            if (what == 0) replica.all_reduce(batch, {.weight = -1.0});
                            if (what == 1)
                              replica.all_reduce(batch, {.weight = 0.0 / static_cast<double>(batch.step())});
                            if (what == 2) replica.all_reduce(batch, {.metrics = many});
                          }
                        }),
                what == 2 ? "number of metrics is 9, wanted at most 8" : "weight is ");
}

TEST(misuse, one_rank_outside_its_loop_meets_others_inside) {
  expect_part(ends_in(2,
                      [&](auto& replica) {
                        auto feed = replica.start(work_of(data, replica));
                        std::vector<float> values(4);
                        for (auto& batch : feed.epoch(0)) {
                          if (replica.rank() == 1)
                            replica.barrier();
                          else
                            replica.all_reduce(batch, values);
                        }
                      }),
              "ranks bring values of different sizes: 0 and 4");
  expect_part(ends_in(2,
                      [&](auto& replica) {
                        auto feed = replica.start(work_of(data, replica));
                        for (auto& batch : feed.epoch(0)) {
                          if (replica.rank() == 1)
                            replica.barrier();
                          else if (batch.step() == 0)
                            break;
                        }
                      }),
              "rank 0 ends its loop where rank 1 exchanges values outside one");
}

TEST(misuse, a_feed_that_the_replica_did_not_start_is_told_of) {
  expect_part(ends_in(1,
                      [&](auto& replica) {
                        auto feed = work_of(data, replica).start();
                        for (auto& batch : feed.epoch(0)) replica.all_reduce(batch);
                      }),
              "the feed is to be made by replica.start(pipeline)");
  expect_part(ends_in(1,
                      [&](auto& replica) {
                        auto feed = replica.start(work_of(data, replica));
                        auto second = replica.start(work_of(data, replica));
                      }),
              "it has a feed already");
}

TEST(misuse, ERR_4_bad_options_are_refused_before_any_thread_starts) {
  const auto message = [](int n, penstock::replica_options options) {
    try {
      replicas(n, [](auto&) { ADD_FAILURE() << "it began"; }, options);
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(0, {}), "penstock: replicas: number is 0, wanted 1 to 1024");
  EXPECT_EQ(message(-3, {}), "penstock: replicas: number is -3, wanted 1 to 1024");
  EXPECT_EQ(message(2, {.timeout = std::chrono::seconds(0)}),
            "penstock: replicas: timeout is 0 ns, wanted more than 0");
  using namespace std::chrono_literals;
  EXPECT_EQ(message(2, {.warn_after = -1ns}),
            "penstock: replicas: warn_after is -1 ns, wanted 0 or more, and less than the timeout");
  EXPECT_EQ(message(2, {.timeout = 7ns, .warn_after = 7ns}),
            "penstock: replicas: warn_after is 7 ns, wanted 0 or more, and less than the timeout");
  for (const penstock::replica_options& fine : {penstock::replica_options{.timeout = 20s, .warn_after = 0s},
                                               {.timeout = 20s, .warn_after = 19s},
                                               {.timeout = 20s}})
    EXPECT_NO_THROW(replicas(1, [](auto&) {}, fine));
  EXPECT_EQ(message(2, {.lag = 5000}), "penstock: replicas: lag is 5000, wanted 0 to 1024");
}

}  // namespace
