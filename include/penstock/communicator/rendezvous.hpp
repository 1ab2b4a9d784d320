// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/channel/atomics.hpp>
#include <penstock/channel/gate.hpp>
#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/late_watch.hpp>

namespace penstock::detail {

/// Where the ranks of one process meet: each leaves something at its seat, and sees the others' once all have come.
///
/// Seats come in pairs that are used in turn. A rank that is one meeting ahead writes to the other one, and nobody is
/// two ahead, so that what was left is there until all have come to the next meeting but one. One thread a rank;
/// `abort` from any.
template <class Seat>
class rendezvous {
 public:
  /// `spins`: see `gate`.
  explicit rendezvous(std::uint64_t size, std::uint32_t spins) : size_(size), ranks_(std::make_unique<one[]>(size)) {
    gate_.set_spins(spins);
  }

  std::uint64_t size() const noexcept { return size_; }
  /// To be filled before `meet`; another one each time.
  Seat& seat(std::uint64_t rank) noexcept { return ranks_[rank].seats[next(rank) & 1]; }

  /// Comes to the next meeting, and waits for all others, at most `timeout`; tells of it as `late` says. Returns the
  /// meeting's number, for `at`. Throws `replica_error` if the ranks do not all come: then on every rank, as who comes
  /// last and who gives up decide it by one word.
  std::uint64_t meet(std::uint64_t rank, std::chrono::nanoseconds timeout, std::uint64_t epoch, std::uint64_t step,
                     const late_watch& late = late_watch()) {
    const std::uint64_t meeting = next(rank) + 1;
    ranks_[rank].epoch.store(epoch, std::memory_order_relaxed);
    ranks_[rank].step.store(step, std::memory_order_relaxed);
    ranks_[rank].come.store(meeting, std::memory_order_release);
    for (std::uint64_t word = word_.load(std::memory_order_relaxed);;) {
      if ((word & aborted) != 0) throw_if_aborted();
      if (word_.compare_exchange_weak(word, word + one_comes, std::memory_order_acq_rel, std::memory_order_relaxed))
        break;
    }
    gate_.notify();
    const auto quiet = late.quiet(timeout);
    const auto deadline = deadline_after(quiet);
    if (!gate_.wait([&] { return all_came(meeting) || is_aborted(); }, deadline))
      wait_longer(rank, meeting, {deadline - quiet, timeout, late.after()}, timeout, late);
    if (!all_came(meeting)) throw_if_aborted();
    return meeting;
  }
  /// The next meeting of ranks that have all come to one and are at each other's memory: none leaves before all are
  /// done, whatever happens, as nobody is out in a user's code.
  void meet_again(std::uint64_t rank) noexcept {
    const std::uint64_t meeting = next(rank) + 1;
    ranks_[rank].come.store(meeting, std::memory_order_release);
    word_.fetch_add(one_comes, std::memory_order_acq_rel);
    gate_.notify();
    gate_.wait([&] { return all_came(meeting); });
  }
  /// What `rank` left at a meeting that all have come to.
  const Seat& at(std::uint64_t meeting, std::uint64_t rank) const noexcept {
    return ranks_[rank].seats[(meeting - 1) & 1];
  }

  void abort(std::uint64_t rank, provenance where, std::string problem) {
    abort_unless(rank, std::move(where), std::move(problem), [] { return false; });
  }
  void throw_if_aborted() const {
    if (!is_aborted()) return;
    const std::scoped_lock lock(mutex_);
    throw *cause_;
  }

  /// In which epoch and step the rank has come last.
  std::uint64_t last_epoch(std::uint64_t rank) const noexcept {
    return ranks_[rank].epoch.load(std::memory_order_relaxed);
  }
  std::uint64_t last_step(std::uint64_t rank) const noexcept {
    return ranks_[rank].step.load(std::memory_order_relaxed);
  }

 private:
  struct alignas(cache_line) one {
    std::atomic<std::uint64_t> come{0};            // how many meetings this rank has come to
    std::atomic<std::uint64_t> epoch{0}, step{0};  // of the last one, for messages
    Seat seats[2];
  };

