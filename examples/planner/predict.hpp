// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <penstock/channel/channel.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/philox.hpp>

#include "plan.hpp"

namespace planner {

using time_point = penstock::modelled_clock::time_point;

/// Time that stands still until every thread waits. A thread that would sleep is told apart, and interrupted.
class planned_clock final : public penstock::manual_clock {
 public:
  void sleep_until(time_point target, time_point /*limit*/) override { asked = target; }
  std::optional<time_point> asked;
};

/// One replica: penstock's channel to a modelled device, with the parts of readers and consumer played by one thread.
/// They ask the channel in the way a feed's own threads do; only what these would sleep through is written down
/// instead.
class replica {
  using schema = penstock::schema<penstock::field<float>>;

 public:
  replica(const plan& of, int rank, int steps, std::shared_ptr<planned_clock> clock)
      : plan_(smaller(of)),
        rank_(static_cast<std::uint64_t>(rank)),
        clock_(std::move(clock)),
        device_({.event_latency = of.event_latency,
                 .notice = of.notice,
                 .copy_time = of.copy,
                 .poison = false,
                 .clock = clock_}),
        channel_(device_, {schema({"sample"}), static_cast<std::size_t>(plan_.batch)}, shape_of(plan_), {}, nullptr),
        computed_(device_.make_event()),
        readers_(channel_.turns.shape().readers) {
    channel_.set_drain_limit(nanoseconds(1));
    channel_.turns.open(static_cast<std::uint64_t>(steps));
  }

  /// Lets every thread do what it can do now.
  void act() {
    for (bool acted = true; acted;) {
      acted = false;
      for (std::uint32_t i = 0; i < readers_.size(); ++i) {
        if (readers_[i].busy_until > clock_->now()) continue;
        acted |= finish(i);
        // One that reads inline does so only when it needs a batch.
        if (plan_.readers > 0 || !channel_.turns.is_ready()) acted |= take(i);
      }
      acted |= compute();
    }
  }
  /// When a thread wakes next.
  time_point wakes() const {
    time_point next = time_point::max();
    for (const reader& one : readers_)
      if (one.busy_until > clock_->now()) next = std::min(next, one.busy_until);
    return next;
  }

  /// Whether a step's computation is enqueued, and when the last one ends.
  bool has_step() const { return static_cast<bool>(batch_); }
  time_point computed() const { return device_.completion(computed_); }
  /// Ends the step, once all replicas have theirs.
  void reduce(time_point all_computed) {
    if (plan_.replicas > 1) {
      batch_.stream().launch(all_computed - computed() + plan_.reduce);
      device_.record(computed_, batch_.stream());
    }
    batch_.release();
  }

 private:
  struct reader {
    time_point busy_until{};
    bool reads = false;
    penstock::ticket held;
  };

  // Only the shares matter that readers have in a batch.
  static plan smaller(plan of) {
    of.batch = std::min(of.batch, 4096);
    return of;
  }
  static penstock::ring_shape shape_of(const plan& of) {
    const auto readers = static_cast<std::uint32_t>(std::max(of.readers, 1));
    const std::uint32_t ranges = std::min(std::bit_ceil(readers), std::bit_floor(static_cast<std::uint32_t>(of.batch)));
    return {static_cast<std::uint32_t>(of.slots()), static_cast<std::uint32_t>(of.depth), ranges, readers};
  }

  bool take(std::uint32_t i) {
    reader& one = readers_[i];
    const auto result = channel_.try_take(i, one.held);
    if (result == penstock::take_result::none) return false;
    if (result == penstock::take_result::taken) {
      one.reads = true;
      one.busy_until = clock_->now() + read_time(one.held);
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
      info.count = info.rows = static_cast<std::uint32_t>(plan_.batch);
      channel_.publish(one.held);
    }
    channel_.turns.leave(i);
    return true;
  }
  bool compute() {
    const bool reads = plan_.readers == 0 && readers_.front().busy_until > clock_->now();
    if (reads || has_step() || !channel_.turns.is_ready()) return false;
    batch_ = channel_.receive();
    batch_.stream().launch(vary(plan_.compute, batch_.step(), 0));
    device_.record(computed_, batch_.stream());
    return true;
  }

  nanoseconds read_time(const penstock::ticket& of) const {
    const auto batch = static_cast<std::uint32_t>(plan_.batch), ranges = channel_.turns.shape().ranges;
    const std::uint32_t share = (batch + ranges - 1) / ranges;
    const std::uint32_t rows = std::min(share, batch - std::min(share * of.range, batch));
    return vary(plan_.read * rows / plan_.batch, of.step, 1 + of.range);
  }
  nanoseconds vary(nanoseconds time, std::uint64_t step, std::uint64_t what) const {
    penstock::philox random(rank_, step, what, penstock::random_domain::user);
    const double share = 1 + plan_.spread * (2 * static_cast<double>(random.uniform()) - 1);
    return nanoseconds(std::llround(static_cast<double>(time.count()) * share));
  }

  plan plan_;
  std::uint64_t rank_;
  std::shared_ptr<planned_clock> clock_;
  penstock::modelled_device device_;
  penstock::channel<schema, penstock::modelled_device> channel_;
  penstock::modelled_event computed_;
  penstock::lease<schema, penstock::modelled_device> batch_;
  std::vector<reader> readers_;
};

/// When each of the first `steps` steps has ended on all replicas.
inline std::vector<nanoseconds> step_ends(const plan& of, int steps) {
  const auto clock = std::make_shared<planned_clock>();
  std::deque<replica> replicas;
  for (int rank = 0; rank < of.replicas; ++rank) replicas.emplace_back(of, rank, steps, clock);
  std::vector<nanoseconds> ends;
  while (std::ssize(ends) < steps) {
    bool all = true;
    time_point computed{}, next = time_point::max();
    for (replica& one : replicas) {
      one.act();
      all &= one.has_step();
      computed = std::max(computed, one.computed());
      next = std::min(next, one.wakes());
    }
    if (all) {
      for (replica& one : replicas) one.reduce(computed);
      ends.push_back(replicas.front().computed().time_since_epoch());
    } else if (next != time_point::max()) {
      clock->advance_to(next);
    } else {
      throw penstock::error("the schedule stands still: neither a reader nor the consumer can go on");
    }
  }
  clock->advance_to(time_point(ends.back()));
  return ends;
}

struct prediction {
  nanoseconds wall;   ///< of all steps
  nanoseconds first;  ///< until the end of the first
  double steady_ns;   ///< per step, once the buffers are full
  double efficiency;  ///< the longest stage's share in the wall time
  const char* bounded_by;
};

inline prediction predict(const plan& of) {
  constexpr int more = 500;  // what is done after a step does not change it
  const auto ends = step_ends(of, of.steps + more);
  const auto ns = [](nanoseconds time) { return static_cast<double>(time.count()); };
  prediction result{ends[static_cast<std::size_t>(of.steps) - 1], ends[0],
                    ns(ends.back() - ends[ends.size() - 1 - more]) / more, 0, "reduce"};
  const double longest = ns(of.longest());
  result.efficiency = of.steps * longest / ns(result.wall);
  if (result.steady_ns > 1.02 * longest)
    result.bounded_by = of.spread > 0 ? "depth, latency and spread" : "depth and latency";
  else if (of.read_of_all() == of.longest())
    result.bounded_by = "read";
  else if (of.copy == of.longest())
    result.bounded_by = "copy";
  else if (of.compute >= of.reduce)
    result.bounded_by = "compute";
  return result;
}

}  // namespace planner
