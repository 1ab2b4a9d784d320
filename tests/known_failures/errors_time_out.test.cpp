// SPDX-License-Identifier: Apache-2.0
// Errors that cross threads: time-outs.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "support.hpp"

namespace {

using namespace known_failures;
using namespace std::chrono_literals;

TEST(known_failures, ERR_7_a_cold_first_batch_has_a_limit_of_its_own) {
  const hang_limit limit;
  // Row 0, and the one that its reader has after it, come last, and later than the limit of later batches.
  std::atomic<std::uint64_t> others{0};
  const auto begun = std::chrono::steady_clock::now();
  auto hook = [&](std::uint64_t index) {
    if (index == 0) {
      while (others.load() < 14 || std::chrono::steady_clock::now() < begun + 150ms) std::this_thread::yield();
    } else {
      others.fetch_add(1);
    }
  };
  auto feed = (numbers{16, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = 2, .timeout = 50ms, .first_timeout = 100s}) | penstock::batch(4) |
               penstock::transfer(penstock::cpu_device{}, {.depth = 4}))
                  .start();
  EXPECT_EQ(joined(all_of(feed.epoch(0))), first_numbers(16));
}

// The reader of row `stuck` does not come back; the limit that is not meant is a long one.
struct case_of_time_out {
  std::uint64_t stuck;
  std::chrono::nanoseconds timeout, first_timeout;
  const char* limit;
};
class time_out : public testing::TestWithParam<case_of_time_out> {};
INSTANTIATE_TEST_SUITE_P(known_failures, time_out,
                         testing::Values(case_of_time_out{1, 100s, 20ms, "no batch within 20 ms"},
                                         case_of_time_out{13, 30ms, 100s, "no batch within 30 ms"}));

TEST_P(time_out, ERR_7_the_message_shows_where_it_stood) {
  const hang_limit limit;
  const std::uint64_t stuck = GetParam().stuck;
  // Shared with a reader that is let go.
  struct progress {
    latch released;
    std::atomic<std::uint64_t> others{0};
  };
  const auto at_work = std::make_shared<progress>();
  auto hook = [at_work, stuck](std::uint64_t index) {
    if (index == stuck)
      at_work->released.wait();
    else
      at_work->others.fetch_add(1);
  };
  const std::size_t threads = threads_alive();
  {
    auto feed =
        (numbers{16, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
         penstock::read({.readers = 1, .timeout = GetParam().timeout, .first_timeout = GetParam().first_timeout}) |
         penstock::batch(4) | penstock::transfer(penstock::cpu_device{}, {.depth = 4}))
            .start();
    auto range = feed.epoch(0);
    // The reader is where it stays.
    ASSERT_TRUE(comes_true([&] { return at_work->others.load() == stuck; }));
    auto at = range.begin();
    for (std::uint64_t step = 0; step < stuck / 4; ++step, ++at) ASSERT_FALSE(at == range.end());
    try {
      (void)(at == range.end());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const penstock::timeout_error& caught) {
      EXPECT_EQ(caught.where().stage, "read");
      EXPECT_EQ(caught.where().step, stuck / 4);
      EXPECT_EQ(caught.where().sample, stuck);
      const std::string_view what = caught.what();
      EXPECT_NE(what.find(GetParam().limit), what.npos) << what;
      EXPECT_NE(what.find("penstock:read0 reads sample " + std::to_string(stuck)), what.npos) << what;
      EXPECT_NE(what.find("of 4 batches 0 are held by the consumer, 0 are ready; of 4 slots 3 are free"), what.npos) << what;
    }
    // The same again, without another wait for nothing.
    EXPECT_THROW((void)(at == range.end()), penstock::timeout_error);
    // The end of the feed does not wait for the reader, which is let go with what it touches.
  }
  EXPECT_EQ(threads_alive(), threads + 1);
  at_work->released.open();
  EXPECT_TRUE(threads_come_back_to(threads));
}

TEST(known_failures, ERR_7_a_run_that_timed_out_goes_on_when_the_reader_comes_back) {
  const hang_limit limit;
  latch released;
  std::atomic<bool> came_back{false};
  auto hook = [&](std::uint64_t index) {
    if (index != 5) return;
    released.wait();
    came_back = true;
  };
  auto feed = (numbers{16, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = 1, .timeout = 20s, .first_timeout = 20ms}) | penstock::batch(16) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  EXPECT_THROW((void)all_of(feed.epoch(0)), penstock::timeout_error);
  released.open();
  ASSERT_TRUE(comes_true([&] { return came_back.load(); }));
  // Whatever takes long now is the machine.
  bool done = false;
  for (int attempt = 0; attempt < 100 && !done; ++attempt) {
    try {
      EXPECT_EQ(joined(all_of(feed.epoch(0))), first_numbers(16));
      done = true;
    } catch (const penstock::timeout_error&) {
    }
  }
  EXPECT_TRUE(done);
}

}  // namespace
