// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/device/modelled.hpp>

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr auto no_deadline = std::chrono::steady_clock::time_point::max();

struct schedule {
  nanoseconds read, copy, compute;
  std::size_t host_depth, device_depth;
  nanoseconds notice, latency;
};

/// The loop that a library user would otherwise write: read into a host slot, copy to a twin, compute on it.
nanoseconds hand_written_loop(const schedule& of, std::size_t steps) {
  const auto clock = std::make_shared<penstock::simulated_clock>();
  const penstock::modelled_device device(
      {.event_latency = of.latency, .notice = of.notice, .copy_time = of.copy, .clock = clock});
  const auto copies = device.make_stream();
  const auto kernels = device.make_stream();
  std::vector<penstock::modelled_memory> slots, twins;
  std::vector<penstock::modelled_event> copied, arrived, computed;
  for (std::size_t i = 0; i < of.host_depth; ++i) {
    slots.push_back(device.allocate_host(16));
    copied.push_back(device.make_event());
  }
  for (std::size_t i = 0; i < of.device_depth; ++i) {
    twins.push_back(device.allocate(16));
    arrived.push_back(device.make_event());
    computed.push_back(device.make_event());
  }
  std::size_t right = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t h = step % of.host_depth;
    const std::size_t d = step % of.device_depth;
    device.wait(copied[h], [] { return false; }, no_deadline);
    clock->advance(of.read);
    ::new (slots[h].data()) std::size_t(step);
    device.wait(copies.view(), computed[d]);
    device.copy_to_device(twins[d].data(), slots[h].data(), sizeof(std::size_t), copies.view());
    device.record(copied[h], copies.view());
    device.record(arrived[d], copies.view());
    device.wait(kernels.view(), arrived[d]);
    kernels.view().launch(of.compute, [&right, step, data = twins[d].data()] {
      right += *std::launder(reinterpret_cast<std::size_t*>(data)) == step;
    });
    device.record(computed[d], kernels.view());
  }
  kernels.view().synchronize();
  EXPECT_EQ(right, steps);
  return device.completion(computed[(steps - 1) % of.device_depth]).time_since_epoch();
}

/// The recurrence of the three stages in tandem.
nanoseconds tandem(const schedule& of, std::size_t steps) {
  std::vector<nanoseconds> read(steps), copied(steps), computed(steps);
  for (std::size_t k = 0; k < steps; ++k) {
    nanoseconds start = k > 0 ? read[k - 1] : 0ns;
    if (k >= of.host_depth && copied[k - of.host_depth] > start) start = copied[k - of.host_depth] + of.notice;
    read[k] = start + of.read;
    start = std::max(read[k], k > 0 ? copied[k - 1] : 0ns);
    if (k >= of.device_depth) start = std::max(start, computed[k - of.device_depth] + of.latency);
    copied[k] = start + of.copy;
    computed[k] = std::max(copied[k] + of.latency, k > 0 ? computed[k - 1] : 0ns) + of.compute;
  }
  return computed[steps - 1];
}

struct modelled_schedule : testing::TestWithParam<schedule> {};

TEST_P(modelled_schedule, a_hand_written_loop_takes_exactly_what_the_recurrence_says) {
  EXPECT_EQ(hand_written_loop(GetParam(), 300), tandem(GetParam(), 300));
}

std::vector<schedule> schedules() {
  std::vector<schedule> result;
  for (const auto notice : {0us, 5us, 27us, 55us}) {
    for (const auto depth : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
      for (const auto stage : {20us, 100us}) {
        result.push_back({stage, stage, stage, depth, depth, notice, notice == 0us ? 0us : 3us});
      }
      result.push_back({70us, 30us, 110us, depth, 2, notice, 3us});
      result.push_back({10us, 90us, 40us, 2, depth, notice, 3us});
    }
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(stages, modelled_schedule, testing::ValuesIn(schedules()));

TEST(modelled_schedule_closed_form, double_buffering_costs_the_longest_stage_per_step_and_the_others_once) {
  constexpr std::size_t steps = 100;
  const auto with = [](nanoseconds read, nanoseconds copy, nanoseconds compute) {
    return hand_written_loop({read, copy, compute, 2, 2, 0ns, 0ns}, steps);
  };
  EXPECT_EQ(with(100us, 100us, 100us), (steps + 2) * 100us);
  EXPECT_EQ(with(0us, 100us, 40us), steps * 100us + 40us);
  EXPECT_EQ(with(0us, 40us, 100us), 40us + steps * 100us);
  EXPECT_EQ(with(100us, 20us, 30us), steps * 100us + 50us);
}

TEST(modelled_schedule_closed_form, one_buffer_each_loses_the_overlap) {
  EXPECT_EQ(hand_written_loop({0us, 100us, 100us, 1, 1, 0ns, 0ns}, 50), 50 * 200us);
}

TEST(modelled_schedule_closed_form, a_late_notice_costs_what_was_measured_with_two_slots_and_nothing_with_three) {
  const auto efficiency = [](std::size_t depth) {
    return 2000.0 * 100e3 /
           static_cast<double>(hand_written_loop({100us, 100us, 100us, depth, depth, 27us, 3us}, 2000).count());
  };
  EXPECT_NEAR(efficiency(2), 0.923, 0.0005);
  EXPECT_NEAR(efficiency(3), 0.999, 0.0005);
}

TEST(modelled_operations, are_kept_with_start_and_end_as_many_as_was_asked_for) {
  const auto clock = std::make_shared<penstock::simulated_clock>();
  const penstock::modelled_device device(
      {.event_latency = 3us, .copy_time = 20us, .clock = clock, .keep_operations = 3});
  const auto from = device.allocate_host(8);
  const auto to = device.allocate(8);
  const auto copies = device.make_stream(), kernels = device.make_stream();
  auto copied = device.make_event();
  device.copy_to_device(to.data(), from.data(), 8, copies.view());
  device.record(copied, copies.view());
  device.wait(kernels.view(), copied);
  kernels.view().launch(50us);
  device.copy_to_host(from.data(), to.data(), 8, copies.view());
  kernels.view().launch(50us);

  const auto kept = device.operations();
  ASSERT_EQ(kept.size(), 3U);
  const auto expect = [&](std::size_t i, penstock::modelled_engine engine, nanoseconds start, nanoseconds end) {
    EXPECT_EQ(kept[i].engine, engine);
    EXPECT_EQ(kept[i].start.time_since_epoch(), start);
    EXPECT_EQ(kept[i].end.time_since_epoch(), end);
  };
  expect(0, penstock::modelled_engine::copy_to_device, 0us, 20us);
  expect(1, penstock::modelled_engine::compute, 23us, 73us);
  expect(2, penstock::modelled_engine::copy_to_host, 20us, 40us);
}

}  // namespace
