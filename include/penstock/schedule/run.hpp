// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/host_reduce.hpp>
#include <penstock/schedule/describe.hpp>
#include <penstock/schedule/pipeline.hpp>

namespace penstock {

struct run_options {
  std::uint64_t epochs = 1;            ///< of the whole run, those before a resume included
  std::stop_token stop{};              ///< ends the run at the next batch
  std::optional<feed_state> resume{};  ///< where to go on
  replica_options replicas{};          ///< of a run over a world
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

template <class Pipeline>
inline constexpr bool reduces_over_ranks = false;
template <class Dataset, class... Stages>
inline constexpr bool reduces_over_ranks<pipeline<Dataset, Stages...>> =
    ((Stages::kind == stage_kind::all_reduce) || ...);

/// A run of one rank, which has nobody to reduce with.
struct alone {
  template <class Pipeline>
  auto start(const Pipeline& work) {
    const world where = std::get<0>(work.stages()).options.world;
    if (reduces_over_ranks<Pipeline> && where.size != 1)
      reject_option("partition", "world", concat("rank ", where.rank, " of ", where.size),
                    "rank 0 of 1 in a run of one rank: run(world, make_pipeline) runs all");
    return work.start();
  }
  std::uint64_t rank() const noexcept { return 0; }
  template <class Stage, class Batch, class Item>
  bool all_reduce(Stage& stage, const Batch& batch, Item& item) const {
    double weight = static_cast<double>(batch.size());
    if constexpr (!std::same_as<decltype(stage.weight), weight_by_samples>) weight = stage.weight(batch);
    with_buffers(item, stage.how, [weight](const auto&... values) {
      (divide_sums<host_device<typename Batch::device_type>>(values, weight), ...);
    });
    return weight > 0;
  }

 private:
  // What is a mean already stays.
  template <bool OnHost>
  static void divide_sums(const reduce_buffer& values, double weight) {
    if (values.how != reduction::mean_of_sums) return;
    if constexpr (OnHost) {
      void* const data[] = {values.data};
      with_element(values.type, [&](auto element) {
        reduce_range<decltype(element)>(data, std::span(&weight, 1), weight, values.how, 0, values.count);
      });
    } else {
      throw error(
          "all_reduce: mean_of_sums on a device with memory of its own, in a run of one rank, which has no "
          "communicator to divide: use run(world, make_pipeline), or bring the mean");
    }
  }
};

/// Carries one batch through the computes and into the reduce. False if it does not count, as all ranks know.
template <std::size_t I, class Rank, class Stages, class Item, class Batch, class Accumulator>
bool drive(Rank& rank, Stages& stages, Item&& item, Batch& batch, Accumulator& accumulator) {
  if constexpr (I < std::tuple_size_v<Stages>) {
    auto& stage = std::get<I>(stages);
    constexpr stage_kind kind = std::remove_cvref_t<decltype(stage)>::kind;
    if constexpr (kind == stage_kind::reduce) {
      call_reduce(stage.operation, accumulator, std::forward<Item>(item));
    } else if constexpr (kind == stage_kind::all_reduce) {
      return rank.all_reduce(stage, batch, item) &&
             drive<I + 1>(rank, stages, std::forward<Item>(item), batch, accumulator);
    } else if constexpr (std::is_void_v<decltype(call_compute(stage.function, std::forward<Item>(item), batch))>) {
      call_compute(stage.function, std::forward<Item>(item), batch);
      return drive<I + 1>(rank, stages, batch, batch, accumulator);
    } else {
      return drive<I + 1>(rank, stages, call_compute(stage.function, std::forward<Item>(item), batch), batch,
                          accumulator);
    }
  }
  return true;
}

/// See `penstock::run`. Observers are told by the first rank.
template <class Rank, class Dataset, class... Stages, class... Observers>
auto drive_all(Rank&& rank, pipeline<Dataset, Stages...> work, const run_options& options, Observers&&... observers) {
  using value_type = typename reduced_type<pipeline<Dataset, Stages...>>::type;
  constexpr bool reduces = !std::is_void_v<value_type>;
  run_result<value_type> result;

  auto feed = rank.start(work);
  if (rank.rank() == 0) (feed.observe(std::forward<Observers>(observers)), ...);
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
        if (drive<4>(rank, work.stages(), batch, batch, accumulator)) ++result.steps;
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
    return detail::drive_all(detail::alone{}, std::move(work), options, std::forward<Observers>(observers)...);
  else
    return detail::rejected{};
}
/// What was refused once is not refused again.
template <class... Observers>
detail::rejected run(detail::rejected, run_options = {}, Observers&&...) {
  return {};
}

}  // namespace penstock
