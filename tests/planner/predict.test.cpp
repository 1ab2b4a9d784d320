// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include "../../examples/planner/predict.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using namespace std::chrono_literals;
using planner::nanoseconds, planner::plan;

/// The recurrence of the stages in tandem, for one reader.
nanoseconds tandem(const plan& of) {
  const auto steps = static_cast<std::size_t>(of.steps);
  const auto slots = static_cast<std::size_t>(of.slots()), twins = static_cast<std::size_t>(of.depth);
  std::vector<nanoseconds> read(steps), copied(steps), computed(steps);
  for (std::size_t k = 0; k < steps; ++k) {
    nanoseconds start = k > 0 ? read[k - 1] : 0ns;
    if (k >= slots && copied[k - slots] > start) start = copied[k - slots] + of.notice;
    read[k] = start + of.read;
    start = std::max(read[k], k > 0 ? copied[k - 1] : 0ns);
    if (k >= twins) start = std::max(start, computed[k - twins] + of.event_latency);
    copied[k] = start + of.copy;
    computed[k] = std::max(copied[k] + of.event_latency, k > 0 ? computed[k - 1] : 0ns) + of.compute + of.reduce;
  }
  return computed[steps - 1];
}

TEST(planner, one_reader_takes_exactly_what_the_recurrence_says) {
  for (const nanoseconds notice : {0us, 5us, 27us, 55us})
    for (const int depth : {1, 2, 3, 5})
      for (const int host_depth : {0, 1, 2})
        for (const auto& [read, copy, compute] :
             {std::array{20us, 20us, 20us}, std::array{100us, 100us, 100us}, std::array{70us, 30us, 110us},
              std::array{10us, 90us, 40us}, std::array{0us, 0us, 50us}, std::array{120us, 0us, 0us}}) {
          plan of{.read = read, .copy = copy, .compute = compute, .notice = notice, .depth = depth, .steps = 300};
          of.host_depth = host_depth;
          EXPECT_EQ(planner::predict(of).wall, tandem(of))
              << read.count() << ' ' << copy.count() << ' ' << compute.count() << " us, depth " << depth << " host "
              << host_depth << " notice " << notice.count();
        }
}

TEST(planner, a_late_notice_costs_what_was_measured_with_two_slots_and_nothing_with_three) {
  plan of{.read = 100us, .copy = 100us, .compute = 100us, .notice = 27us, .depth = 2, .steps = 2000};
  EXPECT_NEAR(planner::predict(of).efficiency, 0.923, 0.0005);
  EXPECT_STREQ(planner::predict(of).bounded_by, "depth and latency");
  of.depth = 3;
  EXPECT_NEAR(planner::predict(of).efficiency, 0.999, 0.0005);
}

TEST(planner, the_closed_form_is_met) {
  const auto meets = [](plan of, const char* bound) {
    const auto found = planner::predict(of);
    const auto pencil = planner::closed_form(of).value();
    EXPECT_EQ(found.wall, pencil) << bound;
    EXPECT_STREQ(found.bounded_by, bound);
  };
  meets({.read = 300us, .copy = 100us, .compute = 100us}, "read");
  meets({.read = 300us, .copy = 100us, .compute = 100us, .readers = 0}, "read");
  meets({.read = 400us, .copy = 50us, .compute = 80us, .readers = 2}, "read");
  meets({.read = 400us, .copy = 50us, .compute = 80us, .readers = 4}, "read");
  meets({.read = 100us, .copy = 300us, .compute = 100us}, "copy");
  meets({.read = 100us, .copy = 100us, .compute = 300us, .steps = 3}, "compute");
  meets({.read = 100us, .copy = 50us, .compute = 50us, .host_depth = 1}, "depth and latency");
  meets({.copy = 100us, .compute = 100us, .depth = 1, .host_depth = 3}, "depth and latency");
  meets({.read = 100us, .copy = 50us, .compute = 100us, .reduce = 150us, .replicas = 4}, "reduce");
}

TEST(planner, there_is_no_closed_form_where_the_pace_changes) {
  EXPECT_FALSE(planner::closed_form({.read = 100us, .copy = 100us, .compute = 100us, .notice = 27us, .depth = 2}));
  EXPECT_FALSE(planner::closed_form({.read = 10us, .compute = 20us, .depth = 1}));
  EXPECT_FALSE(planner::closed_form({.read = 100us, .readers = 3}));
  EXPECT_FALSE(planner::closed_form({.read = 100us, .spread = 0.1}));
}

TEST(planner, three_readers_read_three_times_as_fast_as_one) {
  const auto found = planner::predict({.read = 600us, .copy = 10us, .compute = 20us, .readers = 3, .depth = 8});
  EXPECT_NEAR(found.steady_ns, 200e3, 1e3);
}

TEST(planner, replicas_wait_for_the_slowest) {
  // The largest of four uniform numbers is 0.6 above the middle of -1 and 1 on the average.
  const auto found = planner::predict({.copy = 10us, .compute = 100us, .replicas = 4, .steps = 2000, .spread = 0.5});
  EXPECT_NEAR(static_cast<double>(found.wall.count()) / 2000, 130e3, 2e3);
}

TEST(planner, depth_evens_out_what_varies) {
  plan of{.read = 95us, .copy = 10us, .compute = 95us, .depth = 2, .steps = 2000, .spread = 0.8};
  const auto shallow = planner::predict(of).wall;
  of.depth = 16;
  EXPECT_LT(planner::predict(of).wall, shallow * 97 / 100);
}

TEST(planner, times_follow_from_sizes) {
  EXPECT_EQ(planner::time_of(3e9, 1.5e9), 2s);
  EXPECT_DOUBLE_EQ(planner::ring_traffic(100, 4), 150);
  EXPECT_THROW(planner::time_of(1, 1e-9), std::invalid_argument);
}

TEST(planner, a_large_batch_is_not_held_in_memory) {
  EXPECT_EQ(planner::predict({.read = 300us, .copy = 100us, .batch = 1 << 30, .steps = 10}).wall, 10 * 300us + 103us);
}

/// Samples that take their time on a simulated clock.
struct slow_samples {
  std::shared_ptr<penstock::simulated_clock> clock;
  nanoseconds each;

  std::uint64_t size() const { return 400; }
  auto schema() const { return penstock::schema{penstock::field<float>{"sample"}}; }
  void read(std::uint64_t, auto& sample) const {
    std::get<0>(sample)() = 1;
    clock->advance(each);
  }
};

TEST(planner, a_feed_that_reads_inline_takes_exactly_what_is_predicted) {
  for (const int depth : {1, 2, 3}) {
    for (const auto& [read, copy, compute] :
         {std::array{100us, 100us, 100us}, std::array{40us, 120us, 80us}, std::array{80us, 40us, 120us}}) {
      const plan of{
          .read = read, .copy = copy, .compute = compute, .readers = 0, .depth = depth, .batch = 4, .steps = 100};
      const auto clock = std::make_shared<penstock::simulated_clock>();
      const penstock::modelled_device device(
          {.event_latency = of.event_latency, .notice = of.notice, .copy_time = of.copy, .clock = clock});
      auto end = device.make_event();
      auto feed = slow_samples{clock, of.read / of.batch} | penstock::partition() | penstock::read({.readers = 0}) |
                  penstock::batch(of.batch) | penstock::transfer(device, {.depth = depth});
      for (auto& batch : feed.epoch(0)) {
        batch.stream().launch(of.compute);
        device.record(end, batch.stream());
      }
      EXPECT_EQ(planner::predict(of).wall, device.completion(end).time_since_epoch()) << depth;
    }
  }
}

}  // namespace
