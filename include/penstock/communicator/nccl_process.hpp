// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/late_watch.hpp>
#include <penstock/communicator/nccl_error.hpp>
#include <penstock/communicator/nccl_ledger.hpp>
#include <penstock/device/cuda.hpp>

namespace penstock::detail {

/// A rank of this process, as its watchdog sees it.
struct nccl_seat {
  std::timed_mutex calls;  // whoever calls NCCL with the communicator holds it, for no longer than the call
  ncclComm_t communicator = nullptr;
  bool adopted = false;
  std::uint64_t rank = 0;
  std::uint64_t world = 0;  // ranks of all processes
  int device = 0;
  std::atomic<bool> waits{false};  // the rank's own thread does, and tells of it
  struct outstanding {
    cuda_event_view done;
    std::chrono::steady_clock::time_point since;
    bool patient;
    std::uint64_t groups;  // of the ledger, with this one
    provenance where;
  };
  // Exchanges whose words have not come back as far as was seen, oldest first, in a ring.
  std::vector<std::optional<outstanding>> ring;
  std::uint64_t posted = 0, finished = 0;
  std::chrono::steady_clock::time_point progressed{};  // when the last one was seen to have finished
  std::uint64_t watched = ~std::uint64_t{0};           // which one the warnings are about
  std::optional<wait_schedule> warnings;
};

/// The ranks of a process: who aborts, aborts all of them. One thread looks after asynchronous errors and what takes
/// too long, also while a user's thread is in a wait of its own.
class nccl_process {
  using clock = std::chrono::steady_clock;

 public:
  using abort_host = std::function<void(std::uint64_t, const provenance&, const std::string&)>;

  nccl_process(std::size_t ranks, std::chrono::nanoseconds timeout, std::chrono::nanoseconds warn_after,
               abort_host host)
      : ledger(ranks), seats_(ranks), timeout_(timeout), warn_after_(warn_after), host_(std::move(host)), left_(0) {
    for (auto& one : seats_) one = std::make_unique<nccl_seat>();
    watchdog_ = std::thread([this] { watch(); });
  }
  nccl_process(const nccl_process&) = delete;
  nccl_process& operator=(const nccl_process&) = delete;
  ~nccl_process() { end(); }

  nccl_ledger ledger;

