// SPDX-License-Identifier: Apache-2.0
// Trains a regression network on a table: `regression_trainer --help`.
#include <cstdio>
#include <exception>
#include <filesystem>

#include <penstock/observe/stop_on_signal.hpp>

#include "train.hpp"

using namespace trainer;

int main(int argc, char** argv) try {
  settings s;
  parse(argc, argv, s);
  if (!s.predict.empty()) return predict(s), 0;
  std::optional<checkpoint> from;
  if (!s.resume.empty()) {
    const auto file = std::filesystem::path(".") / s.resume;
    from = load(s.resume);
    s = from->options;
    s.out = file.parent_path().string();
    parse(argc, argv, s);  // what the command line says goes before
  }
  choose_device(s);  // what cannot be says so before any file is opened
  const penstock::stop_on_signal signals;
  const parts data = open_parts(s);
  return static_cast<int>(train(s, std::move(from), data, signals.token()));
} catch (const std::exception& problem) {
  std::fprintf(stderr, "error: %s\n", problem.what());
  return 1;
}
