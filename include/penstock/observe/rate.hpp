// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cmath>
#include <optional>

#include <penstock/sample/error.hpp>

namespace penstock {

/// Work per second, with a fading memory: an interval that ended `memory` ago weighs 1/e.
///
/// It reads no clock and starts without a bias: after one interval the rate is that interval's. Adding an interval in
/// pieces of the same speed or at once gives the same rate. `memory` must be positive, else `std::invalid_argument`.
class rate_estimate {
 public:
  using seconds = std::chrono::duration<double>;

  explicit rate_estimate(seconds memory = seconds{30}) : memory_(memory.count()) {
    if (!(memory_ > 0))
      detail::reject_option("rate_estimate", "memory", detail::concat(memory_, " s"), "more than 0 s");
  }

  /// `work` was done in the `elapsed` time before now. Work in no time counts; a negative time counts as none.
  void add(double work, seconds elapsed) {
    const double time = elapsed.count();
    if (!(time > 0)) {
      work_ += work;
      return;
    }
    // The integral of the fading weight over the interval, as a share of its length: 1 for short ones.
    const double weight = -std::expm1(-time / memory_) * memory_ / time;
    const double kept = std::exp(-time / memory_);
    work_ = work_ * kept + work * weight;
    time_ = time_ * kept + time * weight;
  }

  /// Unknown before the first interval of any length.
  std::optional<double> per_second() const {
    if (!(time_ > 0)) return std::nullopt;
    return work_ / time_;
  }

  /// How long `work` takes at this rate: finite and not negative, or unknown.
  std::optional<seconds> time_for(double work) const {
    if (!(time_ > 0) || !(work_ > 0)) return std::nullopt;
    const double time = work / work_ * time_;
    if (!std::isfinite(time)) return std::nullopt;
    return seconds{time > 0 ? time : 0};
  }

 private:
  double memory_;
  double work_ = 0;  // both fade alike, so their quotient is a weighted mean
  double time_ = 0;
};

}  // namespace penstock
