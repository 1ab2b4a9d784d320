// SPDX-License-Identifier: Apache-2.0
// Watching a run: in the terminal, in a table, in TensorBoard, on a page for the browser, and by an observer of one's
// own.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include <penstock/dataset/csv.hpp>
#include <penstock/observe/csv_log.hpp>
#include <penstock/observe/html_report.hpp>
#include <penstock/observe/progress.hpp>
#include <penstock/observe/stop_on_signal.hpp>
#include <penstock/observe/tensorboard.hpp>
#include <penstock/penstock.hpp>

// An observer of one's own: any type with the events that it wants. It remembers the best epoch.
struct best_epoch {
  double sum = 0, count = 0, best = INFINITY;
  std::uint64_t epoch = 0;

  void on_metric(const penstock::metric_event& event) { sum += event.value, count += 1; }
  void on_epoch(const penstock::epoch_event& event) {
    if (count > 0 && sum / count < best) best = sum / count, epoch = event.epoch;
    sum = count = 0;
  }
};

// The logarithm of a diamond's price from weight and proportions, by stochastic gradient descent.
struct model {
  double weights[4] = {};

  double step(const auto& batch, double rate) {
    const auto [x, y] = batch.fields();
    double gradient[4] = {}, squares = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const double inputs[] = {1, std::log(x(i, 0)), x(i, 1) / 10 - 6, x(i, 2) / 10 - 6};
      double error = -std::log(y(i));
      for (int j = 0; j < 4; ++j) error += weights[j] * inputs[j];
      for (int j = 0; j < 4; ++j) gradient[j] += error * inputs[j];
      squares += error * error;
    }
    for (int j = 0; j < 4; ++j) weights[j] -= rate * gradient[j] / batch.size();
    return std::sqrt(squares / batch.size());
  }
};

int main(int argc, char** argv) {
  const char* file = argc > 1 ? argv[1] : "examples/data/diamonds.csv";
  const std::string out = argc > 2 ? argv[2] : (std::filesystem::temp_directory_path() / "penstock-monitor").string();
  std::filesystem::create_directories(out);

  penstock::stop_on_signal stop({.notice = "finishing the step; once more ends at once"});  // Ctrl-C
  penstock::csv_log table(out + "/steps.csv");
  penstock::tensorboard board(out + "/tensorboard");
  penstock::html_report page(out + "/report.html", {.title = "Diamonds", .epochs = 6});
  best_epoch best;

  const auto work = penstock::csv_table(file, {.target = "price", .columns = {"carat", "depth", "table"}}) |
                    penstock::partition({.seed = 7}) | penstock::read({.readers = 1}) | penstock::batch(256) |
                    penstock::transfer(penstock::cpu_device{});

  // In a loop of one's own: observers that are kept are referred to, temporaries are the feed's.
  model network;
  auto feed = work.start();
  feed.describe_as(penstock::describe(work));
  feed.observe(penstock::progress_bar{{.epochs = 6}});
  feed.observe(table);
  feed.observe(board);
  feed.observe(page);
  feed.observe(best);
  feed.stop_when(stop.token());
  for (int epoch = 0; epoch < 6; ++epoch)
    for (auto& batch : feed.epoch(epoch)) feed.report("loss", network.step(batch, 0.3 / (1 + epoch)));
  feed.finish(stop.stopped() ? "stopped" : "done");
  std::printf("epoch %d was the best, with a loss of %.4f\n", int(best.epoch + 1), best.best);
  std::printf("steps: %s/steps.csv\npage: %s\ncurves: tensorboard --logdir %s/tensorboard\n", out.c_str(),
              page.path().c_str(), out.c_str());

  // The same observers of a pipeline that run() drives: they begin anew.
  const auto count = penstock::run(work | penstock::reduce(0.0, [](double& sum, auto& batch) { sum += batch.size(); }),
                                   {.epochs = 1, .stop = stop.token()}, penstock::progress_bar{},
                                   penstock::csv_log(out + "/epochs.csv", {.rows = penstock::log_rows::epochs}));
  if (stop.stopped()) return std::printf("%s\n", stop.reason().data()), 128 + stop.signal();
  std::printf("%.0f diamonds; epochs: %s/epochs.csv\n", count.value(), out.c_str());
}
