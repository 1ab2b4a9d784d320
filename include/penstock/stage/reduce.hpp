// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include <penstock/stage/stage.hpp>

namespace penstock {

/// A fold over the batches of an epoch. Takes batches or results, gives one value an epoch.
template <class Value, class Operation>
struct reduce_stage {
  static constexpr stage_kind kind = stage_kind::reduce;
  Value initial;
  Operation operation;
};

/// Folds what is upstream into one value an epoch, beginning with `initial`, in step order. `operation(value, item)`
/// either returns the new value or, taking `value` by reference and returning nothing, changes it in place.
///
/// An operation with a member `finish(value)` is asked by it after the epoch's last batch, while the feed still runs:
/// what it returns is the epoch's value (returning nothing, it changes the value in place). So a fold whose batches
/// only enqueue work waits once an epoch.
template <class Value, class Operation>
reduce_stage<std::decay_t<Value>, std::decay_t<Operation>> reduce(Value&& initial, Operation&& operation) {
  return {std::forward<Value>(initial), std::forward<Operation>(operation)};
}

namespace detail {

template <class Operation, class Value, class Item>
inline constexpr bool folds =
    std::is_invocable_v<Operation&, Value&, Item> || std::is_invocable_r_v<Value, Operation&, Value&&, Item>;

template <class Operation, class Value, class Item>
void call_reduce(Operation& operation, Value& value, Item&& item) {
  if constexpr (std::is_invocable_v<Operation&, Value&, Item>) {
    if constexpr (std::is_void_v<std::invoke_result_t<Operation&, Value&, Item>>) {
      operation(value, std::forward<Item>(item));
      return;
    }
  }
  if constexpr (std::is_invocable_r_v<Value, Operation&, Value&&, Item>)
    value = operation(std::move(value), std::forward<Item>(item));
  else if constexpr (std::is_invocable_r_v<Value, Operation&, Value&, Item>)
    value = operation(value, std::forward<Item>(item));
  else
    operation(value, std::forward<Item>(item));
}

template <class Operation, class Value>
inline constexpr bool finishes = requires(Operation& operation, Value& value) { operation.finish(value); };

/// An epoch's value, of what was folded.
template <class Operation, class Value>
auto finish_reduce(Operation& operation, Value& value) {
  if constexpr (!finishes<Operation, Value>) {
    return std::move(value);
  } else if constexpr (std::is_void_v<decltype(operation.finish(value))>) {
    operation.finish(value);
    return std::move(value);
  } else {
    return operation.finish(value);
  }
}

}  // namespace detail
}  // namespace penstock