  nccl_seat& seat(std::size_t n) noexcept { return *seats_[n]; }
  bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  /// The streams are free of collectives then, so that memory may be freed. Not to be called with a seat's lock.
  void throw_if_aborted() const {
    if (!aborted()) return;
    std::unique_lock lock(mutex_);
    wait_until_released(lock);
    throw *cause_;
  }
  /// With a seat's lock: who catches it calls `abort`.
  void check() const {
    if (!aborted()) return;
    const std::scoped_lock lock(mutex_);
    throw *cause_;
  }
  /// No local rank waits any longer: the first call's cause is what all throw. No communicator is left after it, those
  /// that were adopted aside, which their owner aborts.
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    {
      std::unique_lock lock(mutex_);
      if (cause_) return wait_until_released(lock);
      cause_.emplace(rank, problem, where);
    }
    aborted_.store(true, std::memory_order_release);
    ledger.wake();
    try {
      host_(rank, where, problem);
    } catch (...) {
      // Who is elsewhere waits for the time-out.
    }
    // All together: to some versions of NCCL an abort is a call that all ranks of a process have to make.
    std::vector<std::thread> threads;
    for (auto& one : seats_) {
      if (seats_.size() == 1)
        release(*one);
      else
        threads.emplace_back([&one] { release(*one); });
    }
    for (auto& one : threads) one.join();
    {
      const std::scoped_lock lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
  }
  /// Which others have not entered the group; nobody where that is not known.
  std::vector<missing_rank> missing_at(const nccl_seat& one, std::uint64_t groups) const {
    std::vector<missing_rank> result;
    if (one.world == seats_.size()) result = ledger.missing(groups);
    std::erase_if(result, [&](const missing_rank& its) { return its.rank == one.rank; });
    return result;
  }
  /// No thread of a lower rank waits.
  bool is_first_to_wait(std::size_t n) const noexcept {
    for (std::size_t r = 0; r < n; ++r)
      if (seats_[r]->waits.load(std::memory_order_relaxed)) return false;
    return true;
  }
  const char* why_unknown(const nccl_seat& one) const noexcept {
    return one.world == seats_.size() ? "all have come, so that a device is busy, or stuck"
                                      : "for which of them NCCL does not tell, or whether a device is stuck";
  }
  /// A rank has gone. The last one ends the watchdog.
  void leave() noexcept {
    {
      const std::scoped_lock lock(mutex_);
      ++left_;
    }
    changed_.notify_all();
  }
  void end() noexcept {
    {
      const std::scoped_lock lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    if (watchdog_.joinable()) watchdog_.join();
  }

 private:
  void wait_until_released(std::unique_lock<std::mutex>& lock) const {
    changed_.wait_for(lock, std::chrono::seconds(10), [this] { return released_; });
  }
  static void release(nccl_seat& one) noexcept {
    // A call that does not come back is no reason to wait: an abort may come from another thread.
    std::unique_lock lock(one.calls, std::chrono::seconds(1));
    const ncclComm_t communicator = std::exchange(one.communicator, nullptr);
    if (communicator == nullptr || one.adopted) return;
    const cudaError_t set = cudaSetDevice(one.device);
    cuda_log(set, "cudaSetDevice");
    const ncclResult_t code = ncclCommAbort(communicator);
    if (code != ncclSuccess && code != ncclInProgress)
      std::fprintf(stderr, "penstock: ncclCommAbort: %s; after an error, so this is only reported\n",
                   ncclGetErrorString(code));
  }
  void watch() noexcept {
    constexpr auto pause = std::chrono::milliseconds(5);
    std::unique_lock lock(mutex_);
    while (!ended_ && left_ < seats_.size()) {
      changed_.wait_for(lock, pause);
      if (ended_ || cause_) continue;
      lock.unlock();
      bool told = false;
      for (auto& one : seats_) look_at(*one, told);
      lock.lock();
    }
  }
  // `told`: that a lower rank waits.
  void look_at(nccl_seat& one, bool& told) noexcept {
    try {
      std::string problem, warning;
      provenance where{.stage = "all_reduce"};
      {
        std::unique_lock calls(one.calls, std::try_to_lock);
        if (!calls.owns_lock() || one.communicator == nullptr) return;
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(one.communicator, &state);
        if (asked != ncclSuccess) state = asked;
        if (state != ncclSuccess && state != ncclInProgress) {
          const nccl_error failed(state, "ncclCommGetAsyncError", one.communicator);
          problem = concat("rank ", one.rank, " failed: ", failed.problem());
          if (one.finished != one.posted) where = one.ring[one.finished % one.ring.size()]->where;
        }
        while (problem.empty() && one.finished != one.posted) {
          const auto& oldest = *one.ring[one.finished % one.ring.size()];
          if (cuda_done([&] { return cudaEventQuery(oldest.done); }, "cudaEventQuery")) {
            ++one.finished;
            one.progressed = clock::now();
            continue;
          }
          if (!oldest.patient && clock::now() - oldest.since > timeout_) {
            problem = concat("the exchange of rank ", one.rank, " did not end within ", timeout_.count() / 1'000'000,
                             " ms: a rank has not come, or a device is stuck");
            where = oldest.where;
          }
          if (problem.empty() && !oldest.patient) warning = warn(one, oldest, told);
          break;
        }
      }
      if (!warning.empty()) say_late(warning);
      if (!problem.empty()) abort(one.rank, where, problem);
    } catch (const std::exception& failed) {
      try {
        abort(one.rank, {.stage = "all_reduce"},
              concat("rank ", one.rank, " failed: ", std::string_view(failed.what())));
      } catch (...) {
      }
    }
  }

  // What is to be said of a rank whose own thread is elsewhere, in a wait of the user's, so that no observer can be
  // told. It counts from where the exchange was the next to end.
  std::string warn(nccl_seat& one, const nccl_seat::outstanding& oldest, bool& told) {
    if (warn_after_.count() == 0) return {};
    if (one.watched != one.finished) {
      one.watched = one.finished;
      one.warnings.emplace(std::max(oldest.since, one.progressed), std::chrono::nanoseconds::max(), warn_after_);
    }
    const auto now = clock::now();
    const std::chrono::nanoseconds waited = now - one.warnings->begin();
    const bool due = one.warnings->warns(now);
    if (waited < warn_after_) return {};
    const bool speaks = due && !told && !one.waits.load(std::memory_order_relaxed);
    told = true;
    if (!speaks) return {};
    try {
      return concat(oldest.where.text(), ": ", late_text_of(one, waited, oldest.groups));
    } catch (const std::exception&) {
      return {};  // no memory to tell of it, which ends no run
    }
  }
  std::string late_text_of(const nccl_seat& one, std::chrono::nanoseconds waited, std::uint64_t groups) const {
    const auto missing = missing_at(one, groups);
    return late_text(one.rank, waited, missing, missing.empty() ? why_unknown(one) : "");
  }

  std::vector<std::unique_ptr<nccl_seat>> seats_;
  std::chrono::nanoseconds timeout_, warn_after_;
  abort_host host_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<replica_error> cause_;
  std::size_t left_;
  bool ended_ = false;
  bool released_ = false;
  std::thread watchdog_;
};

}  // namespace penstock::detail
