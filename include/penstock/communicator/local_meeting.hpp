// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/rendezvous.hpp>

namespace penstock::detail {

/// Elements of a buffer from `first` to `last`, which one rank reduces for all.
struct local_part {
  std::size_t first, last;
};
/// Parts begin on cache lines of any element type.
constexpr local_part part_of(std::size_t count, std::uint64_t rank, std::uint64_t size) noexcept {
  constexpr std::size_t line = 32;
  const std::size_t lines = (count + line - 1) / line;
  const auto cut = [&](std::uint64_t r) {
    const std::size_t at = static_cast<std::size_t>(lines * r / size) * line;
    return at < count ? at : count;
  };
  return {cut(rank), cut(rank + 1)};
}

/// What all ranks left at a meeting comes to.
struct met {
  control_words words;
  std::span<const reduce_buffer> shape;  // of the values, as the first rank has them that brings some
};
template <class Seat>
met fold_seats(const rendezvous<Seat>& group, std::uint64_t meeting) noexcept {
  met result;
  for (std::uint64_t r = 0; r < group.size(); ++r) {
    const Seat& seat = group.at(meeting, r);
    result.words.add(seat.words);
    if (result.shape.empty() && !seat.joins) result.shape = seat.buffers;
  }
  return result;
}

/// Ranks that have come to the same meeting with different things: the error of all of them, which names one.
template <class Seat>
[[noreturn]] void throw_disagreement(rendezvous<Seat>& group, std::uint64_t meeting, const control_words& words,
                                     std::uint64_t epoch, std::uint64_t step) {
  const provenance where{.stage = "all_reduce", .epoch = epoch, .step = step};
  const auto found = find_disagreement(
      group.size(), words, [&](std::uint64_t r) -> const control_words& { return group.at(meeting, r).words; });
  group.abort(found.rank, where, found.problem);
  group.throw_if_aborted();
  throw replica_error(found.rank, found.problem, where);
}

/// Every rank's text, by rank: a meeting of its own, where the last one was.
template <class Seat>
std::vector<std::string> gather_texts(rendezvous<Seat>& group, std::uint64_t rank, std::chrono::nanoseconds timeout,
                                      std::string text, const late_watch& late = late_watch()) {
  group.seat(rank).text = std::move(text);
  const std::uint64_t meeting = group.meet(rank, timeout, group.last_epoch(rank), group.last_step(rank), late);
  std::vector<std::string> all;
  for (std::uint64_t r = 0; r < group.size(); ++r) all.push_back(group.at(meeting, r).text);
  return all;
}

}  // namespace penstock::detail
