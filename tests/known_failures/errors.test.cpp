// SPDX-License-Identifier: Apache-2.0
// Errors that cross threads.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support.hpp"

namespace {

using namespace known_failures;

constexpr std::uint64_t bad = 123;

// Not a std::exception, no constructor from a string, a member that only moves.
struct bad_row {
  std::uint64_t row;
  std::unique_ptr<std::string> file;
};
[[noreturn]] void throw_bad_row(std::uint64_t row) { throw bad_row{row, std::make_unique<std::string>("rows.bin")}; }

struct bad_read {
  void operator()(std::uint64_t index) const {
    if (index == bad) throw_bad_row(index);
  }
};

// The same from a dataset that is read in bulk, one whose readers have states, and one that serves one reader at a
// time.
struct bad_bulk : numbers<> {
  void read_range(std::span<const std::uint64_t> indices, const auto& to) const {
    for (std::size_t row = 0; row < indices.size(); ++row) {
      if (indices[row] == bad) throw_bad_row(bad);
      std::get<0>(to)[row] = indices[row];
    }
  }
};
struct bad_opened : numbers<> {
  auto open() const { return numbers<bad_read>{n, {}}; }
};
struct bad_serial : numbers<bad_read> {
  static constexpr bool serial = true;
};

template <class Feed>
void expect_bad_row(Feed feed, bool exact_sample) {
  std::vector<std::uint64_t> delivered;
  try {
    for (auto& batch : feed.epoch(0)) {
      const auto more = numbers_of(batch);
      delivered.insert(delivered.end(), more.begin(), more.end());
    }
    FAIL() << "nothing was thrown";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().stage, "read");
    EXPECT_EQ(caught.where().epoch, 0u);
    EXPECT_EQ(caught.where().step, bad / 10);
    ASSERT_TRUE(caught.where().sample.has_value());
    if (exact_sample) {
      EXPECT_EQ(caught.where().sample, bad);
    }
    const std::string_view what = caught.what();
    EXPECT_NE(what.find("read: epoch 0, step 12, sample 12"), what.npos) << what;
    try {
      caught.rethrow_cause();
      FAIL() << "no cause";
    } catch (const bad_row& cause) {
      EXPECT_EQ(cause.row, bad);
      ASSERT_TRUE(cause.file);
      EXPECT_EQ(*cause.file, "rows.bin");
    }
  }
  // What was before it came first, whole.
  EXPECT_EQ(delivered, first_numbers(bad / 10 * 10));
}

class errors_of_readers : public testing::TestWithParam<int> {
 protected:
  template <class Dataset>
  auto feed_of(Dataset data) const {
    return (std::move(data) | penstock::partition({.shuffle = penstock::shuffle::none}) |
            penstock::read({.readers = GetParam()}) | penstock::batch(10) | penstock::transfer(penstock::cpu_device{}))
        .start();
  }
};
INSTANTIATE_TEST_SUITE_P(known_failures, errors_of_readers, testing::Values(0, 1, 4, 8));

TEST_P(errors_of_readers, ERR_1_the_original_object_arrives_whole_with_stage_and_row) {
  const hang_limit limit;
  expect_bad_row(feed_of(numbers{1000, bad_read{}}), true);
  expect_bad_row(feed_of(bad_opened{{1000}}), true);
  expect_bad_row(feed_of(bad_serial{{1000}}), true);
  expect_bad_row(feed_of(bad_bulk{{1000}}), false);
}

TEST_P(errors_of_readers, ERR_1_the_reader_is_named_where_it_is_a_thread) {
  const hang_limit limit;
  auto feed = feed_of(numbers{1000, bad_read{}});
  try {
    (void)all_of(feed.epoch(0));
    FAIL() << "nothing was thrown";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().reader.has_value(), GetParam() > 0);
    EXPECT_LT(caught.where().reader.value_or(0), 8u);
  }
}

TEST_P(errors_of_readers, ERR_1_the_same_from_a_transform) {
  const hang_limit limit;
  const auto transform = [](const auto& sample) {
    const std::uint64_t number = *std::get<0>(sample).data();
    if (number == bad) throw_bad_row(number);
  };
  expect_bad_row((numbers<>{1000} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                  penstock::read({.readers = GetParam()}, transform) | penstock::batch(10) |
                  penstock::transfer(penstock::cpu_device{}))
                     .start(),
                 true);
}

