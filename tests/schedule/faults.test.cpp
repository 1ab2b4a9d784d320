// SPDX-License-Identifier: Apache-2.0
// Faults that reviews found, each with the case that showed it.
#include <array>
#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <penstock/penstock.hpp>

namespace {

using namespace penstock;

std::vector<int> numbers(int count) {
  std::vector<int> result;
  for (int i = 0; i < count; ++i) result.push_back(i);
  return result;
}

auto feed_of(const std::vector<int>& data, int readers, batch_options batches = {.size = 10}) {
  return (data | partition({.shuffle = shuffle::none}) | read({.readers = readers}) | batch(batches) |
          transfer(cpu_device{}))
      .start();
}

class faults : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(readers, faults, testing::Values(0, 2));

TEST_P(faults, resume_in_mid_epoch_moves_what_comes_next) {
  const auto data = numbers(100);
  auto feed = feed_of(data, GetParam());
  const feed_state begin = feed.state();
  feed.next();
  const feed_state after_one = feed.state();
  feed.next();
  feed.next();
  feed.resume(after_one);
  EXPECT_EQ(feed.next().step(), 1u);
  feed.resume(begin);
  EXPECT_EQ(feed.next().step(), 0u);
}

TEST_P(faults, resume_ends_a_handle_that_is_alive) {
  const auto data = numbers(100);
  auto feed = feed_of(data, GetParam());
  const feed_state begin = feed.state();
  auto range = feed.epoch(0);
  auto it = range.begin();
  ASSERT_FALSE(it == range.end());
  feed.resume(begin);
  EXPECT_THROW(++it, error);
  EXPECT_EQ(feed.state(), begin);
}

TEST_P(faults, reduce_takes_an_operation_that_changes_and_returns) {
  const auto data = numbers(100);
  auto work = data | partition() | read({.readers = GetParam()}) | batch(10) | transfer(cpu_device{}) |
              reduce(0.0, [](double& sum, auto& one) { return sum += static_cast<double>(one.size()); });
  EXPECT_EQ(run(work).value(), 100.0);
}

TEST_P(faults, a_run_without_end_reads_although_its_last_step_cannot_be_counted) {
  const auto data = numbers(20);
  std::stop_source stop;
  int steps = 0;
  auto work = data | partition() | read({.readers = GetParam()}) | batch(10) | transfer(cpu_device{}) |
              compute([&](auto&) { return ++steps == 50 ? stop.request_stop() : false; }) |
              reduce(0, [](int, bool) { return 0; });
  const auto result = run(work, {.epochs = ~std::uint64_t{0}, .stop = stop.get_token()});
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 50u);
}

TEST_P(faults, an_observer_that_throws_leaves_the_state_before_the_batch) {
  const auto data = numbers(100);
  auto feed = feed_of(data, GetParam());
  feed.observe([](const batch_event& event) {
    if (event.step == 2) throw std::runtime_error("enough");
  });
  std::size_t seen = 0;
  EXPECT_THROW(for (auto& batch : feed.epoch(0)) seen += batch.size(), std::runtime_error);
  EXPECT_EQ(seen, 20u);
  EXPECT_EQ(feed.state().samples, 20u);
}

TEST_P(faults, epochs_without_a_batch_pass) {
  const auto data = numbers(5);
  auto work = data | partition() | read({.readers = GetParam()}) |
              batch({.size = 10, .last = last_batch::drop, .allow_empty = true}) | transfer(cpu_device{}) |
              reduce(0, [](int sum, auto&) { return sum + 1; });
  EXPECT_EQ(run(work, {.epochs = 2}).epochs, (std::vector<int>{0, 0}));
  EXPECT_THROW(run(work, {.epochs = 0}).value(), error);

  auto feed = feed_of(data, GetParam(), {.size = 10, .last = last_batch::drop, .allow_empty = true});
  EXPECT_FALSE(feed.next());
  EXPECT_EQ(feed.state().epoch, 1u);
  const feed_state state = feed.state();
  feed.resume(state);
  EXPECT_EQ(feed.state().epoch, 1u);
}

TEST_P(faults, a_plan_of_another_dataset_is_an_error) {
  const auto data = numbers(100);
  auto work =
      data | partition(sequential_plan(200)) | read({.readers = GetParam()}) | batch(10) | transfer(cpu_device{});
  std::size_t seen = 0;
  try {
    for (auto& batch : work.epoch(0)) seen += batch.size();
    FAIL() << "samples past the end were read";
  } catch (const error& caught) {
    EXPECT_NE(std::string(caught.what()).find("sample 100 at position 100"), std::string::npos) << caught.what();
  }
  EXPECT_EQ(seen, 100u);
}

