// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/stage/plan.hpp>
#include <penstock/stage/stage.hpp>

namespace penstock {

struct partition_options {
  std::uint64_t seed = 0;                               ///< of the order and of every sample's random stream
  penstock::shuffle shuffle = penstock::shuffle::full;  ///< ignored where a plan is given
  penstock::world world = {};                           ///< which replica of how many this is
};

/// Which samples make which step: seed, shuffle and world. Takes a dataset, gives indices.
template <class Plan = default_plan>
struct partition_stage {
  static constexpr stage_kind kind = stage_kind::partition;
  static constexpr bool plan_is_given = !std::same_as<Plan, default_plan>;

  partition_options options;
  Plan order;

  /// The plan for a dataset of `n` samples.
  Plan plan_for(std::uint64_t n) const {
    if constexpr (plan_is_given)
      return order;
    else
      return default_plan(n, options.shuffle);
  }
  void validate() const {
    if (options.world.size == 0) detail::reject_option("partition", "world.size", "0", "1 or more");
    if (options.world.rank >= options.world.size)
      detail::reject_option("partition", "world.rank", std::to_string(options.world.rank),
                            detail::concat("0 to ", options.world.size - 1, " in a world of ", options.world.size));
  }
};

/// Shuffles all samples anew in each epoch and takes this replica's part; see `partition_options`.
inline partition_stage<> partition(partition_options options = {}) { return {options, default_plan(0)}; }

/// The same with an order of the user's own.
template <plan Plan>
partition_stage<Plan> partition(Plan order, partition_options options = {}) {
  return {options, std::move(order)};
}

}  // namespace penstock
