// SPDX-License-Identifier: Apache-2.0
// Feeds on a GPU, kernels that look at every batch: streams of all kinds, further streams, results, replayed graphs,
// and errors. A program of its own; a line for each check; exit status 0, 1 after a failure, 77 where there is no GPU.
//
//   nvcc -std=c++20 -O2 -arch=native -Iinclude tests/gpu/device.cu -o device && ./device
// ctest: sanitize
// ctest: per-thread
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <penstock/device/cuda.hpp>
#include <penstock/device/cuda_graph.hpp>
#include <penstock/device/results.hpp>
#include <penstock/penstock.hpp>

#include "check.hpp"

namespace {

constexpr std::size_t width = 1000, samples = 403, size = 32, steps = 13;

/// Sample i is `width` times i.
struct rows {
  std::uint64_t size() const { return samples; }
  auto schema() const {
    return penstock::schema{penstock::field<std::uint32_t, 1>{"values", {width}}, penstock::field<std::uint32_t>{"id"}};
  }
  void read(std::uint64_t index, const auto& to) const {
    const auto [values, id] = to;
    for (std::size_t i = 0; i < width; ++i) values[i] = static_cast<std::uint32_t>(index);
    id() = static_cast<std::uint32_t>(index);
  }
};

/// Counts the values that are right: as many as the batch has. Slow on purpose, so that it is overtaken if it can be.
__global__ void look(const std::uint32_t* values, const std::uint32_t* ids, const penstock::step_header* header,
                     unsigned long long* right, unsigned long long* headers) {
  const unsigned row = blockIdx.x;
  for (int wait = 0; wait < 20; ++wait) __nanosleep(500);
  const std::uint32_t wanted = static_cast<std::uint32_t>(header->first + row);
  if (row >= header->count) return;
  for (unsigned i = threadIdx.x; i < width; i += blockDim.x)
    if (values[row * width + i] == wanted && ids[row] == wanted) atomicAdd(right, 1ull);
  if (row == 0 && threadIdx.x == 0 && header->step == header->first / size &&
      header->scalars[0] == static_cast<float>(header->step) / 2)
    atomicAdd(headers, 1ull);
}

/// Counters on the device.
struct counters {
  explicit counters(const penstock::cuda_device& device) : memory(device.allocate(2 * sizeof(unsigned long long))) {
    penstock::detail::cuda_check(cudaMemset(memory.data(), 0, memory.size()), "cudaMemset");
    penstock::detail::cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  unsigned long long* at(std::size_t i) const { return reinterpret_cast<unsigned long long*>(memory.data()) + i; }
  unsigned long long value(std::size_t i) const {
    unsigned long long result = 0;
    penstock::detail::cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    penstock::detail::cuda_check(cudaMemcpy(&result, at(i), sizeof(result), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return result;
  }
  penstock::cuda_memory memory;
};

template <class Batch>
void launch(Batch& batch, cudaStream_t stream, const counters& to) {
  look<<<static_cast<unsigned>(batch.rows()), 128, 0, stream>>>(
      batch.template get<0>().data(), batch.template get<1>().data(), batch.header(), to.at(0), to.at(1));
  penstock::detail::cuda_check(cudaGetLastError(), "look");
}

auto feed_on(const penstock::cuda_device& device, int readers, int depth,
             std::optional<penstock::cuda_stream_view> consumer = {}) {
  return (rows{} | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = readers}) |
          penstock::batch(size) |
          penstock::transfer(device, {.depth = depth,
                                      .consumer = consumer,
                                      .scalars = [](const penstock::batch_info& at,
                                                    std::span<float> to) { to[0] = static_cast<float>(at.step) / 2; }}))
      .start();
}

std::string expect(const counters& found, std::uint64_t epochs) {
  const auto right = found.value(0), headers = found.value(1);
  if (right == epochs * samples * width && headers == epochs * steps) return {};
  return penstock::detail::concat(right, " values and ", headers, " headers were right, wanted ",
                                  epochs * samples * width, " and ", epochs * steps);
}

}  // namespace

int main() {
  if (!penstock::cuda_device::is_available()) return std::puts("skipped: there is no GPU"), 77;
  const penstock::cuda_device device(0);
  std::printf("%s\n", device.describe().c_str());

  for (const int readers : {0, 2})
    for (const int depth : {1, 2, 3})
      check(penstock::detail::concat("kernels see their batch, ", readers, " readers, depth ", depth).c_str(), [&] {
        const counters found(device);
        {
          auto feed = feed_on(device, readers, depth);
          for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
            for (auto& batch : feed.epoch(epoch)) launch(batch, batch.stream(), found);
        }
        return expect(found, 3);
      });

  for (const auto consumer : {penstock::cuda_stream_view::legacy(), penstock::cuda_stream_view::per_thread()})
    check(consumer == penstock::cuda_stream_view::legacy() ? "the legacy stream as the consumer's"
                                                           : "the per-thread default stream as the consumer's",
          [&] {
            const counters found(device);
            {
              auto feed = feed_on(device, 2, 2, consumer);
              for (auto& batch : feed.epoch(0)) launch(batch, consumer, found);
            }
            return expect(found, 1);
          });

  check("work on a further stream that was named", [&] {
    const counters found(device);
    const auto other = device.make_stream();
    auto arrived = device.make_event();
    {
      auto feed = feed_on(device, 2, 2);
      for (auto& batch : feed.epoch(0)) {
        device.record(arrived, batch.stream());
        device.wait(other.view(), arrived);
        launch(batch, other.view(), found);
        batch.used_on(other.view());
      }
    }
    return expect(found, 1);
  });

  check("a captured step is replayed with each step's own data and scalars", [&] {
    const counters found(device);
    penstock::captured step([&](auto& batch) { launch(batch, batch.stream(), found); });
    {
      auto feed = feed_on(device, 2, 2);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
        for (auto& batch : feed.epoch(epoch)) step(batch);
    }
    if (step.graphs() != 2) return penstock::detail::concat(step.graphs(), " graphs, wanted 2");
    return expect(found, 3);
  });

  check("what cannot be captured is an error, and the stream works on", [&] {
    auto feed = feed_on(device, 2, 2);
    auto batch = feed.next();
    penstock::captured waits([](auto& on) { on.stream().synchronize(); });
    try {
      waits(batch);
      return std::string("it was captured");
    } catch (const penstock::error& caught) {
      if (std::string(caught.what()).find("what a CUDA graph cannot hold") == std::string::npos)
        return std::string(caught.what());
    }
    if (cudaPeekAtLastError() != cudaSuccess) return std::string("an error was left behind");
    batch.stream().synchronize();
    return std::string();
  });

  check("results come back in order and whole", [&] {
    const counters found(device);
    penstock::results<unsigned long long, penstock::cuda_device> totals(device);
    std::string wrong;
    std::uint64_t taken = 0;
    const auto look_at = [&](const auto& one) {
      const std::uint64_t count = (taken + 1) * size < samples ? (taken + 1) * size : samples;
      if (one.step != taken || one.values[0] != count * width)
        wrong = penstock::detail::concat("step ", one.step, ": ", one.values[0], ", wanted ", count * width);
      ++taken;
    };
    auto feed = feed_on(device, 2, 2);
    for (auto& batch : feed.epoch(0)) {
      launch(batch, batch.stream(), found);
      totals.enqueue(found.at(0), batch.stream(), batch.step());
      while (const auto one = totals.next()) look_at(*one);
    }
    while (const auto one = totals.wait()) look_at(*one);
    return taken == steps ? wrong : penstock::detail::concat(taken, " results, wanted ", steps);
  });

  check("a launch that failed is reported as pending, and the feed goes on", [&] {
    const counters found(device);
    {
      auto feed = feed_on(device, 2, 2);
      look<<<1, 100'000>>>(nullptr, nullptr, nullptr, nullptr, nullptr);  // too many threads
      try {
        (void)feed.next();
        return std::string("it was not reported");
      } catch (const penstock::error& caught) {
        if (std::string(caught.what()).find("was pending") == std::string::npos) return std::string(caught.what());
      }
      if (cudaGetLastError() != cudaErrorInvalidConfiguration) return std::string("the error was swallowed");
      for (auto& batch : feed.epoch(0)) launch(batch, batch.stream(), found);
    }
    return expect(found, 1);
  });

  check("the current device and the last error are left as they were", [&] {
    if (penstock::cuda_device::count() < 2)
      return std::puts("       (there is one device: nothing to see)"), std::string();
    int before = -1, after = -1;
    cudaGetDevice(&before);
    {
      auto feed = feed_on(penstock::cuda_device(penstock::cuda_device::count() - 1), 2, 2);
      for (auto& batch : feed.epoch(0)) batch.stream().synchronize();
    }
    cudaGetDevice(&after);
    if (before != after) return penstock::detail::concat("device ", after, ", wanted ", before);
    return cudaPeekAtLastError() == cudaSuccess ? std::string() : std::string("an error was left behind");
  });

  std::printf("%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}