struct lazy_bulk {
  std::uint64_t size() const { return 100; }
  auto schema() const { return penstock::schema{field<int>{"x"}}; }
  std::size_t read_range(std::span<const std::uint64_t> indices, const batch_view<penstock::schema<field<int>>>&,
                         const range_context&) const {
    return indices.size() / 2;
  }
};

TEST_P(faults, a_bulk_read_that_gives_too_few_is_an_error) {
  auto work = lazy_bulk{} | partition() | read({.readers = GetParam()}) | batch(10) | transfer(cpu_device{});
  EXPECT_THROW(work.next(), error);
}

struct bulk {
  std::uint64_t size() const { return 100; }
  auto schema() const { return penstock::schema{field<std::uint64_t>{"x"}}; }
  void read_range(std::span<const std::uint64_t> indices,
                  const batch_view<penstock::schema<field<std::uint64_t>>>& to) const {
    for (std::size_t i = 0; i < indices.size(); ++i) std::get<0>(to)[i] = indices[i];
  }
};

TEST_P(faults, a_transform_after_a_bulk_read_names_its_sample) {
  const auto picky = [](const auto& sample) {
    if (std::get<0>(sample)() == 13) throw std::runtime_error("13");
  };
  auto work = bulk{} | partition({.shuffle = shuffle::none}) | read({.readers = GetParam()}, picky) | batch(10) |
              transfer(cpu_device{});
  try {
    for (auto& batch : work.epoch(0)) EXPECT_EQ(batch.step(), 0u);
    FAIL() << "no error";
  } catch (const error& caught) {
    EXPECT_EQ(caught.where().sample, 13u);
  }
}

TEST_P(faults, a_stream_that_fails_to_begin_again_is_an_error_of_ours_and_observers_hear_of_it) {
  auto twice = stream([](std::uint64_t epoch) {
    if (epoch == 1) throw std::runtime_error("no second time");
    return std::views::iota(0, 20);
  });
  auto feed = (twice | partition({.shuffle = shuffle::none}) | read({.readers = GetParam()}) | batch(10) |
               transfer(cpu_device{}))
                  .start();
  struct {
    int errors = 0;
    void on_error(const error_event&) { ++errors; }
  } listener;
  feed.observe(listener);
  std::size_t seen = 0;
  for (auto& batch : feed.epoch(0)) seen += batch.size();
  EXPECT_EQ(seen, 20u);
  try {
    feed.epoch(1);
    FAIL() << "no error";
  } catch (const error& caught) {
    EXPECT_EQ(caught.where().epoch, 1u);
    EXPECT_THROW(caught.rethrow_cause(), std::runtime_error);
  }
  EXPECT_EQ(listener.errors, 1);
  seen = 0;
  for (auto& batch : feed.epoch(0)) seen += batch.size();
  EXPECT_EQ(seen, 20u);
}

TEST_P(faults, padding_fills_a_share_that_is_empty) {
  const auto data = numbers(11);
  auto work = data | partition({.shuffle = shuffle::none, .world = {.rank = 3, .size = 4}}) |
              read({.readers = GetParam()}) | batch({.global = 10, .last = last_batch::pad}) | transfer(cpu_device{});
  std::vector<std::size_t> sizes, rows;
  for (auto& batch : work.epoch(0)) {
    sizes.push_back(batch.size());
    rows.push_back(batch.rows());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 0}));
  EXPECT_EQ(rows, (std::vector<std::size_t>{3, 3}));
}

TEST_P(faults, a_batch_that_was_moved_out_stays_the_one_that_the_iterator_is_at) {
  const auto data = numbers(100);
  auto feed = feed_of(data, GetParam());
  auto range = feed.epoch(0);
  auto it = range.begin();
  ASSERT_FALSE(it == range.end());
  const auto kept = std::move(*it);
  ASSERT_FALSE(it == range.end());
  EXPECT_FALSE(*it);
  ++it;
  EXPECT_EQ((*it).step(), 1u);
  ++it;
  ++it;  // step 2 is passed over unseen
  EXPECT_EQ((*it).step(), 3u);
  EXPECT_EQ(kept.step(), 0u);
}

TEST_P(faults, a_time_out_of_the_longest_kind_is_never) {
  const auto data = numbers(100);
  if (GetParam() == 0) GTEST_SKIP() << "inline reading has no time-out";
  auto work = data | partition() | read({.readers = GetParam(), .timeout = std::chrono::nanoseconds::max()}) |
              batch(10) | transfer(cpu_device{});
  std::size_t seen = 0;
  for (auto& batch : work.epoch(0)) seen += batch.size();
  EXPECT_EQ(seen, 100u);
}

// A dataset whose read of sample 0 waits until it is let go.
struct gated {
  std::shared_ptr<std::latch> go;
  std::shared_ptr<std::latch> begun;

