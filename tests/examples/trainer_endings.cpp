// SPDX-License-Identifier: Apache-2.0
// However a run of the trainer ends, here within this process and in the middle of an epoch: the model and the state
// are on the disk, whole, and a resumed run gets where an unbroken one does.
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <stop_token>
#include <utility>

#include <gtest/gtest.h>

#include "curve_data.hpp"
#include "program.hpp"
#include "train.hpp"

namespace {

using namespace trainer;
using program_test::content;
using program_test::curve_data;
using program_test::temporary_directory;

constexpr std::uint64_t samples = 1000;
constexpr std::uint64_t steps_per_epoch = 16;  // of 64 samples, the last one of 40

struct threads {
  int readers, replicas;
};
class trainer_endings : public testing::TestWithParam<threads> {
 protected:
  settings options(const std::string& folder) const {
    settings s;
    s.device = "cpu";
    s.target = "y";
    s.width = 8;
    s.epochs = 4;
    s.patience = 0;
    s.batch = 64;
    s.readers = GetParam().readers;
    s.replicas = GetParam().replicas;
    s.timeout = 60;
    s.out = where / folder;
    return s;
  }
  static parts with(std::function<void(std::uint64_t)> hook) {
    return {curve_data{.first = 0, .count = samples, .hook = std::move(hook)},
            curve_data{.first = samples, .count = 200}, curve_data{.first = 2 * samples, .count = 200}};
  }
  static parts calm() {
    return with([](std::uint64_t) {});
  }
  /// Goes on from last.ckpt, as `--resume` does, and compares with a run that nothing broke.
  void resumes_to_what_an_unbroken_run_gives(settings s) {
    settings whole = s;
    whole.out = where / "whole";
    ASSERT_EQ(train(whole, {}, calm(), {}), ending::done);
    s.resume = s.out + "/last.ckpt";
    ASSERT_EQ(train(s, load(s.resume), calm(), {}), ending::done);
    EXPECT_TRUE(content(s.out + "/last.ckpt") == content(whole.out + "/last.ckpt"));
    EXPECT_TRUE(content(s.out + "/best.ckpt") == content(whole.out + "/best.ckpt"));
  }
  /// The files of a run that ended in the second epoch.
  void left_both_models(const settings& s) {
    const checkpoint last = load(s.out + "/last.ckpt"), best = load(s.out + "/best.ckpt");
    EXPECT_GT(last.network.steps, steps_per_epoch);
    EXPECT_LT(last.network.steps, 2 * steps_per_epoch);
    EXPECT_EQ(last.validation.size(), 1U);
    EXPECT_EQ(best.network.steps, steps_per_epoch);
    EXPECT_EQ(content(s.out + "/loss.svg").substr(0, 4), "<svg");
  }
  // Reads of the training part: 1000 for each replica's statistics, then 1000 an epoch. Readers are ahead by some
  // batches.
  const std::uint64_t in_second_epoch = (GetParam().replicas + 1) * samples + samples / 2;
  temporary_directory where;
};
INSTANTIATE_TEST_SUITE_P(Threads, trainer_endings,
                         testing::Values(threads{0, 1}, threads{1, 1}, threads{3, 1}, threads{0, 2}, threads{2, 2},
                                         threads{1, 3}),
                         [](const auto& one) {
                           return std::to_string(one.param.readers) + "_readers_of_" +
                                  std::to_string(one.param.replicas);
                         });

TEST_P(trainer_endings, done) {
  const settings s = options("run");
  EXPECT_EQ(train(s, {}, calm(), {}), ending::done);
  const checkpoint last = load(s.out + "/last.ckpt");
  EXPECT_EQ(last.network.steps, 4 * steps_per_epoch);
  EXPECT_EQ(last.training.size(), 4U);
  EXPECT_LT(last.validation.back(), last.validation.front());
}

TEST_P(trainer_endings, early_stop) {
  settings s = options("run");
  s.epochs = 1000;
  s.rate = 1e-30f;  // nothing is learned, so nothing gets better
  s.patience = 3;
  EXPECT_EQ(train(s, {}, calm(), {}), ending::early_stop);
  EXPECT_EQ(load(s.out + "/last.ckpt").validation.size(), 4U);
  EXPECT_EQ(load(s.out + "/best.ckpt").validation.size(), 1U);
}

TEST_P(trainer_endings, stop_in_mid_epoch_and_resume) {
  std::stop_source stop;
  const settings s = options("run");
  const ending how = train(s, {}, with([&](std::uint64_t reads) {
                             if (reads == in_second_epoch) stop.request_stop();
                           }),
                           stop.get_token());
  EXPECT_EQ(how, ending::interrupted);
  left_both_models(s);
  resumes_to_what_an_unbroken_run_gives(s);
}

TEST_P(trainer_endings, stop_while_statistics_are_made) {
  std::stop_source stop;
  const settings s = options("run");
  const ending how = train(s, {}, with([&](std::uint64_t reads) {
                             if (reads == samples / 2) stop.request_stop();
                           }),
                           stop.get_token());
  EXPECT_EQ(how, ending::interrupted);
  EXPECT_EQ(load(s.out + "/last.ckpt").network.steps, 0U);
  resumes_to_what_an_unbroken_run_gives(s);
}

TEST_P(trainer_endings, exception_in_mid_epoch_and_resume) {
  const settings s = options("run");
  const ending how = train(s, {}, with([&](std::uint64_t reads) {
                             if (reads == in_second_epoch) throw std::runtime_error("the sample is gone");
                           }),
                           {});
  EXPECT_EQ(how, ending::error);
  left_both_models(s);
  resumes_to_what_an_unbroken_run_gives(s);
}

TEST_P(trainer_endings, loss_that_is_no_number) {
  settings s = options("run");
  s.rate = 1e30f;
  EXPECT_EQ(train(s, {}, calm(), {}), ending::not_a_number);
  const checkpoint last = load(s.out + "/last.ckpt");
  EXPECT_GT(last.network.steps, 0U);
  EXPECT_EQ(last.network.parameters.size(), load(s.out + "/best.ckpt").network.parameters.size());
}

TEST_P(trainer_endings, time_out_in_mid_epoch_and_resume) {
  if (GetParam().readers == 0) GTEST_SKIP() << "what the main thread reads itself cannot be timed out";
  auto never = std::make_shared<std::latch>(1);
  settings s = options("run");
  s.timeout = 1;
  const ending how = train(s, {}, with([never, this](std::uint64_t reads) {
                             if (reads == in_second_epoch) never->wait();
                           }),
                           {});
  EXPECT_EQ(how, ending::timeout);
  left_both_models(s);
  never->count_down();  // the reader that was abandoned ends
  resumes_to_what_an_unbroken_run_gives(s);
}

TEST(trainer_checkpoint, of_another_network_is_refused) {
  const temporary_directory where;
  settings s;
  s.device = "cpu";
  s.width = 8;
  s.epochs = 1;
  s.out = where / "run";
  const parts data{curve_data{0, 100}, curve_data{100, 10}, curve_data{110, 10}};
  ASSERT_EQ(train(s, {}, data, {}), ending::done);
  const checkpoint saved = load(where / "run/last.ckpt");
  s.width = 9;
  EXPECT_THROW(train(s, saved, data, {}), penstock::error);
}

}  // namespace
