// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/csv_log.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/temporary_directory.hpp"
#include "modelled_events.hpp"

namespace {

using namespace std::chrono_literals;
using penstock::log_rows;
using penstock_test::content_of;

/// Files may not grow beyond a size while this lives: as on a full disk, and for any user.
class full_disk {
 public:
  explicit full_disk(::rlim_t size) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const ::rlimit limit{size, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  full_disk(const full_disk&) = delete;
  ~full_disk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  ::rlimit before_{};
  void (*handler_)(int) = nullptr;
};

class csv_log : public testing::Test {
 protected:
  using log = penstock::csv_log;
  void SetUp() override { penstock_test::modelled_now = std::chrono::steady_clock::time_point{1h}; }

  static penstock::csv_log_options modelled(penstock::csv_log_options options = {}) {
    options.clock = &penstock_test::modelled_clock;
    return options;
  }
  /// Lines of fields.
  std::vector<std::vector<std::string>> table() const {
    std::vector<std::vector<std::string>> rows;
    std::istringstream text(content_of(path_));
    for (std::string line; std::getline(text, line);) {
      rows.emplace_back();
      std::istringstream fields(line + ',');
      for (std::string field; std::getline(fields, field, ',');) rows.back().push_back(field);
    }
    return rows;
  }
  std::string column(std::size_t number) const {
    std::string all;
    const auto rows = table();
    for (std::size_t i = 1; i < rows.size(); ++i) all += rows[i].at(number) + ' ';
    return all;
  }

  penstock_test::temporary_directory folder_;
  std::string path_ = folder_.file("log.csv");
};

TEST_F(csv_log, has_one_row_per_step) {
  log observer(path_, modelled());
  penstock_test::modelled_events run{observer};
  observer.on_begin({.steps_per_epoch = 4});
  run.steps(0, 0, 1);
  observer.on_end({"done"});
  EXPECT_EQ(content_of(path_),
            "epoch,step,samples,seconds,samples_per_second,wait,loss\n"
            "0,0,10,0.1,100,0.25,0\n"
            "0,1,10,0.2,100,0.25,1\n");
}

TEST_F(csv_log, rows_of_several_steps_are_sums_and_means_and_end_with_the_epoch) {
  log observer(path_, modelled({.every = 3}));
  penstock_test::modelled_events run{observer};
  observer.on_begin({.steps_per_epoch = 4});
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    run.steps(epoch, 0, 3);
    run.end_epoch(epoch);
    penstock_test::modelled_now += 1h;  // validation
  }
  observer.on_end({"done"});
  EXPECT_EQ(column(0), "0 0 1 1 ");
  EXPECT_EQ(column(1), "2 3 2 3 ");
  EXPECT_EQ(column(2), "30 10 30 10 ");
  EXPECT_EQ(column(5), "0.25 0.25 0.25 0.25 ");
  EXPECT_EQ(column(6), "1 3 5 7 ");
  EXPECT_NEAR(std::stod(table().back()[3]), 0.8, 1e-9);
}

TEST_F(csv_log, what_is_reported_between_epochs_is_of_the_epoch_before) {
  log observer(path_, modelled({.rows = log_rows::epochs}));
  penstock_test::modelled_events run{observer};
  observer.on_begin({.steps_per_epoch = 4});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    run.steps(epoch, 0, 3);
    run.end_epoch(epoch);
    if (epoch != 1) run.report(epoch, 3, 0.5 + static_cast<double>(epoch), "validation");
  }
  observer.on_end({"done"});
  EXPECT_EQ(column(0), "0 1 2 ");
  EXPECT_EQ(column(2), "40 40 40 ");
  EXPECT_EQ(column(6), "1.5 5.5 9.5 ");
  EXPECT_EQ(column(7), "0.5  2.5 ") << "nothing was reported of epoch 1";
}

TEST_F(csv_log, a_late_name_adds_a_column_to_the_whole_table_at_once) {
  log observer(path_, modelled({.interval = 0ns}));
  penstock_test::modelled_events run{observer};
  observer.on_begin({});
  run.steps(0, 0, 2);
  run.report(0, 2, 7, "a, \"quoted\"\nname");
  run.batch(0, 3);
  observer.on_epoch({});
  const std::string text = content_of(path_);
  EXPECT_TRUE(text.starts_with("epoch,step,samples,seconds,samples_per_second,wait,loss,\"a, \"\"quoted\"\"?name\"\n"))
      << text;
  EXPECT_NE(text.find(",0.25,0,\n"), text.npos) << text;
  EXPECT_NE(text.find(",0.25,2,7\n"), text.npos) << text;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1) << "no temporary file is left";
}

