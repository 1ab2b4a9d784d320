// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <penstock/sample/config.hpp>

namespace penstock {

/// What a rank says of a step beside its values: numbers that are added over the ranks, and numbers of which the
/// greatest remains. Reduced, they are the same on every rank, so that all decide alike, without a further collective.
///
/// A plain type, which devices reduce as it lies: doubles, then unsigned 64-bit numbers. Samples are counted exactly up
/// to 2^53.
struct control_words {
  static constexpr std::size_t most_metrics = 8;

  enum sum : std::size_t {
    weight,     ///< of the rank's values, its samples unless the user says otherwise
    samples,    ///< real ones
    with_data,  ///< ranks that had a batch
    finished,   ///< ranks that have come to the end of their body
    first_metric,
    sums_end = first_metric + most_metrics
  };
  /// Of the first four `named(rank)`: the lowest rank that says it remains.
  enum maximum : std::size_t {
    failing,       ///< the rank cannot go on
    stopping,      ///< the run is to end
    leaving,       ///< the epoch is to end
    returned,      ///< the rank's body has returned
    elements,      ///< of this exchange's values
    not_elements,  ///< its complement: the greatest of these is of the least
    call,          ///< a hash of what this exchange is: epoch, step, types and order of values
    not_call,
    dry,  ///< with `leaving`: as a stream has ended
    maxima_end
  };

  std::array<double, sums_end> sums{};
  std::array<std::uint64_t, maxima_end> maxima{};

  /// "This rank", such that the maximum over ranks names the lowest one.
  static constexpr std::uint64_t named(std::uint64_t rank) noexcept { return ~rank; }
  /// The lowest rank that set it. Needs one that did.
  constexpr std::uint64_t rank_of(maximum which) const noexcept { return ~maxima[which]; }
  constexpr bool has(maximum which) const noexcept { return maxima[which] != 0; }

  /// Says what is exchanged. Who takes part with zeros says nothing, and agrees with everybody.
  constexpr void describe(std::uint64_t what, std::uint64_t count) noexcept {
    maxima[call] = what;
    maxima[not_call] = ~what;
    maxima[elements] = count;
    maxima[not_elements] = ~count;
  }
  /// Whether all ranks that say what is exchanged say the same.
  constexpr bool agree() const noexcept {
    const bool said = has(call) || has(not_call);
    return !said || (maxima[call] == ~maxima[not_call] && maxima[elements] == ~maxima[not_elements]);
  }
  /// No values are exchanged, and the step is void on every rank.
  constexpr bool ends() const noexcept { return has(failing) || has(stopping) || has(leaving) || has(returned); }
  /// Whether the update of the step is to be made: for kernels, too, to which std::array is closed.
  PENSTOCK_HOST_DEVICE bool counts() const noexcept {
    const auto* const numbers = reinterpret_cast<const double*>(this);
    const auto* const greatest = reinterpret_cast<const std::uint64_t*>(numbers + sums_end);
    return greatest[failing] == 0 && greatest[stopping] == 0 && greatest[leaving] == 0 && greatest[returned] == 0 &&
           numbers[weight] > 0;
  }
  /// Of all ranks' values, in kernels.
  PENSTOCK_HOST_DEVICE double total_weight() const noexcept { return reinterpret_cast<const double*>(this)[weight]; }

  constexpr void add(const control_words& other) noexcept {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other.sums[i];
    for (std::size_t i = 0; i < maxima.size(); ++i)
      if (other.maxima[i] > maxima[i]) maxima[i] = other.maxima[i];
  }
};

}  // namespace penstock