TEST_P(errors_of_readers, ERR_1_the_same_from_a_stream) {
  const hang_limit limit;
  const auto rows = penstock::stream([] {
    return std::views::iota(std::uint64_t{0}, std::uint64_t{1000}) | std::views::transform([](std::uint64_t number) {
             if (number == bad) throw_bad_row(number);
             return number;
           });
  });
  expect_bad_row(
      (rows | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = GetParam()}) |
       penstock::batch(10) | penstock::transfer(penstock::cpu_device{}))
          .start(),
      true);
}

struct cannot_open : numbers<> {
  numbers<> open() const { throw bad_row{7, std::make_unique<std::string>("rows.bin")}; }
};

TEST_P(errors_of_readers, ERR_1_a_reader_that_cannot_open_says_why) {
  const hang_limit limit;
  auto feed = feed_of(cannot_open{{1000}});
  try {
    (void)all_of(feed.epoch(0));
    FAIL() << "nothing was thrown";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().stage, "read");
    EXPECT_EQ(caught.where().step, 0u);
    EXPECT_THROW(caught.rethrow_cause(), bad_row);
  }
}

struct knows_where {
  void operator()(std::uint64_t index) const {
    if (index == bad)
      throw penstock::error("found \"abc\", wanted a number", {.path = "rows.csv", .position = "line 125"});
  }
};

TEST_P(errors_of_readers, ERR_1_what_a_file_format_says_of_the_place_is_kept) {
  const hang_limit limit;
  auto feed = feed_of(numbers{1000, knows_where{}});
  try {
    (void)all_of(feed.epoch(2));
    FAIL() << "nothing was thrown";
  } catch (const penstock::error& caught) {
    EXPECT_STREQ(caught.what(),
                 "read: epoch 2, step 12, sample 123, rows.csv, line 125: found \"abc\", wanted a number");
  }
}

// All readers throw at once, each at a row of its own.
TEST(known_failures, ERR_5_of_eight_throws_at_once_the_lowest_row_arrives_and_the_rest_is_counted) {
  const hang_limit limit;
  std::barrier<> together(8);
  auto hook = [&](std::uint64_t index) {
    if (index >= 8) return;
    together.arrive_and_wait();
    throw std::runtime_error("row " + std::to_string(index));
  };
  auto feed = (numbers{800, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = 8}) | penstock::batch(8) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::vector<std::string> told;
  struct listener {
    std::vector<std::string>* told;
    void on_error(const penstock::error_event& event) { told->emplace_back(event.message); }
  };
  feed.observe(listener{&told});
  try {
    (void)feed.next();
    FAIL() << "nothing was thrown";
  } catch (const penstock::error& caught) {
    EXPECT_STREQ(caught.what(), "read: epoch 0, step 0, sample 0: row 0 (and 7 more in this batch)");
    EXPECT_THROW(caught.rethrow_cause(), std::runtime_error);
  }
  EXPECT_EQ(told.size(), 1u);
}

TEST(known_failures, ERR_5_of_throws_in_many_steps_the_first_step_s_arrives) {
  const hang_limit limit;
  for (int repetition = 0; repetition < 50; ++repetition) {
    auto hook = [](std::uint64_t index) {
      if (index >= 20) throw std::runtime_error("row " + std::to_string(index));
    };
    auto feed =
        (numbers{800, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
         penstock::read({.readers = 8}) | penstock::batch(8) | penstock::transfer(penstock::cpu_device{}, {.depth = 8}))
            .start();
    EXPECT_EQ(numbers_of(feed.next()).front(), 0u);
    EXPECT_EQ(numbers_of(feed.next()).front(), 8u);
    try {
      (void)feed.next();
      FAIL() << "nothing was thrown";
    } catch (const penstock::error& caught) {
      EXPECT_EQ(caught.where().step, 2u);
      EXPECT_EQ(caught.where().sample, 20u);
    }
  }
}

}  // namespace
