// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <penstock/sample/error.hpp>
#include <penstock/sample/permutation.hpp>

namespace penstock {

/// An order of samples that come in groups of `per_group` consecutive ones, such as the patches of an image: groups in
/// random order, `together` of them at a time, and all samples of those in random order. A plan, to be given to
/// `partition`: a pure function of seed, epoch and position in constant memory.
///
/// Each sample stands once in each epoch. What is made once for a group, such as its decoded image, is needed during
/// one stretch of the epoch alone: of two stretches where one passes into the next.
class group_shuffled_plan {
 public:
  /// Throws `std::invalid_argument` for 0 groups together.
  group_shuffled_plan(std::uint64_t groups, std::uint64_t per_group, std::uint64_t together)
      : groups_(groups), per_group_(per_group), together_(together) {
    if (together == 0) detail::reject_option("partition", "groups to shuffle together", "0", "1 or more");
    if (together_ > groups_ && groups_ > 0) together_ = groups_;
  }

  std::uint64_t size() const noexcept { return groups_ * per_group_; }
  std::uint64_t together() const noexcept { return together_; }

  void order(std::uint64_t seed, std::uint64_t epoch, std::uint64_t first, std::span<std::uint64_t> out) const {
    const std::uint64_t stretch = together_ * per_group_;
    const permutation groups(groups_, seed, epoch, group_key);
    while (!out.empty()) {
      const std::uint64_t number = first / stretch, begin = number * stretch;
      const std::uint64_t length = size() - begin < stretch ? size() - begin : stretch;
      const std::uint64_t left = begin + length - first;
      const auto part = out.first(left < out.size() ? static_cast<std::size_t>(left) : out.size());
      permutation(length, seed, epoch, group_key + 1 + number).fill(first - begin, part);
      for (std::uint64_t& index : part)
        index = groups(number * together_ + index / per_group_) * per_group_ + index % per_group_;
      first += part.size();
      out = out.subspan(part.size());
    }
  }

 private:
  static constexpr std::uint64_t group_key = std::uint64_t{1} << 62;  // apart from those of the other plans

  std::uint64_t groups_, per_group_, together_;
};

}  // namespace penstock
