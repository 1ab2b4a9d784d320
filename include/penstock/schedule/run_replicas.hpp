// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include <penstock/schedule/replicas.hpp>
#include <penstock/schedule/run.hpp>

namespace penstock {

namespace detail {

template <class T>
inline constexpr bool reaches_transfer = false;
template <class Dataset, class... Stages>
inline constexpr bool reaches_transfer<pipeline<Dataset, Stages...>> = pipeline<Dataset, Stages...>::feeds;

/// A replica as a run drives it.
template <class Replica>
struct driven_replica {
  Replica& of;

  template <class Pipeline>
  auto start(const Pipeline& work) {
    return of.start(work);
  }
  std::uint64_t rank() const noexcept { return of.rank(); }
  template <class Stage, class Batch, class Item>
  bool all_reduce(Stage& stage, const Batch& batch, Item& item) {
    step_options options;
    if constexpr (!std::same_as<decltype(stage.weight), weight_by_samples>) options.weight = stage.weight(batch);
    return with_buffers(item, stage.how,
                        [&](const auto&... buffers) {
                          const std::array<reduce_buffer, sizeof...(buffers)> all{buffers...};
                          return of.all_reduce_buffers(batch, options, all);
                        })
        .counts;
  }
};

}  // namespace detail

/// Drives a pipeline over all replicas of a world: `make_pipeline(replica)` is called once for each local rank, on its
/// thread, and gives that rank's, with `partition({.world = replica})`, `transfer(replica.device())` and, after the
/// computes, `all_reduce()`. Stages after it are called for steps that count on all ranks.
///
/// Returns what `run` gives of this process's first rank: steps are those whose update is in the model, values of a
/// `reduce` are of that rank's batches. Observers listen on rank 0. Throws as `replicas` does.
template <class World, class MakePipeline, observer... Observers>
  requires replica_world<std::remove_cvref_t<World>> &&
           std::invocable<MakePipeline&, replica_of<std::remove_cvref_t<World>>&>
auto run(World&& world, MakePipeline&& make_pipeline, run_options options = {}, Observers&&... observers) {
  using replica_type = replica_of<std::remove_cvref_t<World>>;
  using pipeline_type = std::remove_cvref_t<std::invoke_result_t<MakePipeline&, replica_type&>>;
  constexpr bool feeds = detail::reaches_transfer<pipeline_type>;
  static_assert(feeds || std::same_as<pipeline_type, detail::rejected>,
                "penstock: run() needs pipelines that reach transfer(device), and mostly compute and all_reduce after "
                "it; this one gives no batches");
  constexpr bool reduces = !feeds || detail::reduces_over_ranks<pipeline_type>;
  static_assert(
      reduces,
      "penstock: run(world, ...) needs pipelines with all_reduce, which keeps the ranks in step; this one has "
      "none: where each rank is to go on by itself, run its pipeline in the body of replicas()");
  if constexpr (feeds && reduces) {
    using result_type = decltype(detail::drive_all(std::declval<detail::driven_replica<replica_type>>(),
                                                   std::declval<pipeline_type>(), options));
    std::optional<result_type> result;
    std::mutex mutex;
    if (options.stop.stop_possible() && !options.replicas.stop.stop_possible()) options.replicas.stop = options.stop;
    auto body = [&](replica_type& replica) {
      // Each rank's observers would be told the same.
      auto own = detail::drive_all(detail::driven_replica<replica_type>{replica}, make_pipeline(replica), options,
                                   observers...);
      const std::scoped_lock lock(mutex);
      if (!result || replica.rank() == 0) result.emplace(std::move(own));
    };
    const replica_summary summary = replicas(world, body, options.replicas);
    result->stopped = summary.stopped;
    result->steps = summary.steps;  // those that count, also where that is known only later
    return *std::move(result);
  } else {
    return detail::rejected{};
  }
}

}  // namespace penstock
