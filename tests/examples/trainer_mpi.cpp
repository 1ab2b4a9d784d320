// SPDX-License-Identifier: Apache-2.0
// The trainer as two processes under mpirun.
#include <stdlib.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint.hpp"
#include "program.hpp"

namespace {

using program_test::content;
using program_test::program;
using program_test::temporary_directory;
using trainer::load;

class trainer_mpi : public testing::Test {
 protected:
  trainer_mpi() {
    // Open MPI's: two processes on whatever machine, and whoever runs the tests.
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"})
      ::setenv(name, "1", 1);
    std::string text = "a,y\n";
    for (int i = 0; i < 500; ++i) text += std::to_string(i % 83) + "," + std::to_string(i % 83 * (i % 83)) + "\n";
    program_test::write(where / "table.csv", text);
  }
  /// `before` the trainer's name, and more of its options.
  program run(std::vector<std::string> before, const std::string& folder, const std::vector<std::string>& more) const {
    const std::vector<std::string> options{
        PENSTOCK_TRAINER, "--device", "cpu",        "--data", where / "table.csv", "--target", "y",
        "--width",        "8",        "--patience", "0",      "--batch",           "64",       "--out",
        where / folder};
    before.insert(before.end(), options.begin(), options.end());
    before.insert(before.end(), more.begin(), more.end());
    return program(std::move(before));
  }
  void expect_same_curve(const std::string& one, const std::string& other) const {
    const trainer::checkpoint found = load(where / (one + "/last.ckpt")), wanted = load(where / (other + "/last.ckpt"));
    EXPECT_EQ(found.network.steps, wanted.network.steps);
    EXPECT_EQ(found.feed, wanted.feed);
    ASSERT_EQ(found.training.size(), wanted.training.size());
    for (std::size_t i = 0; i < wanted.training.size(); ++i) {
      EXPECT_NEAR(found.training[i], wanted.training[i], 1e-4 * wanted.training[i]);
      EXPECT_NEAR(found.validation[i], wanted.validation[i], 1e-4 * wanted.validation[i]);
    }
  }
  static std::vector<std::string> two() { return {PENSTOCK_MPIRUN, "-n", "2"}; }
  temporary_directory where;
};

TEST_F(trainer_mpi, the_curve_is_that_of_one_process_and_is_told_once) {
  program one = run({}, "one", {"--epochs", "6"});
  ASSERT_EQ(one.finish(), 0) << one.text();
  for (const std::string folder : {"two", "again"}) {
    program both = run(two(), folder, {"--epochs", "6", "--readers", folder == "two" ? "2" : "0"});
    ASSERT_EQ(both.finish(), 0) << both.text();
    EXPECT_EQ(both.text().find("ended: done"), both.text().rfind("ended: done")) << both.text();
    EXPECT_NE(both.text().find("device: cpu, 2 processes\n"), std::string::npos) << both.text();
  }
  for (const std::string file : {"/last.ckpt", "/best.ckpt"})
    EXPECT_TRUE(content(where / ("two" + file)) == content(where / ("again" + file))) << file;
  expect_same_curve("two", "one");
}

TEST_F(trainer_mpi, a_run_goes_on_with_another_number_of_processes) {
  for (const bool both : {false, true}) {
    program begun = run(both ? two() : std::vector<std::string>{}, both ? "two" : "one", {"--epochs", "2"});
    ASSERT_EQ(begun.finish(), 0) << begun.text();
  }
  for (const std::string folder : {"one", "two"}) {
    std::vector<std::string> before = folder == "one" ? two() : std::vector<std::string>{};
    program rest = run(before, "rest_of_" + folder, {"--epochs", "5", "--resume", where / (folder + "/last.ckpt")});
    ASSERT_EQ(rest.finish(), 0) << rest.text();
  }
  expect_same_curve("rest_of_one", "rest_of_two");
}

TEST_F(trainer_mpi, endings_are_those_of_one_process) {
  program nan = run(two(), "run", {"--learning-rate", "1e30"});
  EXPECT_EQ(nan.finish(), 11) << nan.text();
  EXPECT_NE(nan.text().find("ended: the loss is no number"), std::string::npos) << nan.text();
  program early = run(two(), "run", {"--epochs", "1000", "--patience", "2", "--learning-rate", "1e-30"});
  EXPECT_EQ(early.finish(), 10) << early.text();
  EXPECT_NE(early.text().find("ended: early stop"), std::string::npos) << early.text();
  EXPECT_EQ(load(where / "run/last.ckpt").validation.size(), 3U);
}

TEST_F(trainer_mpi, what_cannot_be_says_why) {
  program both = run(two(), "run", {"--replicas", "2"});
  EXPECT_EQ(both.finish(), 1);
  EXPECT_NE(both.text().find("error: --replicas under mpirun"), std::string::npos) << both.text();
}

}  // namespace
