// SPDX-License-Identifier: Apache-2.0
// The trainer as its users see it: a program with options, output, an exit status and files.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/dataset/npy.hpp>
#include <penstock/sample/philox.hpp>

#include "checkpoint.hpp"
#include "program.hpp"

namespace {

using program_test::content;
using program_test::lines_of;
using program_test::program;
using program_test::temporary_directory;
using program_test::value;

constexpr std::uint64_t rows = 2000;

struct row {
  float a, b, y;
  const char* kind;
};
/// A line in `a` and a bump in `b`, with a step for each kind that does not follow the kinds' alphabetical order.
row row_of(std::uint64_t i) {
  penstock::philox random(5, 0, i);
  static constexpr const char* kinds[] = {"amber", "blue", "cyan", "dun"};
  static constexpr float steps[] = {0, 300, -200, 50};
  const float a = random.normal(), b = random.normal();
  const std::uint64_t kind = random.below(4);
  return {a, b, 100 * a + 200 * std::exp(-b * b) + steps[kind], kinds[kind]};
}

class trainer_program : public testing::Test {
 protected:
  std::vector<std::string> options(const std::string& folder, std::vector<std::string> more = {}) const {
    std::vector<std::string> all{PENSTOCK_TRAINER, "--device", "cpu", "--out", where / folder};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// A CSV file, with the kinds or without, with the target or without.
  std::string csv(const std::string& name, bool kinds, bool target = true) const {
    std::string text = kinds ? "a,kind,b" : "a,b";
    text += target ? ",y\n" : "\n";
    char line[128];
    for (std::uint64_t i = 0; i < rows; ++i) {
      const row one = row_of(i);
      std::snprintf(line, sizeof(line), "%.9g,%s%s%.9g", static_cast<double>(one.a), kinds ? one.kind : "",
                    kinds ? "," : "", static_cast<double>(one.b));
      text += line;
      std::snprintf(line, sizeof(line), ",%.9g", static_cast<double>(one.y));
      text += target ? line : "";
      text += '\n';
    }
    program_test::write(where / name, text);
    return where / name;
  }
  std::vector<std::string> table(const std::string& rate = "0.01") const {
    return {"--data", csv("table.csv", false), "--target", "y", "--width", "16", "--batch",
            "64",     "--learning-rate",       rate};
  }
  static std::vector<std::string> joined(std::vector<std::string> one, const std::vector<std::string>& two) {
    one.insert(one.end(), two.begin(), two.end());
    return one;
  }

  /// Runs to the end and looks at what every ending owes: the last two lines, the models, the curve.
  std::vector<std::string> ends(program& run, int status, const std::string& reason, const std::string& folder) const {
    EXPECT_EQ(run.finish(), status) << run.text();
    const auto lines = lines_of(run.text());
    if (lines.size() < 2) {
      ADD_FAILURE() << run.text();
      return {"", ""};
    }
    const std::string before = lines[lines.size() - 2], last = lines.back();
    EXPECT_TRUE(before.starts_with("ended: " + reason + " step ")) << before;
    const std::string state = where / (folder + "/last.ckpt");
    EXPECT_NE(before.find("regression_trainer --resume " + state), before.npos) << before;
    EXPECT_TRUE(last.starts_with("test: ")) << last;
    EXPECT_GT(value(last, "seconds"), 0);
    EXPECT_EQ(std::to_string(trainer::load(state).network.steps),
              before.substr(before.find("step ") + 5, before.find(';') - before.find("step ") - 5));
    EXPECT_EQ(trainer::load(where / (folder + "/best.ckpt")).network.parameters.size(),
              trainer::load(state).network.parameters.size());
    EXPECT_TRUE(content(where / (folder + "/loss.svg")).ends_with("</svg>\n"));
    return lines;
  }
  std::vector<double> predictions(const std::string& folder, const std::string& file) const {
    program run({PENSTOCK_TRAINER, "--device", "cpu", "--model", where / (folder + "/best.ckpt"), "--predict", file});
    EXPECT_EQ(run.finish(), 0) << run.text();
    std::vector<double> result;
    for (const std::string& line : lines_of(run.text())) result.push_back(std::stod(line));
    return result;
  }
  static double rmse(const std::vector<double>& found) {
    double squares = 0;
    for (std::uint64_t i = 0; i < found.size(); ++i)
      squares += (found[i] - double{row_of(i).y}) * (found[i] - double{row_of(i).y});
    return std::sqrt(squares / static_cast<double>(found.size()));
  }
  temporary_directory where;
};

TEST_F(trainer_program, done_and_predictions_for_rows_without_target) {
  program run(options("run", joined(table(), {"--epochs", "30", "--patience", "0"})));
  const auto lines = ends(run, 0, "done", "run");
  const auto found = predictions("run", csv("new.csv", false, false));
  ASSERT_EQ(found.size(), rows);
  const double kinds = 180;  // the target's deviation that is the kinds' alone, which these columns do not tell
  EXPECT_NEAR(rmse(found), kinds, 20);
  EXPECT_NEAR(value(lines.back(), "rmse"), kinds, 40);
  EXPECT_GT(value(lines.back(), "mean_rmse"), value(lines.back(), "ols_rmse"));
}

TEST_F(trainer_program, early_stop) {
  program run(options("run", joined(table("1e-30"), {"--patience", "2"})));
  ends(run, 10, "early stop", "run");
}

TEST_F(trainer_program, loss_that_is_no_number) {
  program run(options("run", table("1e30")));
  ends(run, 11, "the loss is no number", "run");
}

TEST_F(trainer_program, time_out) {
  program run(options("run", joined(table(), {"--timeout", "1e-9"})));  // no batch can be that fast
  ends(run, 12, "time-out", "run");
  EXPECT_NE(run.text().find("\ntest: none seconds="), std::string::npos) << run.text();
}

TEST_F(trainer_program, exception_of_a_file_that_goes_bad_while_it_is_read) {
  auto arguments = joined(table(), {"--epochs", "1000000", "--patience", "0", "--indexed"});
  program run(options("run", arguments));
  ASSERT_TRUE(run.writes("transfer"));
  {
    std::fstream file(where / "table.csv", std::ios::in | std::ios::out | std::ios::binary);
    std::string text = content(where / "table.csv");
    for (char& c : text)
      if (c >= '0' && c <= '9') c = 'x';
    file << text;
  }
  ends(run, 1, "error", "run");
  EXPECT_NE(run.text().find("table.csv, line "), std::string::npos) << run.text();
}

TEST_F(trainer_program, what_cannot_begin_says_why) {
  program none({PENSTOCK_TRAINER, "--device", "cpu", "--data", where / "none.csv"});
  EXPECT_EQ(none.finish(), 1);
  EXPECT_NE(none.text().find("none.csv: cannot open: No such file"), std::string::npos) << none.text();
  program option({PENSTOCK_TRAINER, "--device", "cpu", "--epochs", "0"});
  EXPECT_NE(option.finish(), 0);
  program_test::write(where / "damaged.ckpt", "PSCHECK\nnothing");
  program damaged({PENSTOCK_TRAINER, "--device", "cpu", "--resume", where / "damaged.ckpt"});
  EXPECT_EQ(damaged.finish(), 1);
  EXPECT_NE(damaged.text().find("damaged.ckpt: the file is cut off"), std::string::npos) << damaged.text();
}

TEST_F(trainer_program, the_device_is_told_and_asked_for) {
  const auto arguments = joined(table(), {"--epochs", "1"});
  for (const char* device : {"auto", "cuda"}) {
    program run(options("run", joined(arguments, {"--device", device})));
    const int status = run.finish();
    const std::string& text = run.text();
    if (text.find("device: cuda 0 (") != text.npos) {  // there is a GPU
      EXPECT_EQ(status, 0) << text;
    } else if (device == std::string("auto")) {
      EXPECT_EQ(status, 0) << text;
      const std::string told = "\ndevice: cpu (no CUDA: ";
      EXPECT_TRUE(text.starts_with(told.substr(1))) << text;
      EXPECT_NE(text.rfind(told), text.npos) << text;
    } else {
      EXPECT_EQ(status, 1) << text;
      EXPECT_TRUE(text.starts_with("error: --device cuda: ")) << text;
      EXPECT_TRUE(text.ends_with(", wanted a GPU that can be used\n")) << text;
    }
  }
  program run(options("run", arguments));
  EXPECT_EQ(run.finish(), 0);
  EXPECT_TRUE(run.text().starts_with("device: cpu\n")) << run.text();
  program other(options("run", {"--device", "tpu"}));
  EXPECT_NE(other.finish(), 0);
}

// Ctrl-C, and what a cluster sends: each somewhere in the run, and the end is that of the unbroken one, bit by bit.
TEST_F(trainer_program, signals_then_resume_to_the_unbroken_runs_end) {
  const auto arguments = joined(table(), {"--epochs", "2000", "--patience", "0"});
  program whole(options("whole", arguments));
  ends(whole, 0, "done", "whole");

  const std::string state = where / "run/last.ckpt";
  for (const int signal : {SIGINT, SIGTERM}) {
    const program_test::folder_watch saved(where / "run");
    program run(signal == SIGINT ? options("run", arguments)
                                 : std::vector<std::string>{PENSTOCK_TRAINER, "--device", "cpu", "--resume", state,
                                                            "--readers", "3"});
    saved.wait_for("best.ckpt");
    run.send(signal);
    ends(run, 130, "interrupted", "run");
    EXPECT_GT(trainer::load(state).network.steps, 0U);
    EXPECT_LT(trainer::load(state).network.steps, trainer::load(where / "whole/last.ckpt").network.steps);
  }
  program rest({PENSTOCK_TRAINER, "--device", "cpu", "--resume", state, "--readers", "0"});
  ends(rest, 0, "done", "run");
  EXPECT_TRUE(content(state) == content(where / "whole/last.ckpt"));
  EXPECT_TRUE(content(where / "run/best.ckpt") == content(where / "whole/best.ckpt"));
}

TEST_F(trainer_program, the_same_seed_gives_the_same_bits_for_any_readers) {
  const auto arguments = joined(table(), {"--epochs", "3"});
  std::string wanted;
  for (const char* readers : {"0", "1", "2", "3"}) {
    program run(options(readers, joined(arguments, {"--readers", readers})));
    ends(run, 0, "done", readers);
    const std::string found = content(where / (std::string(readers) + "/last.ckpt"));
    if (wanted.empty()) wanted = found;
    EXPECT_TRUE(found == wanted) << readers << " readers";
  }
  program other(options("other", joined(arguments, {"--seed", "2"})));
  ends(other, 0, "done", "other");
  EXPECT_TRUE(trainer::load(where / "other/last.ckpt").network.parameters !=
              trainer::load(where / "0/last.ckpt").network.parameters);
}

TEST_F(trainer_program, a_pair_of_npy_files_trains_the_same_model_as_the_csv_file) {
  std::vector<float> x, y;
  for (std::uint64_t i = 0; i < rows; ++i) {
    const row one = row_of(i);
    x.insert(x.end(), {one.a, one.b});
    y.push_back(one.y);
  }
  penstock::write_npy(where / "x.npy", x, {rows, 2});
  penstock::write_npy(where / "y.npy", y, {rows});
  const std::vector<std::string> same{"--width", "16", "--batch", "64", "--learning-rate", "0.01", "--epochs", "3"};
  program from_npy(options("npy", joined({"--x", where / "x.npy", "--y", where / "y.npy"}, same)));
  ends(from_npy, 0, "done", "npy");
  program from_csv(options("csv", joined({"--data", csv("t.csv", false), "--target", "y"}, same)));
  ends(from_csv, 0, "done", "csv");
  EXPECT_TRUE(trainer::load(where / "npy/last.ckpt").network.parameters ==
              trainer::load(where / "csv/last.ckpt").network.parameters);
  EXPECT_EQ(predictions("npy", where / "x.npy"), predictions("csv", csv("new.csv", false, false)));
}

TEST_F(trainer_program, categories_one_hot_and_in_a_given_order) {
  const std::vector<std::string> same{"--data",          csv("kinds.csv", true),
                                      "--target",        "y",
                                      "--width",         "16",
                                      "--batch",         "64",
                                      "--epochs",        "40",
                                      "--patience",      "0",
                                      "--learning-rate", "0.01"};
  for (const auto& how :
       std::vector<std::vector<std::string>>{{"--one-hot", "kind"}, {"--category", "kind=cyan<amber<dun<blue"}}) {
    program run(options("run", joined(same, how)));
    const auto lines = ends(run, 0, "done", "run");
    EXPECT_GT(value(lines.back(), "r2"), 0.95);
    EXPECT_EQ(trainer::load(where / "run/best.ckpt").inputs.mean.size(), how[0] == "--one-hot" ? 7U : 4U);
    EXPECT_LT(rmse(predictions("run", csv("new.csv", true, false))), 40);
    // Rows of one kind alone are the same features as among others.
    program_test::write(where / "one.csv", "b,kind,a\n0,dun,0\n");
    program one(
        {PENSTOCK_TRAINER, "--device", "cpu", "--model", where / "run/best.ckpt", "--predict", where / "one.csv"});
    EXPECT_EQ(one.finish(), 0) << one.text();
    EXPECT_NEAR(std::stod(one.text()), 250, 60);
  }
}

TEST_F(trainer_program, the_diamonds_by_default) {
  program run(options("run", {"--data", PENSTOCK_DIAMONDS, "--readers", "2"}));
  const int status = run.finish();
  EXPECT_TRUE(status == 0 || status == 10) << run.text();
  const std::string last = lines_of(run.text()).back();
  EXPECT_LE(value(last, "rmse"), 560);
  EXPECT_GT(value(last, "r2"), 0.98);
  EXPECT_LT(value(last, "mae"), value(last, "rmse"));
  EXPECT_NEAR(value(last, "ols_rmse"), 1223, 60);
  EXPECT_NEAR(value(last, "mean_rmse"), 3990, 100);
}

}  // namespace
