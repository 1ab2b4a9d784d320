// SPDX-License-Identifier: Apache-2.0
// Trains a regression network on a table: `regression_trainer --help`.
#include <cstdio>
#include <exception>
#include <filesystem>

#include <penstock/observe/stop_on_signal.hpp>

#include "train.hpp"

using namespace trainer;

void predict(const settings& s) {
  const checkpoint model = load(s.model);
  const table rows = open_rows(s.predict, model.options);
  const auto features = std::get<0>(rows.schema().fields).shape[0];
  mlp net(features, model.options.layers, model.options.width, s.batch);
  if (model.inputs.mean.size() != features + 1 || !net.fits(model.network))
    throw penstock::error(penstock::detail::concat("the model is not one of ", features, " features"),
                          {.path = s.model});
  auto batches = ordered_batches(rows, s, model.inputs);
  for (auto& batch : batches.epoch(0))
    for (const float output : net.predict(model.network.parameters, batch.get<0>().data(), batch.size()))
      std::printf("%.9g\n", model.inputs.value(output));
}

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
  const penstock::stop_on_signal signals;
  const parts data = open_parts(s);
  return static_cast<int>(train(s, std::move(from), data, signals.token()));
} catch (const std::exception& problem) {
  std::fprintf(stderr, "error: %s\n", problem.what());
  return 1;
}
