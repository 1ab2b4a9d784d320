// SPDX-License-Identifier: Apache-2.0
// Are the predictions right? Beside closed forms, and beside feeds that run: their own threads, in real time.
#include "check.hpp"

#include <atomic>
#include <barrier>
#include <bit>
#include <cstdio>
#include <thread>

#include <penstock/penstock.hpp>

#include "predict.hpp"

namespace planner {
namespace {

using clock = std::chrono::steady_clock;
using std::chrono::microseconds;

/// Samples that take their time to read, which is counted as it really was.
struct slow_samples {
  std::uint64_t count;
  nanoseconds each;
  std::atomic<std::int64_t>* spent;

  std::uint64_t size() const { return count; }
  auto schema() const { return penstock::schema{penstock::field<float>{"sample"}}; }
  void read(std::uint64_t index, auto& sample) const {
    const auto begin = clock::now();
    std::get<0>(sample)() = static_cast<float>(index);
    std::this_thread::sleep_until(begin + each);
    *spent += (clock::now() - begin).count();
  }
};

/// Runs the plan, whose batch becomes a sample for each part that readers share it in, and whose reads what they really
/// took.
nanoseconds run(plan& of) {
  of.batch = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(of.readers, 1))));
  std::atomic<std::int64_t> spent = 0;
  const auto samples = static_cast<std::uint64_t>(of.steps) * of.batch * of.replicas;
  const slow_samples data{samples, of.read / of.batch, &spent};
  std::vector<std::vector<clock::time_point>> computed(2, std::vector<clock::time_point>(of.replicas));
  std::barrier all(of.replicas);
  clock::time_point begin;

  const auto replica = [&](std::uint64_t rank) {
    const penstock::modelled_device device(
        {.event_latency = of.event_latency, .notice = of.notice, .copy_time = of.copy});
    auto feed = (data | penstock::partition({.world = {rank, static_cast<std::uint64_t>(of.replicas)}}) |
                 penstock::read({.readers = of.readers, .next_epoch = false}) | penstock::batch(of.batch) |
                 penstock::transfer(device, {.depth = of.depth, .host_depth = of.host_depth}))
                    .start();
    auto end = device.make_event();
    all.arrive_and_wait();
    if (rank == 0) begin = clock::now();
    for (auto& batch : feed.epoch(0)) {
      batch.stream().launch(of.compute);
      device.record(end, batch.stream());
      auto& ends = computed[batch.step() % 2];
      ends[rank] = device.completion(end);
      all.arrive_and_wait();
      if (of.replicas > 1) batch.stream().launch(*std::max_element(ends.begin(), ends.end()) - ends[rank] + of.reduce);
      device.record(end, batch.stream());
    }
    computed[0][rank] = device.completion(end);
  };
  {
    std::vector<std::jthread> others;
    for (int rank = 1; rank < of.replicas; ++rank) others.emplace_back(replica, rank);
    replica(0);
  }
  of.read = nanoseconds(spent / static_cast<std::int64_t>(samples) * of.batch);
  return computed[0][0] - begin;
}

bool print(const char* name, const plan& of, nanoseconds wall) {
  const prediction predicted = predict(of);
  const double deviation = static_cast<double>(predicted.wall.count()) / static_cast<double>(wall.count()) - 1;
  std::printf("  %-32s %10.3f ms %10.3f ms %7.2f %%  %.3f %s\n", name,
              static_cast<double>(predicted.wall.count()) / 1e6, static_cast<double>(wall.count()) / 1e6,
              100 * deviation, predicted.efficiency, predicted.bounded_by);
  return std::abs(deviation) <= 0.03;
}

plan of(double read_us, double copy_us, double compute_us, plan rest = {}) {
  rest.read = time_of(read_us, 1e6);
  rest.copy = time_of(copy_us, 1e6);
  rest.compute = time_of(compute_us, 1e6);
  return rest;
}

}  // namespace

bool check() {
  bool right = true;
  std::printf("%-34s %13s %13s %9s  efficiency, bound\n", "against the closed form", "predicted", "by pencil", "off");
  const std::pair<const char*, plan> simple[] = {
      {"read bound", of(300, 100, 100)},
      {"2 readers", of(300, 100, 100, {.readers = 2})},
      {"inline", of(300, 100, 100, {.readers = 0})},
      {"copy bound", of(100, 300, 100)},
      {"compute bound", of(100, 100, 300)},
      {"equal stages", of(100, 100, 100)},
      {"8 steps: the fill counts", of(100, 100, 100, {.steps = 8})},
      {"depth 1: nothing overlaps", of(100, 100, 100, {.depth = 1})},
      {"depth 1 on the host", of(100, 50, 50, {.host_depth = 1})},
      {"latency bound, depth 2", of(1, 20, 20, {.event_latency = microseconds(50), .depth = 2})},
      {"4 replicas, reduce bound", of(100, 50, 100, {.reduce = microseconds(150), .replicas = 4})},
  };
  for (const auto& [name, plan] : simple) right &= print(name, plan, closed_form(plan).value());

  std::printf("%-34s %13s %13s %9s\n", "against feeds in real time", "predicted", "measured", "off");
  const std::pair<const char*, plan> real[] = {
      {"read bound", of(2000, 1000, 500, {.steps = 150})},
      {"2 readers", of(3000, 1200, 1000, {.readers = 2, .steps = 150})},
      {"inline", of(2000, 1000, 1500, {.readers = 0, .steps = 150})},
      {"copy bound", of(1000, 2000, 500, {.steps = 150})},
      {"compute bound", of(500, 1000, 2000, {.steps = 150})},
      {"equal stages of 0.5 ms", of(500, 500, 500, {.steps = 500})},
      {"equal stages of 0.1 ms", of(40, 100, 100, {.steps = 2000})},
      {"depth 1", of(2000, 2000, 2000, {.depth = 1, .steps = 50})},
      {"2 replicas", of(1000, 500, 1000, {.reduce = microseconds(1000), .replicas = 2, .steps = 150})},
  };
  for (auto [name, plan] : real) {
    const nanoseconds wall = run(plan);
    right &= print(name, plan, wall);
  }
  std::puts(right ? "all within 3 %" : "some further off than 3 %");
  return right;
}

}  // namespace planner
