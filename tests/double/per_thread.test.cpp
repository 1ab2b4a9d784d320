// SPDX-License-Identifier: Apache-2.0
// The same headers where programs are compiled with per-thread default streams: calls then link to other names, and
// stream 0 is the calling thread's own.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include <penstock/device/results.hpp>

#include "support.hpp"

namespace {

using namespace doubled;
using namespace laws;

const cudaStream_t stream_0 = nullptr;
constexpr std::uint64_t n = 23;

template <class Feed>
std::uint64_t train(Feed& feed) {
  std::atomic<std::uint64_t> right = 0;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : feed.epoch(epoch)) look_at(batch, batch.stream(), right);
  feed.next().stream().synchronize();
  return right;
}
auto start(const samples<>& data, const watched_device& device, int readers, std::optional<stream_view> consumer) {
  return (data | penstock::partition({.shuffle = shuffle::none}) | penstock::read({.readers = readers}) |
          penstock::batch(4) | penstock::transfer(device, {.depth = 2, .consumer = consumer}))
      .start();
}

TEST(per_thread, feeds_run_on_every_kind_of_stream) {
  const samples<> data{n};
  enum class whose { ours, named, zero, per_thread, legacy };
  for (const int ordinal : {0, 1})
    for (const whose one : {whose::ours, whose::named, whose::zero, whose::per_thread, whose::legacy}) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, "stream " + std::to_string(static_cast<int>(one)));
      const on_device current(ordinal);
      for_each_delay(
          4,
          [&](std::uint64_t seed) {
            const watched_device device(ordinal);
            {
              const auto own = device.make_stream();
              std::optional<stream_view> consumer;
              if (one == whose::named) consumer = own.view();
              if (one == whose::zero) consumer = stream_0;
              if (one == whose::per_thread) consumer = stream_view::per_thread();
              if (one == whose::legacy) consumer = stream_view::legacy();
              auto feed = start(data, device, static_cast<int>(seed) - 1, consumer);
              EXPECT_EQ(train(feed), 2 * n);
            }
            EXPECT_EQ(cuda_double::default_streams_used(), one == whose::ours || one == whose::named ? 0U : 1U);
          },
          one == whose::legacy);
    }
}

TEST(per_thread, stream_0_is_the_threads_own) {
  const samples<> data{n};
  for_each_delay(4, [&](std::uint64_t) {
    const auto consume = [&](std::uint64_t& right) {
      auto feed = start(data, watched_device(0), 1, stream_0);
      right = train(feed);
    };
    std::uint64_t here = 0, there = 0;
    {
      const std::jthread other([&] { consume(there); });
      consume(here);
    }
    EXPECT_EQ(here, 2 * n);
    EXPECT_EQ(there, 2 * n);
    EXPECT_EQ(cuda_double::default_streams_used(), 2U);
  });
}

TEST(per_thread, results_come_back_on_stream_0) {
  for_each_delay(6, [&](std::uint64_t) {
    const watched_device device(0);
    penstock::results<float, watched_device> losses(device);
    const auto memory = device.allocate(sizeof(float));
    auto* const loss = reinterpret_cast<float*>(memory.data());
    for (int step = 0; step < 8; ++step) {
      cuda_double::launch(as_launched(stream_0), {writes(loss, sizeof(float))},
                          [=] { *loss = static_cast<float>(step); });
      losses.enqueue(loss, stream_0, static_cast<std::uint64_t>(step));
    }
    for (int step = 0; step < 8; ++step) EXPECT_EQ(losses.wait()->values[0], static_cast<float>(step));
    EXPECT_EQ(cuda_double::default_streams_used(), 1U);
  });
}

}  // namespace
