// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/sample/step_record.hpp>

namespace penstock::detail {

/// How long each of several kinds of work was going on, and how much of that beside another kind: the lengths of unions
/// of stretches of time, which come roughly in order. Allocates at the start, and for more than some hundred stretches
/// that are open at a time.
template <std::size_t Kinds>
class overlap_meter {
 public:
  using time = std::chrono::nanoseconds;

  overlap_meter() { pending_.reserve(512), edges_.reserve(1024); }

  void add(std::size_t kind, time_span when) {
    when.begin = std::max(when.begin, settled_);
    if (when.begin < when.end) pending_.push_back({when, kind});
  }
  /// What comes later begins at `until` or after it.
  void settle(time until) {
    if (pending_.size() >= 256) settle_now(until);
  }
  void settle_now(time until) {
    if (until <= settled_) return;
    edges_.clear();
    std::size_t kept = 0;
    for (stretch& one : pending_) {
      edges_.push_back({one.when.begin, one.kind, 1});
      edges_.push_back({one.when.end, one.kind, -1});
    }
    std::ranges::sort(edges_, {}, &edge::at);
    std::array<int, Kinds> open{};
    time last = settled_;
    for (const edge& one : edges_) {
      count(open, std::min(last, until), std::min(one.at, until));
      last = one.at;
      open[one.kind] += one.by;
    }
    for (stretch& one : pending_) {
      if (one.when.end <= until) continue;
      one.when.begin = std::max(one.when.begin, until);
      pending_[kept++] = one;
    }
    pending_.resize(kept);
    settled_ = until;
  }

  /// As if nothing had been added, without giving memory back.
  void clear() noexcept {
    pending_.clear();
    settled_ = time{0};
    busy_ = hidden_ = {};
  }
  time busy(std::size_t kind) const noexcept { return busy_[kind]; }
  /// While another kind was going on, too.
  time hidden(std::size_t kind) const noexcept { return hidden_[kind]; }

 private:
  struct stretch {
    time_span when;
    std::size_t kind;
  };
  struct edge {
    time at;
    std::size_t kind;
    int by;
  };

  void count(const std::array<int, Kinds>& open, time from, time to) noexcept {
    if (to <= from) return;
    std::size_t kinds = 0;
    for (const int one : open) kinds += one > 0 ? 1 : 0;
    for (std::size_t i = 0; i < Kinds; ++i) {
      if (open[i] <= 0) continue;
      busy_[i] += to - from;
      if (kinds > 1) hidden_[i] += to - from;
    }
  }

  std::vector<stretch> pending_;
  std::vector<edge> edges_;
  time settled_{0};
  std::array<time, Kinds> busy_{};
  std::array<time, Kinds> hidden_{};
};

}  // namespace penstock::detail
