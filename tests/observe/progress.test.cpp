// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/progress.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace std::chrono_literals;

std::chrono::steady_clock::time_point now{};
std::chrono::steady_clock::time_point modelled_clock() { return now; }

/// A bar that writes to a file, and a run of batches of 256 samples that moves the clock.
class progress_bar : public testing::Test {
 protected:
  void SetUp() override {
    now = std::chrono::steady_clock::time_point{1h};
    file_ = std::tmpfile();
    ASSERT_NE(file_, nullptr);
  }
  void TearDown() override { std::fclose(file_); }

  penstock::progress_options plain() const { return {.stream = file_, .clock = &modelled_clock}; }
  penstock::progress_options terminal(std::size_t width) const {
    return {.stream = file_, .terminal = true, .width = width, .clock = &modelled_clock};
  }

  static void batches(penstock::progress_bar& bar, std::uint64_t first, std::uint64_t count,
                      std::chrono::nanoseconds each, std::chrono::nanoseconds wait = 0ns) {
    for (std::uint64_t step = first; step < first + count; ++step) {
      now += wait;
      bar.on_batch({.step = step, .samples = 256, .wait = wait});
      bar.on_metric({.name = "loss", .value = 1.0 / static_cast<double>(step + 1), .step = step});
      now += each;
    }
  }

  std::string written() const {
    std::string text;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }

  /// What a terminal has shown, one state after another.
  std::vector<std::string> shown() const {
    std::vector<std::string> states;
    for (const char c : written()) {
      if (c == '\r' || states.empty()) states.emplace_back();
      if (c != '\r') states.back() += c;
    }
    return states;
  }

  static bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

  std::FILE* file_ = nullptr;
};

