// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include <penstock/stage/stage.hpp>

namespace penstock {

/// The user's work on each batch. Takes batches or an earlier compute's results, gives its own.
template <class Function>
struct compute_stage {
  static constexpr stage_kind kind = stage_kind::compute;
  Function function;
};

/// `function(batch)` is called for each batch, on the thread that drives the pipeline, and enqueues its work on
/// `batch.stream()`. What it returns goes on downstream, to the next compute or to reduce; where it returns nothing the
/// batch itself goes on. After another compute it is called with that one's result, or with the result and the batch.
template <class Function>
compute_stage<std::decay_t<Function>> compute(Function&& function) {
  return {std::forward<Function>(function)};
}

namespace detail {

template <class Function, class Item, class Batch>
inline constexpr bool takes_item = std::is_invocable_v<Function&, Item>;
template <class Function, class Item, class Batch>
inline constexpr bool takes_item_and_batch = std::is_invocable_v<Function&, Item, Batch&>;
template <class Function, class Item, class Batch>
inline constexpr bool computes = takes_item<Function, Item, Batch> || takes_item_and_batch<Function, Item, Batch>;

template <class Function, class Item, class Batch>
decltype(auto) call_compute(Function& function, Item&& item, Batch& batch) {
  if constexpr (takes_item<Function, Item, Batch>)
    return function(std::forward<Item>(item));
  else
    return function(std::forward<Item>(item), batch);
}

}  // namespace detail
}  // namespace penstock
