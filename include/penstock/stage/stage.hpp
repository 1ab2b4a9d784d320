// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <limits>
#include <string_view>
#include <type_traits>

namespace penstock {

/// For `read_options::readers` and `transfer_options::depth`: the feed chooses, from what it measures while it runs.
inline constexpr int automatic = std::numeric_limits<int>::min();  // which nobody arrives at by mistake

/// The stages in the order in which data passes them.
enum class stage_kind { dataset, partition, read, batch, transfer, compute, all_reduce, reduce };

constexpr std::string_view name_of(stage_kind kind) {
  constexpr std::string_view names[] = {"dataset",  "partition", "read",       "batch",
                                        "transfer", "compute",   "all_reduce", "reduce"};
  return names[static_cast<int>(kind)];
}

/// A small value that describes one step of a pipeline. It owns no thread and does nothing by itself.
template <class Stage>
concept stage = requires {
  { std::remove_cvref_t<Stage>::kind } -> std::convertible_to<stage_kind>;
};

}  // namespace penstock
