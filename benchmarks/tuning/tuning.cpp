// SPDX-License-Identifier: Apache-2.0
// How much is lost where readers and depth are left to the feed? Workloads that are bound by reading, copying or
// computing, that have bursts, and that change, on a modelled device in real time; reading waits, as for storage. The
// time of a step once 70 have passed (since the change, where there is one), automatic over the best of all fixed
// settings: 1 to as many readers as there are CPUs, depth 2, 3, 6 and 16.
//
//   tuning [--scale 1]   multiplies all times
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <contest.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>

namespace {

using clock_type = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::uint64_t batch = 8, settling = 70, measured = 120, change = 150;

struct workload {
  std::string name;
  double read_us, read_us_after;  // of a batch by one reader; and after the change, if there is one
  double burst_us;                // of one sample in every eighth batch
  double copy_us, kernel_us;

  bool changes() const { return read_us != read_us_after; }
  std::uint64_t first() const { return (changes() ? change : 0) + settling; }
  std::uint64_t steps() const { return first() + measured; }
};

nanoseconds from_us(double time, double scale) {
  return nanoseconds(static_cast<nanoseconds::rep>(time * scale * 1e3));
}

/// Samples are their numbers, in order: so a sample knows its step.
class dataset {
 public:
  using schema_type = penstock::schema<penstock::field<std::uint64_t>>;

  dataset(const workload& of, double scale) : of_(of), scale_(scale) {}
  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    auto end = clock_type::now();
    for (std::size_t row = 0; row < indices.size(); ++row) {
      std::get<0>(to)(row) = indices[row];
      const std::uint64_t step = indices[row] / batch;
      const bool burst = step % 8 == 7 && indices[row] % batch == 0;
      end += from_us((step < change ? of_.read_us : of_.read_us_after) / batch + (burst ? of_.burst_us : 0), scale_);
    }
    std::this_thread::sleep_until(end);
  }
  std::uint64_t size() const { return of_.steps() * batch; }
  schema_type schema() const { return schema_type({"x"}); }

 private:
  workload of_;
  double scale_;
};

contest::figures run(const workload& of, int readers, int depth, double scale) {
  const penstock::modelled_device device(
      {.event_latency = std::chrono::microseconds(3), .copy_time = from_us(of.copy_us, scale), .poison = false});
  auto feed =
      (dataset(of, scale) | penstock::partition({.shuffle = penstock::shuffle::none}) |
       penstock::read({.readers = readers}) | penstock::batch(batch) | penstock::transfer(device, {.depth = depth}))
          .start();
  std::vector<penstock::modelled_event> ends;
  for (int i = 0; i < 2; ++i) ends.push_back(device.make_event());
  std::uint64_t unsettled = 0, step = 0;
  for (auto& one : feed.epoch(0)) {
    one.stream().launch(from_us(of.kernel_us, scale));
    if (step == of.first() - 1) device.record(ends[0], one.stream());
    if (step == of.steps() - 1) device.record(ends[1], one.stream());
    if (!feed.tuning().settled) unsettled = step + 1;
    ++step;
  }
  const auto wall = device.completion(ends[1]) - device.completion(ends[0]);
  const double us = static_cast<double>(wall.count()) * 1e-3 / measured;
  const auto chosen = feed.tuning();
  const std::uint64_t since = of.changes() && unsettled > change ? unsettled - change : unsettled;
  if (readers != penstock::automatic) return {us};
  return {us, {{"settled_after", static_cast<double>(since)}, {"readers", chosen.readers}, {"depth", chosen.depth}}};
}

}  // namespace

int main(int argc, char** argv) {
  contest::question ask("tuning", "us per step", argc, argv);
  double scale = 1;
  ask.guarded([&] { scale = ask.sizes.number("scale", 1); });
  const int most = std::max(2, static_cast<int>(contest::cpus().size()));
  ask.fact("reading", "waits, as for storage; in batches of 8 samples, by the workload's name in us");
  const std::vector<workload> workloads{{"read_bound", 2000, 2000, 0, 200, 600},
                                        {"copy_bound", 500, 500, 0, 1000, 500},
                                        {"compute_bound", 500, 500, 0, 200, 1000},
                                        {"bursty", 200, 200, 4000, 100, 900},
                                        {"phase_change", 300, 2000, 0, 200, 500}};
  std::vector<std::vector<std::string>> fixed;
  for (const workload& of : workloads) {
    ask.add(of.name + "_automatic", [=] { return run(of, penstock::automatic, penstock::automatic, scale); });
    auto& names = fixed.emplace_back();
    for (int readers = 1; readers <= most; readers *= 2)
      for (const int depth : {2, 3, 6, 16}) {
        names.push_back(of.name + "_" + std::to_string(readers) + "_" + std::to_string(depth));
        ask.add(names.back(), [=] { return run(of, readers, depth, scale); });
      }
  }
  ask.add("read_bound_again", [=] { return run(workloads[0], penstock::automatic, penstock::automatic, scale); });
  return ask.run([&](contest::line& line) {
    for (std::size_t i = 0; i < fixed.size(); ++i) {
      const std::string& name = workloads[i].name;
      line.ratio(name, name + "_automatic", ask.results().least(fixed[i]));
      line.value(name + "_steps", name + "_automatic", "settled_after");
    }
    line.again("read_bound_automatic", "read_bound_again");
  });
}
