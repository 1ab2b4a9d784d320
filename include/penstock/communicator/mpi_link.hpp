// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/late_watch.hpp>
#include <penstock/communicator/mpi_environment.hpp>

namespace penstock::detail {

/// Where a wait is, for its error.
struct mpi_place {
  std::uint64_t epoch = 0, step = 0;
};

/// A rank's connection to the others: collectives on one communicator, which are waited for here, and notes on another
/// one, by which ranks tell each other that they have given up, and who it is that does not come.
///
/// Once it is dead it stays so, as what was begun on it cannot be taken back. One thread; `abort` from any.
class mpi_link {
  using clock = std::chrono::steady_clock;

 public:
  explicit mpi_link(MPI_Comm of)
      : values_(of),
        notes_(of),
        rank_(values_.rank()),
        size_(values_.size()),
        local_(values_.on_this_machine()),
        thread_(std::this_thread::get_id()),
        answered_(size_) {}
  ~mpi_link() {
    if (!dead_ && !busy_) {
      if (notes_are_through()) return;
    } else {
      values_.leave();
    }
    notes_.leave();
    // MPI may still write to what was being received, and read what was being sent.
    new std::list<outgoing>(std::move(sent_));
  }

  MPI_Comm comm() const noexcept { return values_.get(); }
  std::uint64_t rank() const noexcept { return rank_; }
  std::uint64_t size() const noexcept { return size_; }
  int local_rank() const noexcept { return local_.rank; }
  bool dead() const noexcept { return dead_ != nullptr; }
  std::string cause() const { return message_of(dead_); }
  /// A run begins.
  void begin(std::chrono::nanoseconds timeout) noexcept {
    timeout_ = timeout;
    last_.reset();
  }
  /// All ranks have come to this exchange.
  void met(mpi_place at) noexcept { last_ = at; }

