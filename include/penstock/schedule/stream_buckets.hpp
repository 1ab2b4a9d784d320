// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include <penstock/stage/plan.hpp>

namespace penstock::detail {

/// A bucket: samples of at most `bound` elements; `size` of them, over all replicas, are a step.
struct bucket_shape {
  std::uint64_t bound = 0;
  std::uint64_t size = 0;
};

/// Gathers samples of similar length into steps, and deals each step to the replicas. One thread.
///
/// The k-th sample that is added is the k-th of the stream on every replica, so all make the same steps. A step's
/// samples, longest first, go to ranks 0, 1, ... n-1, n-1, ... 1, 0, 0, 1, ...: counts differ by one at most, and the
/// sums of lengths of any two ranks by no more than the longest sample has.
template <class Sample>
class stream_buckets {
 public:
  struct item {
    std::uint64_t number = 0;
    std::uint64_t length = 0;
    Sample value;
  };

  /// `shapes` by ascending bounds, at least one. A sample longer than the last bound belongs to the last bucket.
  stream_buckets(std::vector<bucket_shape> shapes, world where)
      : shapes_(std::move(shapes)), world_(where), held_(shapes_.size()) {}

  const std::vector<bucket_shape>& shapes() const noexcept { return shapes_; }
  void clear() noexcept {
    for (auto& bucket : held_) bucket.clear();
    given_ = 0;
  }
  /// Samples of the steps taken, over all replicas.
  std::uint64_t given() const noexcept { return given_; }
  bool empty() const noexcept {
    return std::ranges::all_of(held_, [](const auto& bucket) { return bucket.empty(); });
  }

  /// True if the sample makes a step full: the next `take` is of its bucket.
  bool add(item one) {
    std::size_t which = 0;
    while (which + 1 < shapes_.size() && shapes_[which].bound < one.length) ++which;
    held_[which].push_back(std::move(one));
    next_ = which;
    return held_[which].size() == shapes_[which].size;
  }
  /// The stream has ended: chooses what `take` gives next; false if nothing is left. So few samples that a replica
  /// would get none join those that are a little longer.
  bool flush() {
    for (std::size_t which = 0; which < held_.size(); ++which) {
      if (held_[which].empty()) continue;
      std::size_t above = which + 1;
      while (above < held_.size() && held_[above].empty()) ++above;
      next_ = which;
      if (held_[which].size() >= world_.size || above == held_.size()) return true;
      std::ranges::move(held_[which], std::back_inserter(held_[above]));
      held_[which].clear();
    }
    return false;
  }
  /// Ends the step that `add` or `flush` told of, calls `each(item)` with this replica's samples of it, longest first,
  /// and returns the bound that they keep to.
  template <class Each>
  std::uint64_t take(Each&& each) {
    auto& bucket = held_[next_];
    const auto count = std::min(bucket.size(), static_cast<std::size_t>(shapes_[next_].size));
    const auto end = bucket.begin() + static_cast<std::ptrdiff_t>(count);
    // Numbers differ, so that the order is one: std::stable_sort would allocate.
    std::sort(bucket.begin(), end, [](const item& a, const item& b) {
      return a.length != b.length ? a.length > b.length : a.number < b.number;
    });
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t at = i % world_.size;
      const bool back = i / world_.size % 2 != 0;
      if ((back ? world_.size - 1 - at : at) == world_.rank) each(std::move(bucket[i]));
    }
    bucket.erase(bucket.begin(), end);
    given_ += count;
    return shapes_[next_].bound;
  }

 private:
  std::vector<bucket_shape> shapes_;
  world world_;
  std::vector<std::vector<item>> held_;
  std::size_t next_ = 0;
  std::uint64_t given_ = 0;
};

}  // namespace penstock::detail
