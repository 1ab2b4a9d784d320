// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <penstock/communicator/host_reduce.hpp>
#include <penstock/communicator/local_meeting.hpp>
#include <penstock/communicator/mpi_error.hpp>
#include <penstock/communicator/reduce_buffer.hpp>
#include <penstock/device/cpu.hpp>

namespace penstock::detail {

/// Memory that is handed out until all of it is given back. What has been handed out stays where it is, and what was
/// once enough is enough again.
class mpi_scratch {
 public:
  std::byte* take(std::size_t bytes) {
    bytes = (bytes + 127) / 128 * 128;
    if (blocks_.empty() || blocks_.back().size() - used_ < bytes) {
      blocks_.emplace_back(bytes);
      used_ = 0;
    }
    return blocks_.back().data() + std::exchange(used_, used_ + bytes);
  }
  void give_all_back() {
    used_ = 0;
    if (blocks_.size() < 2) return;
    std::size_t all = 0;
    for (const aligned_memory& one : blocks_) all += one.size();
    blocks_.clear();
    blocks_.emplace_back(all);
  }

 private:
  std::vector<aligned_memory> blocks_;
  std::size_t used_ = 0;  // of the last
};

/// The reduction of buffers on the host, in place, over all ranks: each rank reduces a part of every buffer for all, in
/// the order of the ranks.
///
/// First each rank sends every other one that one's part of its values, then each sends its part of the result to all.
/// MPI's non-blocking all-reduce adds in an order of its own, and took 2 to 28 times as long as its blocking one (Open
/// MPI 4.1.4, a million floats, two processes on a busy machine of two CPUs); a blocking one cannot be given up.
class mpi_reduction {
 public:
  mpi_reduction(std::uint64_t rank, std::uint64_t size) : rank_(rank), from_(size) {}

  bool empty() const noexcept { return open_.empty(); }
  std::span<MPI_Request> requests() noexcept { return requests_; }

  /// `weights[r]` is rank r's; those of weight 0 bring nothing. The same on all ranks.
  void begin(const reduce_buffer& one, std::span<const double> weights, double total, MPI_Comm over) {
    if (one.count == 0) return;
    const std::size_t bytes = part(one, rank_).second;
    pending next{one, total, weights_.size(), received_.size()};
    weights_.insert(weights_.end(), weights.begin(), weights.end());
    for (std::uint64_t r = 0; r < size(); ++r)
      received_.push_back(r == rank_ || weights[r] == 0 || bytes == 0 ? nullptr : scratch_.take(bytes));
    for (std::uint64_t r = 0; r < size(); ++r)
      if (std::byte* const to = received_[next.received + r]; to != nullptr) receive(to, bytes, r, values_tag, over);
    if (weights[rank_] != 0)
      for (std::uint64_t r = next_rank(rank_); r != rank_; r = next_rank(r)) {
        const auto [at, its] = part(one, r);
        send(at, its, r, values_tag, over);
      }
    open_.push_back(next);
  }
  /// All requests are complete: the results are sent, and received.
  void go_on(MPI_Comm over) {
    requests_.clear();
    for (const pending& one : open_) reduce(one);
    for (const pending& one : open_)
      for (std::uint64_t r = next_rank(rank_); r != rank_; r = next_rank(r)) {
        const auto [at, its] = part(one.values, r);
        receive(at, its, r, results_tag, over);
      }
    for (const pending& one : open_)
      for (std::uint64_t r = next_rank(rank_); r != rank_; r = next_rank(r)) {
        const auto [at, mine] = part(one.values, rank_);
        send(at, mine, r, results_tag, over);
      }
  }
  /// All requests are complete, again.
  void end() {
    requests_.clear();
    open_.clear();
    weights_.clear();
    received_.clear();
    scratch_.give_all_back();
  }

 private:
  static constexpr int values_tag = 1, results_tag = 2;
  // MPI counts in `int`: what is larger goes in several messages.
  static constexpr std::size_t most = std::size_t{1} << 30;

  struct pending {
    reduce_buffer values;
    double total;
    std::size_t weights, received;  // where those of rank 0 are
  };

  std::uint64_t size() const noexcept { return from_.size(); }
  std::uint64_t next_rank(std::uint64_t rank) const noexcept { return rank + 1 == size() ? 0 : rank + 1; }
  std::pair<std::byte*, std::size_t> part(const reduce_buffer& of, std::uint64_t rank) const noexcept {
    const auto [first, last] = part_of(of.count, rank, size());
    const std::size_t element = size_of(of.type);
    return {static_cast<std::byte*>(of.data) + first * element, (last - first) * element};
  }
  void reduce(const pending& one) {
    const auto [at, bytes] = part(one.values, rank_);
    if (bytes == 0) return;
    // What others brought is overwritten by the result, too, and not needed any more.
    for (std::uint64_t r = 0; r < size(); ++r) from_[r] = received_[one.received + r];
    from_[rank_] = at;
    with_element(one.values.type, [&, mine = bytes](auto element) {
      using T = decltype(element);
      reduce_range<T>(from_, std::span(weights_.data() + one.weights, size()), one.total, one.values.how, 0,
                      mine / sizeof(T));
    });
  }
  void receive(std::byte* to, std::size_t bytes, std::uint64_t from, int tag, MPI_Comm over) {
    for (std::size_t at = 0; at < bytes; at += most)
      check_mpi(MPI_Irecv(to + at, length(bytes - at), MPI_BYTE, static_cast<int>(from), tag, over, &next_request()),
                "MPI_Irecv");
  }
  void send(const std::byte* from, std::size_t bytes, std::uint64_t to, int tag, MPI_Comm over) {
    for (std::size_t at = 0; at < bytes; at += most)
      check_mpi(MPI_Isend(from + at, length(bytes - at), MPI_BYTE, static_cast<int>(to), tag, over, &next_request()),
                "MPI_Isend");
  }
  static int length(std::size_t bytes) noexcept { return static_cast<int>(bytes < most ? bytes : most); }
  MPI_Request& next_request() { return requests_.emplace_back(MPI_REQUEST_NULL); }

  std::uint64_t rank_;
  std::vector<void*> from_;
  std::vector<pending> open_;
  std::vector<double> weights_;
  std::vector<std::byte*> received_;
  std::vector<MPI_Request> requests_;
  mpi_scratch scratch_;
};

}  // namespace penstock::detail
