// SPDX-License-Identifier: Apache-2.0
// packages: libeigen3-dev libcli11-dev libfast-float-dev
// large packages: python3-sklearn
// What does dispatching in the background buy a training? Where reading costs about as much as the step, half of the
// time: against the loop that reads, copies, computes and waits; against reading inline; at the borders of epochs; and
// the regression trainer of the examples against scikit-learn.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <contest.hpp>

#include "contestants.hpp"
#include "programs.hpp"

namespace {

namespace fs = std::filesystem;
using namespace train;

double median(std::vector<double> of) {
  if (of.empty()) return 0;
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

void against_the_plain_loop(contest::question& ask, const sizes& of, nanoseconds read, nanoseconds kernel) {
  const nanoseconds copy = from_microseconds(ask.sizes.number("copy-us", 20));
  const nanoseconds notice = measured_notice();
  ask.fact("notice", contest::table::text(microseconds(notice)) + " us, that of a sleep here");
  const auto device = [=] {
    return penstock::modelled_device(
        {.event_latency = std::chrono::microseconds(3), .notice = notice, .copy_time = copy, .poison = false});
  };
  const dataset data(of.samples(), of.batch, read, 0);
  for (const char* name : {"dispatched", "dispatched_again"})
    ask.add(name, [=] { return contest::figures{dispatched(data, device(), kernel, of)}; });
  ask.add("reading_alone", [=] { return contest::figures{reading_alone(data, of)}; });
  ask.add("plain_loop", [=] { return contest::figures{plain(data, device(), kernel, of)}; });
}

void against_inline_reading(contest::question& ask, const sizes& of, nanoseconds read, nanoseconds kernel) {
  std::vector<float> memory(of.batch * dataset::row, 1.0f);
  const int reading = passes_for(read, memory), stepping = passes_for(kernel, memory);
  const dataset data(of.samples(), of.batch, nanoseconds{0}, reading);
  ask.add("cpu_inline", [=] { return contest::figures{on_cpu(data, stepping, 0, of)}; });
  ask.add("cpu_one_reader", [=] { return contest::figures{on_cpu(data, stepping, 1, of)}; });
  ask.add("cpu_side_by_side", [=] { return contest::figures{side_by_side(data, stepping, of)}; });
}

void at_the_border(contest::question& ask, const sizes& of, nanoseconds read) {
  // Every batch waits: the step takes 0.6 of what reading takes, so a batch that was read ahead is waited for 0.4 of a
  // read, and one that is begun only at the border for a whole one.
  const nanoseconds step = read * 6 / 10;
  const dataset data(of.samples(), of.batch, read, 0);
  const auto add = [&](const char* name, bool next_epoch) {
    ask.add(name, [=] {
      const border_waits waits = borders(data, step, of, next_epoch);
      const double first = median(waits.first), later = median(waits.later);
      return contest::figures{waits.batch,
                              {{"us waited at a border", first},
                               {"us waited later", later},
                               {"border over later", later > 0 ? first / later : 0}}};
    });
  };
  add("epochs", true);
  add("epochs_apart", false);
}

void against_scikit_learn(contest::question& ask, const penstock_test::temporary_directory& scratch,
                          std::int64_t batch) {
  const fs::path here = fs::absolute(__FILE__).parent_path();
  const fs::path data = here.parent_path().parent_path() / "examples/data/diamonds.csv";
  const fs::path trainer =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "examples/regression_trainer";
  const int epochs = 6;
  const auto per_batch = [=](double seconds, double rows) {
    return 1e6 * seconds / epochs / std::ceil(rows / static_cast<double>(batch));
  };
  std::string python, version;
  const char* const given = std::getenv("PYTHON");
  // Packages of the system's are the system's python's, which need not be the first one on the path.
  for (const std::string& one : {std::string(given == nullptr ? "python3" : given), std::string("/usr/bin/python3")}) {
    if (!version.empty()) break;
    try {
      version = output_of(one + " -c 'import sklearn; print(sklearn.__version__)'");
      python = one;
    } catch (const std::runtime_error&) {
    }
  }
  if (version.empty()) return ask.left_out("scikit-learn", "no python3-sklearn");
  while (version.back() == '\n') version.pop_back();
  if (!fs::exists(trainer)) return ask.left_out("scikit-learn", "no " + trainer.string() + " to compare with");
  ask.rival("scikit-learn", version);

  // Ours counts all that the run does once the file is open: statistics, validation after each epoch, checkpoints,
  // test.
  const double rows = 37'758;  // 0.7 of the file's
  ask.add("trainer", [=, &scratch] {
    const std::string told =
        output_of(quoted(trainer) + " --data " + quoted(data) + " --patience 0 --epochs " + std::to_string(epochs) +
                  " --batch " + std::to_string(batch) + " --out " + quoted(fs::path(scratch / "diamonds")));
    const double seconds = number_in(told, "seconds");
    return contest::figures{per_batch(seconds, rows),
                            {{"seconds per epoch", seconds / epochs}, {"test RMSE", number_in(told, "rmse")}}};
  });
  const auto add = [&](const char* name, const std::string& threads) {
    ask.add(name, [=] {
      const std::string told = output_of(threads + python + ' ' + quoted(here / "sklearn_fit.py") + ' ' + quoted(data) +
                                         ' ' + std::to_string(epochs) + ' ' + std::to_string(batch));
      const double seconds = number_in(told, "seconds");
      if (number_in(told, "rows") != rows || number_in(told, "epochs") != epochs)
        throw std::runtime_error("sklearn_fit.py did other work than the trainer: " + told);
      return contest::figures{per_batch(seconds, rows),
                              {{"seconds per epoch", seconds / epochs}, {"test RMSE", number_in(told, "rmse")}}};
    });
  };
  add("sklearn", "");
  add("sklearn_one_thread", "OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 ");
}

}  // namespace

int main(int argc, char** argv) {
  contest::question ask("train", "us per batch", argc, argv);
  fine_timers();
  int status = 0;
  ask.guarded([&] {
    sizes of;
    of.batch = static_cast<std::size_t>(ask.sizes.integer("batch", 64));
    of.readers = ask.sizes.integer("readers", 1);
    of.depth = ask.sizes.integer("depth", 0, 0);
    const nanoseconds read = from_microseconds(ask.sizes.number("read-us", 500, 1));
    const nanoseconds kernel = from_microseconds(ask.sizes.number("kernel-us", 500, 1));
    const penstock_test::temporary_directory scratch;

    against_the_plain_loop(ask, of, read, kernel);
    against_inline_reading(ask, of, read, kernel);
    sizes short_epochs = of;
    short_epochs.steps = 12;
    short_epochs.epochs = 25;
    at_the_border(ask, short_epochs, read);
    against_scikit_learn(ask, scratch, ask.sizes.given("batch") ? static_cast<std::int64_t>(of.batch) : 256);

    status = ask.run([&](contest::line& line) {
      line.ratio("dispatched", "dispatched", "plain_loop");
      line.ratio("r1", "cpu_one_reader", "cpu_inline");
      line.value("epoch_border", "epochs", "border over later");
      line.ratio("sklearn", "trainer", ask.results().least({"sklearn", "sklearn_one_thread"}));
      line.again("dispatched", "dispatched_again");
    });
  });
  return status;
}