TEST_F(csv_log, a_resumed_run_replaces_later_rows_and_doubles_none) {
  {
    log observer(path_, modelled());
    penstock_test::modelled_events run{observer};
    observer.on_begin({.steps_per_epoch = 4});
    run.steps(0, 0, 3);
    run.end_epoch(0);
    run.report(0, 3, 0.5, "validation");
    run.steps(1, 0, 2);
    observer.on_error({.message = "the power failed"});
  }
  {  // what a process leaves that was killed while it wrote
    std::ofstream torn(path_, std::ios::app);
    torn << "1,3,10,0.";
  }
  log observer(path_, modelled());
  penstock_test::modelled_events run{observer};
  observer.on_begin({.steps_per_epoch = 4, .first_epoch = 1, .first_step = 1});
  run.report(1, 1, 0.25, "validation");  // the old columns are known
  run.steps(1, 1, 3);
  run.end_epoch(1);
  observer.on_end({"done"});
  EXPECT_EQ(column(0), "0 0 0 0 1 1 1 1 ");
  EXPECT_EQ(column(1), "0 1 2 3 0 1 2 3 ");
  EXPECT_EQ(column(6), "0 1 2 3 4 5 6 7 ");
  EXPECT_EQ(column(7), "   0.5  0.25   ");
  EXPECT_NEAR(std::stod(table().back()[3]), 0.8, 1e-9) << "seconds go on";
}

TEST_F(csv_log, a_run_from_the_start_begins_the_file_anew) {
  for (int i = 0; i < 2; ++i) {
    log observer(path_, modelled());
    penstock_test::modelled_events run{observer};
    observer.on_begin({});
    run.steps(0, 0, 1);
    observer.on_end({"done"});
  }
  EXPECT_EQ(column(1), "0 1 ");
}

TEST_F(csv_log, complete_rows_are_in_the_file_after_the_interval_and_without_an_end) {
  {
    log observer(path_, modelled({.interval = 1s}));
    penstock_test::modelled_events run{observer};
    observer.on_begin({});
    run.steps(0, 0, 9);
    EXPECT_LE(table().size(), 1U) << "no row yet";
    run.steps(0, 10, 10);
    EXPECT_EQ(table().size(), 1U + 10U);
    run.steps(0, 11, 12);
  }
  EXPECT_EQ(table().size(), 1U + 12U) << "no end was told: the last step may not be complete";
}

TEST_F(csv_log, numbers_come_back_exactly) {
  log observer(path_, modelled());
  observer.on_begin({});
  observer.on_batch({.samples = 1});
  const double value = 0.1 + 0.2;
  observer.on_metric({.name = "loss", .value = value});
  observer.on_end({"done"});
  EXPECT_EQ(std::stod(table()[1].at(6)), value);
}

TEST_F(csv_log, nobodys_table_is_overwritten) {
  const std::string other = folder_.file("table.csv", "carat,price\n0.23,326\n");
  try {
    log observer(other);
    FAIL() << "it was taken";
  } catch (const penstock::error& problem) {
    EXPECT_NE(std::string(problem.what()).find("table.csv, line 1: the file is no log"), std::string::npos)
        << problem.what();
  }
  EXPECT_EQ(content_of(other), "carat,price\n0.23,326\n");
}

TEST_F(csv_log, what_cannot_be_written_is_refused_with_path_and_reason) {
  try {
    log observer(folder_ / "missing/log.csv");
    FAIL() << "it was taken";
  } catch (const penstock::error& problem) {
    EXPECT_NE(std::string(problem.what()).find("missing/log.csv: cannot write: No such file"), std::string::npos)
        << problem.what();
  }
  EXPECT_THROW(log(folder_.path()), penstock::error);
  ASSERT_EQ(::mkfifo(folder_.file("pipe").c_str(), 0600), 0);
  EXPECT_THROW(log(folder_.file("pipe")), penstock::error) << "it would have to be waited for";
  EXPECT_THROW(log(path_, {.every = 0}), std::invalid_argument);
  EXPECT_THROW(log(path_, {.interval = -1ns}), std::invalid_argument);
  EXPECT_THROW(log(path_, {.clock = nullptr}), std::invalid_argument);
}

TEST_F(csv_log, a_disk_that_is_full_for_a_while_is_told_of_once_and_costs_no_row) {
  log observer(path_, modelled({.interval = 0ns}));
  penstock_test::modelled_events run{observer};
  observer.on_begin({});
  run.steps(0, 0, 1);
  EXPECT_EQ(observer.failure(), "");
  testing::internal::CaptureStderr();
  {
    const full_disk scope(200);
    run.steps(0, 2, 19);
    run.report(0, 19, 1, "late");
    run.steps(0, 20, 24);
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_EQ(observer.failure(), path_ + ": cannot write: File too large");
  run.report(0, 24, 2, "late");
  run.steps(0, 25, 29);
  observer.on_end({"done"});
  const auto rows = table();
  ASSERT_EQ(rows.size(), 1U + 30U);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i][1], std::to_string(i - 1));
    EXPECT_EQ(rows[i].size(), rows[0].size()) << i;
  }
  EXPECT_EQ(rows[0].back(), "late");
  EXPECT_EQ(rows[25].back(), "2");
}

}  // namespace
