// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/schedule/describe.hpp>
#include <penstock/schedule/pipeline.hpp>

namespace penstock {

struct run_options {
  std::uint64_t epochs = 1;            ///< of the whole run, those before a resume included
  std::stop_token stop{};              ///< ends the run at the next batch
  std::optional<feed_state> resume{};  ///< where to go on
};

/// What a run gave.
template <class Value>
struct run_result {
  std::vector<Value> epochs;  ///< what reduce made of each epoch that ended in this run, in order
  std::uint64_t steps = 0;    ///< batches
  bool stopped = false;       ///< by the stop token, before all epochs were done
  bool resumed = false;       ///< the first value is of the rest of an epoch, from where the run was resumed
  feed_state state{};         ///< where it would go on

  /// The last epoch's value. Throws `penstock::error` if no epoch ended.
  const Value& value() const {
    if (epochs.empty()) throw error("run: no epoch ended, so reduce made no value");
    return epochs.back();
  }
};
template <>
struct run_result<void> {
  std::uint64_t steps = 0;
  bool stopped = false;
  bool resumed = false;
  feed_state state{};
};

namespace detail {

template <class Pipeline>
struct reduced_type;
template <class Dataset, class... Stages>
struct reduced_type<pipeline<Dataset, Stages...>> {
  template <class Stage>
  struct value {
    using type = void;
  };
  template <class Value, class Operation>
  struct value<reduce_stage<Value, Operation>> {
    using type = decltype(finish_reduce(std::declval<Operation&>(), std::declval<Value&>()));
  };
  using type = typename value<std::tuple_element_t<sizeof...(Stages) - 1, std::tuple<Stages...>>>::type;
};

/// Carries one batch through the computes and into the reduce.
template <std::size_t I, class Stages, class Item, class Batch, class Accumulator>
void drive(Stages& stages, Item&& item, Batch& batch, Accumulator& accumulator) {
  if constexpr (I < std::tuple_size_v<Stages>) {
    auto& stage = std::get<I>(stages);
    if constexpr (std::remove_cvref_t<decltype(stage)>::kind == stage_kind::reduce) {
      call_reduce(stage.operation, accumulator, std::forward<Item>(item));
    } else if constexpr (std::is_void_v<decltype(call_compute(stage.function, std::forward<Item>(item), batch))>) {
      call_compute(stage.function, std::forward<Item>(item), batch);
      drive<I + 1>(stages, batch, batch, accumulator);
    } else {
      drive<I + 1>(stages, call_compute(stage.function, std::forward<Item>(item), batch), batch, accumulator);
    }
  }
}

/// See `penstock::run`.
template <class Dataset, class... Stages, class... Observers>
auto drive_all(pipeline<Dataset, Stages...> work, const run_options& options, Observers&&... observers) {
  using value_type = typename reduced_type<pipeline<Dataset, Stages...>>::type;
  constexpr bool reduces = !std::is_void_v<value_type>;
  run_result<value_type> result;

  auto feed = work.start();
  (feed.observe(std::forward<Observers>(observers)), ...);
  // A stream would be drawn from to be described.
  if constexpr (sizeof...(Observers) > 0 && !is_stream<std::remove_const_t<Dataset>>) feed.describe_as(describe(work));
  if (options.resume) feed.resume(*options.resume);
  result.resumed = feed.state().samples != 0;
  if (options.epochs > 0) feed.set_last_epoch(options.epochs - 1);
  if (options.stop.stop_possible()) feed.stop_when(options.stop);

  const auto initial = [&] {
    if constexpr (reduces)
      return std::get<sizeof...(Stages) - 1>(work.stages()).initial;
    else
      return 0;
  };
  try {
    for (std::uint64_t epoch = feed.state().epoch; epoch < options.epochs && !feed.stopped(); ++epoch) {
      auto accumulator = initial();
      for (auto& batch : feed.epoch(epoch)) {
        drive<4>(work.stages(), batch, batch, accumulator);
        ++result.steps;
      }
      if constexpr (reduces)
        if (feed.state().epoch > epoch)
          result.epochs.push_back(finish_reduce(std::get<sizeof...(Stages) - 1>(work.stages()).operation, accumulator));
    }
  } catch (...) {
    feed.finish("error");
    throw;
  }
  result.state = feed.state();
  result.stopped = feed.stopped() && result.state.epoch < options.epochs;
  feed.finish(result.stopped ? "stopped" : "done");
  return result;
}

}  // namespace detail

/// Drives a whole pipeline, on this thread: every batch of every epoch goes through its computes and its reduce. What
/// these throw leaves the run, after observers have been told.
///
/// Returns what reduce made of each epoch, and where a checkpoint would go on. A run that is stopped in mid-epoch
/// leaves that epoch's partial value out; one that is resumed in mid-epoch gives the rest's, and says `resumed`.
template <class Dataset, class... Stages, observer... Observers>
auto run(pipeline<Dataset, Stages...> work, run_options options = {}, Observers&&... observers) {
  constexpr bool feeds = pipeline<Dataset, Stages...>::feeds;
  static_assert(
      feeds,
      "penstock: run() needs a pipeline that reaches transfer(device), and mostly compute or reduce after it; this "
      "one gives no batches");
  if constexpr (feeds)
    return detail::drive_all(std::move(work), options, std::forward<Observers>(observers)...);
  else
    return detail::rejected{};
}
/// What was refused once is not refused again.
template <class... Observers>
detail::rejected run(detail::rejected, run_options = {}, Observers&&...) {
  return {};
}

}  // namespace penstock
