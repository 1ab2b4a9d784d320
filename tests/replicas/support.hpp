// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

#include "../laws/threads.hpp"

/// What the tests of replicas share: a line to be found, and what each rank came to.
namespace replicated {

using laws::signpost;

inline constexpr std::uint64_t worlds[] = {1, 2, 3, 4};

/// `n` rows of x, y = 3 x + 1 + noise, and their number. `hook` is called before each is read.
struct rows {
  using schema_type = penstock::schema<penstock::field<float>, penstock::field<float>, penstock::field<std::uint64_t>>;

  std::uint64_t n = 13;
  std::function<void(std::uint64_t)> hook{};

  std::uint64_t size() const { return n; }
  schema_type schema() const {
    return schema_type{penstock::field<float>{"x"}, penstock::field<float>{"y"}, penstock::field<std::uint64_t>{"id"}};
  }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    if (hook) hook(index);
    auto [x, y, id] = to;
    x() = x_of(index);
    y() = y_of(index);
    id() = index;
  }
  static float x_of(std::uint64_t index) { return 0.125F * static_cast<float>(index % 17) - 1; }
  static float y_of(std::uint64_t index) { return 3 * x_of(index) + 1 + 0.1F * static_cast<float>(index % 3); }
};

struct line {
  std::array<float, 2> w{0.5F, -0.25F};

  /// The mean over the batch's own samples; NaN where it has none.
  void gradient(const auto& batch, std::span<float> to) const {
    const auto [x, y, id] = batch.fields();
    double sums[2] = {};
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const double error = double{w[0]} * x(i) + double{w[1]} - double{y(i)};
      sums[0] += error * x(i);
      sums[1] += error;
    }
    for (std::size_t i = 0; i < 2; ++i) to[i] = static_cast<float>(sums[i] / static_cast<double>(batch.size()));
  }
  void update(std::span<const float> gradient) {
    for (std::size_t i = 0; i < 2; ++i) w[i] -= 0.1F * gradient[i];
  }
  bool operator==(const line&) const = default;
};

struct settings {
  std::int64_t global = 4;
  int readers = 2;
  std::uint64_t seed = 7;
};

auto work_of(const rows& data, auto& replica, const settings& s = {}) {
  return data | penstock::partition({.seed = s.seed, .world = replica}) | penstock::read({.readers = s.readers}) |
         penstock::batch({.global = s.global}) | penstock::transfer(replica.device());
}

/// What the ranks of a run came to, told by each.
template <class T>
class by_rank {
 public:
  explicit by_rank(std::size_t size) : values_(size) {}
  void tell(const auto& replica, T value) { values_[replica.rank()] = std::move(value); }
  const T& operator[](std::size_t rank) const { return values_[rank]; }
  /// All are equal to the first.
  const T& same() const {
    for (const T& one : values_) EXPECT_EQ(one, values_[0]);
    return values_[0];
  }

 private:
  std::vector<T> values_;
};

}  // namespace replicated
