// SPDX-License-Identifier: Apache-2.0
// The host core in a .cu file: every header of it together, and pipelines of it, which run on the CPU.
#include "core_headers.hpp"

#include <cuda/stream_ref>

#include <cstdint>
#include <cstdio>
#include <ranges>
#include <string>
#include <tuple>
#include <vector>

namespace {

int failures = 0;
void expect(bool right, const char* what) {
  if (!right) std::printf("FAILED: %s\n", what);
  failures += !right;
}

/// A stream goes into libcu++ as it is.
[[maybe_unused]] cuda::stream_ref reference_to(penstock::cuda_stream_view stream) { return stream; }

/// Kernels draw random numbers and read views that batches give.
__global__ void augment(penstock::tensor_view<float, 2, penstock::device_memory> x,
                        penstock::tensor_view<const std::int32_t, 1, penstock::device_memory> label,
                        const penstock::step_header* step) {
  for (std::uint32_t row = threadIdx.x; row < step->count; row += blockDim.x) {
    penstock::philox random(7, step->epoch, step->first + row);
    for (std::size_t i = 0; i < x.extent(1); ++i)
      x(row, i) += label(row) == 0 ? random.normal() : random.uniform(-1, 1) * static_cast<float>(random.below(3));
    x[row][0] = 0;
  }
}

constexpr std::int64_t samples = 1000;
struct sum_of_labels {
  template <class Batch>
  std::int64_t operator()(std::int64_t sum, Batch& batch) const {
    for (const std::int32_t label : batch.template host<1>()) sum += label;
    return sum;
  }
  std::int64_t finish(std::int64_t sum) const { return 2 * sum; }
};

template <class Device>
std::int64_t sum_on(const Device& device) {
  const auto rows = std::views::iota(std::int64_t{0}, samples) | std::views::transform([](std::int64_t i) {
                      return std::tuple{std::vector<float>(3, 0.5f), static_cast<std::int32_t>(i)};
                    });
  const auto work = rows | penstock::partition({.seed = 3}) | penstock::read({.readers = 2}) | penstock::batch(64) |
                    penstock::transfer(device) | penstock::reduce(std::int64_t{0}, sum_of_labels{});
  return penstock::run(work, {.epochs = 2}).value();
}

void read_a_table() {
  const std::string path = "core_table.csv";
  if (std::FILE* const file = std::fopen(path.c_str(), "w")) {
    std::fputs("a,b,y\n1,2,3\n4,5,6\n", file);
    std::fclose(file);
  }
  auto feed = penstock::csv_table(path, {.target = "y"}) | penstock::partition({.shuffle = penstock::shuffle::none}) |
              penstock::read({.readers = 0}) | penstock::batch(2) | penstock::transfer(penstock::cpu_device{});
  for (auto& batch : feed.epoch(0)) {
    auto [x, y] = batch.fields();
    expect(x(1, 1) == 5 && y(1) == 6, "a table's cells");
  }
  std::remove(path.c_str());
}

}  // namespace

int main() {
  (void)&augment;
  constexpr std::int64_t wanted = samples * (samples - 1);
  expect(sum_on(penstock::cpu_device{}) == wanted, "a run on the CPU");
  expect(sum_on(penstock::modelled_device{}) == wanted, "a run on a modelled device");
  read_a_table();
  std::puts(failures == 0 ? "ok" : "not all is right");
  return failures == 0 ? 0 : 1;
}
