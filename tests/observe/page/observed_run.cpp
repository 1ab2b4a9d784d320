// SPDX-License-Identifier: Apache-2.0
// Writes what the observers make of a run that was interrupted at step 70 of 150 and resumed from step 60: for the
// programs that read it. observed_run FOLDER
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <penstock/observe/html_report.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/observe/tensorboard.hpp>

#include "../modelled_events.hpp"

namespace {

constexpr std::uint64_t epochs = 3, steps = 50;

/// Steps `first` to `last`, counted through all epochs.
void run(const std::string& folder, std::uint64_t first, std::uint64_t last, double shift, const char* ending) {
  using namespace penstock_test;
  penstock::tensorboard board(folder + "/tensorboard", {.clock = &modelled_clock, .wall_clock = &modelled_wall_clock});
  penstock::html_report page(folder + "/report.html", {.title = "Smooth & steep <curves>",
                                                       .epochs = epochs,
                                                       .clock = &modelled_clock,
                                                       .wall_clock = &modelled_wall_clock});
  penstock::observer_list all;
  all.add(board);
  all.add(page);
  all.notify(penstock::run_begin{.steps_per_epoch = steps,
                                 .first_epoch = first / steps,
                                 .first_step = first % steps,
                                 .description = "stage    runs on   does\ndataset  readers   150 samples\n"});
  const std::vector<penstock::sample_fault> faults{
      {.sample = 17, .where = {.epoch = 1, .path = "photos/0017.png"}, .problem = "the file is cut off"}};
  for (std::uint64_t i = first; i <= last; ++i) {
    const std::uint64_t epoch = i / steps, step = i % steps;
    const double x = static_cast<double>(i);
    modelled_now += std::chrono::milliseconds(20);
    all.notify(penstock::batch_event{.epoch = epoch,
                                     .step = step,
                                     .samples = 8,
                                     .wait = std::chrono::milliseconds(i % 20),
                                     .steps_in_epoch = steps});
    modelled_now += std::chrono::milliseconds(180);
    const double loss = i == 100 ? std::numeric_limits<double>::quiet_NaN() : std::exp(-x / 30) + 0.1 + shift;
    all.notify(penstock::metric_event{"training/loss", loss, epoch, step});
    all.notify(penstock::metric_event{"validation/loss", 0.2 + 0.5 / (1 + x / 20), epoch, step});
    all.notify(penstock::metric_event{"learning rate", 0.5 + 0.5 * std::cos(x / 150 * 3.14), epoch, step});
    if (step + 1 == steps)
      all.notify(
          penstock::epoch_event{.epoch = epoch, .steps = steps, .faults = epoch == 1 ? faults : decltype(faults){}});
  }
  all.notify(penstock::run_end{ending});
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  run(folder, 0, 70, 1000, "stopped");  // what the first run saw of steps 60 to 70 is void
  run(folder, 60, 149, 0, "done");
}