  void check_alive() {
    take_pending_abort();
    if (dead_) std::rethrow_exception(dead_);
  }
  /// Until all requests are complete, at most for the time-out unless the wait is patient; tells of it as `late` says.
  /// While values come in, which they do only while MPI is called, it is spun through; who waits for others' steps
  /// sleeps before long.
  void wait(std::span<MPI_Request> requests, mpi_place at, bool values, const late_watch& late, bool patient = false) {
    const auto begin = clock::now();
    const auto spun = values ? std::chrono::nanoseconds(std::chrono::milliseconds(20)) : std::chrono::microseconds(50);
    std::optional<clock::time_point> warn, give_up;  // when answers to a question are to have come
    wait_schedule times(begin, std::chrono::nanoseconds::max(), late.after());
    bool warned = false;
    busy_ = true;
    for (std::uint32_t round = 0;; ++round) {
      int done = 0;
      check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
                "MPI_Testall");
      if (done != 0) break;
      if (round < 64) continue;
      const auto now = clock::now();
      const std::chrono::nanoseconds waited = now - begin;
      if (waited < spun) {
        // A processor that is given away to another program comes back after that one's turn of milliseconds.
        if (!values || crowded_) std::this_thread::yield();
        continue;
      }
      take_pending_abort();
      read_notes();
      if (dead_) std::rethrow_exception(dead_);
      const bool over = !patient && waited >= timeout_;
      if (warn) {
        if (now >= *warn) {
          tell_of(at, waited, late);
          warn.reset();
        }
      } else if ((!over || !warned) && times.warns(now)) {
        warned = true;
        ask();
        warn = now + grace(late.after());
      } else if (give_up) {
        if (now >= *give_up) throw_missing(at);
      } else if (over) {
        ask();
        give_up = now + grace(timeout_);
      }
      using std::chrono::nanoseconds;
      const nanoseconds shortest = std::chrono::microseconds(10), longest = std::chrono::milliseconds(1);
      std::this_thread::sleep_for(std::clamp<nanoseconds>(waited / 16, shortest, longest));
    }
    busy_ = false;
  }
  /// MPI or a device has failed, by the exception that is under way.
  void fail(const std::string& problem) noexcept {
    die(std::current_exception());
    try {
      tell(replica_error(rank_, concat("rank ", rank_, " failed: ", problem), {.stage = "all_reduce"}));
    } catch (...) {
      // They wait for the time-out.
    }
  }
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    if (std::this_thread::get_id() != thread_) {
      const std::scoped_lock lock(mutex_);
      if (!pending_) pending_.emplace(rank, std::move(problem), std::move(where));
      has_pending_.store(true, std::memory_order_release);
      return;
    }
    const replica_error cause(rank, std::move(problem), std::move(where));
    die(std::make_exception_ptr(cause));
    tell(cause);
  }

 private:
  enum class kind : std::uint64_t { asks, is_here, gives_up };
  struct note {
    kind what{};
    std::uint64_t question = 0;  // of the rank that asks
    std::uint64_t rank = 0;      // because of which it gives up
    std::uint64_t epoch = 0, step = 0;
    bool has_epoch = false, has_step = false;
    char stage[32] = {};
    char problem[640] = {};
  };
  struct outgoing {
    note text;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  static constexpr int tag = 7;

  // How long answers may take.
  static std::chrono::nanoseconds grace(std::chrono::nanoseconds limit) noexcept {
    return std::clamp<std::chrono::nanoseconds>(limit / 2, std::chrono::milliseconds(100), std::chrono::seconds(2));
  }

  void forget_sent() {
    sent_.remove_if([](outgoing& one) {
      int done = 0;
      return MPI_Test(&one.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
    });
  }
  // At the end: questions of those who warned, which this rank has not seen, as it was not waiting, need no answer.
  bool notes_are_through() noexcept {
    try {
      int ended = 0;
      if (sent_.empty()) return true;
      if (MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0) return false;
      forget_sent();
      return sent_.empty();
    } catch (...) {
      return false;
    }
  }
  void send(const note& text, std::uint64_t to) {
    forget_sent();
    outgoing& one = sent_.emplace_back();
    one.text = text;
    check_mpi(MPI_Isend(&one.text, sizeof(note), MPI_BYTE, static_cast<int>(to), tag, notes_.get(), &one.request),
              "MPI_Isend");
  }
  void send_to_all(const note& text) {
    for (std::uint64_t r = 0; r < size_; ++r)
      if (r != rank_) send(text, r);
  }
  static void copy(char* to, std::size_t room, const std::string& from) {
    std::memcpy(to, from.data(), std::min(from.size(), room - 1));
  }
  void tell(const replica_error& cause) {
    if (std::exchange(told_, true)) return;
    note text;
    text.what = kind::gives_up;
    text.rank = cause.rank();
    text.has_epoch = cause.where().epoch.has_value();
    text.has_step = cause.where().step.has_value();
    text.epoch = cause.where().epoch.value_or(0);
    text.step = cause.where().step.value_or(0);
    copy(text.stage, sizeof text.stage, cause.where().stage);
    copy(text.problem, sizeof text.problem, cause.problem());
    send_to_all(text);
  }
  void read_notes() {
    for (;;) {
      int there = 0;
      MPI_Status status;
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, notes_.get(), &there, &status), "MPI_Iprobe");
      if (there == 0) return;
      note text;
      check_mpi(MPI_Recv(&text, sizeof text, MPI_BYTE, status.MPI_SOURCE, tag, notes_.get(), MPI_STATUS_IGNORE),
                "MPI_Recv");
      const auto from = static_cast<std::uint64_t>(status.MPI_SOURCE);
      if (text.what == kind::asks) {
        text.what = kind::is_here;
        send(text, from);
      } else if (text.what == kind::is_here) {
        if (text.question == question_) answered_[from] = true;
      } else {
        provenance where{.stage = text.stage};
        if (text.has_epoch) where.epoch = text.epoch;
        if (text.has_step) where.step = text.step;
        die(std::make_exception_ptr(replica_error(text.rank, text.problem, where)));
        told_ = true;  // whoever gives up tells all
      }
    }
  }
  void take_pending_abort() {
    if (!has_pending_.load(std::memory_order_acquire)) return;
    const std::scoped_lock lock(mutex_);
    has_pending_.store(false, std::memory_order_relaxed);
    die(std::make_exception_ptr(*pending_));
    tell(*pending_);
  }

  void die(const std::exception_ptr& cause) noexcept {
    if (!dead_) dead_ = cause;
  }

  // Who waits, too, answers at once.
  void ask() {
    std::fill(answered_.begin(), answered_.end(), false);
    answered_[rank_] = true;
    note text;
    text.what = kind::asks;
    text.question = ++question_;
    send_to_all(text);
  }
  // Who has not answered does not wait, and is where all met last.
  [[gnu::noinline, gnu::cold]] void tell_of(mpi_place at, std::chrono::nanoseconds waited, const late_watch& late) {
    const auto missing = silent();
    bool speaks = true;
    for (std::uint64_t r = 0; r < rank_; ++r) speaks = speaks && !answered_[r];
    late.tell({.stage = "all_reduce", .epoch = at.epoch, .step = at.step}, waited, missing, speaks,
              missing.empty() ? "all ranks have come, and wait, too" : "");
  }
  std::vector<missing_rank> silent() const {
    std::vector<missing_rank> missing;
    for (std::uint64_t r = 0; r < size_; ++r) {
      if (answered_[r]) continue;
      missing_rank& its = missing.emplace_back();
      its.rank = r;
      its.never_came = !last_;
      if (!last_) continue;
      its.epoch = last_->epoch;
      its.step = last_->step;
    }
    return missing;
  }
  [[noreturn]] void throw_missing(mpi_place at) {
    const auto missing = silent();
    const auto limit = timeout_.count() / 1'000'000;
    abort(missing.empty() ? rank_ : missing.front().rank, {.stage = "all_reduce", .epoch = at.epoch, .step = at.step},
          missing.empty()
              ? concat("an exchange did not end within ", limit, " ms though all ranks came, as seen by rank ", rank_)
              : concat(ranks_text(missing), " did not come within ", limit, " ms, as seen by rank ", rank_));
    std::rethrow_exception(dead_);
  }

  mpi_duplicate values_, notes_;
  std::uint64_t rank_, size_;
  mpi_duplicate::local local_;
  std::thread::id thread_;
  bool crowded_ = ::sysconf(_SC_NPROCESSORS_ONLN) < local_.size;  // ranks have to take turns
  std::chrono::nanoseconds timeout_ = replica_options{}.timeout;
  std::optional<mpi_place> last_;  // where all ranks met last
  std::exception_ptr dead_;
  bool told_ = false;
  bool busy_ = false;  // a request may be under way
  std::uint64_t question_ = 0;
  std::vector<bool> answered_;
  std::list<outgoing> sent_;
  std::mutex mutex_;
  std::optional<replica_error> pending_;
  std::atomic<bool> has_pending_{false};
};

}  // namespace penstock::detail
