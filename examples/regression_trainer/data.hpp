// SPDX-License-Identifier: Apache-2.0
// All that the trainer knows of its data. Files, splits and pipelines are data.cpp's matter.
#pragma once

#include <cmath>
#include <stop_token>
#include <string>
#include <vector>

#include <penstock/dataset/any_dataset.hpp>
#include <penstock/device/cpu.hpp>
#include <penstock/schedule/feed.hpp>

#include "options.hpp"

namespace trainer {

using schema = penstock::schema<penstock::field<float, 1>, penstock::field<float>>;  // features and target
using table = penstock::any_dataset<schema>;
template <class Device>
using feed_to = penstock::any_feed<schema, Device>;
using feed = feed_to<penstock::cpu_device>;
struct comoments;

/// Standardises samples in place, called by readers; as it is made here, it leaves them as they are. Beyond some
/// `squash` deviations features saturate: the network need not extrapolate to a stone whose length was mistyped.
struct standardise {
  std::vector<float> mean, scale;  // the target's last
  float squash = 0;
  void each(auto& io) { io(mean, scale, squash); }

  void operator()(const auto& sample) const {
    if (mean.empty()) return;
    const auto& [x, y] = sample;
    for (std::size_t j = 0; j < x.size(); ++j) {
      x(j) = (x(j) - mean[j]) / scale[j];
      if (squash > 0) x(j) /= std::sqrt(1 + x(j) * x(j) / (squash * squash));
    }
    y() = (y() - mean.back()) / scale.back();
  }
  /// Back to the target's unit.
  double value(double output) const { return mean.empty() ? output : output * scale.back() + mean.back(); }
};

struct parts {
  table train, validation, test;
};
/// A random choice of samples for each part. Puts into `s` the categories that were found, so that other files' rows
/// get the same numbers.
parts open_parts(settings& s);
/// The rows of a file without a target, as the model trained with the settings `s` wants them; their target is 0.
table open_rows(const std::string& path, const settings& s);

/// All samples in their order, to the CPU.
feed ordered_batches(const table& data, const settings& s, const standardise& inputs);
/// One pass over the data; of no samples if it is stopped.
comoments statistics(const table& data, const settings& s, std::stop_token stop);

}  // namespace trainer
