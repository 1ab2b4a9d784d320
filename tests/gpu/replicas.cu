// SPDX-License-Identifier: Apache-2.0
// Replicas on GPUs, in one process without NCCL: several on one device, or on those that are named. A program of its
// own: a line for each check; exit status 0, 1 after a failure, 77 where there is no GPU.
//
//   nvcc -std=c++20 -O2 -arch=native -Iinclude tests/gpu/replicas.cu -o replicas && ./replicas
//   ./replicas --figures --devices 0,1     measures, too: lines `figure NAME=VALUE`; on both devices
// ctest: sanitize
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <penstock/communicator/local.cuh>

#include "check.hpp"
#include "replicas.cuh"

namespace {

using namespace replicated_on_gpus;
using penstock::cuda_device;
using penstock::cuda_stream_view;
using penstock::local_cuda_world;
using penstock::reduction;

using ordinals = std::vector<int>;
std::string name_of(const ordinals& where) {
  std::string result;
  for (const int one : where) {
    if (!result.empty()) result += ',';
    result += std::to_string(one);
  }
  return result;
}
local_cuda_world world_on(const ordinals& where) {
  std::vector<cuda_device> devices;
  for (const int one : where) devices.emplace_back(one);
  return local_cuda_world(std::move(devices));
}

// ---- exchanges without a feed

/// `body(communicator)` on a thread for each rank; what the first one says that says something.
template <class Body>
std::string on_ranks(const ordinals& where, Body&& body) {
  auto world = world_on(where);
  world.begin({.timeout = std::chrono::seconds(20)}, 1000);
  std::vector<std::string> wrong(where.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t n = 0; n < where.size(); ++n)
      threads.emplace_back([&, n] {
        try {
          auto one = world.join(n);
          wrong[n] = body(one);
        } catch (const std::exception& caught) {
          wrong[n] = caught.what();
        }
        if (!wrong[n].empty()) world.abort(n, {}, wrong[n]);
      });
  }
  for (const std::string& one : wrong)
    if (!one.empty()) return one;
  return {};
}
template <class Communicator>
void post(Communicator& one, std::uint64_t number, double weight, std::span<const penstock::reduce_buffer> buffers,
          cuda_stream_view on, bool early = false) {
  penstock::control_words words;
  words.sums[penstock::control_words::weight] = weight;
  std::uint64_t count = 0;
  for (const auto& each : buffers) count += each.count;
  words.describe(number + 1, count);
  one.post({.number = number, .step = number, .words = words, .buffers = buffers, .early = early, .stream = on});
}

template <class T, class Communicator>
std::string reduces(Communicator& one, cuda_stream_view on, std::uint64_t& number) {
  const std::uint64_t n = one.size(), rank = one.rank(), idle = n > 2 ? 1 : n;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{3}, std::size_t{33}, std::size_t{5003}, std::size_t{3000001}})
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
      const device_array<T> sum(one.device(), size, offset), most(one.device(), size), mean(one.device(), size, offset);
      std::vector<T> values(size);
      for (std::size_t i = 0; i < size; ++i)
        values[i] = rank != idle                            ? static_cast<T>(i % 1000 + rank)
                    : std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN()
                                                            : std::numeric_limits<T>::max();
      for (const auto* each : {&sum, &most, &mean}) each->write(values);
      const double weight = rank == idle ? 0 : static_cast<double>(rank + 1);
      const std::array<penstock::reduce_buffer, 3> buffers{
          penstock::buffer(sum, reduction::sum), penstock::buffer(most, reduction::maximum), penstock::buffer(mean)};
      post(one, number++, weight, std::span(buffers).first(std::floating_point<T> ? 3 : 2), on);
      const auto sums = sum.read(on), greatest = most.read(on), means = mean.read(on);
      double total = 0;
      std::uint64_t ranks = 0, offsets = 0, last = 0;
      for (std::uint64_t r = 0; r < n; ++r)
        if (r != idle) total += static_cast<double>(r + 1), ++ranks, offsets += r, last = r;
      for (std::size_t i = 0; i < size; ++i) {
        const std::uint64_t x = i % 1000;
        if (sums[i] != static_cast<T>(ranks * x + offsets)) return "a sum is wrong, of " + std::to_string(size);
        if (greatest[i] != static_cast<T>(x + last)) return "a maximum is wrong, of " + std::to_string(size);
        if constexpr (std::floating_point<T>) {
          // The host's own operations: the bits are the same.
          T wanted{};
          bool first = true;
          for (std::uint64_t r = 0; r < n; ++r) {
            if (r == idle) continue;
            const volatile T term = static_cast<T>(static_cast<double>(r + 1) / total) * static_cast<T>(x + r);
            wanted = first ? T{term} : wanted + term;
            first = false;
          }
          if (means[i] != wanted) return "a mean has other bits than on the host, of " + std::to_string(size);
        }
      }
    }
  return {};
}
std::string reduces_everything(const ordinals& where) {
  return on_ranks(where, [](auto& one) -> std::string {
    const auto stream = one.device().make_stream();
    std::uint64_t number = 0;
    std::string wrong = reduces<float>(one, stream.view(), number);
    if (wrong.empty()) wrong = reduces<double>(one, stream.view(), number);
    if (wrong.empty()) wrong = reduces<std::int32_t>(one, stream.view(), number);
    if (wrong.empty()) wrong = reduces<std::int64_t>(one, stream.view(), number);
    if (wrong.empty()) wrong = reduces<std::uint32_t>(one, stream.view(), number);
    if (wrong.empty()) wrong = reduces<std::uint64_t>(one, stream.view(), number);
    return wrong;
  });
}