  static constexpr std::uint64_t aborted = 1, one_comes = 2;

  std::uint64_t next(std::uint64_t rank) const noexcept { return ranks_[rank].come.load(std::memory_order_relaxed); }
  bool came(std::uint64_t rank, std::uint64_t meeting) const noexcept {
    return ranks_[rank].come.load(std::memory_order_acquire) >= meeting;
  }
  // Who has not come; what is known of a rank is of its last meeting.
  std::vector<missing_rank> missing_at(std::uint64_t meeting) const {
    std::vector<missing_rank> missing;
    for (std::uint64_t r = 0; r < size_; ++r) {
      if (came(r, meeting)) continue;
      missing_rank& its = missing.emplace_back();
      its.rank = r;
      its.never_came = ranks_[r].come.load(std::memory_order_acquire) == 0;
      if (its.never_came) continue;
      its.epoch = last_epoch(r);
      its.step = last_step(r);
    }
    return missing;
  }
  // There is something to tell, or it is too late. Returns when all have come, or the run has ended.
  [[gnu::noinline, gnu::cold]] void wait_longer(std::uint64_t rank, std::uint64_t meeting, wait_schedule times,
                                                std::chrono::nanoseconds timeout, const late_watch& late) {
    const auto ended = [&] { return all_came(meeting) || is_aborted(); };
    if (wait_and_warn(
            times, [&](std::chrono::steady_clock::time_point until) { return gate_.wait(ended, until); },
            [&](std::chrono::nanoseconds waited) { warn(rank, meeting, waited, late); }))
      return;
    give_up(rank, meeting, timeout);
    gate_.wait(ended);  // the last one may be on its way in
  }
  void warn(std::uint64_t rank, std::uint64_t meeting, std::chrono::nanoseconds waited, const late_watch& late) const {
    const auto missing = missing_at(meeting);
    if (missing.empty()) return;
    bool speaks = true;
    for (std::uint64_t r = 0; r < rank; ++r) speaks = speaks && !came(r, meeting);
    late.tell({.stage = "all_reduce", .epoch = last_epoch(rank), .step = last_step(rank)}, waited, missing, speaks);
  }
  void give_up(std::uint64_t rank, std::uint64_t meeting, std::chrono::nanoseconds timeout) {
    const auto missing = missing_at(meeting);
    if (missing.empty()) return;
    abort_unless(missing.front().rank, {.stage = "all_reduce", .epoch = last_epoch(rank), .step = last_step(rank)},
                 concat(ranks_text(missing), " did not come within ", timeout.count() / 1'000'000,
                        " ms, as seen by rank ", rank, last_text(missing)),
                 [&] { return all_came(meeting); });
  }
  // Nobody comes to a meeting before all have come to the one before.
  bool all_came(std::uint64_t meeting) const noexcept {
    return word_.load(std::memory_order_acquire) / one_comes >= meeting * size_;
  }
  bool is_aborted() const noexcept { return (word_.load(std::memory_order_acquire) & aborted) != 0; }
  template <class Done>
  void abort_unless(std::uint64_t rank, provenance where, std::string problem, const Done& done) {
    {
      const std::scoped_lock lock(mutex_);
      std::uint64_t word = word_.load(std::memory_order_relaxed);
      do {
        if ((word & aborted) != 0 || done()) return;
      } while (
          !word_.compare_exchange_weak(word, word | aborted, std::memory_order_acq_rel, std::memory_order_relaxed));
      cause_.emplace(rank, std::move(problem), std::move(where));
    }
    gate_.notify();
  }

  std::uint64_t size_;
  std::unique_ptr<one[]> ranks_;
  gate<> gate_;
  std::atomic<std::uint64_t> word_{0};  // how often any rank has come to any meeting, and whether none will any more
  mutable std::mutex mutex_;
  std::optional<replica_error> cause_;
};

}  // namespace penstock::detail
