// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/device/modelled.hpp>
#include <penstock/observe/ledger.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

namespace {

using namespace std::chrono_literals;
using time_type = std::chrono::nanoseconds;
using penstock::bound;
using penstock::ledger;
using penstock::read_span;
using penstock::step_record;

/// A run made up by hand, a step every `period`.
class made_run {
 public:
  explicit made_run(ledger& to, std::uint32_t readers) : to_(to), last_read_(readers) {}

  /// Every reader reads its part for `read`, as soon as it can; then the copy, then the computing.
  void step(time_type read, time_type copy, time_type compute, time_type late = 0ns) {
    std::vector<read_span> reads;
    time_type filled{0};
    for (std::uint32_t i = 0; i < last_read_.size(); ++i) {
      const time_type begin = std::max(last_read_[i], room_);
      reads.push_back({{begin, begin + read}, i, 1});
      last_read_[i] = begin + read;
      filled = std::max(filled, last_read_[i]);
    }
    step_record one;
    one.step = number_++;
    one.samples = last_read_.size();
    one.bytes = 1000;
    one.reads = reads;
    one.filled = filled;
    one.readers = static_cast<std::uint32_t>(last_read_.size());
    one.asked = {computed_, std::max(computed_, filled)};
    one.copied = copy > 0ns;
    one.copy.begin = std::max(copied_, filled);
    one.copy.end = copied_ = one.copy.begin + copy;
    one.compute.begin = std::max(computed_ + late, one.copied ? one.copy.end : filled);
    one.compute.end = computed_ = one.compute.begin + compute;
    room_ = std::max(room_, one.compute.begin - 2 * (read + compute));  // a few buffers
    to_.on_step(one);
  }

