// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/host_reduce.hpp>
#include <penstock/communicator/local_meeting.hpp>
#include <penstock/communicator/rendezvous.hpp>
#include <penstock/device/device.hpp>

namespace penstock {

namespace detail {

/// What a rank of a process leaves for the others.
struct local_seat {
  control_words words;
  std::span<const reduce_buffer> buffers;
  bool joins = false;
  std::string text;
};
using local_group = rendezvous<local_seat>;

}  // namespace detail

/// The threads of one process, each a rank, by memory that all of them see. Made by `local_world`.
///
/// Each rank reduces a part of every buffer, for all: in the order of the ranks, so that a repeated run is equal to the
/// bit. Nothing is allocated after the first exchange.
template <host_device Device>
class local_communicator {
 public:
  using device_type = Device;
  using stream_view = typename Device::stream_view;
  static constexpr bool immediate = true;

  local_communicator(std::shared_ptr<detail::local_group> group, std::uint64_t rank, Device device,
                     replica_options options)
      : group_(std::move(group)), rank_(rank), device_(std::move(device)), options_(options) {
    buffers_.reserve(size());
    weights_.reserve(size());
  }

  std::uint64_t rank() const noexcept { return rank_; }
  std::uint64_t size() const noexcept { return group_->size(); }
  const Device& device() const noexcept { return device_; }

  void post(const exchange<stream_view>& one) {
    auto& mine = group_->seat(rank_);
    mine.words = one.words;
    mine.buffers = one.buffers;
    mine.joins = one.joins;
    const auto limit = one.patient ? std::chrono::nanoseconds::max() : options_.timeout;
    const std::uint64_t meeting = group_->meet(rank_, limit, one.epoch, one.step, late_);
    const auto [words, shape] = detail::fold_seats(*group_, meeting);
    words_ = words;
    if (words_.ends()) return;
    if (!words_.agree()) detail::throw_disagreement(*group_, meeting, words_, one.epoch, one.step);
    if (shape.empty()) return;

    const double total = words_.sums[control_words::weight];
    weights_.clear();
    for (std::uint64_t r = 0; r < size(); ++r)
      weights_.push_back(group_->at(meeting, r).words.sums[control_words::weight]);
    for (std::size_t b = 0; b < shape.size(); ++b) {
      if (size() == 1 && shape[b].how != reduction::mean_of_sums) continue;
      buffers_.clear();
      for (std::uint64_t r = 0; r < size(); ++r) {
        const auto& seat = group_->at(meeting, r);
        buffers_.push_back(b < seat.buffers.size() ? seat.buffers[b].data : nullptr);
        if (seat.joins) weights_[r] = 0;
      }
      const auto [first, last] = detail::part_of(shape[b].count, rank_, size());
      detail::with_element(shape[b].type, [&](auto element) {
        detail::reduce_range<decltype(element)>(buffers_, weights_, total, shape[b].how, first, last);
      });
    }
    group_->meet_again(rank_);
  }
  control_words words_of(std::uint64_t) const noexcept { return words_; }

  std::vector<std::string> all_gather(std::string text) {
    return detail::gather_texts(*group_, rank_, options_.timeout, std::move(text), late_);
  }
  void warn_by(late_hook hook) noexcept { late_.warn_by(hook); }
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    group_->abort(rank, std::move(where), std::move(problem));
  }

 private:
  std::shared_ptr<detail::local_group> group_;
  std::uint64_t rank_;
  Device device_;
  replica_options options_;
  detail::late_watch late_{rank_, options_.warns_after()};
  control_words words_;
  std::vector<void*> buffers_;
  std::vector<double> weights_;
};

}  // namespace penstock
