// SPDX-License-Identifier: Apache-2.0
// Trains a convolutional network on random patches of photos: `patch_trainer --help`.
#include <cstdio>
#include <exception>
#include <filesystem>

#include <penstock/observe/stop_on_signal.hpp>

#include "train.hpp"

int main(int argc, char** argv) try {
  using namespace patch_trainer;
  settings s;
  parse(argc, argv, s);
  if (!s.resume.empty()) {
    const std::string from = s.resume;
    recall(s);
    s.out = (std::filesystem::path(".") / from).parent_path().string();
    parse(argc, argv, s);  // what the command line says goes before
  }
  const penstock::stop_on_signal signals({.notice = "finishing the step; once more ends at once"});
  return static_cast<int>(train(s, signals.token()));
} catch (const std::exception& problem) {
  std::fprintf(stderr, "error: %s\n", problem.what());
  return 1;
}
