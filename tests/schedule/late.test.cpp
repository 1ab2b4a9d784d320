// SPDX-License-Identifier: Apache-2.0
// Reads that take long: who tells of them.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/dataset/any_dataset.hpp>
#include <penstock/dataset/split.hpp>
#include <penstock/penstock.hpp>

namespace {

using namespace std::chrono_literals;
using penstock::shuffle;

using numbers_schema = penstock::schema<penstock::field<std::int64_t, 1>>;

/// Opened by the test; all that go through it wait.
struct stuck_at {
  std::uint64_t sample;
  std::shared_ptr<std::latch> entered = std::make_shared<std::latch>(1);
  std::shared_ptr<std::latch> go_on = std::make_shared<std::latch>(1);
};

/// Sample i is i. The first that comes to one of `stuck`, in epoch 0, waits there.
struct numbers {
  std::uint64_t count;
  std::vector<stuck_at> stuck{};
  std::shared_ptr<std::array<std::atomic<int>, 256>> reads = std::make_shared<std::array<std::atomic<int>, 256>>();

  std::uint64_t size() const { return count; }
  numbers_schema schema() const { return numbers_schema{penstock::field<std::int64_t, 1>{"x", {3}}}; }
  penstock::provenance where(std::uint64_t index) const {
    penstock::provenance result;
    result.path = "photo" + std::to_string(index) + ".png";
    return result;
  }
  void read(std::uint64_t index, const penstock::sample_view<numbers_schema>& to,
            penstock::read_context& context) const {
    auto [x] = to;
    x(0) = -1;
    const int before = (*reads)[index].fetch_add(1);
    for (const stuck_at& one : stuck)
      if (one.sample == index && context.epoch == 0 && before == 0) {
        one.entered->count_down();
        one.go_on->wait();
      }
    x(0) = x(1) = static_cast<std::int64_t>(index);
    x(2) = static_cast<std::int64_t>(context.random());
  }
};

bool says(const std::string& message, const std::string& part) { return message.find(part) != std::string::npos; }

template <class Dataset>
auto feed_of(Dataset data, penstock::read_options options) {
  return (std::move(data) | penstock::partition({.shuffle = shuffle::none}) | penstock::read(options) |
          penstock::batch(4) | penstock::transfer(penstock::cpu_device{}, {.depth = 2}))
      .start();
}
template <class Feed>
std::vector<std::array<std::int64_t, 3>> all_of(Feed& feed, std::uint64_t epoch = 0) {
  std::vector<std::array<std::int64_t, 3>> rows;
  for (auto& batch : feed.epoch(epoch)) {
    auto [x] = batch.fields();
    for (std::size_t row = 0; row < batch.size(); ++row) rows.push_back({x(row, 0), x(row, 1), x(row, 2)});
  }
  return rows;
}

struct heard_late {
  std::string message, path;
  std::optional<std::uint64_t> epoch, step, sample;
  std::optional<std::uint32_t> reader;
  std::chrono::nanoseconds waited, reading;
};
/// Opens the latch at the `count`-th warning about its sample; others, on a slow machine, do not count.
struct listener {
  std::vector<heard_late>* heard;
  std::latch* opens;
  std::size_t count;
  std::uint64_t sample;
  void on_late(const penstock::late_event& event) {
    if (event.where.sample != sample) return;
    heard->push_back({std::string(event.message), event.where.path, event.where.epoch, event.where.step,
                      event.where.sample, event.where.reader, event.waited, event.reading});
    if (heard->size() == count) opens->count_down();
  }
};

TEST(late, whoever_waits_is_told_of_stage_reader_step_sample_path_and_time_again_and_again) {
  for (int readers : {1, 3}) {
    const stuck_at here{9};
    auto feed = feed_of(numbers{23, {here}}, {.readers = readers, .timeout = 10min, .warn_after = 4ms});
    std::vector<heard_late> heard;
    feed.observe(listener{&heard, here.go_on.get(), 3, 9});
    EXPECT_EQ(all_of(feed).size(), 23U);  // three warnings let it go on
    ASSERT_GE(heard.size(), 3U);
    for (const heard_late& one : heard) {
      EXPECT_EQ(one.epoch, 0U);
      EXPECT_EQ(one.step, 2U);
      EXPECT_EQ(one.path, "photo9.png");
      ASSERT_TRUE(one.reader);
      EXPECT_LT(*one.reader, static_cast<std::uint32_t>(readers));
      EXPECT_TRUE(says(one.message, "read: epoch 0, step 2, sample 9, photo9.png: no batch has come for"))
          << one.message;
      EXPECT_TRUE(says(one.message, "reads sample 9 of step 2")) << one.message;
      EXPECT_GE(one.waited, 4ms);
    }
    EXPECT_GE(heard[2].waited, 16ms);  // 4, 8, 16
    EXPECT_GE(heard[2].reading, 1ms);
    EXPECT_LE(heard[2].reading, heard[2].waited);
    EXPECT_TRUE(says(heard[2].message, " or more")) << heard[2].message;
  }
}

TEST(late, without_a_listener_it_is_a_line_on_standard_error_and_then_the_time_out_says_path_and_time) {
  const stuck_at stuck{9};
  testing::internal::CaptureStderr();
  {
    auto feed =
        feed_of(numbers{23, {stuck}}, {.readers = 2, .timeout = 100ms, .first_timeout = 1min, .warn_after = 2ms});
    std::uint64_t batches = 0;
    feed.observe([&](const penstock::batch_event&) { ++batches; });  // hears nothing of it
    try {
      all_of(feed);
      FAIL() << "no time-out";
    } catch (const penstock::timeout_error& caught) {
      EXPECT_EQ(caught.where().path, "photo9.png");
      EXPECT_EQ(caught.where().sample, 9U);
      EXPECT_TRUE(says(caught.what(), "reads sample 9 of step 2, for ")) << caught.what();
    }
    EXPECT_EQ(batches, 2U);
    // To begin anew takes the same reader, which the error names.
    try {
      all_of(feed);
      FAIL() << "no time-out";
    } catch (const penstock::timeout_error& caught) {
      EXPECT_EQ(caught.where().path, "photo9.png");
      EXPECT_EQ(caught.where().step, 2U);
    }
    stuck.go_on->count_down();
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(lines, "penstock: read: epoch 0, step 2, sample 9, photo9.png: no batch has come for ")) << lines;
  EXPECT_TRUE(says(lines, "to begin anew, the feed waits for a reader for ")) << lines;
}

TEST(late, of_several_ranks_the_warning_says_whose_it_is) {
  const stuck_at stuck{10};
  auto feed = (numbers{23, {stuck}} | penstock::partition({.shuffle = shuffle::none, .world = {.rank = 1, .size = 2}}) |
               penstock::read({.readers = 1, .timeout = 1min, .warn_after = 2ms}) | penstock::batch(2) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::vector<heard_late> heard;
  feed.observe(listener{&heard, stuck.go_on.get(), 1, 10});
  for (auto& batch : feed.epoch(0)) (void)batch;
  if (stuck.entered->try_wait()) {
    ASSERT_FALSE(heard.empty());
    EXPECT_TRUE(says(heard[0].message, "rank 1: no batch has come")) << heard[0].message;
  } else {
    FAIL() << "sample 10 is another rank's";
  }
}

TEST(late, what_a_listener_throws_reaches_the_loop) {
  const stuck_at stuck{0};
  auto feed = feed_of(numbers{23, {stuck}}, {.readers = 1, .timeout = 1min, .warn_after = 1ms});
  struct thrower {
    std::latch* opens;
    void on_late(const penstock::late_event&) {
      opens->count_down();
      throw std::runtime_error("I have had enough");
    }
  };
  feed.observe(thrower{stuck.go_on.get()});
  EXPECT_THROW(all_of(feed), std::runtime_error);
}

TEST(late, the_path_goes_through_what_wraps_a_dataset_and_into_errors_of_any_kind) {
  struct broken : numbers {
    void read(std::uint64_t index, const penstock::sample_view<numbers_schema>& to,
              penstock::read_context& context) const {
      if (index == 9) throw std::runtime_error("no format of ours");
      numbers::read(index, to, context);
    }
  };
  const broken data{{23}};
  const auto path_of = [](auto from, penstock::read_options options) {
    auto feed = feed_of(std::move(from), options);
    try {
      all_of(feed);
    } catch (const penstock::error& caught) {
      return caught.where().path;
    }
    return feed.faults().empty() ? std::string("none") : feed.faults()[0].where.path;
  };
  EXPECT_EQ(path_of(data, {.readers = 2}), "photo9.png");
  EXPECT_EQ(path_of(penstock::any_dataset<numbers_schema>(data), {.readers = 2}), "photo9.png");
  EXPECT_EQ(path_of(data, {.readers = 2, .bad = penstock::bad_samples::skip}), "photo9.png");
  EXPECT_EQ(path_of(data, {.readers = 2, .bad = penstock::bad_samples::substitute}), "photo9.png");
  auto parts = penstock::split(data, {.validation = 0});
  EXPECT_EQ(path_of(parts.train, {.readers = 2}), "photo9.png");
}

TEST(late, warn_after_is_checked_before_anything_starts) {
  const numbers data{23};
  const auto refused = [&](penstock::read_options options) {
    try {
      feed_of(data, options);
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({.readers = 1, .warn_after = 0ns}), "accepted");
  EXPECT_TRUE(says(refused({.readers = 1, .warn_after = -1ns}), "warn_after is -1 ns, wanted more than 0"));
  EXPECT_TRUE(
      says(refused({.readers = 1, .timeout = 1s, .warn_after = 1s}), "wanted less than timeout, 1000000000 ns"));
  EXPECT_TRUE(says(refused({.readers = 0, .warn_after = 1s}), "as readers is 0"));
}

}  // namespace
