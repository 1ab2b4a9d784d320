// SPDX-License-Identifier: Apache-2.0
// Datasets composed by ranges: what others call combined, transformed and subset datastores are views of range-v3 here.
#include <cmath>
#include <cstdio>
#include <vector>

#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/stride.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/transform.hpp>
#include <range/v3/view/zip.hpp>

#include <penstock/interop/range_v3.hpp>
#include <penstock/penstock.hpp>

int main() {
  namespace views = ranges::views;

  std::vector<float> heights(1000), weights(1000);
  for (int i = 0; i < 1000; ++i) {
    heights[i] = 1.5f + 0.0005f * i;
    weights[i] = 22 * heights[i] * heights[i];
  }

  // Zipped, transformed and thinned: a random-access range of (feature, target) pairs, computed when it is read.
  const auto square = [](float height) { return height * height; };
  auto people = views::zip(heights | views::transform(square), weights) | views::stride(2);

  auto feed = std::move(people) | penstock::partition({.seed = 3}) | penstock::read() | penstock::batch(100) |
              penstock::transfer(penstock::cpu_device{});

  // And the batches are a range, too.
  for (auto&& [number, batch] : feed.epoch(0) | views::take(3) | views::enumerate) {
    auto [squared_height, weight] = batch.fields();
    double sum = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) sum += weight(i) / squared_height(i);
    std::printf("batch %d: %zu people, mean body mass index %.2f\n", int(number), batch.size(), sum / batch.size());
  }
}