// PRG-1
TEST_F(progress_bar, PRG_1_a_file_gets_one_plain_line_per_interval_and_one_at_the_end) {
  penstock::progress_bar bar(plain());
  bar.on_begin({.epochs = 1, .steps_per_epoch = 10'000});
  batches(bar, 0, 10'000, 9900us, 100us);  // 100 s
  bar.on_epoch({.steps = 10'000});
  bar.on_end({"done"});
  const std::string text = written();
  EXPECT_EQ(std::count_if(text.begin(), text.end(), [](char c) { return c < 0x20 && c != '\n'; }), 0) << text;
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 10) << text;
  EXPECT_LE(lines, 11) << text;
  EXPECT_TRUE(has(text,
                  "done:  epoch 1/1  step 10000/10000  100%  25.6k samples/s  100 batches/s  loss 0.0001  wait 1%  "
                  "in 1:40\n"))
      << text;
}

TEST_F(progress_bar, a_short_run_in_a_file_is_one_line) {
  penstock::progress_bar bar(plain());
  bar.on_begin({.epochs = 1, .steps_per_epoch = 10});
  batches(bar, 0, 10, 1ms);
  bar.on_epoch({.steps = 10});
  bar.on_end({"done"});
  const std::string text = written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST_F(progress_bar, a_terminal_gets_one_line_redrawn_at_most_once_per_interval) {
  penstock::progress_bar bar(terminal(200));
  bar.on_begin({.epochs = 1, .steps_per_epoch = 1000});
  batches(bar, 0, 1000, 10ms);  // 10 s: 100 intervals
  bar.on_epoch({.steps = 1000});
  bar.on_end({"done"});
  const std::string text = written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
  const auto redrawn = std::count(text.begin(), text.end(), '\r');
  EXPECT_GE(redrawn, 90);
  EXPECT_LE(redrawn, 102);
  EXPECT_TRUE(has(shown()[50], "50%  [##########----------]")) << shown()[50];
}

// PRG-2
TEST_F(progress_bar, PRG_2_a_huge_total_is_shown_as_days_left) {
  penstock::progress_bar bar(terminal(200));
  bar.on_begin({.epochs = 1, .steps_per_epoch = 1'000'000'000'000});
  batches(bar, 0, 3, 1s);
  EXPECT_TRUE(has(shown().back(), "  0%  ")) << shown().back();
  EXPECT_TRUE(has(shown().back(), "11574074d left")) << shown().back();
}

// PRG-4
TEST_F(progress_bar, PRG_4_after_a_resume_the_bar_starts_at_10_percent_and_the_time_left_is_right) {
  penstock::progress_bar bar(terminal(200));
  bar.on_begin({.epochs = 1, .steps_per_epoch = 1351, .first_step = 130});
  EXPECT_TRUE(has(shown().back(), "step 130/1351  10%")) << shown().back();
  batches(bar, 130, 10, 100ms);
  EXPECT_TRUE(has(shown().back(), "2:01 left")) << shown().back();
}

class progress_bar_of_width : public progress_bar, public testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(widths, progress_bar_of_width, testing::Values(1, 2, 5, 11, 20, 40, 60, 80, 100, 120));

TEST_P(progress_bar_of_width, leaves_the_last_column_free_and_covers_what_it_replaces) {
  penstock::progress_bar bar(terminal(GetParam()));
  bar.on_begin({.epochs = 1, .steps_per_epoch = 2000, .first_step = 1000});
  bar.on_metric({.name = "größe", .value = 1.5});
  batches(bar, 1000, 200, 50ms);
  bar.on_end({"stopped"});
  std::size_t before = 0;
  for (auto state : shown()) {
    if (state.ends_with('\n')) state.pop_back();
    const std::size_t characters = penstock::detail::count_characters(state);
    EXPECT_LT(characters, GetParam()) << state;
    EXPECT_GE(characters, before) << state;
    before = penstock::detail::count_characters(state.substr(0, state.find_last_not_of(' ') + 1));
  }
}

TEST_F(progress_bar, a_narrow_terminal_keeps_what_matters_most) {
  penstock::progress_bar bar(terminal(24));
  bar.on_begin({.epochs = 1, .steps_per_epoch = 100});
  batches(bar, 0, 51, 1s);
  EXPECT_EQ(shown().back(), "50%  0:50 left");
}

TEST_F(progress_bar, a_run_without_totals_shows_counts_and_speeds) {
  penstock::progress_bar bar(terminal(200));
  bar.on_begin({});
  batches(bar, 0, 11, 150ms, 50ms);
  EXPECT_EQ(shown().back().substr(0, 71), "epoch 1  step 10  1.28k samples/s  5.00 batches/s  loss 0.1  wait 25%  ")
      << shown().back();
}

TEST_F(progress_bar, options_give_totals_that_the_feed_cannot_know) {
  penstock::progress_options options = terminal(200);
  options.epochs = 10;
  options.steps_per_epoch = 50;
  penstock::progress_bar bar(options);
  batches(bar, 0, 26, 1s);
  EXPECT_TRUE(has(shown().back(), "epoch 1/10  step 25/50  5%")) << shown().back();
}

TEST_F(progress_bar, a_terminal_keeps_a_line_per_epoch_in_a_loop_of_ones_own) {
  penstock::progress_bar bar(terminal(200));
  bar.on_begin({.steps_per_epoch = 10});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::uint64_t step = 0; step < 10; ++step) {
      bar.on_batch({.epoch = epoch, .step = step, .samples = 1});
      now += 1ms;
    }
    bar.on_epoch({.epoch = epoch, .steps = 10});
  }
  const std::string text = written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_TRUE(has(text, "epoch 3  step 10/10  100%")) << text;
}

TEST_F(progress_bar, says_how_the_run_ended_once) {
  penstock::progress_bar bar(plain());
  bar.on_begin({.epochs = 2, .steps_per_epoch = 10});
  batches(bar, 0, 3, 1s);
  bar.on_error({.message = "no such file"});
  bar.on_end({"error"});
  EXPECT_EQ(written().substr(0, 33), "error:  epoch 1/2  step 2/10  10%") << written();
  EXPECT_EQ(written().find('\n'), written().size() - 1);
}

TEST_F(progress_bar, a_metrics_name_cannot_break_the_line) {
  penstock::progress_bar bar(plain());
  bar.on_begin({});
  bar.on_metric({.name = "a\r\nb", .value = std::numeric_limits<double>::quiet_NaN()});
  bar.on_end({"done"});
  EXPECT_TRUE(has(written(), "a??b nan")) << written();
}

TEST_F(progress_bar, numbers_do_not_follow_the_locale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr && std::setlocale(LC_ALL, "de_DE.utf8") == nullptr &&
      std::setlocale(LC_ALL, "fr_FR.UTF-8") == nullptr) {
    GTEST_SKIP() << "no locale with a decimal comma (de_DE.UTF-8, fr_FR.UTF-8) is installed";
  }
  penstock::progress_bar bar(plain());
  bar.on_begin({.epochs = 1, .steps_per_epoch = 100'000});
  batches(bar, 0, 1001, 30ms);
  bar.on_end({"stopped"});
  std::setlocale(LC_ALL, before.c_str());
  EXPECT_FALSE(has(written(), ",")) << written();
  EXPECT_TRUE(has(written(), "33.3 batches/s")) << written();
}

TEST_F(progress_bar, refuses_bad_options) {
  EXPECT_THROW(penstock::progress_bar({.stream = nullptr}), std::invalid_argument);
  EXPECT_THROW(penstock::progress_bar({.stream = file_, .clock = nullptr}), std::invalid_argument);
  EXPECT_THROW(penstock::progress_bar({.stream = file_, .interval = -1ns}), std::invalid_argument);
  EXPECT_THROW(penstock::progress_bar({.stream = file_, .memory = 0s}), std::invalid_argument);
}

}  // namespace
