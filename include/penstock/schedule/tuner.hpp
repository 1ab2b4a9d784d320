// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace penstock {

/// What a feed has chosen where readers or depth are `automatic`; see `feed::tuning`.
struct tuning {
  std::uint32_t readers = 0, most_readers = 0;  ///< that work, and threads that there are
  std::uint32_t depth = 0, most_depth = 0;      ///< batches in use, and allocated
  std::uint64_t bytes = 0;                      ///< of all that are allocated, on host and device
  bool settled = false;                         ///< it measures on, and begins anew when steps take another time
  std::uint64_t steps = 0;                      ///< that it took to settle, or until now
  std::string why{};                            ///< a sentence
};

}  // namespace penstock

namespace penstock::detail {

/// Where a tuner begins, and how far it may go; equal: that is not its to choose.
struct tuner_range {
  std::uint32_t readers = 1, most_readers = 1;
  std::uint32_t depth = 3, most_depth = 3;
  bool copies = false;  ///< depth is of slots and of twins, so a step more of it is two batches more
};

/// What the loop's side knows when it has received a batch.
struct tuner_step {
  std::chrono::nanoseconds at{};      ///< when that was
  std::chrono::nanoseconds waited{};  ///< for this batch, in asking for it
  std::chrono::nanoseconds busy{};    ///< of all readers, since the feed was made
};

/// Chooses how many readers work and how many batches are under way, from what each step took. A function of what it is
/// told alone: no clock, no thread, no allocation.
///
/// It measures in windows of 8 steps after those that a change takes to show; 16 where they differ much, 4 where they
/// do not at all. While the loop waits it tries more of what may help: readers if those that there are hardly rest,
/// twice the depth if they do or if steps differ. What made steps shorter by more than chance would is kept. Readers
/// that did not are taken back (once with those half way tried, too); depth that did not is left, as it does no harm,
/// and not added to. When nothing is left to be tried it has settled, and begins anew only if two windows in a row are
/// off by a tenth and more, and agree.
class tuner {
  static constexpr std::uint32_t least_window = 8, most_window = 16, regular_window = 4;
  static constexpr std::uint32_t settling_in = 2;
  static constexpr double waits = 0.02;    // share of a step that the loop waits, from which on there is a gain
  static constexpr double works = 0.7;     // share of the time that readers are busy, below which more are idle
  static constexpr double no_rest = 0.95;  // the same, above which there is always room for what they read
  static constexpr double least_gain = 0.02, most_chance = 0.05, changed = 0.1, most_changed = 0.25;

 public:
  explicit tuner(const tuner_range& range)
      : range_(range), readers_(range.readers), depth_(range.depth), skip_(settling_in + batches(range.depth)) {
    if (!may_choose()) settle();
  }

  std::uint32_t readers() const noexcept { return readers_; }
  std::uint32_t depth() const noexcept { return depth_; }
  const tuner_range& range() const noexcept { return range_; }
  bool settled() const noexcept { return phase_ == phase::settled; }
  /// Until it settled, or up to now; since it began anew, if it did.
  std::uint64_t steps() const noexcept { return (settled() ? settled_at_ : seen_) - began_at_; }

  /// A step more. True if `readers` or `depth` have changed, which the caller then sees to at once.
  bool step(const tuner_step& now) noexcept {
    ++seen_;
    const bool known = std::exchange(known_, true);
    const tuner_step before = std::exchange(last_, now);
    if (!known || !may_choose()) return false;
    if (skip_ != 0) return --skip_, false;
    const std::uint32_t least = phase_ != phase::first && base_.error <= least_gain / 4 ? regular_window : least_window;
    window_.add(ns(now.at - before.at), ns(now.waited), ns(now.busy - before.busy));
    if (window_.count > least) half_.add(ns(now.at - before.at), ns(now.waited), ns(now.busy - before.busy));
    // Steps that differed, and then no more, were on their way to what they are.
    const bool arrived = half_.count == least && half_.error() <= least_gain;
    if (!arrived && !window_.is_full(least)) return false;
    const auto readers = readers_, depth = depth_;
    look((arrived ? half_ : window_).result(readers_));
    window_ = half_ = {};
    // What is under way was read before.
    if (readers_ != readers) skip_ = settling_in + 3;
    if (depth_ != depth) skip_ = settling_in + until_full(depth_ - depth);
    return readers_ != readers || depth_ != depth;
  }
  /// What comes next is not a step's time: the loop was left, or does something else between epochs.
  void pause() noexcept { known_ = false; }
  /// All buffers were held by the loop: there has to be one more.
  void needs_depth(std::uint32_t depth) noexcept {
    depth_ = depth;
    held_ = true;
  }

