// SPDX-License-Identifier: Apache-2.0
// A dataset of one's own: size, schema and read. Here noisy sine waves, computed instead of read.
#include <cmath>
#include <cstdio>

#include <penstock/penstock.hpp>

struct sine_waves {
  std::uint64_t count;

  std::uint64_t size() const { return count; }
  auto schema() const {
    return penstock::schema{penstock::field<float, 1>{"wave", {64}}, penstock::field<float>{"frequency"}};
  }
  void read(std::uint64_t index, auto& sample, penstock::read_context& context) const {
    auto [wave, frequency] = sample;  // views of the sample's final place in the batch
    frequency() = 1 + 0.001f * index;
    for (std::size_t t = 0; t < wave.size(); ++t)
      wave(t) = std::sin(0.1f * frequency() * t) + 0.01f * context.random.normal();
  }
};

int main() {
  sine_waves waves{10'000};
  auto feed = waves | penstock::partition({.seed = 1}) | penstock::read({.readers = 2}) | penstock::batch(32) |
              penstock::transfer(penstock::cpu_device{});

  for (auto& batch : feed.epoch(0)) {
    if (batch.step() == 3) break;  // leaving early is fine: the readers stop
    auto [wave, frequency] = batch.fields();
    std::printf("step %d: %zu waves of %zu points, the first is sample %d of frequency %.3f\n", int(batch.step()),
                wave.extent(0), wave.extent(1), int(batch.indices()[0]), frequency(0));
  }
}
