// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
// What a tuner chooses: told figures by hand, and on modelled workloads, in modelled time, beside all fixed settings.
#include "../../examples/planner/predict.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/schedule/tuner.hpp>

namespace {

using namespace std::chrono_literals;
using penstock::detail::tuner;
using std::chrono::nanoseconds;

// ---- told by hand

/// Tells a tuner of `count` steps that are `time` long, or as long as `time(step)` says.
struct teller {
  template <class Time>
  void steps(int count, const Time& time, double waited, double busy_readers) {
    for (int i = 0; i < count; ++i) {
      nanoseconds one{};
      if constexpr (std::is_invocable_v<Time, std::uint64_t>)
        one = time(step);
      else
        one = time;
      ++step;
      const auto share = [&](double part) {
        return nanoseconds(static_cast<nanoseconds::rep>(part * double(one.count())));
      };
      now += one;
      busy += share(busy_readers);
      of.step({now, share(waited), busy});
    }
  }

  tuner of;
  std::uint64_t step = 0;
  nanoseconds now{}, busy{};
};

TEST(tuner, a_loop_that_never_waits_is_left_alone) {
  teller tells{tuner({.readers = 1, .most_readers = 8, .depth = 3, .most_depth = 16})};
  tells.steps(14, 100us, 0.0, 1.0);
  EXPECT_TRUE(tells.of.settled());
  EXPECT_EQ(tells.of.readers(), 1U);
  EXPECT_EQ(tells.of.depth(), 3U);
  EXPECT_EQ(tells.of.why(), "1 of 8 readers, depth 3 of 16: the loop waits 0 % of the time");
}

TEST(tuner, nothing_to_choose_is_settled_from_the_beginning) {
  const tuner fixed({.readers = 4, .most_readers = 4, .depth = 3, .most_depth = 3});
  EXPECT_TRUE(fixed.settled());
  EXPECT_EQ(fixed.steps(), 0U);
}

TEST(tuner, readers_that_do_not_help_are_taken_back_and_not_tried_again) {
  teller tells{tuner({.readers = 1, .most_readers = 8, .depth = 3, .most_depth = 3})};
  std::uint32_t most = 0;
  for (int i = 0; i < 200; ++i) {
    tells.steps(1, 100us, 0.9, tells.of.readers());  // however many there are, they have no rest
    most = std::max(most, tells.of.readers());
  }
  EXPECT_TRUE(tells.of.settled());
  EXPECT_LE(tells.of.steps(), 50U);
  EXPECT_EQ(tells.of.readers(), 1U);
  EXPECT_EQ(most, 4U);
  EXPECT_EQ(tells.of.why(),
            "1 of 8 readers (with 2 instead of 1 a step took 100 % of the time), depth 3 of 3: the loop waits 90 % of "
            "the time and readers read 100 % of it");
}

TEST(tuner, half_as_many_more_are_tried_where_too_many_are_in_each_others_way) {
  teller tells{tuner({.readers = 1, .most_readers = 8, .depth = 3, .most_depth = 3})};
  tells.steps(100, [&](std::uint64_t) { return tells.of.readers() == 2 ? 60us : 100us; }, 0.9, 2.0);
  EXPECT_TRUE(tells.of.settled());
  EXPECT_EQ(tells.of.readers(), 2U);
}

TEST(tuner, depth_is_tried_where_readers_rest) {
  teller tells{tuner({.readers = 2, .most_readers = 8, .depth = 3, .most_depth = 16})};
  for (int i = 0; i < 200; ++i) tells.steps(1, tells.of.depth() < 6 ? 120us : 100us, 0.4, 0.6);
  EXPECT_TRUE(tells.of.settled());
  EXPECT_EQ(tells.of.readers(), 2U);
  EXPECT_EQ(tells.of.depth(), 6U);
  EXPECT_LE(tells.of.steps(), 50U);
}

TEST(tuner, what_wanders_by_chance_is_no_gain) {
  teller tells{tuner({.readers = 1, .most_readers = 8, .depth = 3, .most_depth = 16})};
  const auto noisy = [](std::uint64_t step) { return nanoseconds(100'000 + 997 * (step * 7919 % 5)); };
  tells.steps(300, noisy, 0.5, 1.0);
  EXPECT_TRUE(tells.of.settled());
  EXPECT_EQ(tells.of.readers(), 1U);
}

TEST(tuner, a_single_long_step_changes_nothing_and_a_lasting_change_begins_anew) {
  teller tells{tuner({.readers = 1, .most_readers = 4, .depth = 3, .most_depth = 16})};
  tells.steps(40, 100us, 0.0, 0.5);
  const std::uint64_t settled_in = tells.of.steps();
  tells.steps(1, 50ms, 0.9, 1.0);
  tells.steps(60, 100us, 0.0, 0.5);
  EXPECT_EQ(tells.of.steps(), settled_in);
  EXPECT_EQ(tells.of.readers(), 1U);
  for (int i = 0; i < 100; ++i) {
    const double readers = tells.of.readers();
    tells.steps(1, nanoseconds(static_cast<nanoseconds::rep>(400'000 / readers)), 0.6, readers);
  }
  EXPECT_TRUE(tells.of.settled());
  EXPECT_EQ(tells.of.readers(), 4U);
}

TEST(tuner, a_change_while_something_is_tried_is_not_taken_for_what_is_usual) {
  for (const double busy : {0.6, 0.8, 1.0})
    for (int changes = 10; changes < 90; ++changes) {
      teller tells{tuner({.readers = 1, .most_readers = 2, .depth = 3, .most_depth = 16})};
      tells.steps(changes, 500us, 0.9, busy);  // reading is not what bounds
      for (int i = 0; i < 120; ++i) tells.steps(1, 2000us / tells.of.readers(), 0.9, tells.of.readers());
      EXPECT_TRUE(tells.of.settled()) << changes;
      EXPECT_EQ(tells.of.readers(), 2U) << "changed at step " << changes << ": " << tells.of.why();
    }
}

TEST(tuner, what_passes_between_epochs_is_no_step) {
  teller tells{tuner({.readers = 1, .most_readers = 8, .depth = 3, .most_depth = 16})};
  for (int epoch = 0; epoch < 20; ++epoch) {
    tells.of.pause();
    tells.now += 3s;
    tells.steps(5, 100us, 0.0, 1.0);
  }
  EXPECT_TRUE(tells.of.settled());
  EXPECT_EQ(tells.of.depth(), 3U);
}

// ---- on modelled workloads

constexpr std::uint32_t cpus = 4, most_depth = 16, ranges = 4;

struct workload {
  const char* name;
  std::function<nanoseconds(std::uint64_t)> read;    // of a step, which readers share
  std::function<nanoseconds(std::uint64_t)> sample;  // and of one slow sample in it, which they cannot
  nanoseconds copy, compute;
  std::uint64_t changes = 0;  // at this step
  friend std::ostream& operator<<(std::ostream& to, const workload& one) { return to << one.name; }
};

nanoseconds none(std::uint64_t) { return 0ns; }
std::function<nanoseconds(std::uint64_t)> always(nanoseconds time) {
  return [=](std::uint64_t) { return time; };
}

const workload workloads[]{
    {"read_bound", always(800us), none, 50us, 100us},
    {"reads_a_little_slower", always(280us), none, 50us, 200us},
    {"copy_bound", always(100us), none, 300us, 100us},
    {"compute_bound", always(100us), none, 50us, 300us},
    {"equal", always(100us), none, 100us, 100us},
    {"bursty", always(40us), [](std::uint64_t step) { return step % 8 == 7 ? 900us : 0us; }, 20us, 170us},
    {"phase_change", [](std::uint64_t step) { return step < 150 ? 100us : 800us; }, none, 50us, 150us, 150},
    {"phase_change_to_less", [](std::uint64_t step) { return step < 150 ? 800us : 100us; }, none, 50us, 150us, 150},
};

/// A feed to a modelled device, its threads played by one, in time that jumps: as the planner has it, but with readers
/// and depth that change.
class simulation {
  using schema = penstock::schema<penstock::field<float>>;
  using time_point = planner::time_point;

 public:
  simulation(const workload& of, std::uint32_t readers, std::uint32_t depth, tuner* chooses)
      : of_(of),
        clock_(std::make_shared<planner::planned_clock>()),
        device_({.event_latency = 3us, .notice = 27us, .copy_time = of.copy, .poison = false, .clock = clock_}),
        channel_(device_, {schema({"sample"}), ranges}, shape_of(depth, chooses), {}, nullptr),
        computed_(device_.make_event()),
        tuner_(chooses),
        active_(readers),
        readers_(cpus) {
    channel_.set_drain_limit(1ns);
    channel_.turns.open(1 << 20);
  }

  ~simulation() {
    if (!ends.empty()) clock_->advance_to(time_point(ends.back() + 1s));
  }
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  /// When each step has ended on the device.
  void run(std::uint64_t steps) {
    while (ends.size() < steps) {
      for (bool acted = true; acted;) {
        acted = false;
        for (std::uint32_t i = 0; i < cpus; ++i) {
          if (readers_[i].busy_until > clock_->now()) continue;
          acted |= finish(i);
          if (i < active_) acted |= take(i);
        }
        acted |= compute();
      }
      time_point next = time_point::max();
      for (const reader& one : readers_)
        if (one.busy_until > clock_->now()) next = std::min(next, one.busy_until);
      ASSERT_NE(next, time_point::max()) << "the schedule stands still";
      clock_->advance_to(next);
    }
  }
  /// Mean time of a step from `first` on.
  double step_time(std::uint64_t first, std::uint64_t count) const {
    return double((ends[first + count - 1] - ends[first - 1]).count()) / double(count);
  }
  std::vector<nanoseconds> ends;
  std::vector<bool> settled;  // after each step

 private:
  struct reader {
    time_point busy_until{};
    bool reads = false;
    penstock::ticket held;
  };
  static penstock::ring_shape shape_of(std::uint32_t depth, const tuner* chooses) {
    if (chooses == nullptr) return {depth, depth, ranges, cpus};
    return {chooses->range().most_depth, chooses->range().most_depth, ranges, cpus, depth};
  }

  bool take(std::uint32_t i) {
    reader& one = readers_[i];
    const auto result = channel_.try_take(i, one.held);
    if (result == penstock::take_result::none) return false;
    if (result == penstock::take_result::taken) {
      one.reads = true;
      const std::uint64_t step = one.held.step;
      const nanoseconds time = of_.read(step) / ranges + (one.held.range == 0 ? of_.sample(step) : 0ns);
      one.busy_until = clock_->now() + time;
      busy_ += time;
    } else {
      clock_->asked.reset();
      channel_.await_fence(one.held.slot, [this] { return clock_->asked.has_value(); });
      one.busy_until = clock_->asked.value_or(clock_->now());
    }
    return true;
  }
  bool finish(std::uint32_t i) {
    reader& one = readers_[i];
    if (!std::exchange(one.reads, false)) return false;
    if (channel_.turns.arrive(one.held)) {
      auto& info = channel_.record(one.held.slot).info;
      info.step = one.held.step;
      info.count = info.rows = ranges;
      channel_.publish(one.held);
    }
    channel_.turns.leave(i);
    return true;
  }
  // The loop enqueues and asks for the next batch at once.
  bool compute() {
    if (!channel_.turns.is_ready()) return false;
    const auto now = clock_->now().time_since_epoch();
    auto batch = channel_.receive();
    if (tuner_ != nullptr) {
      if (tuner_->step({now, now - asked_, busy_})) {
        active_ = tuner_->readers();
        channel_.widen(tuner_->depth());
      }
      settled.push_back(tuner_->settled());
    }
    batch.stream().launch(of_.compute);
    device_.record(computed_, batch.stream());
    ends.push_back(device_.completion(computed_).time_since_epoch());
    asked_ = now;
    return true;
  }

  const workload& of_;
  std::shared_ptr<planner::planned_clock> clock_;
  penstock::modelled_device device_;
  penstock::channel<schema, penstock::modelled_device> channel_;
  penstock::modelled_event computed_;
  tuner* tuner_;
  std::uint32_t active_;
  std::vector<reader> readers_;
  nanoseconds busy_{}, asked_{};
};

class modelled : public testing::TestWithParam<workload> {};
INSTANTIATE_TEST_SUITE_P(tuner, modelled, testing::ValuesIn(workloads),
                         [](const auto& given) { return std::string(given.param.name); });

TEST_P(modelled, settles_within_50_steps_and_is_within_5_percent_of_the_best_fixed_setting) {
  const workload& of = GetParam();
  const std::uint64_t first = of.changes + 50, count = 240, steps = first + count;
  tuner chooses({.readers = 1, .most_readers = cpus, .depth = 3, .most_depth = most_depth, .copies = true});
  simulation automatic(of, 1, 3, &chooses);
  automatic.run(steps);
  ASSERT_GE(automatic.settled.size(), steps);
  for (std::uint64_t step = first; step < steps; ++step)
    ASSERT_TRUE(automatic.settled[step]) << "at step " << step << ": " << chooses.why();

  double best = 1e300;
  std::string best_setting;
  for (std::uint32_t readers = 1; readers <= cpus; ++readers)
    for (std::uint32_t depth = 2; depth <= most_depth; ++depth) {
      simulation fixed(of, readers, depth, nullptr);
      fixed.run(steps);
      const double time = fixed.step_time(first, count);
      if (time < best * 0.9999) {
        best = time;
        best_setting = std::to_string(readers) + " readers, depth " + std::to_string(depth);
      }
    }
  const double found = automatic.step_time(first, count);
  EXPECT_LE(found, 1.05 * best) << chooses.why() << "; best is " << best_setting;
}

TEST(tuner, a_change_at_any_step_is_found) {
  for (std::uint64_t changes = 20; changes < 180; ++changes)
    for (const auto slow : {1200us, 2000us}) {
      const workload of{"change", [=](std::uint64_t step) { return step < changes ? 300us : slow; }, none, 200us,
                        500us};
      tuner chooses({.readers = 1, .most_readers = 2, .depth = 3, .most_depth = most_depth, .copies = true});
      simulation automatic(of, 1, 3, &chooses);
      automatic.run(changes + 300);
      const double best = std::max(500e3, double(nanoseconds(slow).count()) / 2);
      EXPECT_LE(automatic.step_time(changes + 200, 100), 1.05 * best)
          << "changed at step " << changes << ": " << chooses.why();
    }
}

}  // namespace