/// Keeps a stream busy for a while, on one multiprocessor.
__global__ void spin(long long nanoseconds) {
  const auto now = [] {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  const unsigned long long begin = now();
  while (now() - begin < static_cast<unsigned long long>(nanoseconds)) {
  }
}

// A host that waited would take the kernels' half a second.
std::string the_host_waits_for_nothing(const ordinals& where) {
  return on_ranks(where, [](auto& one) -> std::string {
    const auto stream = one.device().make_stream();
    const device_array<float> values(one.device(), 1000);
    values.write(std::vector<float>(1000, 1.0f));
    const penstock::reduce_buffer buffers[] = {penstock::buffer(values)};
    post(one, 0, 1, buffers, stream.view());
    stream.view().synchronize();
    one.all_gather({});
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t number = 1; number <= 10; ++number) {
      penstock::detail::cuda_launch("spin", &spin, 1, 1, stream.view(), 50'000'000LL);
      post(one, number, 1, buffers, stream.view());
    }
    const auto took = std::chrono::steady_clock::now() - begin;
    const auto found = values.read(stream.view());
    if (took > std::chrono::milliseconds(250)) return "the host has waited for the device";
    return found[999] == 1.0f ? "" : "a value is wrong";
  });
}

// ---- figures

using seconds = std::chrono::duration<double>;

