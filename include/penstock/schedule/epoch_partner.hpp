// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <penstock/sample/late_event.hpp>
#include <penstock/schedule/state.hpp>
#include <penstock/stage/plan.hpp>

namespace penstock::detail {

class audience;

/// A feed as what keeps its epochs in step with those of other replicas sees it.
class feed_control {
 public:
  virtual const feed_state& state() const noexcept = 0;
  /// Of the batch that was given last.
  virtual std::uint64_t step() const noexcept = 0;
  virtual bool stopped() const noexcept = 0;
  /// The epoch ends before its next batch, and the feed stands where `state` says.
  virtual void cut(const feed_state& state) noexcept = 0;
  virtual void request_stop() noexcept = 0;
  /// The batch that was given last is being reduced over the ranks, or no longer.
  virtual void reduces(bool begins) noexcept = 0;
  /// Its replica waits for others. May throw what observers do; `speaks`: on standard error, if none of them hears it.
  virtual void late(const late_event& event, bool speaks) = 0;
  /// The partner is no more.
  virtual void go_alone() noexcept = 0;

 protected:
  ~feed_control() = default;
};

/// What keeps a feed's epochs in step with other replicas'; called on the thread that consumes the feed.
class epoch_partner {
 public:
  /// Before another epoch: what is owed since the last one was left.
  virtual void settle() = 0;
  /// `planned`: the number of steps to come is known, `steps`, and equal on all ranks.
  virtual void epoch_begins(std::uint64_t epoch, bool planned, std::uint64_t steps) = 0;
  /// A stream that has run dry gives empty batches, until the epoch is cut.
  virtual bool goes_on_dry() const noexcept = 0;
  /// Such a batch was given. Throws if the loop does nothing by which the others' end could be seen.
  virtual void gave_dry() = 0;
  /// By its last batch, or before.
  virtual void epoch_ends(bool early) = 0;
  /// Which replica it is.
  virtual world place() const noexcept = 0;
  /// Of those that the replicas' exchanges go onto.
  virtual void tell_streams(const audience& to) const = 0;
  /// The feed was told where to go on.
  virtual void resumed() noexcept = 0;
  /// The feed is no more.
  virtual void feed_ends() noexcept = 0;

 protected:
  ~epoch_partner() = default;
};

}  // namespace penstock::detail
