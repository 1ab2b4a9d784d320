// SPDX-License-Identifier: Apache-2.0
// What the ledger says of a run on a GPU, beside what is known otherwise: kernels that take a stated time, copies timed
// by themselves, the whole by a clock, and what the closed form of the planner predicts of them. A line for each check
// and `figure NAME=VALUE`; exit status 0, 1 after a failure, 77 where there is no GPU.
//
//   nvcc -std=c++20 -O2 -arch=native -Iinclude tests/gpu/ledger.cu -o ledger && ./ledger
// ctest: serial
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <penstock/device/cuda.hpp>
#include <penstock/observe/ledger.hpp>
#include <penstock/penstock.hpp>

#include "check.hpp"

namespace {

using seconds = std::chrono::duration<double>;

/// One thread that is busy for so many nanoseconds of the GPU's timer.
__global__ void spin(std::uint64_t nanoseconds) {
  std::uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

/// Samples of 64 KiB; reading one takes its CPU for a stated time.
struct timed {
  using schema_type = penstock::schema<penstock::field<float, 1>>;
  std::chrono::nanoseconds each;
  std::uint64_t samples;
  std::uint64_t size() const { return samples; }
  schema_type schema() const { return schema_type{penstock::field<float, 1>{"x", {16384}}}; }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    const auto until = std::chrono::steady_clock::now() + each;
    std::get<0>(to)(0) = static_cast<float>(index);
    while (std::chrono::steady_clock::now() < until) {
    }
  }
};

double error_of(double found, double wanted) { return 100 * (found / wanted - 1); }

std::string run(const char* name, double read_ms, double kernel_ms) {
  constexpr std::uint64_t steps = 200, batch = 16;
  const timed data{std::chrono::nanoseconds(static_cast<std::int64_t>(1e6 * read_ms / batch)), steps * batch};
  penstock::ledger ledger;
  double wall = 0;
  {
    auto feed = (data | penstock::partition() | penstock::read() | penstock::batch(batch) |
                 penstock::transfer(penstock::cuda_device(0)))
                    .start();
    feed.observe(ledger);
    const auto begin = std::chrono::steady_clock::now();
    for (auto& one : feed.epoch(0)) spin<<<1, 1, 0, one.stream()>>>(static_cast<std::uint64_t>(1e6 * kernel_ms));
    cudaDeviceSynchronize();
    wall = seconds(std::chrono::steady_clock::now() - begin).count();
  }
  const auto values = ledger.total();
  const double copy_ms = 1e3 * seconds(values.transfer.busy).count() / steps;
  const double kernels = error_of(1e3 * seconds(values.compute.busy).count() / steps, kernel_ms);
  const double reads = error_of(1e3 * seconds(values.read.busy).count() / steps, read_ms);
  const double longest = std::max({read_ms, copy_ms, kernel_ms});
  const double predicted = 1e-3 * (read_ms + copy_ms + kernel_ms + (steps - 1) * longest);
  const double elapsed = error_of(seconds(values.elapsed).count(), wall);
  std::printf("%s\nfigure %s=kernels %+.1f %%, reads %+.1f %%, elapsed %+.1f %% of the wall's, planner %+.1f %%\n",
              values.text().c_str(), name, kernels, reads, elapsed, error_of(predicted, wall));
  if (values.steps != steps) return "the ledger counts " + std::to_string(values.steps) + " steps";
  if (std::abs(kernels) > 5) return "kernels are off by " + std::to_string(kernels) + " %";
  if (std::abs(elapsed) > 5) return "the elapsed time is off by " + std::to_string(elapsed) + " %";
  const auto wanted = read_ms > kernel_ms ? penstock::bound::reading : penstock::bound::compute;
  return values.bound_by() == wanted ? "" : "it says: " + values.verdict();
}

}  // namespace

int main() {
  if (!penstock::cuda_device::is_available()) {
    std::puts("skipped: there is no GPU here");
    return 77;
  }
  check("compute bounds", [] { return run("compute_bound", 0.5, 2); });
  check("reading bounds", [] { return run("read_bound", 2, 0.5); });
  return failures != 0;
}
