// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/sample/late_event.hpp>

namespace penstock::detail {

/// What a rank enters NCCL with: one group.
struct nccl_note {
  std::uint64_t call = 0, elements = 0;
  bool early = false;
  bool total_known = false;
  bool returned = false;
  bool outside = false;  // the steps: words alone
  std::span<const reduce_buffer> buffers{};

  bool like(const nccl_note& other) const noexcept {
    return call == other.call && elements == other.elements && early == other.early &&
           total_known == other.total_known && returned == other.returned && outside == other.outside;
  }
};
/// The same, as another rank keeps it.
struct nccl_shape {
  bool known = false, early = false, outside = false;
  std::vector<reduce_buffer> buffers;
};

/// The groups of a process's ranks, in their order: what differs is found before it hangs. The first to come writes
/// what it brings, others compare, and who brings zeros looks it up. All members from any thread.
class nccl_ledger {
  using clock = std::chrono::steady_clock;

 public:
  explicit nccl_ledger(std::size_t ranks) : come_(ranks), looks_(ranks), last_(ranks), entries_(16) {}

  std::size_t ranks() const noexcept { return come_.size(); }
  /// Of the rank's next group.
  std::uint64_t next(std::size_t rank) const {
    const std::scoped_lock lock(mutex_);
    return come_[rank];
  }
  /// Throws `replica_error` if another rank has come with something else.
  void enter(std::size_t rank, const nccl_note& note, const provenance& where) {
    const std::unique_lock lock(mutex_);
    entry& one = at(come_[rank]);
    if (!one.shape.known) {
      one.first = note;
      one.first.buffers = {};
      one.rank = rank;
      one.shape.known = true;
      one.shape.early = note.early;
      one.shape.outside = note.outside;
      one.shape.buffers.assign(note.buffers.begin(), note.buffers.end());
    } else if (!one.first.like(note)) {
      throw replica_error(rank, difference(one, rank, note), where);
    }
    come(rank, where);
  }
  void enter_joining(std::size_t rank, const provenance& where) {
    const std::scoped_lock lock(mutex_);
    at(come_[rank]);
    come(rank, where);
  }
  /// What others bring to the rank's next group, when one of them has come, or all are here to join: then it is
  /// unknown. False if `interrupted` or late.
  template <class Interrupted>
  bool look(std::size_t rank, nccl_shape& shape, const Interrupted& interrupted, clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    const std::uint64_t index = come_[rank];
    looks_[rank] = index + 1;
    changed_.notify_all();
    const bool done = wait(lock, deadline, [&] {
      if (interrupted()) return true;
      if (at(index).shape.known) return true;
      for (std::size_t r = 0; r < come_.size(); ++r)
        if (come_[r] <= index && looks_[r] != index + 1) return false;
      return true;
    });
    shape = at(index).shape;
    return done && !interrupted();
  }
  /// Waits until all ranks have entered the group that `rank` was the last to enter. False if `interrupted` or late.
  template <class Interrupted>
  bool wait_for_all(std::size_t rank, const Interrupted& interrupted, clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    const std::uint64_t wanted = come_[rank];
    const bool done = wait(lock, deadline, [&] { return interrupted() || oldest() >= wanted; });
    return done && !interrupted();
  }
  /// Who has not entered as many groups, and where they entered one last.
  std::vector<missing_rank> missing(std::uint64_t groups) const {
    const std::scoped_lock lock(mutex_);
    std::vector<missing_rank> result;
    for (std::size_t r = 0; r < come_.size(); ++r) {
      if (come_[r] >= groups) continue;
      missing_rank& its = result.emplace_back(last_[r]);
      its.rank = r;
      its.never_came = come_[r] == 0;
    }
    return result;
  }
  /// No rank below this one has entered as many groups.
  bool is_first(std::size_t rank, std::uint64_t groups) const {
    const std::scoped_lock lock(mutex_);
    for (std::size_t r = 0; r < rank; ++r)
      if (come_[r] >= groups) return false;
    return true;
  }
  void wake() {
    {
      const std::scoped_lock lock(mutex_);
    }
    changed_.notify_all();
  }

 private:
  struct entry {
    nccl_note first;
    std::size_t rank = 0;
    nccl_shape shape;
  };

  std::uint64_t oldest() const noexcept {
    std::uint64_t result = come_[0];
    for (const std::uint64_t one : come_) result = one < result ? one : result;
    return result;
  }
  entry& at(std::uint64_t index) {
    if (index - oldest() >= entries_.size()) {
      std::vector<entry> more(2 * entries_.size());
      for (std::uint64_t i = oldest(); i < oldest() + entries_.size(); ++i)
        more[i % more.size()] = std::move(entries_[i % entries_.size()]);
      entries_ = std::move(more);
    }
    return entries_[index % entries_.size()];
  }
  void come(std::size_t rank, const provenance& where) {
    const std::uint64_t before = oldest();
    ++come_[rank];
    last_[rank].epoch = where.epoch;
    last_[rank].step = where.step;
    for (std::uint64_t i = before; i < oldest(); ++i) entries_[i % entries_.size()].shape.known = false;
    changed_.notify_all();
  }
  template <class Done>
  bool wait(std::unique_lock<std::mutex>& lock, clock::time_point deadline, Done done) {
    if (deadline != clock::time_point::max()) return changed_.wait_until(lock, deadline, done);
    changed_.wait(lock, done);
    return true;
  }
  static std::string difference(const entry& one, std::size_t rank, const nccl_note& note) {
    if (one.first.returned != note.returned)
      return concat("rank ", note.returned ? rank : one.rank,
                    " has returned from its body, where others go on to exchange values; wanted the same epochs on all "
                    "ranks");
    if (one.first.total_known != note.total_known)
      return concat("ranks ", one.rank, " and ", rank,
                    " weigh their values in different ways; wanted a weight of the step_options on all ranks, or none");
    control_words both, other;
    both.describe(one.first.call, one.first.elements);
    other.describe(note.call, note.elements);
    both.add(other);
    return concat(describe_disagreement(both), " (rank ", one.rank, " brings ", one.first.elements, ", rank ", rank,
                  " ", note.elements, " elements)");
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint64_t> come_, looks_;
  std::vector<missing_rank> last_;  // where each rank entered a group last
  std::vector<entry> entries_;
};

}  // namespace penstock::detail
