// SPDX-License-Identifier: Apache-2.0
// ctest: plain too: allocations are counted there alone
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/device/modelled.hpp>
#include <penstock/observe/ledger.hpp>
#include <penstock/observe/timeline.hpp>
#include <penstock/observe/trace.hpp>
#include <penstock/penstock.hpp>

#include "../support/counted_allocations.hpp"
#include "../support/temporary_directory.hpp"

namespace {

using namespace std::chrono_literals;
using penstock::step_record;

template <class Device>
auto feed_of(const std::vector<std::uint64_t>& data, int readers, Device device) {
  return (data | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = readers}) |
          penstock::batch(8) | penstock::transfer(device))
      .start();
}
penstock::modelled_device modelled() {
  penstock::modelled_options how;
  how.copy_time = 20us;
  return penstock::modelled_device(how);
}
std::size_t count(const std::string& in, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = in.find(what); at != in.npos; at = in.find(what, at + 1)) ++found;
  return found;
}
std::string content(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Each step once, in order, with times in the order in which things happen.
struct checker {
  std::uint64_t next = 0;
  std::uint64_t epoch = 0;
  bool copies = false;
  std::chrono::nanoseconds computed{0};
  void on_step(const step_record& one) {
    if (one.epoch != epoch) epoch = one.epoch, next = 0;
    EXPECT_EQ(one.step, next++);
    std::uint64_t samples = 0;
    for (const auto& part : one.reads) {
      samples += part.samples;
      EXPECT_LE(part.when.begin, part.when.end);
      EXPECT_LE(part.when.end, one.filled);
    }
    EXPECT_EQ(samples, one.samples);
    EXPECT_EQ(one.bytes, one.samples * sizeof(std::uint64_t));
    EXPECT_EQ(one.copied, copies);
    if (copies) {
      EXPECT_LE(one.filled, one.copy.begin);
      EXPECT_LE(one.copy.begin, one.copy.end);
      EXPECT_LE(one.copy.end, one.compute.begin);
    } else {
      EXPECT_LE(one.filled, one.asked.end);
    }
    EXPECT_LE(one.asked.begin, one.asked.end);
    EXPECT_LE(one.compute.begin, one.compute.end);
    EXPECT_LE(computed, one.compute.begin);
    computed = one.compute.end;
  }
};

template <class Device>
void records_each_step(Device device, bool copies) {
  const std::vector<std::uint64_t> data(203);
  for (const int readers : {0, 1, 3}) {
    checker seen{.copies = copies};
    {
      auto feed = feed_of(data, readers, device);
      feed.observe(seen);
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
        for (auto& batch : feed.epoch(epoch)) {
          if constexpr (penstock::separate_device<Device>) batch.stream().launch(10us);
        }
      // One that is left early and begun anew.
      for (auto& batch : feed.epoch(2))
        if (batch.step() == 5) break;
    }
    EXPECT_EQ(seen.epoch, 2U) << readers;
    EXPECT_EQ(seen.next, 6U) << readers;
  }
}
TEST(StepRecord, on_the_cpu_each_step_is_told_once_in_order) { records_each_step(penstock::cpu_device{}, false); }
TEST(StepRecord, on_a_device_each_step_is_told_once_in_order) { records_each_step(modelled(), true); }

TEST(StepRecord, nothing_is_allocated_for_it_after_the_first_steps) {
  const std::vector<std::uint64_t> data(800);
  penstock::ledger ledger;
  auto feed = feed_of(data, 2, modelled());
  feed.observe(ledger);
  std::size_t before = 0;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
    for (auto& batch : feed.epoch(epoch)) {
      batch.stream().launch(1us);
      if (epoch == 0 && batch.step() == 20) before = laws::allocations;
    }
  EXPECT_EQ(laws::allocations, before);
}

TEST(StepRecord, batches_let_go_by_another_thread_are_told_of) {
  const std::vector<std::uint64_t> data(400);
  checker seen;
  {
    auto feed = feed_of(data, 2, penstock::cpu_device{});
    feed.observe([&](const penstock::batch_event&) {});
    struct order_of {
      std::uint64_t* steps;
      void on_step(const step_record& one) { EXPECT_EQ(one.step, (*steps)++); }
    };
    feed.observe(order_of{&seen.next});
    auto kept = feed.next();
    while (auto batch = feed.next()) {
      std::thread([&] { kept.release(); }).join();
      kept = std::move(batch);
    }
    kept.release();
  }
  EXPECT_EQ(seen.next, 50U);
}

/// What works tells while it works: each stage begins and ends as often.
struct stages {
  std::atomic<int> open[3]{};
  std::atomic<int> seen[3]{};
  void on_stage(const penstock::stage_event& event) noexcept {
    const auto what = static_cast<std::size_t>(event.what);
    open[what] += event.begins ? 1 : -1;
    if (event.begins) ++seen[what];
  }
};
TEST(StepRecord, who_listens_to_stages_hears_each_begin_and_end) {
  const std::vector<std::uint64_t> data(80);
  stages heard;
  {
    auto feed = feed_of(data, 2, modelled());
    feed.observe(heard);
    for (auto& batch : feed.epoch(0)) (void)batch;
  }
  for (const auto& one : heard.open) EXPECT_EQ(one, 0);
  EXPECT_GE(heard.seen[0], 20);  // two ranges a step, and what is read ahead
  EXPECT_GE(heard.seen[1], 10);
  EXPECT_EQ(heard.seen[2], 10);
}

TEST(StepRecord, a_batch_that_outlives_the_feed_tells_nobody) {
  const std::vector<std::uint64_t> data(80);
  auto heard = std::make_unique<stages>();
  auto feed = std::make_unique<decltype(feed_of(data, 1, modelled()))>(feed_of(data, 1, modelled()));
  feed->observe(*heard);
  auto kept = feed->next();
  feed.reset();
  heard.reset();
  kept.release();
}

TEST(Trace, has_a_row_for_each_stage_and_arrows_along_each_batch) {
  const penstock_test::temporary_directory folder;
  const std::vector<std::uint64_t> data(80);
  const std::string path = folder.path() + "/trace.json";
  {
    auto feed = feed_of(data, 1, modelled());
    feed.observe(penstock::chrome_trace(path, {.rank = 3}));
    for (auto& batch : feed.epoch(0)) batch.stream().launch(10us);
  }
  const std::string text = content(path);
  EXPECT_TRUE(text.starts_with("[\n{") && text.ends_with("}\n]\n")) << text;
  EXPECT_EQ(count(text, "\"name\":\"read 0."), 10U);
  EXPECT_EQ(count(text, "\"name\":\"copy 0."), 10U);
  EXPECT_EQ(count(text, "\"name\":\"compute 0."), 10U);
  for (const char* phase : {"\"ph\":\"s\"", "\"ph\":\"t\"", "\"ph\":\"f\""}) EXPECT_EQ(count(text, phase), 10U);
  EXPECT_EQ(count(text, "\"name\":\"reader 0\""), 1U);
  EXPECT_EQ(count(text, "\"pid\":3"), count(text, "\"pid\":"));
  EXPECT_EQ(count(text, "{"), count(text, "}"));
}

TEST(Timeline, draws_the_first_and_the_last_steps_with_the_verdict) {
  const penstock_test::temporary_directory folder;
  const std::vector<std::uint64_t> data(400);
  const std::string path = folder.path() + "/timeline.svg";
  {
    auto feed = feed_of(data, 1, modelled());
    feed.observe(penstock::timeline(path, {.steps = 4, .title = "a < b"}));
    for (auto& batch : feed.epoch(0)) batch.stream().launch(10us);
  }
  const std::string text = content(path);
  EXPECT_TRUE(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
  EXPECT_NE(text.find("a &lt; b"), text.npos);
  EXPECT_NE(text.find("bounds: "), text.npos);
  EXPECT_NE(text.find("the first steps"), text.npos);
  EXPECT_NE(text.find("the last steps"), text.npos);
  EXPECT_GE(count(text, "<rect "), 2U * 4U * 3U);
  EXPECT_THROW(penstock::timeline(folder.path() + "/none/t.svg"), penstock::error);
}

}  // namespace