  /// A sentence: what was chosen, and what else was tried or why nothing was.
  std::string why() const {
    std::string out =
        text(readers_, range_.most_readers, range_.most_readers == 1 ? " reader" : " readers", readers_trial_);
    out += ", depth ";
    out += text(depth_, range_.most_depth, "", depth_trial_);
    if (held_) out += ", as the loop holds batches";
    if (!settled()) return out += ": still measuring";
    if (!may_choose()) return out += ": nothing to choose";
    out += ": the loop waits ";
    out += percent(base_.waited);
    out += " of the time";
    if (base_.waited < waits) return out;
    out += " and readers read ";
    out += percent(base_.busy);
    return out += " of it";
  }

 private:
  enum class phase : std::uint8_t { first, readers, readers_half_way, depth, settled };
  struct measured {
    double time = 0;    // of a step, in ns
    double error = 0;   // its standard error, as a share of it
    double waited = 0;  // share of the time that the loop waited
    double busy = 0;    // share of the time that readers read
  };
  struct window {
    std::uint32_t count = 0;
    double sum = 0, squares = 0, waited = 0, busy = 0;

    void add(double time, double wait, double read) noexcept {
      ++count;
      sum += time;
      squares += time * time;
      waited += wait;
      busy += read;
    }
    double error() const noexcept {
      const double n = count, mean = sum / n, variance = squares / n - mean * mean;
      return mean <= 0 || variance <= 0 ? 0 : root(variance / (n - 1)) / mean;
    }
    bool is_full(std::uint32_t least) const noexcept {
      return count >= most_window || (count >= least && error() <= least_gain);
    }
    measured result(std::uint32_t readers) const noexcept {
      if (sum <= 0) return {};
      return {sum / count, error(), waited / sum, busy / sum / readers};
    }
  };
  struct trial {
    std::uint32_t from = 0, to = 0;
    double ratio = 0;
  };

  // <cmath> costs more to include than all of this.
  static double root(double of) noexcept {
    double out = of < 1 ? 1 : of;
    for (int i = 0; i < 40 && of > 0; ++i) out = (out + of / out) / 2;
    return out;
  }
  static double apart(double difference) noexcept { return difference < 0 ? -difference : difference; }
  static std::uint32_t at_least(double number) noexcept {
    const auto floor = static_cast<std::uint32_t>(number);
    return floor < number ? floor + 1 : floor;
  }
  static std::string percent(double share) {
    return std::to_string(static_cast<std::uint64_t>(100 * share + 0.5)) + " %";
  }
  static std::string text(std::uint32_t number, std::uint32_t most, const char* of, const trial& tried) {
    std::string out = std::to_string(number) + " of " + std::to_string(most) + of;
    if (tried.to != 0)
      out += " (with " + std::to_string(tried.to) + " instead of " + std::to_string(tried.from) + " a step took " +
             percent(tried.ratio) + " of the time)";
    return out;
  }
  static double ns(std::chrono::nanoseconds time) noexcept { return static_cast<double>(time.count()); }
  std::uint32_t batches(std::uint32_t depth) const noexcept { return range_.copies ? 2 * depth : depth; }
  // Steps that are shorter as what is new is filled, at the pace of readers that have no rest. Where steps differ, that
  // pace is not known so well that it were worth the steps.
  std::uint32_t until_full(std::uint32_t more) const noexcept {
    constexpr double most = 18;
    if (base_.error > least_gain) return batches(more);
    const double rest = 1 - base_.busy, steps = rest * most < batches(more) ? most : batches(more) / rest;
    return at_least(steps);
  }
  bool may_choose() const noexcept {
    return range_.readers != range_.most_readers || range_.depth != range_.most_depth;
  }

