// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/channel/wait_schedule.hpp>

namespace penstock::detail {

/// Which sample each reader is at, and since when at the latest, found by looking now and then: readers themselves look
/// at no clock. By one thread, which waits.
class reader_watch {
  using clock = std::chrono::steady_clock;

 public:
  explicit reader_watch(std::size_t readers) : seen_(readers) {}

  std::size_t size() const noexcept { return seen_.size(); }
  /// Begins anew: what was seen before another wait tells nothing.
  void reset() noexcept { std::fill(seen_.begin(), seen_.end(), one{}); }
  /// `at` is what the reader does now.
  template <class Activity>
  void look(std::size_t reader, const Activity& at, clock::time_point now) noexcept {
    one& seen = seen_[reader];
    if (!at.busy) {
      seen = {};
    } else if (!seen.busy || seen.step != at.step || seen.sample != at.sample) {
      seen = {true, at.step, at.sample, now};
    }
  }
  /// How long a reader has been at the sample that it is at, at the least.
  template <class Activity>
  std::chrono::nanoseconds age(std::size_t reader, const Activity& at, clock::time_point now) const noexcept {
    const one& seen = seen_[reader];
    return seen.busy && at.busy && seen.step == at.step && seen.sample == at.sample ? now - seen.since
                                                                                    : clock::duration::zero();
  }

 private:
  struct one {
    bool busy = false;
    std::uint64_t step = 0, sample = 0;
    clock::time_point since{};
  };
  std::vector<one> seen_;
};

}  // namespace penstock::detail
