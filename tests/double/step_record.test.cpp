// SPDX-License-Identifier: Apache-2.0
// Steps on a device of CUDA's are timed by events of their own; the double's time is a count of what has happened.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/observe/ledger.hpp>
#include <penstock/penstock.hpp>

#include "support.hpp"

namespace {

using penstock::step_record;

struct checker {
  std::uint64_t next = 0;
  std::chrono::nanoseconds copied = std::chrono::nanoseconds::min(), computed = std::chrono::nanoseconds::min();
  void on_step(const step_record& one) {
    EXPECT_EQ(one.step, next++);
    EXPECT_TRUE(one.copied);
    EXPECT_LE(copied, one.copy.begin);
    EXPECT_LT(one.copy.begin, one.copy.end);
    EXPECT_LT(one.copy.end, one.compute.begin);
    EXPECT_LT(one.compute.begin, one.compute.end);
    EXPECT_LE(computed, one.compute.begin);
    copied = one.copy.end;
    computed = one.compute.end;
  }
};

auto feed_of(const std::vector<float>& data, int readers) {
  return (data | penstock::partition() | penstock::read({.readers = readers}) | penstock::batch(4) |
          penstock::transfer(doubled::watched_device(1), {.depth = 2}))
      .start();
}

TEST(StepRecord, times_of_the_device_are_in_the_order_of_its_work) {
  const std::vector<float> data(100, 1.0F);
  for (const unsigned eagerness : {0U, 3U, 20U})
    for (const int readers : {0, 2}) {
      doubled::fresh({.eagerness = eagerness, .events_are_timed = true});
      const doubled::on_device current(1);
      checker seen;
      {
        auto feed = feed_of(data, readers);
        feed.observe(seen);
        for (auto& batch : feed.epoch(0)) {
          const auto [x] = batch.fields();
          cuda_double::launch(batch.stream(), {cuda_double::reads(x.data(), x.size() * sizeof(float))}, [] {});
        }
      }
      EXPECT_EQ(seen.next, 25U);
    }
}

// The times of a step whose events cannot be recorded are not known; the step is whole.
TEST(StepRecord, a_record_that_fails_costs_the_step_its_times_or_is_its_error) {
  const std::vector<float> data(40, 1.0F);
  for (std::uint64_t n = 1; n < 40; ++n) {
    doubled::fresh({.eagerness = 3, .events_are_timed = true});
    std::uint64_t batches = 0;
    {
      auto feed = feed_of(data, 0);
      penstock::ledger ledger;
      feed.observe(ledger);
      cuda_double::fail("cudaEventRecord", n, cudaErrorUnknown);
      try {
        for (auto& batch : feed.epoch(0)) batches += batch.size() != 0;
      } catch (const penstock::error&) {
      }
    }
    EXPECT_LE(batches, 10U);
  }
}

}  // namespace
