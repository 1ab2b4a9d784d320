// SPDX-License-Identifier: Apache-2.0
// What kernels of penstock's compute on a GPU, against float64 references on the host. A program of its own, which
// needs nothing but nvcc: a line for each check; exit status 0, 1 after a failure, 77 where there is no GPU.
//
//   nvcc -std=c++20 -O2 -arch=native -Iinclude tests/gpu/kernels.cu -o kernels && ./kernels
// ctest: sanitize
#include <cuda_fp16.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <penstock/device/cuda.cuh>
#include <penstock/penstock.hpp>

#include "check.hpp"

namespace {

/// What is wrong with a number.
std::string compare(std::string_view what, double found, double wanted, double tolerance) {
  if (std::abs(found - wanted) <= tolerance * (1 + std::abs(wanted))) return {};
  char text[200];
  std::snprintf(text, sizeof text, "%.*s is %.17g, wanted %.17g", static_cast<int>(what.size()), what.data(), found,
                wanted);
  return text;
}
/// The message of what the call throws must have `wanted` in it.
template <class Call>
std::string throws(std::string_view wanted, Call&& call) {
  try {
    call();
  } catch (const std::exception& caught) {
    if (std::string_view(caught.what()).find(wanted) != std::string_view::npos) return {};
    return std::string("it threw: ") + caught.what();
  }
  return "it threw nothing, wanted a message with: " + std::string(wanted);
}

/// An array on the device.
template <class T>
class device_array {
 public:
  device_array(const penstock::cuda_device& device, std::size_t n) : memory_(device.allocate(n * sizeof(T))), n_(n) {}
  device_array(const penstock::cuda_device& device, const std::vector<T>& from) : device_array(device, from.size()) {
    penstock::detail::cuda_check(cudaMemcpy(data(), from.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  /// Waits for the stream first.
  std::vector<T> read(penstock::cuda_stream_view stream) const {
    stream.synchronize();
    std::vector<T> result(n_);
    penstock::detail::cuda_check(cudaMemcpy(result.data(), data(), n_ * sizeof(T), cudaMemcpyDeviceToHost),
                                 "cudaMemcpy");
    return result;
  }

 private:
  penstock::cuda_memory memory_;
  std::size_t n_;
};

// ---- Philox

struct draws {
  std::uint32_t bits, below, uniform, between;
  std::uint64_t below_wide;
  float normal;

  __host__ __device__ static std::uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(x);
#else
    return std::bit_cast<std::uint32_t>(x);
#endif
  }
  __host__ __device__ static draws of(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
    penstock::philox random(seed, epoch, sample);
    draws result;
    result.bits = random();
    result.below = random.below(1000003U);
    result.uniform = bits_of(random.uniform());
    result.between = bits_of(random.uniform(-3.0f, 7.1f));
    result.below_wide = random.below((std::uint64_t{1} << 41) + 12345);
    result.normal = random.normal();
    return result;
  }
};
__global__ void draw(draws* to, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) to[i] = draws::of(0x123456789ABCDEF0, i % 3, i * 0x100000001);
}
std::string philox_is_bit_equal(const penstock::cuda_device& device, penstock::cuda_stream_view stream) {
  constexpr std::size_t n = 100000;
  const device_array<draws> on_device(device, n);
  penstock::detail::cuda_launch("draw", &draw, static_cast<unsigned>((n + 255) / 256), 256U, stream, on_device.data(),
                                n);
  const auto found = on_device.read(stream);
  for (std::size_t i = 0; i < n; ++i) {
    const draws wanted = draws::of(0x123456789ABCDEF0, i % 3, i * 0x100000001);
    if (found[i].bits != wanted.bits || found[i].below != wanted.below || found[i].uniform != wanted.uniform ||
        found[i].between != wanted.between || found[i].below_wide != wanted.below_wide)
      return "sample " + std::to_string(i) + " has other numbers";
    if (auto wrong = compare("normal", found[i].normal, wanted.normal, 1e-5); !wrong.empty()) return wrong;
  }
  return {};
}

// ---- cast and normalise

template <class From>
std::string normalises(const penstock::cuda_device& device, penstock::cuda_stream_view stream) {
  struct shape {
    std::uint32_t channels, inner;
    std::size_t samples;
  };
  for (const auto& [channels, inner, samples] : {shape{1, 1, 1}, shape{3, 1, 1000}, shape{3, 35, 77},
                                                 shape{3, 224 * 224, 10}, shape{17, 2, 5}, shape{4, 64, 4096}})
    for (const std::size_t offset : {0, 1}) {  // the second is no vector's alignment
      std::vector<float> mean, scale;
      for (std::uint32_t c = 0; c < channels; ++c) {
        mean.push_back(100 + 7.25f * static_cast<float>(c));
        scale.push_back(1 / (50 + 3.5f * static_cast<float>(c)));
      }
      const std::size_t n = samples * channels * inner;
      std::vector<From> from(n + offset);
      penstock::philox random(3, 0, n);
      for (auto& x : from) x = static_cast<From>(static_cast<float>(random.below(256)));
      const device_array<From> in(device, from);
      const device_array<float> out(device, std::vector<float>(n + offset + 1, -1e9f));
      const penstock::cuda_cast_normalise<From> normalise(device, mean, scale, inner);
      normalise(in.data() + offset, out.data() + offset, n, stream);
      const auto found = out.read(stream);
      if (found.back() != -1e9f) return "it wrote beyond the end";
      const penstock::cast_normalise on_host{mean.data(), scale.data()};
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t channel = i / inner % channels;
        const From x = from[i + offset];
        const double wanted =
            (static_cast<double>(static_cast<float>(x)) - double{mean[channel]}) * double{scale[channel]};
        if (auto wrong = compare("element " + std::to_string(i), found[i + offset], wanted, 1e-6); !wrong.empty())
          return wrong;
        if (found[i + offset] != on_host(x, static_cast<std::uint32_t>(channel))) return "the host has other bits";
      }
    }
  return {};
}

// ---- reductions

struct maximum {
  template <class T>
  __host__ __device__ T operator()(const T& a, const T& b) const {
    return a < b ? b : a;
  }
};
std::string reduces(const penstock::cuda_device& device, penstock::cuda_stream_view stream) {
  constexpr std::size_t most = 3000001;
  std::vector<float> values(most);
  for (std::size_t i = 0; i < most; ++i) values[i] = penstock::philox(1, 0, i).uniform(-1, 3);
  const device_array<float> in(device, values);
  const device_array<float> out(device, 2);
  penstock::cuda_reducer<float> sum(device, most, 0.5f);
  penstock::cuda_reducer<float, maximum> largest(device, most, -100.0f);
  for (const std::size_t n : {0UL, 1UL, 255UL, 5000UL, 65536UL, 1000000UL, most}) {
    sum.reduce(in.data(), n, out.data(), stream);
    largest.reduce(in.data(), n, out.data() + 1, stream);
    double wanted = 0.5;
    float most_wanted = -100;
    for (std::size_t i = 0; i < n; ++i) wanted += double{values[i]}, most_wanted = std::max(most_wanted, values[i]);
    const auto found = out.read(stream);
    if (auto wrong = compare("the sum of " + std::to_string(n), found[0], wanted, 2e-6); !wrong.empty()) return wrong;
    if (found[1] != most_wanted) return "the maximum of " + std::to_string(n) + " is another";
  }
  return throws("at most the 3000001", [&] { sum.reduce(in.data(), most + 1, out.data(), stream); });
}

// ---- folds

struct square {
  const float* values;
  __host__ __device__ double operator()(std::size_t row) const { return double{values[row]} * values[row]; }
};
struct value_of {
  const float* values;
  __host__ __device__ float operator()(std::size_t row) const { return values[row]; }
};
std::string folds(const penstock::cuda_device& device, penstock::cuda_stream_view stream) {
  const penstock::device_fold<square> fold(device);
  const penstock::device_fold<value_of, maximum> largest(device);
  const penstock::device_fold<value_of> rough(device);
  double before = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {  // the second finds what the first has left in the accumulators
    auto state = fold.initial(1000.0);
    auto top = largest.initial(-5.0f);
    auto rounded = rough.initial();
    double wanted = 1000;
    float highest = -5;
    for (const std::size_t rows : {300UL, 5000UL, 0UL, 1UL, 1000000UL, 17UL, 262145UL}) {
      std::vector<float> values(rows + 1);
      for (std::size_t i = 0; i < rows; ++i) {
        values[i] = penstock::philox(2, 0, i + rows).uniform(-2, 1);
        wanted += double{values[i]} * double{values[i]};
        highest = std::max(highest, values[i]);
      }
      values[rows] = 1e9f;  // beyond the end
      const device_array<float> batch(device, values);
      fold.add(state, {batch.data()}, rows, stream);
      largest.add(top, {batch.data()}, rows, stream);
      rough.add(rounded, {batch.data()}, rows, stream);
      stream.synchronize();  // the array goes
    }
    if (auto wrong = compare("the fold", fold.finish(state), wanted, 1e-12); !wrong.empty()) return wrong;
    if (largest.finish(top) != highest) return "the maximum is another";
    const double now = rough.finish(rounded);
    if (epoch == 1 && now != before) return "the same batches gave other bits";
    before = now;
  }
  if (fold.finish(fold.initial(3.5)) != 3.5) return "an epoch without batches is not what it began with";
  return {};
}

/// Through readers, slots, copies and `run`, three epochs.
std::string folds_in_a_run(const penstock::cuda_device& device) {
  constexpr std::size_t n = 10007;
  const auto rows = std::views::iota(std::size_t{0}, n) | std::views::transform([](std::size_t i) {
                      return std::tuple{penstock::philox(4, 0, i).uniform(), static_cast<std::uint32_t>(i)};
                    });
  double wanted = 0;
  for (const auto& [x, label] : rows) wanted += double{x} * double{x};
  const penstock::device_fold<square> fold(device);
  const auto work =
      rows | penstock::partition({.seed = 9}) | penstock::read({.readers = 2}) | penstock::batch(300) |
      penstock::transfer(device, {.depth = 2}) |
      penstock::reduce(fold.initial(), fold.over([](auto& batch) { return square{batch.template get<0>().data()}; }));
  for (int again = 0; again < 2; ++again) {
    const auto result = penstock::run(work, {.epochs = 3});
    if (result.epochs.size() != 3) return std::to_string(result.epochs.size()) + " values, wanted 3";
    for (const double found : result.epochs)
      if (auto wrong = compare("an epoch's value", found, wanted, 1e-12); !wrong.empty()) return wrong;
  }
  return {};
}

// ---- Thrust

struct twice {
  __host__ __device__ float operator()(float x) const { return 2 * x; }
};
std::string thrust_sorts(const penstock::cuda_device& device, penstock::cuda_stream_view stream) {
  constexpr std::size_t n = 200000;
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = penstock::philox(5, 0, i).uniform();
  const device_array<float> array(device, values);
  float* const at = array.data();
  penstock::cuda_scratch scratch(device, 8 << 20);
  thrust::transform(penstock::on(stream), at, at + n, at, twice{});
  thrust::sort(penstock::on(stream, scratch), at, at + n);
  std::sort(values.begin(), values.end());
  const auto found = array.read(stream);
  for (std::size_t i = 0; i < n; ++i)
    if (found[i] != 2 * values[i]) return "element " + std::to_string(i) + " is another";
  if (scratch.most_used() == 0) return "it took no temporary memory from the scratch";
  if (auto wrong = throws("on(stream, scratch)", [&] { thrust::sort(penstock::on(stream), at, at + n); });
      !wrong.empty())
    return wrong;
  penstock::cuda_scratch tiny(device, 256);
  return throws("give the constructor more", [&] { thrust::sort(penstock::on(stream, tiny), at, at + n); });
}

// ---- nothing waits

/// Keeps its stream busy until the host says so, ten seconds at most.
__global__ void hold(volatile int* released, int* gave_up) {
  const auto now = [] {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  const unsigned long long begin = now();
  while (*released == 0)
    if (now() - begin > 10'000'000'000ULL) {
      *gave_up = 1;
      return;
    }
}
std::string only_enqueues(const penstock::cuda_device& device, penstock::cuda_stream_view stream) {
  constexpr std::size_t n = 100000;
  const device_array<float> values(device, std::vector<float>(n, 1.0f));
  const device_array<float> out(device, n);
  const device_array<std::uint8_t> bytes(device, std::vector<std::uint8_t>(n, 1));
  const float one[] = {1};
  const penstock::cuda_cast_normalise<std::uint8_t> normalise(device, one, one);
  penstock::cuda_reducer<float> sum(device, n);
  const penstock::device_fold<square> fold(device);
  penstock::cuda_scratch scratch(device);
  const auto steps = [&](auto& state) {
    normalise(bytes.data(), out.data(), n, stream);
    thrust::transform(penstock::on(stream, scratch), values.data(), values.data() + n, out.data(), twice{});
    thrust::sort(penstock::on(stream, scratch), out.data(), out.data() + n);
    thrust::inclusive_scan(penstock::on(stream, scratch), values.data(), values.data() + n, out.data());
    sum.reduce(values.data(), n, out.data(), stream);
    fold.add(state, {values.data()}, n, stream);
  };
  auto first = fold.initial();
  steps(first);  // Thrust loads its kernels here
  if (auto wrong = compare("the fold", fold.finish(first), n, 0); !wrong.empty()) return wrong;

  int* flags = nullptr;
  penstock::detail::cuda_check(cudaHostAlloc(&flags, 2 * sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
  flags[0] = flags[1] = 0;
  hold<<<1, 1, 0, stream>>>(flags, flags + 1);
  auto state = fold.initial();
  for (int step = 0; step < 5; ++step) steps(state);
  const bool waited = stream.is_done();
  *static_cast<volatile int*>(flags) = 1;
  const double found = fold.finish(state);
  const bool gave_up = flags[1] != 0;
  penstock::detail::cuda_check(cudaFreeHost(flags), "cudaFreeHost");
  if (waited || gave_up) return "a call waited for the stream";
  return compare("the fold", found, 5.0 * n, 0);
}

std::string says_what_is_wrong(const penstock::cuda_device& device, penstock::cuda_stream_view stream) {
  const float two[] = {1, 2}, three[] = {1, 2, 3};
  using normaliser = penstock::cuda_cast_normalise<std::uint8_t>;
  std::string wrong = throws("scale is of 3 entries, wanted 2", [&] { normaliser(device, two, three); });
  if (wrong.empty())
    wrong = throws("wanted a multiple of 8", [&] { normaliser(device, two, two, 4)(nullptr, nullptr, 9, stream); });
  if (wrong.empty()) wrong = throws("most is 0", [&] { penstock::cuda_reducer<float>(device, 0); });
  if (wrong.empty()) {
    const penstock::device_fold<square> fold(device);
    const auto other = device.make_stream();
    const device_array<float> values(device, std::vector<float>(10, 2.0f));
    auto state = fold.initial();
    fold.add(state, {values.data()}, 10, stream);
    wrong = throws("another stream", [&] { fold.add(state, {values.data()}, 10, other.view()); });
    stream.synchronize();
  }
  return wrong;
}

}  // namespace

int main() {
  if (!penstock::cuda_device::is_available()) {
    std::puts("skipped: there is no GPU here");
    return 77;
  }
  const penstock::cuda_device device;
  const auto owner = device.make_stream();
  const auto stream = owner.view();
  std::printf("on %s\n", device.describe().c_str());
  check("philox: host and device draw the same bits", [&] { return philox_is_bit_equal(device, stream); });
  check("cast_normalise of bytes", [&] { return normalises<std::uint8_t>(device, stream); });
  check("cast_normalise of half floats", [&] { return normalises<__half>(device, stream); });
  check("cast_normalise of floats", [&] { return normalises<float>(device, stream); });
  check("cuda_reducer", [&] { return reduces(device, stream); });
  check("device_fold in a loop", [&] { return folds(device, stream); });
  check("device_fold in a run", [&] { return folds_in_a_run(device); });
  check("thrust on a stream with scratch memory", [&] { return thrust_sorts(device, stream); });
  check("nothing waits but finish", [&] { return only_enqueues(device, stream); });
  check("misuse is told", [&] { return says_what_is_wrong(device, stream); });
  const cudaError_t left = cudaPeekAtLastError();
  check("no error is left behind", [&] { return left == cudaSuccess ? std::string() : cudaGetErrorName(left); });
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
