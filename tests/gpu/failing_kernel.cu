// SPDX-License-Identifier: Apache-2.0
// A kernel of the application's own that goes wrong: the feed ends with one error that says so, everything is put away,
// and the process ends by itself. Exit status 0, 1 after a failure, 77 where there is no GPU.
#include <cstdio>
#include <ranges>
#include <string>
#include <tuple>

#include <penstock/device/cuda.hpp>
#include <penstock/penstock.hpp>

__global__ void fail(int* nowhere, std::uint64_t step) {
  if (step == 5) *nowhere = 1;
}

int main() {
  if (!penstock::cuda_device::is_available()) return std::puts("skipped: there is no GPU"), 77;
  bool right = false;
  {
    auto numbers = std::views::iota(0, 1'000'000) | std::views::transform([](int n) { return std::tuple(n); });
    auto feed = (numbers | penstock::partition() | penstock::read({.readers = 2, .timeout = std::chrono::seconds(20)}) |
                 penstock::batch(100) | penstock::transfer(penstock::cuda_device(0), {.depth = 2}))
                    .start();
    try {
      for (auto& batch : feed.epoch(0)) fail<<<1, 1, 0, batch.stream()>>>(nullptr, batch.step());
      std::puts("FAILED the feed took no notice of it");
    } catch (const penstock::error& caught) {
      std::printf("%s\n", caught.what());
      try {
        caught.rethrow_cause();
      } catch (const penstock::cuda_error& cause) {
        right = cause.is_sticky() && !cause.call().empty() && caught.where().step && caught.where().epoch == 0;
      }
    }
  }
  std::puts(right ? "ok     a kernel that goes wrong ends the feed with an error that says so"
                  : "FAILED the error is not that of a lost device");
  return right ? 0 : 1;
}
