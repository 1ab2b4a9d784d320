// SPDX-License-Identifier: Apache-2.0
// Shutdown, early exit, restart.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>

#include "support.hpp"

namespace {

using namespace known_failures;

struct body_failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class loop { epoch, steps, next };

class shutdown_of_readers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(known_failures, shutdown_of_readers, testing::Values(0, 1, 4));

template <class Feed>
std::shared_ptr<Feed> shared(Feed feed) {
  return std::make_shared<Feed>(std::move(feed));
}

// The body throws at the second batch.
template <class Feed>
void throwing_loop(Feed& feed, loop how) {
  int seen = 0;
  const auto body = [&](auto&) {
    if (++seen == 2) throw body_failed("at batch 2");
  };
  if (how == loop::epoch)
    for (auto& batch : feed.epoch(0)) body(batch);
  else if (how == loop::steps)
    for (auto& batch : feed.steps(1000)) body(batch);
  else
    while (auto batch = feed.next()) body(batch);
}

TEST_P(shutdown_of_readers, SHUT_1_body_throws_while_the_loader_is_still_referenced) {
  const hang_limit limit;
  for (const loop how : {loop::epoch, loop::steps, loop::next}) {
    const std::size_t threads = threads_alive();
    auto loader =
        shared((numbers<>{100'000} | penstock::partition({.seed = 7}) | penstock::read({.readers = GetParam()}) |
                penstock::batch(40) | penstock::transfer(penstock::cpu_device{}, {.depth = 4}))
                   .start());
    auto outlives = loader;
    EXPECT_THROW(throwing_loop(*loader, how), body_failed);
    loader.reset();
    EXPECT_EQ(outlives->state().samples, 80u);
    outlives.reset();
    EXPECT_TRUE(threads_come_back_to(threads));
  }
}

TEST_P(shutdown_of_readers, SHUT_1_a_range_and_a_batch_that_outlive_the_throw_do_not_hold_back_the_end) {
  const hang_limit limit;
  const std::size_t threads = threads_alive();
  {
    auto feed = (numbers<>{100'000} | penstock::partition({.seed = 7}) | penstock::read({.readers = GetParam()}) |
                 penstock::batch(40) | penstock::transfer(penstock::cpu_device{}, {.depth = 4}))
                    .start();
    auto range = feed.epoch(0);
    auto kept = decltype(feed)::batch_type();
    const auto loop = [&] {
      for (auto& batch : range) {
        kept = std::move(batch);
        throw body_failed("at batch 1");
      }
    };
    EXPECT_THROW(loop(), body_failed);
    // The feed goes first, the others after it.
    auto gone = std::make_unique<decltype(feed)>(std::move(feed));
    gone.reset();
    EXPECT_TRUE(threads_come_back_to(threads));
    EXPECT_EQ(kept.size(), 40u);
    EXPECT_THROW((void)(range.begin() == range.end()), penstock::error);
  }
}

void throw_with_a_static_loader() {
  ::alarm(60);
  static auto loader = (numbers<>{100'000} | penstock::partition({.seed = 7}) | penstock::read({.readers = 4}) |
                        penstock::batch(40) | penstock::transfer(penstock::cpu_device{}, {.depth = 4}))
                           .start();
  try {
    throwing_loop(loader, loop::epoch);
  } catch (const body_failed&) {
    std::exit(7);
  }
}

TEST(known_failures_DeathTest, SHUT_1_the_process_ends_with_a_loader_that_lives_to_the_end) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(throw_with_a_static_loader(), testing::ExitedWithCode(7), "");
}

TEST_P(shutdown_of_readers, SHUT_2_readers_stop_at_their_next_sample_when_the_loop_is_left) {
  const hang_limit limit;
  std::atomic<bool> left{false};
  std::atomic<int> begun_late{0};
  auto hook = [&](std::uint64_t) {
    if (left.load(std::memory_order_acquire)) begun_late.fetch_add(1);
    std::this_thread::yield();
  };
  const std::size_t threads = threads_alive();
  for (int repetition = 0; repetition < 20; ++repetition) {
    left = false;
    begun_late = 0;
    auto feed = (numbers{10'000, hook} | penstock::partition() | penstock::read({.readers = GetParam()}) |
                 penstock::batch(32) | penstock::transfer(penstock::cpu_device{}))
                    .start();
    for (auto& batch : feed.epoch(0)) {
      EXPECT_EQ(batch.size(), 32u);
      break;
    }
    left.store(true, std::memory_order_release);
    {
      const auto gone = std::move(feed);
    }
    EXPECT_LE(begun_late.load(), GetParam());
  }
  EXPECT_TRUE(threads_come_back_to(threads));
}

// The old pass over 20 batches is at batch 3 when a new one is begun.
TEST_P(shutdown_of_readers, SHUT_4_a_second_iteration_begun_in_the_first_is_a_whole_fresh_epoch) {
  const hang_limit limit;
  const auto data = numbers<>{20 * 8};
  auto feed = (data | penstock::partition({.seed = 3}) | penstock::read({.readers = GetParam()}) | penstock::batch(8) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  const auto expected = [&](std::uint64_t epoch) {
    std::vector<std::uint64_t> order(data.n);
    penstock::default_plan(data.n).order(3, epoch, 0, order);
    return order;
  };
  for (const std::uint64_t second : {0u, 1u, 5u, 0u}) {
    auto old = feed.epoch(0);
    auto at = old.begin();
    for (int i = 0; i < 3; ++i, ++at) ASSERT_FALSE(at == old.end());
    const auto batches = all_of(feed.epoch(second));
    EXPECT_EQ(batches.size(), 20u);
    EXPECT_EQ(joined(batches), expected(second));
    EXPECT_THROW((void)(at == old.end()), penstock::error);
    EXPECT_THROW((void)*at, penstock::error);
  }
}

TEST_P(shutdown_of_readers, SHUT_4_batches_kept_from_the_old_iteration_do_not_get_into_the_new_one) {
  const hang_limit limit;
  auto feed = (numbers<>{20 * 8} | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = GetParam()}) | penstock::batch(8) |
               penstock::transfer(penstock::cpu_device{}, {.depth = 3}))
                  .start();
  auto old = feed.epoch(0);
  auto at = old.begin();
  auto first = std::move(*at);
  ++at;
  auto second = std::move(*at);
  EXPECT_EQ(joined(all_of(feed.epoch(1))), first_numbers(160));
  second.release();
  EXPECT_EQ(joined(all_of(feed.epoch(0))), first_numbers(160));
  EXPECT_EQ(numbers_of(first), first_numbers(8));
}

TEST_P(shutdown_of_readers, SHUT_4_other_ways_to_begin_again_go_on_where_the_feed_stands) {
  const hang_limit limit;
  auto feed =
      (numbers<>{20 * 8} | penstock::partition({.shuffle = penstock::shuffle::none}) |
       penstock::read({.readers = GetParam()}) | penstock::batch(8) | penstock::transfer(penstock::cpu_device{}))
          .start();
  auto old = feed.epoch(0);
  auto at = old.begin();
  for (int i = 0; i < 3; ++i, ++at) ASSERT_FALSE(at == old.end());
  const auto rest = all_of(feed.steps(17));
  EXPECT_EQ(rest.size(), 17u);
  EXPECT_EQ(rest.front().front(), 24u);
  EXPECT_EQ(rest.back().back(), 159u);
  EXPECT_THROW((void)(at == old.end()), penstock::error);
}

// An external queue that stays empty after some items; a wait for more ends by the stop token alone.
struct starved_queue {
  std::uint64_t items;

  template <class Stop>
  bool pop(std::uint64_t index, const Stop& stop) const {
    if (index < items) return true;
    std::atomic<bool> stopped{false};
    const std::stop_callback wake(stop, [&] {
      stopped.store(true);
      stopped.notify_all();
    });
    stopped.wait(false);
    return false;
  }
};

struct queue_dataset {
  starved_queue queue;

  std::uint64_t size() const { return 1000; }
  auto schema() const { return penstock::schema{penstock::field<std::uint64_t>{"number"}}; }
  template <class To>
  void read(std::uint64_t index, const To& to, penstock::read_context& context) const {
    if (!queue.pop(index, context.stop)) throw std::runtime_error("the queue was aborted");
    *std::get<0>(to).data() = index;
  }
};

class shutdown_of_blocked_readers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(known_failures, shutdown_of_blocked_readers, testing::Values(1, 4));

TEST_P(shutdown_of_blocked_readers, SHUT_7_a_throw_downstream_wakes_a_source_that_waits_in_a_queue) {
  const hang_limit limit;
  const std::size_t threads = threads_alive();
  const auto run = [&] {
    penstock::run(queue_dataset{{8}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                  penstock::read({.readers = GetParam()}) | penstock::batch(4) |
                  penstock::transfer(penstock::cpu_device{}) | penstock::compute([](auto& batch) {
                    if (batch.step() == 1) throw body_failed("at batch 1");
                  }));
  };
  EXPECT_THROW(run(), body_failed);
  EXPECT_TRUE(threads_come_back_to(threads));
}

TEST_P(shutdown_of_blocked_readers, SHUT_7_a_stop_wakes_source_and_consumer_that_both_wait) {
  const hang_limit limit;
  const std::size_t threads = threads_alive();
  std::stop_source stop;
  std::jthread stopper;
  auto pipeline = queue_dataset{{8}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                  penstock::read({.readers = GetParam()}) | penstock::batch(4) |
                  penstock::transfer(penstock::cpu_device{}) | penstock::compute([&](auto& batch) {
                    // The next batch never comes.
                    if (batch.step() == 1) stopper = std::jthread([&] { stop.request_stop(); });
                  });
  const auto result = penstock::run(pipeline, {.stop = stop.get_token()});
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 2u);
  stopper.join();
  EXPECT_TRUE(threads_come_back_to(threads));
}

// A stream from the same queue: it ends when it is told to stop.
class queue_range {
 public:
  queue_range(starved_queue queue, std::stop_token stop) : queue_(queue), stop_(std::move(stop)) {}

  class iterator {
   public:
    using value_type = std::uint64_t;
    using difference_type = std::ptrdiff_t;

    iterator() = default;
    explicit iterator(const queue_range& of) : of_(&of) { pop(); }
    std::uint64_t operator*() const { return index_; }
    iterator& operator++() {
      ++index_;
      pop();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return ended_; }

   private:
    void pop() { ended_ = !of_->queue_.pop(index_, of_->stop_); }
    const queue_range* of_ = nullptr;
    std::uint64_t index_ = 0;
    bool ended_ = false;
  };
  iterator begin() const { return iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  starved_queue queue_;
  std::stop_token stop_;
};

auto stream_of_a_starved_queue(int readers) {
  return penstock::stream([](std::uint64_t, std::stop_token stop) { return queue_range({8}, std::move(stop)); }) |
         penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = readers}) |
         penstock::batch(2) | penstock::transfer(penstock::cpu_device{});
}

TEST_P(shutdown_of_blocked_readers, SHUT_7_a_throw_downstream_wakes_a_stream_that_waits_in_a_queue) {
  const hang_limit limit;
  const std::size_t threads = threads_alive();
  const auto run = [&] {
    penstock::run(stream_of_a_starved_queue(GetParam()) | penstock::compute([](auto& batch) {
                    if (batch.step() == 1) throw body_failed("at batch 1");
                  }));
  };
  EXPECT_THROW(run(), body_failed);
  EXPECT_TRUE(threads_come_back_to(threads));
}

TEST_P(shutdown_of_readers, SHUT_7_a_stop_wakes_a_stream_and_its_consumer) {
  const hang_limit limit;
  const std::size_t threads = threads_alive();
  std::stop_source stop;
  std::jthread stopper;
  auto pipeline = stream_of_a_starved_queue(GetParam()) | penstock::compute([&](auto& batch) {
                    if (batch.step() == 1) stopper = std::jthread([&] { stop.request_stop(); });
                  });
  const auto result = penstock::run(pipeline, {.stop = stop.get_token()});
  EXPECT_TRUE(result.stopped);
  EXPECT_GE(result.steps, 2u);
  EXPECT_LE(result.steps, 4u);
  stopper.join();
  EXPECT_TRUE(threads_come_back_to(threads));
}

// Beginning anew tells the reads in progress to stop; those after it are told of nothing.
TEST_P(shutdown_of_blocked_readers, SHUT_7_a_loop_that_is_left_wakes_a_blocked_reader_for_the_next_one) {
  const hang_limit limit;
  auto feed = (queue_dataset{{8}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = GetParam(), .timeout = std::chrono::seconds(5)}) | penstock::batch(4) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  for (int pass = 0; pass < 2; ++pass) {
    std::uint64_t steps = 0;
    for (auto& batch : feed.epoch(0)) {
      EXPECT_EQ(batch.step(), steps);
      if (++steps == 2) break;
    }
    EXPECT_EQ(steps, 2u);
  }
}

}  // namespace