 private:
  ledger& to_;
  std::vector<time_type> last_read_;
  time_type copied_{0}, computed_{0}, room_{0};
  std::uint64_t number_ = 0;
};

bool within_2_percent(time_type found, time_type wanted) {
  const double ratio = static_cast<double>(found.count()) / static_cast<double>(wanted.count());
  return ratio > 0.98 && ratio < 1.02;
}

TEST(Ledger, says_what_bounds_and_what_would_change_it) {
  const auto after = [](std::uint32_t readers, time_type read, time_type copy, time_type compute,
                        time_type late = 0ns) {
    ledger of;
    made_run run(of, readers);
    for (int i = 0; i < 200; ++i) run.step(read, copy, compute, late);
    return of.total();
  };
  const auto reading = after(1, 900us, 100us, 300us);
  EXPECT_EQ(reading.bound_by(), bound::reading);
  EXPECT_EQ(reading.readers_wanted(), 2U);  // three in all: 300 us each
  EXPECT_NE(reading.verdict().find("reading bounds: compute waited "), std::string::npos) << reading.verdict();
  EXPECT_NE(reading.verdict().find("2 more readers would remove it"), std::string::npos) << reading.verdict();

  const auto copying = after(2, 100us, 900us, 300us);
  EXPECT_EQ(copying.bound_by(), bound::transfer);
  EXPECT_EQ(copying.readers_wanted(), 0U);
  EXPECT_EQ(after(2, 100us, 100us, 900us).bound_by(), bound::compute);
  EXPECT_EQ(after(2, 100us, 0us, 900us).bound_by(), bound::compute);
  EXPECT_EQ(after(2, 100us, 100us, 300us, 200us).bound_by(), bound::loop);
  EXPECT_EQ(ledger().total().bound_by(), bound::nothing);
}

TEST(Ledger, batches_that_come_in_bursts_ask_for_depth) {
  ledger of;
  made_run run(of, 1);
  for (int i = 0; i < 400; ++i) run.step(i % 10 == 0 ? 3000us : 10us, 20us, 450us);
  EXPECT_EQ(of.total().bound_by(), bound::depth) << of.total().text();
}

TEST(Ledger, what_was_hidden_is_what_went_on_beside_another_stage) {
  ledger of;
  step_record one;
  const read_span reads[] = {{{0us, 100us}, 0, 1}, {{50us, 150us}, 1, 1}};
  one.reads = reads;
  one.samples = 2;
  one.readers = 2;
  one.filled = 150us;
  one.asked = {0us, 150us};
  one.copied = true;
  one.copy = {150us, 170us};
  one.compute = {170us, 270us};
  of.on_step(one);
  const read_span next[] = {{{100us, 200us}, 0, 1}, {{150us, 250us}, 1, 1}};
  one.step = 1;
  one.reads = next;
  one.filled = 250us;
  one.asked = {151us, 250us};
  one.copy = {250us, 280us};
  one.compute = {280us, 380us};
  of.on_step(one);
  const auto values = of.total();
  EXPECT_EQ(values.read.busy, 400us);
  EXPECT_EQ(values.read.covered, 250us);
  EXPECT_EQ(values.read.hidden, 100us);            // 150 to 250, beside the copy and the computing of step 0
  EXPECT_EQ(values.transfer.hidden, 20us + 20us);  // 150 to 170 beside reads, 250 to 270 beside the computing
  EXPECT_EQ(values.compute.hidden, 100us);         // of step 0: 170 to 250 beside reads, 250 to 270 beside the copy
  EXPECT_EQ(values.compute.waited_for_input, 10us);
  EXPECT_EQ(values.start_up, 170us);
  EXPECT_EQ(values.elapsed, 380us);
  EXPECT_EQ(of.step().compute.busy, 100us);
}

TEST(Ledger, reduces_and_putting_batches_together_have_accounts_of_their_own) {
  ledger of;
  step_record one;
  const read_span reads[] = {{{0us, 90us}, 0, 1}, {{0us, 100us}, 1, 1}};
  one.reads = reads;
  one.samples = 2;
  one.readers = 2;
  one.filled = 130us;  // gaps are closed, and it is padded
  one.asked = {0us, 130us};
  one.compute = {130us, 330us};
  const penstock::time_span reduces[] = {{200us, 220us}, {250us, 330us}};
  one.reduces = reduces;
  one.reduce = 100us;
  of.on_step(one);
  const read_span next[] = {{{130us, 210us}, 0, 1}, {{130us, 270us}, 1, 1}};
  one.step = 1;
  one.reads = next;
  one.filled = 290us;
  one.asked = {331us, 331us};
  one.compute = {331us, 381us};
  const penstock::time_span before[] = {{321us, 341us}};  // begun on the host, ahead of the device
  one.reduces = before;
  one.reduce = 20us;
  of.on_step(one);
  const auto values = of.total();
  EXPECT_EQ(values.batch.busy, 30us + 20us);
  EXPECT_EQ(values.batch.covered, 50us);
  EXPECT_EQ(values.batch.hidden, 20us);  // 270 to 290, beside the reduce of step 0
  EXPECT_EQ(values.reduce.busy, 120us);
  EXPECT_EQ(values.reduce.covered, 111us);       // those of both steps, 321 to 330, are one stretch
  EXPECT_EQ(values.reduce.hidden, 3 * 20us);     // beside reads, and putting together
  EXPECT_EQ(values.compute.busy, 100us + 40us);  // without what of a reduce lies within
  EXPECT_EQ(values.compute.covered, 140us);
  EXPECT_EQ(values.compute.hidden, 70us + 30us);  // beside reads, up to 200 and up to 250
  EXPECT_EQ(values.read.hidden, 140us);           // 130 to 270
  EXPECT_NE(values.text().find("\n  batch "), std::string::npos) << values.text();
  EXPECT_NE(values.text().find("\n  reduce "), std::string::npos) << values.text();
}

TEST(Ledger, an_epochs_account_begins_with_its_first_question) {
  ledger of;
  step_record one;
  const read_span read[] = {{{0us, 10us}, 0, 1}};
  one.reads = read;
  one.filled = 10us;
  one.asked = {0us, 10us};
  one.compute = {10us, 50us};
  of.on_step(one);
  one.epoch = 1;
  one.asked = {1000us, 1020us};  // a validation came between
  one.filled = 1020us;
  one.compute = {1020us, 1100us};
  of.on_step(one);
  EXPECT_EQ(of.epoch().elapsed, 100us);
  EXPECT_EQ(of.epoch().compute.waited_for_input, 20us);
  EXPECT_EQ(of.total().elapsed, 150us);
}

// One thread, in computed time: what the ledger says is what was stated.
struct timed {
  std::shared_ptr<penstock::simulated_clock> clock;
  time_type each;
  using schema_type = penstock::schema<penstock::field<float, 1>>;
  std::uint64_t size() const { return 400; }
  schema_type schema() const { return schema_type{penstock::field<float, 1>{"x", {1000}}}; }
  void read(std::uint64_t, const penstock::sample_view<schema_type>&) const { clock->advance(each); }
};

TEST(Ledger, on_a_modelled_device_its_figures_are_the_stated_ones) {
  const auto clock = std::make_shared<penstock::simulated_clock>();
  const timed data{clock, 100us};
  penstock::modelled_options how;
  how.copy_time = 250us;
  how.clock = clock;
  ledger of;
  {
    auto feed = (data | penstock::partition() | penstock::read({.readers = 0}) | penstock::batch(4) |
                 penstock::transfer(penstock::modelled_device(how), {.depth = 3}))
                    .start();
    feed.observe(of);
    for (auto& batch : feed.epoch(0)) batch.stream().launch(300us);
  }
  const auto values = of.total();
  EXPECT_EQ(values.steps, 100U);
  EXPECT_EQ(values.samples, 400U);
  EXPECT_EQ(values.bytes, 400U * 4000U);
  EXPECT_TRUE(within_2_percent(values.read.busy, 100 * 400us)) << values.text();
  EXPECT_TRUE(within_2_percent(values.transfer.busy, 100 * 250us)) << values.text();
  EXPECT_TRUE(within_2_percent(values.compute.busy, 100 * 300us)) << values.text();
  // 400 us a step, of which compute is at work 300, and waits the rest for the read and its copy.
  EXPECT_TRUE(within_2_percent(values.running(), 99 * 400us + 300us)) << values.text();
  EXPECT_TRUE(within_2_percent(values.compute.waited_for_input, 99 * 100us)) << values.text();
  EXPECT_EQ(values.bound_by(), bound::reading) << values.text();
}

/// Knows of no other ranks.
struct no_others final : penstock::detail::epoch_partner {
  void settle() override {}
  void epoch_begins(std::uint64_t, bool, std::uint64_t) override {}
  bool goes_on_dry() const noexcept override { return false; }
  void gave_dry() override {}
  void epoch_ends(bool) override {}
  penstock::world place() const noexcept override { return {}; }
  void tell_streams(const penstock::detail::audience&) const override {}
  void resumed() noexcept override {}
  void feed_ends() noexcept override {}
};

/// What a ledger says of 100 steps that read for 400 us: `step(batch, reduce)` is each one's loop, in which
/// `reduce(time)` is an exchange.
template <class Step>
penstock::ledger_values with_reduces(penstock::modelled_options how, Step&& step) {
  const auto clock = std::make_shared<penstock::simulated_clock>();
  how.clock = clock;
  ledger of;
  {
    no_others alone;
    auto feed = (timed{clock, 100us} | penstock::partition() | penstock::read({.readers = 0}) | penstock::batch(4) |
                 penstock::transfer(penstock::modelled_device(how), {.depth = 3}))
                    .start();
    auto& control = feed.keep_in_step_with(alone);
    feed.observe(of);
    const auto reduce = [&](time_type time) {
      control.reduces(true);
      clock->advance(time);
      control.reduces(false);
    };
    for (auto& batch : feed.epoch(0)) step(batch, reduce);
  }
  return of.total();
}

TEST(Ledger, on_a_modelled_device_reduces_are_the_stated_ones_and_hidden_as_stated) {
  for (const bool waits : {true, false}) {  // the host for the device, before the exchange
    penstock::modelled_options how;
    how.copy_time = 250us;
    const auto values = with_reduces(how, [&](auto& batch, const auto& reduce) {
      batch.stream().launch(300us);
      if (waits) batch.stream().synchronize();
      reduce(50us);
      reduce(100us);
    });
    EXPECT_TRUE(within_2_percent(values.reduce.busy, 100 * 150us)) << values.text();
    EXPECT_TRUE(within_2_percent(values.reduce.covered, 100 * 150us)) << values.text();
    EXPECT_TRUE(within_2_percent(values.compute.busy, 100 * 300us)) << values.text();
    EXPECT_TRUE(within_2_percent(values.compute.covered, 100 * 300us)) << values.text();
    // Else it goes on beside the copy of its own batch, whose computing begins behind both.
    EXPECT_EQ(values.reduce.hidden, waits ? 0us : values.reduce.covered) << values.text();
  }
}

TEST(Ledger, of_more_reduces_of_a_step_than_are_kept_the_time_is_right) {
  const auto values = with_reduces({}, [](auto& batch, const auto& reduce) {
    for (int layer = 0; layer < 100; ++layer) {
      reduce(2us);
      batch.stream().launch(1us);
      batch.stream().synchronize();
    }
  });
  EXPECT_TRUE(within_2_percent(values.reduce.busy, 100 * 200us)) << values.text();
  EXPECT_TRUE(within_2_percent(values.compute.busy, 100 * 100us)) << values.text();
}

// What lies between reduces that have no place of their own is computing.
TEST(Ledger, of_more_reduces_than_are_kept_no_more_is_hidden_than_there_was) {
  penstock::modelled_options how;
  how.copy_time = 10ms;  // beside which all goes on
  const auto values = with_reduces(how, [](auto& batch, const auto& reduce) {
    batch.stream().synchronize();
    for (int layer = 0; layer < 100; ++layer) {
      reduce(2us);
      batch.stream().launch(20us);
      batch.stream().synchronize();
    }
  });
  EXPECT_TRUE(within_2_percent(values.reduce.busy, 100 * 200us)) << values.text();
  EXPECT_LE(values.reduce.hidden, values.reduce.busy) << values.text();
  EXPECT_LE(values.reduce.covered, values.reduce.busy) << values.text();
  EXPECT_TRUE(within_2_percent(values.compute.busy, 100 * 2000us)) << values.text();
  EXPECT_TRUE(within_2_percent(values.compute.covered, 100 * 2000us)) << values.text();
}

// A batch that is held keeps its place in the ledger; others that would need it are counted as lost.
TEST(Ledger, steps_behind_a_batch_that_is_held_are_counted_as_lost) {
  const std::vector<std::uint64_t> data(200);
  ledger of;
  {
    auto feed = (data | penstock::partition() | penstock::read({.readers = 0}) | penstock::batch(1) |
                 penstock::transfer(penstock::cpu_device{}, {.depth = 2}))
                    .start();
    feed.observe(of);
    auto held = feed.next();
    for (int i = 1; i < 150; ++i) feed.next();
    held.release();
    while (feed.next()) {
    }
  }
  const auto values = of.total();
  EXPECT_GT(values.lost, 0U);
  EXPECT_EQ(values.steps + values.lost, 200U);
}

// Rank 1 comes a stated time after rank 0 is in the all-reduce.
TEST(Ledger, of_two_losses_the_greater_one_is_what_bounds) {
  penstock::ledger_values of;
  of.steps = 10;
  of.elapsed = 1000ms;
  of.compute.busy = 20ms;
  of.compute.waited_for_input = 60ms;
  of.reduce.busy = 900ms;
  EXPECT_EQ(of.bound_by(), bound::ranks) << of.text();
  of.compute.waited_for_input = 600ms;
  of.reduce.busy = 300ms;
  of.read.busy = 900ms;
  EXPECT_EQ(of.bound_by(), bound::reading) << of.text();
}

TEST(Ledger, says_which_rank_made_the_others_wait) {
  constexpr auto late = 1ms;
  const std::vector<float> data(40);
  std::vector<penstock::ledger_values> ranks(2);
  std::atomic<int> waiting{0};
  penstock::replicas(penstock::local_world(2), [&](auto& one) {
    ledger of;
    {
      auto feed = one.start(data | penstock::partition({.world = one}) | penstock::read({.readers = 0}) |
                            penstock::batch({.global = 4}) | penstock::transfer(one.device()));
      feed.observe(of);
      std::vector<float> value(1);
      for (auto& batch : feed.epoch(0)) {
        if (one.rank() == 0) {
          ++waiting;
        } else {
          while (waiting.load() <= static_cast<int>(batch.step())) std::this_thread::yield();
          const auto until = std::chrono::steady_clock::now() + late;
          while (std::chrono::steady_clock::now() < until) {
          }
        }
        one.all_reduce(batch, value);
      }
    }
    ranks[one.rank()] = of.total();
  });
  EXPECT_GE(ranks[0].reduce.busy, 5 * late);  // ten times, but for what lies between the flag and the call
  EXPECT_LT(ranks[1].reduce.busy, ranks[0].reduce.busy);
  EXPECT_EQ(ranks[0].bound_by(), bound::ranks) << ranks[0].text();
  const std::string told = penstock::compare_ranks(ranks);
  EXPECT_TRUE(told.starts_with("rank 1 made others wait, for up to ")) << told;
  EXPECT_EQ(penstock::compare_ranks(std::span(ranks).first(1)), "there is one rank");
}

}  // namespace
