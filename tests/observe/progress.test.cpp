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
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
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
    return {.stream = file_,
            .terminal = true,
            .width = width,
            .curve = penstock::curve_style::none,
            .clock = &modelled_clock};
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
                  "bound by compute  in 1:40\n"))
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

TEST_F(progress_bar, a_terminal_shows_each_metrics_course_over_the_whole_run) {
  penstock::progress_options options = terminal(200);
  options.curve = penstock::curve_style::blocks;
  penstock::progress_bar bar(options);
  bar.on_begin({.epochs = 1, .steps_per_epoch = 800});
  for (std::uint64_t step = 0; step < 800; ++step) {
    bar.on_batch({.step = step, .samples = 256});
    bar.on_metric({.name = "loss", .value = 800.0 - static_cast<double>(step), .step = step});
    bar.on_metric({.name = "accuracy", .value = static_cast<double>(step), .step = step});
    now += 100ms;
  }
  bar.on_end({"done"});
  EXPECT_TRUE(has(shown().back(), "loss 1 █▇▆▅▄▃▂▁  accuracy 799 ▁▂▃▄▅▆▇█  ")) << shown().back();
}

TEST_F(progress_bar, a_file_gets_no_curve_unless_asked) {
  for (const bool asked : {false, true}) {
    penstock::progress_options options = plain();
    if (asked) options.curve = penstock::curve_style::ascii;
    penstock::progress_bar bar(options);
    bar.on_begin({});
    batches(bar, 0, 3, 1s);
    bar.on_end({"done"});
    EXPECT_EQ(has(written(), "loss 0.3333 ^._"), asked) << written();
  }
}

TEST_F(progress_bar, drops_bar_then_curves_then_what_bounds_then_metrics_from_the_last) {
  for (const auto& [width, gone, kept] : {std::tuple{140U, "[", "first 2 ---"},
                                          {120U, "---", "bound by compute"},
                                          {105U, "bound", "batches/s"},
                                          {70U, "samples/s", "first 2"},
                                          {55U, "loss", "first 2"},
                                          {45U, "first", "step"}}) {
    penstock::progress_options options = terminal(width);
    options.curve = penstock::curve_style::ascii;
    penstock::progress_bar bar(options);
    bar.on_begin({.epochs = 1, .steps_per_epoch = 100});
    for (std::uint64_t step = 0; step < 3; ++step) bar.on_metric({.name = "first", .value = 2});
    batches(bar, 0, 3, 1s);
    bar.on_batch({.step = 3, .samples = 256});
    EXPECT_FALSE(has(shown().back(), gone)) << width << ": " << shown().back();
    EXPECT_TRUE(has(shown().back(), kept)) << width << ": " << shown().back();
  }
}

TEST_F(progress_bar, says_which_side_bounds_the_run) {
  for (const auto& [wait, words] : {std::pair{10ms, "wait 1%  bound by compute"}, {250ms, "wait 20%  bound by data"}}) {
    penstock::progress_bar bar(terminal(200));
    bar.on_begin({});
    batches(bar, 0, 20, 1s, wait);
    EXPECT_TRUE(has(shown().back(), words)) << shown().back();
    bar.on_end({"done"});
  }
}

std::vector<penstock::sample_fault> three_faults() {
  return {{.sample = 3, .where = {.path = "a.png", .position = "byte 8"}, .problem = "bad checksum"},
          {.sample = 5, .substitute = 6, .problem = "cut\noff"},
          {.sample = 9, .problem = "empty"}};
}

TEST_F(progress_bar, counts_samples_that_could_not_be_read_and_names_the_first) {
  penstock::progress_options options = plain();
  options.most_faults = 2;
  penstock::progress_bar bar(options);
  bar.on_begin({.epochs = 2, .steps_per_epoch = 4});
  batches(bar, 0, 4, 1ms);
  const auto faults = three_faults();
  bar.on_epoch({.steps = 4, .faults = faults});
  EXPECT_EQ(written(),
            "epoch 1: 3 samples could not be read; the first 2:\n"
            "  sample 3, a.png, byte 8: bad checksum\n"
            "  sample 5, cut?off; sample 6 was read in its place\n");
}

TEST_F(progress_bar, on_a_terminal_faults_are_lines_of_their_own_behind_which_the_bar_goes_on) {
  penstock::progress_bar bar(terminal(60));
  bar.on_begin({.epochs = 2, .steps_per_epoch = 4});
  batches(bar, 0, 4, 1s);
  const auto faults = three_faults();
  bar.on_epoch({.steps = 4, .faults = std::span(faults).first(1)});
  batches(bar, 4, 2, 1s);
  const std::string text = written();
  EXPECT_TRUE(has(text, "\repoch 1: 1 sample could not be read:\n  sample 3, a.png, byte 8: bad checksum\n\repoch 1/2"))
      << text;
  EXPECT_FALSE(has(text, "   epoch 1: 1")) << "the line before is covered, not added to";
}

TEST_F(progress_bar, of_several_replicas_rank_0_is_shown) {
  const auto faults = three_faults();
  for (const std::uint64_t rank : {1, 0}) {
    penstock::progress_options options = plain();
    options.rank = rank;
    options.ranks = 2;
    penstock::progress_bar bar(options);
    bar.on_begin({});
    batches(bar, 0, 3, 1s);
    bar.on_epoch({.faults = faults});
    bar.on_end({"done"});
    EXPECT_EQ(written().starts_with("epoch 1: 3 samples"), rank == 0) << written();
    EXPECT_EQ(written().empty(), rank == 1);
  }
}

// PRG-1
TEST_F(progress_bar, PRG_1_all_ranks_write_plain_lines_with_their_rank_on_a_terminal_too) {
  penstock::progress_options options = terminal(60);
  options.ranks = 3;
  options.all_ranks = true;
  options.interval = 1s;
  std::vector<penstock::progress_bar> bars;
  for (options.rank = 0; options.rank < 3; ++options.rank) bars.emplace_back(options);
  for (auto& bar : bars) bar.on_begin({.epochs = 1, .steps_per_epoch = 10});
  for (std::uint64_t step = 0; step < 10; ++step) {
    for (auto& bar : bars) bar.on_batch({.step = step, .samples = 4});
    now += 400ms;
  }
  const auto faults = three_faults();
  bars[2].on_epoch({.steps = 10, .faults = faults});
  for (auto& bar : bars) bar.on_end({"done"});
  const std::string text = written();
  EXPECT_EQ(text.find('\r'), text.npos) << text;
  std::size_t lines = 0;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1, ++lines) {
    EXPECT_EQ(text.compare(at, 5, "rank "), 0) << text.substr(at);
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_TRUE(line.size() <= 60 || has(line, "sample ")) << line;
  }
  EXPECT_TRUE(has(text, "rank 1/3  done:  epoch 1/1  step 9/10")) << text;
  EXPECT_TRUE(has(text, "rank 2/3    sample 9, empty\n")) << text;
  EXPECT_LE(lines, 3U * 4 + 4 + 1);
}

TEST_F(progress_bar, refuses_bad_options) {
  EXPECT_THROW(penstock::progress_bar({.stream = file_, .rank = 1}), std::invalid_argument);
  EXPECT_THROW(penstock::progress_bar({.stream = nullptr}), std::invalid_argument);
  EXPECT_THROW(penstock::progress_bar({.stream = file_, .clock = nullptr}), std::invalid_argument);
  EXPECT_THROW(penstock::progress_bar({.stream = file_, .interval = -1ns}), std::invalid_argument);
  EXPECT_THROW(penstock::progress_bar({.stream = file_, .memory = 0s}), std::invalid_argument);
}

}  // namespace