  void look(const measured& now) noexcept {
    if (phase_ == phase::settled) return watch(now);
    if (phase_ == phase::first) {
      base_ = now;
      return choose();
    }
    const double chance = now.error > base_.error ? now.error : base_.error;
    const double needed = chance < least_gain ? least_gain : chance > most_chance ? most_chance : chance;
    const bool better = now.time < base_.time * (1 - needed);
    const bool readers = phase_ != phase::depth;
    trial& done = readers ? readers_trial_ : depth_trial_;
    done.ratio = base_.time > 0 ? now.time / base_.time : 1;
    if (better) {
      if (!readers) {
        no_more_depth_ = no_more_readers_ = true;  // readers had rests, which they now use
        // Bursts may be longer than they were.
        if (base_.error > least_gain) depth_ = 2 * depth_ < range_.most_depth ? 2 * depth_ : range_.most_depth;
      }
      base_ = now;
      return choose();
    }
    if (!readers) {
      // More depth makes no step longer: it is the steps that have changed.
      if (now.time > base_.time * (1 + changed)) return begin_anew(now);
      no_more_depth_ = true;
      base_ = now;  // as long, with what is left in use
      return choose();
    }
    const std::uint32_t tried = readers_;
    readers_ = done.from;
    const auto half_way = static_cast<std::uint32_t>(root(double{1} * tried * done.from) + 0.5);
    if (phase_ == phase::readers && half_way > done.from && half_way < tried) return try_readers(half_way, true);
    no_more_readers_ = true;
    choose();
  }

  void choose() noexcept {
    if (base_.waited < waits) return settle();
    const bool more_readers = !no_more_readers_ && readers_ < range_.most_readers && base_.busy >= works;
    const bool more_depth = !no_more_depth_ && depth_ < range_.most_depth && base_.busy < no_rest;
    const bool depth_first = base_.error > least_gain || base_.busy < works;  // steps differ, or readers rest
    if (more_readers && !(more_depth && depth_first)) return try_readers(enough_readers(), false);
    if (more_depth) {
      const std::uint32_t from = depth_;
      depth_ = 2 * depth_ < range_.most_depth ? 2 * depth_ : range_.most_depth;
      depth_trial_ = {from, depth_, 1};
      phase_ = phase::depth;
      return;
    }
    settle();
  }
  // So many that the loop, which without waits would take what it takes for itself, has no need to wait; four times as
  // many at the most.
  std::uint32_t enough_readers() const noexcept {
    const double own = 1 - base_.waited, wanted = own > 0.25 ? at_least(readers_ * base_.busy / own) : 4.0 * readers_;
    const auto most = range_.most_readers < 4 * readers_ ? range_.most_readers : 4 * readers_;
    const auto least = readers_ + 1;
    return wanted < least ? least : wanted > most ? most : static_cast<std::uint32_t>(wanted);
  }
  void try_readers(std::uint32_t to, bool half_way) noexcept {
    readers_trial_ = {readers_, to, 1};
    readers_ = to;
    phase_ = half_way ? phase::readers_half_way : phase::readers;
  }
  void settle() noexcept {
    phase_ = phase::settled;
    settled_at_ = seen_;
    off_ = 0;
  }
  // Steps are expected to take what they took when that was last measured with what is in use.
  void watch(const measured& now) noexcept {
    const double chance = 2 * (now.error > base_.error ? now.error : base_.error);
    const double far = chance < changed ? changed : chance > most_changed ? most_changed : chance;
    const bool off = apart(now.time - base_.time) > far * base_.time;
    const double before = std::exchange(off_, off ? now.time : 0);
    // Buffers that fill or empty are over when two windows agree.
    if (!off || apart(now.time - before) > changed * now.time) return;
    begin_anew(now);
  }
  void begin_anew(const measured& now) noexcept {
    began_at_ = seen_;
    no_more_readers_ = no_more_depth_ = false;
    readers_trial_ = depth_trial_ = {};
    base_ = now;
    choose();
  }

  tuner_range range_;
  std::uint32_t readers_;
  std::uint32_t depth_;
  std::uint32_t skip_;
  phase phase_ = phase::first;
  bool known_ = false;  // when the step before was received
  bool no_more_readers_ = false;
  bool no_more_depth_ = false;

  bool held_ = false;
  double off_ = 0;  // the last window's time, if it was off
  tuner_step last_;
  window window_, half_;  // and the second half of it
  measured base_;         // of what is in use, or was before what is tried
  trial readers_trial_;
  trial depth_trial_;
  std::uint64_t seen_ = 0;
  std::uint64_t began_at_ = 0;
  std::uint64_t settled_at_ = 0;
};

}  // namespace penstock::detail
