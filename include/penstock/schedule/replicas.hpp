// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/communicator/local_world.hpp>
#include <penstock/schedule/replica.hpp>
#include <penstock/schedule/threads.hpp>

namespace penstock {

/// How ranks come together; see `local_world`.
template <class World>
concept replica_world = requires(World& one, const World& view, const replica_options& options) {
  requires communicator<typename World::communicator_type>;
  { World::threads } -> std::convertible_to<bool>;
  { view.size() } -> std::convertible_to<std::uint64_t>;
  { view.local_size() } -> std::convertible_to<std::size_t>;
  one.begin(options, std::uint32_t{});
  one.abort(std::uint64_t{}, provenance{}, std::string{});
  { one.join(std::size_t{}) } -> std::same_as<typename World::communicator_type>;
};

/// What the body of a world's replicas is given.
template <replica_world World>
using replica_of = replica<typename World::communicator_type>;

namespace detail {

/// What a local rank came to.
struct rank_ending {
  replica_summary summary;
  std::exception_ptr failure;
  std::uint64_t rank = 0;
  provenance where;  // the rank was
  bool own = false;
};

/// Called on the rank's thread. A world of processes has `rank()`, this one's.
template <class World, class Body>
rank_ending run_rank(World& world, std::size_t n, const replica_options& options, Body& body) {
  rank_ending result;
  result.rank = n;
  if constexpr (requires { world.rank(); }) result.rank = world.rank();
  std::unique_ptr<replica_of<World>> one;
  try {
    one = std::make_unique<replica_of<World>>(world.join(n), options);
    body(*one);
    result.summary = one->finish();
  } catch (...) {
    result.failure = std::current_exception();
    if (one)
      one->fail(result.failure);
    else
      world.abort(result.rank, {.stage = "replicas"},
                  concat("rank ", result.rank, " failed: ", message_of(result.failure)));
    result.own = !one || one->failed_by_itself();
    if (!result.own && one->cause()) result.failure = one->cause();  // whatever the body made of it
    if (one) result.where = one->where();
    result.where.stage = "replicas";
  }
  return result;
}

/// One error for all: the first cause, by the lowest rank of those that failed by themselves.
template <class Endings>
void throw_first_failure(const Endings& endings) {
  const rank_ending* first = nullptr;
  for (std::size_t n = 0; n < endings.size(); ++n) {
    if (!endings[n].failure || (first != nullptr && (first->own || !endings[n].own))) continue;
    first = &endings[n];
  }
  if (first == nullptr) return;
  if (!first->own) std::rethrow_exception(first->failure);
  const std::uint64_t rank = first->rank;
  provenance where = first->where;
  try {
    std::rethrow_exception(first->failure);
  } catch (const error& caught) {
    // A run of replicas within the body has places of its own.
    if (dynamic_cast<const replica_error*>(&caught) == nullptr) {
      where = caught.where();
      where.complete_from(first->where);
    }
    throw replica_error(rank, concat("rank ", rank, " failed: ", caught.problem()), where, first->failure);
  } catch (...) {
    throw replica_error(rank, concat("rank ", rank, " failed: ", message_of(first->failure)), where, first->failure);
  }
}

}  // namespace detail

/// Calls `body(replica)` once for each rank of this process, on a thread of its own where there are several, and
/// returns when all have ended. The body is a loop of one's own over a feed that `replica.start(pipeline)` makes; see
/// `replica`. `body` is called by several threads at once.
///
/// Returns how it ended, the same on all ranks. Throws `replica_error` if a rank fails, with the original exception
/// inside where that rank is of this process; `std::invalid_argument` for bad options, before any thread starts.
template <class World, class Body>
  requires replica_world<std::remove_cvref_t<World>> && std::invocable<Body&, replica_of<std::remove_cvref_t<World>>&>
replica_summary replicas(World&& world, Body&& body, const replica_options& options = {}) {
  options.validate();
  const auto cpus = detail::allowed_cpus();
  const std::size_t here = world.local_size();
  world.begin(options, here <= cpus.size() ? detail::spins_before_sleep : 0);
  std::vector<detail::rank_ending> endings(here);
  if constexpr (std::remove_cvref_t<World>::threads) {
    std::vector<std::thread> threads;
    threads.reserve(here);
    std::exception_ptr no_thread;
    try {
      for (std::size_t n = 0; n < here; ++n)
        threads.push_back(detail::start_thread(detail::concat("penstock:rank", n), cpus, n,
                                               [&, n] { endings[n] = detail::run_rank(world, n, options, body); }));
    } catch (const std::exception& caught) {
      no_thread = std::current_exception();
      world.abort(threads.size(), {.stage = "replicas"},
                  detail::concat("a thread could not be started: ", caught.what()));
    }
    for (auto& one : threads) one.join();
    if (no_thread) std::rethrow_exception(no_thread);
  } else {
    endings[0] = detail::run_rank(world, 0, options, body);
  }
  detail::throw_first_failure(endings);
  return endings[0].summary;
}
/// `n` ranks on the CPU, as threads.
template <std::integral Number, class Body>  // of a world, `body` is not to be asked whether it is for the CPU
  requires std::invocable<Body&, replica_of<local_world<>>&>
replica_summary replicas(Number n, Body&& body, const replica_options& options = {}) {
  return replicas(local_world<>(std::in_range<int>(n) ? static_cast<int>(n) : 0), std::forward<Body>(body), options);
}

}  // namespace penstock
