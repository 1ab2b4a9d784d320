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
/// of stretches of time, which come roughly in order: each is put in its place from behind. Allocates at the start, and
/// for more than some hundred stretches that are open at a time.
template <std::size_t Kinds>
class overlap_meter {
 public:
  using time = std::chrono::nanoseconds;

  overlap_meter() { edges_.reserve(1024); }

  void add(std::size_t kind, time_span when) {
    when.begin = std::max(when.begin, settled_);
    if (when.begin >= when.end) return;
    insert({when.begin, static_cast<std::uint32_t>(kind), 1});
    insert({when.end, static_cast<std::uint32_t>(kind), -1});
  }
  /// What comes later begins at `until` or after it.
  void settle(time until) {
    if (edges_.size() >= 512) settle_now(until);
  }
  void settle_now(time until) {
    if (until <= settled_) return;
    std::size_t past = 0;
    for (; past != edges_.size() && edges_[past].at <= until; ++past) {
      const edge& one = edges_[past];
      count_to(one.at);
      open_[one.kind] += one.by;
    }
    count_to(until);
    edges_.erase(edges_.begin(), edges_.begin() + static_cast<std::ptrdiff_t>(past));
  }

  /// As if nothing had been added, without giving memory back.
  void clear() noexcept {
    edges_.clear();
    open_ = {};
    settled_ = time{0};
    busy_ = hidden_ = {};
  }
  time busy(std::size_t kind) const noexcept { return busy_[kind]; }
  /// While another kind was going on, too.
  time hidden(std::size_t kind) const noexcept { return hidden_[kind]; }

 private:
  struct edge {
    time at;
    std::uint32_t kind;
    std::int32_t by;
  };

  void insert(const edge& one) {
    edges_.push_back(one);
    std::size_t at = edges_.size() - 1;
    for (; at != 0 && edges_[at - 1].at > one.at; --at) edges_[at] = edges_[at - 1];
    edges_[at] = one;
  }
  void count_to(time until) noexcept {
    const time passed = until - settled_;
    settled_ = until;
    if (passed.count() == 0) return;
    std::size_t kinds = 0;
    for (const std::int32_t one : open_) kinds += one > 0 ? 1 : 0;
    for (std::size_t i = 0; i < Kinds; ++i) {
      if (open_[i] <= 0) continue;
      busy_[i] += passed;
      if (kinds > 1) hidden_[i] += passed;
    }
  }

  std::vector<edge> edges_;                 // in the order of time, from `settled_` on
  std::array<std::int32_t, Kinds> open_{};  // at `settled_`
  time settled_{0};
  std::array<time, Kinds> busy_{};
  std::array<time, Kinds> hidden_{};
};

}  // namespace penstock::detail
