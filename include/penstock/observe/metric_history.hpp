// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/sample/error.hpp>

namespace penstock {

/// Neighbouring values of a metric, put together.
struct metric_bucket {
  std::uint64_t first_step = 0, last_step = 0;
  double least = std::numeric_limits<double>::infinity();  ///< of the finite values, as the next two
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0;
  std::uint64_t finite = 0;  ///< values that are neither NaN nor infinite
  std::uint64_t values = 0;

  /// Unknown if no value was finite. Where the sum is more than a double holds, the middle.
  std::optional<double> mean() const {
    if (finite == 0) return std::nullopt;
    const double mean = sum / static_cast<double>(finite);
    return std::isfinite(mean) ? std::clamp(mean, least, most) : least / 2 + most / 2;
  }
  /// Where it is drawn.
  double middle() const { return (static_cast<double>(first_step) + static_cast<double>(last_step)) / 2; }
};

/// All values that a metric has had, within bounded memory: when `most_buckets` are full, neighbours are put together
/// in pairs, which keeps least and most of each, so that no spike is lost. Steps are expected in rising order; values
/// that are not finite are counted.
class metric_history {
 public:
  /// Throws `std::invalid_argument` unless `most_buckets` is even and 2 or more.
  explicit metric_history(std::string name, std::size_t most_buckets = 512)
      : name_(std::move(name)), most_buckets_(most_buckets) {
    if (most_buckets < 2 || most_buckets % 2 != 0)
      detail::reject_option("metric_history", "most_buckets", detail::concat(most_buckets), "an even number from 2");
  }

  void add(std::uint64_t step, double value) {
    if (buckets_.empty() || buckets_.back().values >= values_per_bucket_) open_bucket(step);
    metric_bucket& last = buckets_.back();
    last.last_step = std::max(last.last_step, step);
    ++last.values;
    ++values_;
    last_ = value;
    last_step_ = step;
    if (!std::isfinite(value)) {
      if (!first_not_finite_) first_not_finite_ = step;
      return;
    }
    ++last.finite;
    last.sum += value;
    last.least = std::min(last.least, value);
    last.most = std::max(last.most, value);
    if (finite_ == 0 || value < least_) least_ = value, least_step_ = step;
    if (finite_ == 0 || value > most_) most_ = value, most_step_ = step;
    ++finite_;
  }

  const std::string& name() const noexcept { return name_; }
  std::span<const metric_bucket> buckets() const noexcept { return buckets_; }
  std::uint64_t values() const noexcept { return values_; }
  /// How many were neither NaN nor infinite; extremes are known if there was one.
  std::uint64_t finite() const noexcept { return finite_; }
  double last() const noexcept { return last_; }
  std::uint64_t last_step() const noexcept { return last_step_; }
  double least() const noexcept { return least_; }
  std::uint64_t least_step() const noexcept { return least_step_; }
  double most() const noexcept { return most_; }
  std::uint64_t most_step() const noexcept { return most_step_; }
  /// The step of the first value that was NaN or infinite.
  std::optional<std::uint64_t> first_not_finite() const noexcept { return first_not_finite_; }

 private:
  void open_bucket(std::uint64_t step) {
    if (buckets_.size() == most_buckets_) {
      for (std::size_t i = 0; i < most_buckets_ / 2; ++i) buckets_[i] = joined(buckets_[2 * i], buckets_[2 * i + 1]);
      buckets_.resize(most_buckets_ / 2);
      values_per_bucket_ *= 2;
    }
    buckets_.push_back({.first_step = step, .last_step = step});
  }

  static metric_bucket joined(const metric_bucket& a, const metric_bucket& b) {
    return {std::min(a.first_step, b.first_step),
            std::max(a.last_step, b.last_step),
            std::min(a.least, b.least),
            std::max(a.most, b.most),
            a.sum + b.sum,
            a.finite + b.finite,
            a.values + b.values};
  }

  std::string name_;
  std::size_t most_buckets_;
  std::uint64_t values_per_bucket_ = 1;
  std::vector<metric_bucket> buckets_;
  std::uint64_t values_ = 0, finite_ = 0, last_step_ = 0, least_step_ = 0, most_step_ = 0;
  double last_ = 0, least_ = 0, most_ = 0;
  std::optional<std::uint64_t> first_not_finite_;
};

/// The histories of several metrics, in the order in which their names came up.
class metric_histories {
 public:
  explicit metric_histories(std::size_t most_buckets = 512) : most_buckets_(most_buckets) {
    static_cast<void>(metric_history({}, most_buckets));  // refuses a bad number now
  }

  metric_history& of(std::string_view name) {
    for (auto& one : all_)
      if (one.name() == name) return one;
    return all_.emplace_back(std::string(name), most_buckets_);
  }
  std::span<const metric_history> all() const noexcept { return all_; }
  void clear() { all_.clear(); }

 private:
  std::size_t most_buckets_;
  std::vector<metric_history> all_;
};

}  // namespace penstock
