// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/communicator/reduce_buffer.hpp>
#include <penstock/stage/stage.hpp>

namespace penstock {

/// A step's values are weighed by the batch's number of samples.
struct weight_by_samples {};

/// The combination of all replicas' values. Takes what compute returns, gives it on, reduced in place.
template <class Weight = weight_by_samples>
struct all_reduce_stage {
  static constexpr stage_kind kind = stage_kind::all_reduce;
  reduction how;
  Weight weight;
};

/// Reduces over all replicas of `run(world, ...)` what upstream returns: values in the device's memory with `data()`
/// and `size()`, a `buffer(...)`, or a tuple of these. Downstream is called only for steps that count on all ranks.
inline all_reduce_stage<> all_reduce(reduction how = reduction::weighted_mean) { return {how, {}}; }
/// The same, weighed by `weight(batch)` of each rank instead of its number of samples: tokens, or what a mask leaves.
template <class Weight>
all_reduce_stage<std::decay_t<Weight>> all_reduce(reduction how, Weight&& weight) {
  return {how, std::forward<Weight>(weight)};
}

namespace detail {

template <class Item>
inline constexpr bool is_reducible_item =
    std::same_as<std::remove_cvref_t<Item>, reduce_buffer> || reducible_values<std::remove_reference_t<Item>>;
template <class... Items>
inline constexpr bool is_reducible_item<std::tuple<Items...>> = (is_reducible_item<Items> && ...);
template <class... Items>
inline constexpr bool is_reducible_item<std::tuple<Items...>&> = (is_reducible_item<Items> && ...);

template <class T>
inline constexpr bool is_tuple_of_buffers = false;
template <class... Items>
inline constexpr bool is_tuple_of_buffers<std::tuple<Items...>> = true;

/// Calls `use(reduce_buffer...)` with the values of an item.
template <class Item, class Use>
decltype(auto) with_buffers(Item& item, reduction how, Use&& use) {
  const auto one = [how](auto& values) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(values)>, reduce_buffer>)
      return values;
    else
      return buffer(values, how);
  };
  if constexpr (is_tuple_of_buffers<std::remove_cvref_t<Item>>)
    return std::apply([&](auto&... values) { return use(one(values)...); }, item);
  else
    return use(one(item));
}

}  // namespace detail
}  // namespace penstock
