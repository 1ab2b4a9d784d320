// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <penstock/sample/philox.hpp>

namespace penstock::detail {

/// A shuffle window of a stream by the places of its samples alone: which of the stream's are in it after so many
/// draws, and what the next draws choose from. A function of seed, epoch, the window's size, the draws, and the
/// stream's length where that ends within the window; no sample is needed to know it.
class shuffle_window {
 public:
  static constexpr std::uint64_t endless = ~std::uint64_t{0};

  shuffle_window(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size)
      : random_(seed, epoch, 0, random_domain::plan), size_(size) {}

  /// Draws `draws` samples of a stream of `length`, or as many as it has.
  void draw(std::uint64_t draws, std::uint64_t length = endless) {
    for (; draws != 0; --draws) {
      for (; places_.size() < size_ && pulled_ < length; ++pulled_) places_.push_back(pulled_);
      if (places_.empty()) return;
      std::swap(places_[static_cast<std::size_t>(random_.below(places_.size()))], places_.back());
      places_.pop_back();
    }
  }
  /// The places of what is in the window, in the window's order.
  const std::vector<std::uint64_t>& places() const noexcept { return places_; }
  /// How many samples of the stream went into it.
  std::uint64_t pulled() const noexcept { return pulled_; }
  /// What the next draw is made from.
  const philox& random() const noexcept { return random_; }

 private:
  philox random_;
  std::uint64_t size_;
  std::uint64_t pulled_ = 0;
  std::vector<std::uint64_t> places_;
};

}  // namespace penstock::detail
