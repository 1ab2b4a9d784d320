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
    const auto limit = one.patient ? std::nullopt : std::optional(options_.timeout);
    const std::uint64_t meeting = group_->meet(rank_, limit, one.epoch, one.step);
    words_ = {};
    std::span<const reduce_buffer> shape;
    for (std::uint64_t r = 0; r < size(); ++r) {
      words_.add(group_->at(meeting, r).words);
      if (shape.empty() && !group_->at(meeting, r).joins) shape = group_->at(meeting, r).buffers;
    }
    if (words_.ends()) return;
    if (!words_.agree()) disagree(one, meeting);
    if (shape.empty()) return;

    const double total = words_.sums[control_words::weight];
    weights_.clear();
    for (std::uint64_t r = 0; r < size(); ++r)
      weights_.push_back(group_->at(meeting, r).words.sums[control_words::weight]);
    for (std::size_t b = 0; b < shape.size(); ++b) {
      buffers_.clear();
      for (std::uint64_t r = 0; r < size(); ++r) {
        const auto& seat = group_->at(meeting, r);
        buffers_.push_back(b < seat.buffers.size() ? seat.buffers[b].data : nullptr);
        if (seat.joins) weights_[r] = 0;
      }
      const auto [first, last] = part(shape[b].count);
      detail::with_element(shape[b].type, [&](auto element) {
        detail::reduce_range<decltype(element)>(buffers_, weights_, total, shape[b].how, first, last);
      });
    }
    group_->meet_again(rank_);
  }
  control_words words_of(std::uint64_t) const noexcept { return words_; }

  std::vector<std::string> all_gather(std::string text) {
    group_->seat(rank_).text = std::move(text);
    const std::uint64_t meeting = group_->meet(rank_, options_.timeout, 0, 0);
    std::vector<std::string> all;
    for (std::uint64_t r = 0; r < size(); ++r) all.push_back(group_->at(meeting, r).text);
    return all;
  }
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    group_->abort(rank, std::move(where), std::move(problem));
  }

 private:
  struct range {
    std::size_t first, last;
  };
  // Of `count` elements; parts begin on cache lines.
  range part(std::size_t count) const noexcept {
    constexpr std::size_t line = 32;
    const std::size_t lines = (count + line - 1) / line;
    const auto cut = [&](std::uint64_t r) {
      const std::size_t at = static_cast<std::size_t>(lines * r / size()) * line;
      return at < count ? at : count;
    };
    return {cut(rank_), cut(rank_ + 1)};
  }
  [[noreturn]] void disagree(const exchange<stream_view>& one, std::uint64_t meeting) {
    const std::uint64_t count = group_->at(meeting, 0).words.maxima[control_words::elements];
    const std::uint64_t call = group_->at(meeting, 0).words.maxima[control_words::call];
    std::uint64_t other = 0;
    for (std::uint64_t r = 1; r < size() && other == 0; ++r) {
      const auto& words = group_->at(meeting, r).words;
      if (words.has(control_words::not_call) &&
          (words.maxima[control_words::elements] != count || words.maxima[control_words::call] != call))
        other = r;
    }
    const provenance where{.stage = "all_reduce", .epoch = one.epoch, .step = one.step};
    abort(other, where,
          detail::concat(detail::describe_disagreement(words_), " (rank 0 brings ", count, ", rank ", other, " ",
                         group_->at(meeting, other).words.maxima[control_words::elements], " elements)"));
    group_->throw_if_aborted();
    throw replica_error(other, detail::describe_disagreement(words_), where);
  }

  std::shared_ptr<detail::local_group> group_;
  std::uint64_t rank_;
  Device device_;
  replica_options options_;
  control_words words_;
  std::vector<void*> buffers_;
  std::vector<double> weights_;
};

}  // namespace penstock
