// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>

#include <penstock/sample/philox.hpp>

#include "data.hpp"

namespace program_test {

/// Sample i of a smooth function of two features. `hook` is told how many samples were read by now; the `bad`-th one
/// that is read has NaN for a target.
struct curve_data {
  std::uint64_t first, count;
  std::shared_ptr<std::atomic<std::uint64_t>> reads = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::function<void(std::uint64_t)> hook = [](std::uint64_t) {};
  std::uint64_t bad = 0;

  std::uint64_t size() const { return count; }
  trainer::schema schema() const {
    return trainer::schema{penstock::field<float, 1>{"x", {2}}, penstock::field<float>{"y"}};
  }
  void read(std::uint64_t index, const auto& to) const {
    const std::uint64_t read_by_now = ++*reads;
    hook(read_by_now);
    const auto& [x, y] = to;
    penstock::philox random(3, 0, first + index);
    x(0) = random.normal();
    x(1) = 5 + 10 * random.normal();
    y() = read_by_now == bad ? NAN : 1000 * std::sin(x(0)) + 20 * x(1);
  }
};

}  // namespace program_test