double copy_speed(const cuda_device& device, std::size_t bytes) {
  const penstock::detail::cuda_scope scope(device.ordinal());
  const auto from = device.allocate(bytes), to = device.allocate(bytes);
  const auto stream = device.make_stream();
  const auto copies = [&](int n) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < n; ++i)
      penstock::detail::cuda_check(
          cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream.view()), "cudaMemcpyAsync");
    stream.view().synchronize();
    return seconds(std::chrono::steady_clock::now() - begin).count() / n;
  };
  copies(3);
  return static_cast<double>(bytes) / copies(30);
}
double peer_speed(int from_device, int to_device, std::size_t bytes) {
  const cuda_device a(from_device), b(to_device);
  const auto from = a.allocate(bytes), to = b.allocate(bytes);
  const auto stream = b.make_stream();
  const auto copies = [&](int n) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < n; ++i)
      penstock::detail::cuda_check(
          cudaMemcpyPeerAsync(to.data(), to_device, from.data(), from_device, bytes, stream.view()),
          "cudaMemcpyPeerAsync");
    stream.view().synchronize();
    return seconds(std::chrono::steady_clock::now() - begin).count() / n;
  };
  copies(3);
  return static_cast<double>(bytes) / copies(10);
}
/// Seconds of a step: `compute` on one multiprocessor after values are ready, and their exchange, or one of the two.
double step_time(const ordinals& where, std::size_t elements, long long compute, bool exchanges) {
  std::mutex mutex;
  double result = 0;
  const std::string wrong = on_ranks(where, [&](auto& one) -> std::string {
    const auto stream = one.device().make_stream();
    const device_array<float> values(one.device(), elements);
    values.write(std::vector<float>(elements, 1.0f));
    const penstock::reduce_buffer buffers[] = {penstock::buffer(values)};
    std::uint64_t number = 0;
    const auto steps = [&](int n) {
      one.all_gather({});
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < n; ++i) {
        if (exchanges) post(one, number++, 1, buffers, stream.view(), true);
        if (compute != 0) penstock::detail::cuda_launch("spin", &spin, 1, 1, stream.view(), compute);
        post(one, number++, 1, {}, stream.view());
      }
      stream.view().synchronize();
      one.all_gather({});
      return seconds(std::chrono::steady_clock::now() - begin).count() / n;
    };
    steps(3);
    const double time = steps(20);
    const std::scoped_lock lock(mutex);
    result = std::max(result, time);
    return values.read(stream.view())[elements - 1] == 1.0f ? "" : "a value is wrong";
  });
  if (!wrong.empty()) throw penstock::error(wrong);
  return result;
}
std::string measures(const ordinals& where) {
  const std::string on = name_of(where);
  constexpr std::size_t large = std::size_t{64} << 20, small = 1000;
  const cuda_device first(where[0]);
  const double copy = copy_speed(first, large * sizeof(float));
  std::printf("figure copy_on_%d_GB_per_s=%.0f\n", where[0], copy / 1e9);
  for (std::size_t i = 1; i < where.size(); ++i)
    if (where[i] != where[0])
      std::printf("figure copy_%d_to_%d_GB_per_s=%.0f\n", where[0], where[i],
                  peer_speed(where[0], where[i], large * sizeof(float)) / 1e9);
  const double time = step_time(where, large, 0, true);
  std::printf("figure all_reduce_on_%s_GB_per_s=%.0f\n", on.c_str(),
              static_cast<double>(large * sizeof(float)) / time / 1e9);
  std::printf("figure all_reduce_on_%s_of_4_kB_us=%.1f\n", on.c_str(), 1e6 * step_time(where, small, 0, true));
  const auto compute = static_cast<long long>(1e9 * time);
  const double alone = step_time(where, large, compute, false), both = step_time(where, large, compute, true);
  std::printf("figure early_values_on_%s_hidden_percent=%.0f\n", on.c_str(),
              100 * std::clamp((alone + time - both) / std::min(alone, time), 0.0, 1.0));
  std::fflush(stdout);
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  if (!cuda_device::is_available()) {
    std::puts("skipped: there is no GPU here");
    return 77;
  }
  bool figures = false;
  ordinals devices;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--figures") {
      figures = true;
    } else if (argument == "--devices" && i + 1 < count) {
      for (const char* at = arguments[++i]; *at != 0;) {
        char* end = nullptr;
        devices.push_back(static_cast<int>(std::strtol(at, &end, 10)));
        if (end == at) return std::fprintf(stderr, "--devices takes numbers, as in 0,1\n"), 2;
        at = *end == ',' ? end + 1 : end;
      }
    } else {
      return std::fprintf(stderr, "usage: replicas [--figures] [--devices 0,1]\n"), 2;
    }
  }
  if (devices.empty()) devices.push_back(0);
  std::vector<ordinals> all{{devices[0]}, {devices[0], devices[0]}, {devices[0], devices[0], devices[0]}};
  if (devices.size() > 1) {
    all.push_back(devices);
    ordinals twice = devices;
    twice.insert(twice.end(), devices.begin(), devices.end());
    all.push_back(twice);
  }
  for (const int one : devices) std::printf("on %s\n", cuda_device(one).describe().c_str());
  for (const ordinals& where : all) {
    const std::string on = " on " + name_of(where);
    check(("training is that of one rank" + on).c_str(),
          [&] { return trains_as_one([&] { return world_on(where); }); });
    check(("values of all types and sizes" + on).c_str(), [&] { return reduces_everything(where); });
    check(("no host waits for a device" + on).c_str(), [&] { return the_host_waits_for_nothing(where); });
    if (figures && where.size() > 1) check(("figures" + on).c_str(), [&] { return measures(where); });
  }
  const cudaError_t left = cudaPeekAtLastError();
  check("no error is left behind", [&] { return left == cudaSuccess ? std::string() : cudaGetErrorName(left); });
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
