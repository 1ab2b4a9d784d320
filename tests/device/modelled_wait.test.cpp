// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/device/modelled.hpp>

namespace {

using namespace std::chrono_literals;
using penstock::modelled_device;
using penstock::wait_result;

constexpr auto no_deadline = std::chrono::steady_clock::time_point::max();
bool never() { return false; }

/// A device on manual time with an event that completes after 1 ms.
struct modelled_wait : testing::Test {
  std::shared_ptr<penstock::manual_clock> clock = std::make_shared<penstock::manual_clock>();
  modelled_device device{penstock::modelled_options{.notice = 10us, .clock = clock}};
  penstock::modelled_stream stream = device.make_stream();
  penstock::modelled_event event = device.make_event();

  modelled_wait() {
    stream.view().launch(1ms);
    device.record(event, stream.view());
  }
  void until_somebody_waits() const {
    while (device.counts().waiting == 0) std::this_thread::yield();
  }
};

TEST_F(modelled_wait, ends_when_time_has_passed_the_completion_and_the_notice) {
  std::atomic<bool> returned = false;
  wait_result result{};
  std::thread waiter([&] {
    result = device.wait(event, never, no_deadline);
    returned = true;
  });
  until_somebody_waits();
  clock->advance(1ms);
  EXPECT_TRUE(device.ready(event));
  EXPECT_FALSE(returned);
  clock->advance(10us);
  waiter.join();
  EXPECT_EQ(result, wait_result::complete);
  EXPECT_EQ(device.counts().blocked_waits, 1U);
  EXPECT_EQ(device.counts().waiting, 0U);
}

TEST(modelled_wait_simulated, that_had_to_block_returns_late_by_the_notice) {
  const auto clock = std::make_shared<penstock::simulated_clock>();
  const modelled_device device({.notice = 10us, .clock = clock});
  const auto stream = device.make_stream();
  auto event = device.make_event();
  stream.view().launch(1ms);
  device.record(event, stream.view());
  EXPECT_EQ(device.wait(event, never, no_deadline), wait_result::complete);
  EXPECT_EQ(clock->elapsed(), 1ms + 10us);
  EXPECT_EQ(device.wait(event, never, no_deadline), wait_result::complete);
  EXPECT_EQ(clock->elapsed(), 1ms + 10us);
}

TEST_F(modelled_wait, costs_no_notice_if_it_need_not_block) {
  clock->advance(1ms);
  EXPECT_EQ(device.wait(event, never, no_deadline), wait_result::complete);
  EXPECT_EQ(device.counts().blocked_waits, 0U);
}

TEST_F(modelled_wait, is_ended_by_the_interrupt) {
  std::atomic<bool> stop = false;
  wait_result result{};
  std::thread waiter([&] { result = device.wait(event, [&] { return stop.load(); }, no_deadline); });
  until_somebody_waits();
  stop = true;
  waiter.join();
  EXPECT_EQ(result, wait_result::interrupted);
}

TEST_F(modelled_wait, is_ended_by_the_deadline_in_real_time) {
  EXPECT_EQ(device.wait(event, never, std::chrono::steady_clock::now() + 3ms), wait_result::timed_out);
  EXPECT_EQ(stream.view().synchronize(never, std::chrono::steady_clock::now()), wait_result::timed_out);
  EXPECT_EQ(device.counts().waiting, 0U);
}

TEST_F(modelled_wait, on_the_host_refers_to_the_record_at_its_call) {
  std::thread waiter([&] { EXPECT_EQ(device.wait(event, never, no_deadline), wait_result::complete); });
  until_somebody_waits();
  stream.view().launch(1h);
  device.record(event, stream.view());
  clock->advance(1ms + 10us);
  waiter.join();
  EXPECT_FALSE(device.ready(event));
}

TEST(modelled_real_time, a_wait_lasts_until_the_completion_and_sleeps) {
  const auto cpu_time = [] {
    std::timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const modelled_device device;
  const auto stream = device.make_stream();
  auto event = device.make_event();
  const auto before = cpu_time();
  stream.view().launch(40ms);
  device.record(event, stream.view());
  EXPECT_EQ(device.wait(event, never, no_deadline), wait_result::complete);
  EXPECT_GE(std::chrono::steady_clock::now(), device.completion(event));
  EXPECT_LT(cpu_time() - before, 20ms);
}

TEST(modelled_real_time, threads_share_a_device) {
  constexpr int rounds = 100;
  const modelled_device device({.copy_latency = 2us});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      const auto up = device.allocate_host(256);
      const auto down = device.allocate_host(256);
      const auto twin = device.allocate(256);
      const auto stream = device.make_stream();
      const auto compute = device.make_stream();
      auto copied = device.make_event();
      auto computed = device.make_event();
      for (int round = 0; round < rounds; ++round) {
        const auto value = static_cast<unsigned char>(round + number);
        std::memset(up.data(), value, 256);
        device.copy_to_device(twin.data(), up.data(), 256, stream.view());
        device.record(copied, stream.view());
        device.wait(compute.view(), copied);
        compute.view().launch(5us, [data = twin.data()] { data[255] = std::byte{0x5A}; });
        device.copy_to_host(down.data(), twin.data(), 256, compute.view());
        device.record(computed, compute.view());
        if (device.wait(computed, never, no_deadline) != wait_result::complete) ++wrong;
        if (down.data()[0] != std::byte{value} || down.data()[255] != std::byte{0x5A}) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(device.counts().copies_to_device, 3U * rounds);
  EXPECT_EQ(device.counts().live_allocations, 0U);
}

}  // namespace
