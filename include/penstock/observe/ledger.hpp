// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/observe/ledger_values.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/observe/overlap_meter.hpp>
#include <penstock/sample/step_record.hpp>

namespace penstock {

/// Where the time of a feed's run goes, stage by stage: an observer.
///
///     penstock::ledger ledger;
///     feed.observe(ledger);
///     ...                                             // epochs
///     std::cout << ledger.epoch().text();             // "reading bounds: compute waited 38 % of the time; 2 more ..."
///
/// One for each replica's feed. Counts a step when all of it has happened: on a device the last steps of an epoch come
/// with the next one, or when the feed ends. What passes between two epochs' loops is in no account. Read it on the
/// thread that consumes the feed, or after the feed's end.
class ledger {
 public:
  ledger() { readers_.reserve(256); }

  /// All that was counted.
  ledger_values total() const { return with_open(total_); }
  /// The epoch that the last step counted was of.
  ledger_values epoch() const { return with_open(epoch_); }
  /// The last step counted, without what was hidden.
  const ledger_values& step() const noexcept { return step_; }

  void on_step(const step_record& one) {
    const bool first = !any_;
    const bool new_epoch = first || one.epoch != at_epoch_ || one.step <= at_step_;
    any_ = true;
    at_epoch_ = one.epoch;
    at_step_ = one.step;
    if (new_epoch) epoch_.clear();
    step_ = {};
    reading(one);
    copying(one);
    computing(one, first, new_epoch);
    meet(total_, one);
    meet(epoch_, one);
  }

 private:
  using time = std::chrono::nanoseconds;
  enum kind : std::size_t { reads, batches, copies, computes, reduces, kinds };
  struct account {
    ledger_values values{};
    detail::overlap_meter<kinds> meter{};

    void clear() noexcept {
      values = {};
      meter.clear();
    }
  };

  // What is not known to be over yet is settled in a copy.
  static ledger_values with_open(account of) {
    finish(of);
    return of.values;
  }
  static void finish(account& of) {
    of.meter.settle_now(time::max());
    const auto take = [&](stage_account& to, kind from) {
      to.covered = of.meter.busy(from);
      to.hidden = of.meter.hidden(from);
    };
    take(of.values.read, reads);
    take(of.values.batch, batches);
    take(of.values.transfer, copies);
    take(of.values.compute, computes);
    take(of.values.reduce, reduces);
  }
  template <class Do>
  void each(Do&& change) {
    change(total_.values);
    change(epoch_.values);
    change(step_);
  }

  void reading(const step_record& one) {
    for (const read_span& part : one.reads) {
      if (part.reader >= readers_.size()) readers_.resize(part.reader + 1, none);
      time& last = readers_[part.reader];
      const time room = last == none ? time{0} : std::max(part.when.begin - last, time{0});
      last = part.when.end;
      each([&](ledger_values& to) {
        to.read.busy += part.when.length();
        to.read.waited_for_room += room;
      });
    }
    const time together = putting_together(one).length();
    each([&](ledger_values& to) { to.batch.busy += together; });
  }
  static time_span putting_together(const step_record& one) noexcept {
    time_span out{one.filled, one.filled};
    if (one.reads.empty()) return out;
    out.begin = none;
    for (const read_span& part : one.reads) out.begin = std::max(out.begin, part.when.end);
    out.begin = std::min(out.begin, out.end);
    return out;
  }
  // Of the reduces, what lies within the computing; where some are taken as one they are no more than they took.
  static time within(const step_record& one) noexcept {
    time sum{0};
    for (const time_span& part : one.reduces)
      sum += std::max(std::min(part.end, one.compute.end) - std::max(part.begin, one.compute.begin), time{0});
    return std::min(sum, one.reduce);
  }
  void copying(const step_record& one) {
    if (!one.copied) return;
    const time before = copied_ == none ? one.copy.begin : copied_;
    const time gap = std::max(one.copy.begin - before, time{0});
    const time input = std::clamp(one.filled - before, time{0}, gap);
    copied_ = one.copy.end;
    each([&](ledger_values& to) {
      to.transfer.busy += one.copy.length();
      to.transfer.waited_for_input += input;
      to.transfer.waited_for_room += gap - input;
    });
  }
  // From the end of the work before, or from the epoch's first question, to this work's beginning.
  void computing(const step_record& one, bool first, bool new_epoch) {
    const time from = new_epoch ? std::max(computed_, one.asked.begin) : computed_;
    const time gap = std::max(one.compute.begin - from, time{0});
    const time there = one.copied ? one.copy.end : std::max(one.filled, from);
    const time input = std::clamp(there - from, time{0}, gap);
    computed_ = one.compute.end;
    const time reduced = within(one);
    each([&](ledger_values& to) {
      to.elapsed += one.compute.end - from;
      if (first) {
        to.start_up += gap;
      } else {
        to.compute.waited_for_input += input;
        to.loop += gap - input;
      }
      to.compute.busy += one.compute.length() - reduced;
      to.reduce.busy += one.reduce;
      to.steps += 1;
      to.samples += one.samples;
      to.bytes += one.bytes;
      to.readers = one.readers;
      to.lost += one.lost - lost_;
    });
    lost_ = one.lost;
  }
  static void meet(account& of, const step_record& one) {
    time until = one.compute.begin;
    for (const read_span& part : one.reads) {
      of.meter.add(reads, part.when);
      until = std::min(until, part.when.begin);
    }
    if (one.copied) of.meter.add(copies, one.copy);
    of.meter.add(batches, putting_together(one));
    time_span rest = one.compute;
    for (const time_span& part : one.reduces) {
      of.meter.add(reduces, part);
      of.meter.add(computes, {rest.begin, std::min(part.begin, rest.end)});
      rest.begin = std::max(rest.begin, part.end);
    }
    of.meter.add(computes, rest);
    of.meter.settle(until);
  }

  static constexpr time none = time::min();

  account total_, epoch_;
  ledger_values step_{};
  std::vector<time> readers_;  // the end of each one's last read
  time copied_ = none;
  time computed_{0};
  bool any_ = false;
  std::uint64_t at_epoch_ = 0, at_step_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace penstock