  std::uint64_t size() const { return 100; }
  auto schema() const { return penstock::schema{field<int>{"x"}}; }
  void read(std::uint64_t index, const std::tuple<tensor_view<int, 0>>& to) const {
    if (index == 0) {
      if (!begun->try_wait()) begun->count_down();
      go->wait();
    }
    std::get<0>(to)() = static_cast<int>(index);
  }
};

TEST(faults_of_time, a_restart_that_timed_out_is_not_taken_for_one_that_went_through) {
  const gated data{std::make_shared<std::latch>(1), std::make_shared<std::latch>(1)};
  auto feed = (data | partition({.shuffle = shuffle::none}) |
               read({.readers = 1, .timeout = std::chrono::milliseconds(50)}) | batch(10) | transfer(cpu_device{}))
                  .start();
  auto first = feed.epoch(0);
  data.begun->wait();
  EXPECT_THROW(feed.epoch(1), timeout_error);  // the reader is still in sample 0
  EXPECT_THROW(feed.epoch(0), timeout_error);  // and still
  data.go->count_down();
  std::size_t seen = 0;
  for (bool begun = false; !begun;) {
    try {
      for (auto& batch : feed.epoch(0)) seen += batch.size();
      begun = true;
    } catch (const timeout_error&) {
      seen = 0;  // a slow machine
    }
  }
  EXPECT_EQ(seen, 100u);
}

TEST(faults_of_streams, a_blocked_stream_in_a_shared_pool_holds_one_reader_only) {
  std::latch go(1);
  auto blocked = stream([&] {
    return std::views::iota(0, 100) | std::views::transform([&](int i) {
             if (i >= 10) go.wait();
             return i;
           });
  });
  const auto pool = reader_pool::make(2);
  const auto data = numbers(1000);
  auto first =
      (blocked | partition({.shuffle = shuffle::none}) | read({.shared = pool}) | batch(10) | transfer(cpu_device{}))
          .start();
  auto second = (data | partition() | read({.shared = pool}) | batch(10) | transfer(cpu_device{})).start();
  EXPECT_EQ(first.next().size(), 10u);
  // One reader waits in the stream now or will soon; what is left serves the other feed to its end.
  std::size_t seen = 0;
  for (auto& batch : second.epoch(0)) seen += batch.size();
  EXPECT_EQ(seen, 1000u);
  go.count_down();
  seen = 10;
  while (auto batch = first.next()) seen += batch.size();
  EXPECT_EQ(seen, 100u);
}

TEST_P(faults, what_an_observer_throws_at_the_end_after_a_stop_arrives_and_it_is_told_once) {
  struct ends {
    int* told;
    void on_epoch(epoch_event) const {
      ++*told;
      throw std::runtime_error("disk full");
    }
  };
  std::latch reading(1), stopped(1);
  std::atomic<bool> begun{false}, feed_runs{false};
  const auto data = std::views::iota(0, 100) | std::views::transform([&](int i) {
                      if (begun.exchange(false)) reading.count_down();
                      if (i == 0 && feed_runs) stopped.wait();
                      return i;
                    });
  auto feed = (data | partition({.shuffle = shuffle::none}) | read({.readers = GetParam()}) | batch(10) |
               transfer(cpu_device{}))
                  .start();
  begun = feed_runs = true;  // the schema has been taken from the first element
  int told = 0;
  feed.observe(ends{&told});
  std::thread stopper([&] {
    reading.wait();
    feed.stop();
    stopped.count_down();
  });
  try {
    (void)feed.next();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& caught) {
    EXPECT_NE(std::string(caught.what()).find("disk full"), std::string::npos) << caught.what();
  }
  stopper.join();
  EXPECT_EQ(told, 1);
}

TEST_P(faults, a_hint_does_not_compute_elements_ahead_of_their_turn) {
  // An element that is a reference into somewhere, found by a computation that may fail.
  const std::vector<std::vector<float>> rows(40, {1, 2});
  std::atomic<int> computed{0};
  const auto data = std::views::iota(0, 40) | std::views::transform([&](int i) -> const std::vector<float>& {
                      ++computed;
                      if (i == 17) throw std::runtime_error("row 17 is missing");
                      return rows[static_cast<std::size_t>(i)];
                    });
  auto feed = (data | partition({.shuffle = shuffle::none}) | read({.readers = GetParam(), .next_epoch = false}) |
               batch(40) | transfer(cpu_device{}))
                  .start();
  try {
    (void)feed.next();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const error& caught) {
    EXPECT_EQ(caught.where().sample, 17u);
  }
  EXPECT_LE(computed.load(), 40 + 2) << "once each, and for the schema";
}

}  // namespace
