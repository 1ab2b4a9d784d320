// SPDX-License-Identifier: Apache-2.0
// Several replicas train as one does, and example 08 as example 01 does. (How their runs end, trainer_endings.cpp has.)
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stop_token>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "curve_data.hpp"
#include "program.hpp"
#include "train.hpp"

namespace {

using namespace trainer;
using program_test::content;
using program_test::curve_data;
using program_test::lines_of;
using program_test::program;
using program_test::temporary_directory;

class trainer_replicas : public testing::Test {
 protected:
  settings options(const std::string& folder, int replicas, std::int64_t batch = 64) const {
    settings s;
    s.device = "cpu";
    s.target = "y";
    s.width = 8;
    s.epochs = 4;
    s.patience = 0;
    s.batch = batch;
    s.readers = 2;
    s.replicas = replicas;
    s.timeout = 60;
    s.out = where / folder;
    return s;
  }
  static parts data(std::function<void(std::uint64_t)> hook = [](std::uint64_t) {}, std::uint64_t bad = 0) {
    return {curve_data{.first = 0, .count = 1000, .hook = std::move(hook), .bad = bad},
            curve_data{.first = 1000, .count = 201}, curve_data{.first = 2000, .count = 200}};
  }
  static checkpoint last(const settings& s) { return load(s.out + "/last.ckpt"); }
  static void expect_same_curve(const checkpoint& found, const checkpoint& wanted) {
    EXPECT_EQ(found.network.steps, wanted.network.steps);
    EXPECT_EQ(found.feed, wanted.feed);
    EXPECT_EQ(found.seen, wanted.seen);
    EXPECT_EQ(found.inputs.mean, wanted.inputs.mean);
    ASSERT_EQ(found.training.size(), wanted.training.size());
    ASSERT_EQ(found.validation.size(), wanted.validation.size());
    for (std::size_t i = 0; i < wanted.training.size(); ++i) {
      EXPECT_NEAR(found.training[i], wanted.training[i], 1e-4 * wanted.training[i]) << "epoch " << i;
      EXPECT_NEAR(found.validation[i], wanted.validation[i], 1e-4 * wanted.validation[i]) << "epoch " << i;
    }
    EXPECT_LE((found.network.parameters - wanted.network.parameters).norm(), 1e-3 * wanted.network.parameters.norm());
  }
  static void expect_same_bits(const settings& one, const settings& other) {
    for (const char* file : {"/last.ckpt", "/best.ckpt", "/loss.svg"})
      EXPECT_TRUE(content(one.out + file) == content(other.out + file)) << other.out << file;
  }
  temporary_directory where;
};

// Also where shares differ, and where in some steps there is a rank without a sample.
TEST_F(trainer_replicas, curves_are_those_of_one_and_repeated_runs_are_equal_to_the_bit) {
  for (const std::int64_t batch : {64, 3}) {
    const std::string size = std::to_string(batch);
    const settings one = options("one" + size, 1, batch);
    ASSERT_EQ(train(one, {}, data(), {}), ending::done);
    for (const int n : {2, 3, 4}) {
      const settings several = options(size + "_" + std::to_string(n), n, batch);
      settings again = options(size + "_again" + std::to_string(n), n, batch);
      again.readers = 0;
      ASSERT_EQ(train(several, {}, data(), {}), ending::done);
      ASSERT_EQ(train(again, {}, data(), {}), ending::done);
      expect_same_curve(last(several), last(one));
      expect_same_bits(several, again);
    }
  }
}

TEST_F(trainer_replicas, a_run_that_was_stopped_goes_on_with_any_number) {
  const settings whole = options("whole", 1);
  ASSERT_EQ(train(whole, {}, data(), {}), ending::done);
  for (const int before : {1, 2, 3}) {
    std::stop_source stop;
    const std::uint64_t in_second_epoch = (before + 1) * 1000 + 500;
    const settings s = options("from" + std::to_string(before), before);
    ASSERT_EQ(train(s, {}, data([&](std::uint64_t reads) {
                      if (reads == in_second_epoch) stop.request_stop();
                    }),
                    stop.get_token()),
              ending::interrupted);
    EXPECT_GT(last(s).network.steps, 16U);
    EXPECT_LT(last(s).network.steps, 32U);
    for (const int after : {1, 2, 4}) {
      settings rest = options(std::to_string(before) + "to" + std::to_string(after), after);
      rest.resume = s.out + "/last.ckpt";
      ASSERT_EQ(train(rest, load(rest.resume), data(), {}), ending::done);
      expect_same_curve(last(rest), last(whole));
    }
  }
}

TEST_F(trainer_replicas, a_bad_sample_of_one_ends_all_at_the_step_before) {
  for (const int n : {1, 2, 3}) {
    const settings s = options(std::to_string(n), n);
    ASSERT_EQ(train(s, {}, data([](std::uint64_t) {}, (n + 1) * 1000 + 500), {}), ending::not_a_number);
    EXPECT_GT(last(s).network.steps, 16U);
    EXPECT_LT(last(s).network.steps, 32U);
    EXPECT_TRUE(last(s).network.parameters.allFinite());
  }
}

TEST_F(trainer_replicas, a_failure_names_the_rank_and_its_cause) {
  for (const int n : {2, 3}) {
    const settings s = options(std::to_string(n), n);
    testing::internal::CaptureStderr();
    const ending how = train(s, {}, data([n](std::uint64_t reads) {
                               if (reads == (n + 1U) * 1000 + 500) throw std::runtime_error("the sample is gone");
                             }),
                             {});
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_EQ(how, ending::error);
    EXPECT_NE(told.find("error: "), told.npos) << told;
    EXPECT_NE(told.find("epoch 1, step "), told.npos) << told;
    EXPECT_NE(told.find(" failed: "), told.npos) << told;
    EXPECT_NE(told.find("the sample is gone"), told.npos) << told;
    EXPECT_EQ(told.find("the sample is gone"), told.rfind("the sample is gone")) << "told once: " << told;
  }
}

class trainer_replicas_program : public trainer_replicas {
 protected:
  std::vector<std::string> arguments(const std::string& folder, std::vector<std::string> more) const {
    std::string text = "a,y\n";
    for (int i = 0; i < 500; ++i) text += std::to_string(i % 83) + "," + std::to_string(i % 83 * (i % 83)) + "\n";
    program_test::write(where / "table.csv", text);
    std::vector<std::string> all{
        PENSTOCK_TRAINER, "--device", "cpu",   "--data",      where / "table.csv", "--target", "y", "--patience", "0",
        "--width",        "8",        "--out", where / folder};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(trainer_replicas_program, a_signal_and_then_resumed_to_the_unbroken_runs_end) {
  program whole(arguments("whole", {"--replicas", "2", "--epochs", "12000"}));
  ASSERT_EQ(whole.finish(), 0) << whole.text();
  const program_test::folder_watch saved(where / "run");
  program run(arguments("run", {"--replicas", "2", "--epochs", "12000"}));
  saved.wait_for("best.ckpt");
  run.send(SIGINT);
  ASSERT_EQ(run.finish(), 130) << run.text();
  const std::string state = where / "run/last.ckpt";
  EXPECT_LT(load(state).network.steps, load(where / "whole/last.ckpt").network.steps);
  program rest({PENSTOCK_TRAINER, "--device", "cpu", "--replicas", "2", "--readers", "0", "--resume", state});
  ASSERT_EQ(rest.finish(), 0) << rest.text();
  EXPECT_TRUE(content(state) == content(where / "whole/last.ckpt"));
  EXPECT_TRUE(content(where / "run/best.ckpt") == content(where / "whole/best.ckpt"));
}

TEST_F(trainer_replicas_program, time_out_and_what_is_said_once) {
  program run(arguments("run", {"--replicas", "3", "--timeout", "1e-9"}));
  EXPECT_EQ(run.finish(), 12) << run.text();
  const auto lines = lines_of(run.text());
  ASSERT_GE(lines.size(), 2U);
  EXPECT_TRUE(lines[lines.size() - 2].starts_with("ended: time-out step 0; to go on: ")) << run.text();
  const std::string& text = run.text();
  EXPECT_NE(text.find("time-out: "), text.npos) << text;
  EXPECT_EQ(text.find("partition  "), text.rfind("partition  ")) << text;
  program none(arguments("none", {"--replicas", "0"}));
  EXPECT_NE(none.finish(), 0);
}

TEST(examples, two_replicas_print_what_one_does) {
  struct line {
    int epoch;
    double slope, offset, error;
  };
  const auto printed = [](const char* by) {
    program run({by, PENSTOCK_DIAMONDS});
    EXPECT_EQ(run.finish(), 0) << run.text();
    std::vector<line> result;
    for (const std::string& text : lines_of(run.text())) {
      line& one = result.emplace_back();
      EXPECT_EQ(std::sscanf(text.c_str(), "epoch %d: price = %lf * carat %lf, root mean square error %lf", &one.epoch,
                            &one.slope, &one.offset, &one.error),
                4)
          << text;
    }
    return result;
  };
  const auto one = printed(PENSTOCK_EXAMPLE_01), two = printed(PENSTOCK_EXAMPLE_08);
  ASSERT_EQ(one.size(), 5U);
  ASSERT_EQ(two.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(two[i].epoch, one[i].epoch);
    EXPECT_NEAR(two[i].slope, one[i].slope, 2);
    EXPECT_NEAR(two[i].offset, one[i].offset, 2);
    EXPECT_NEAR(two[i].error, one[i].error, 1);
  }
}

}  // namespace
