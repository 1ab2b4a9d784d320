// SPDX-License-Identifier: Apache-2.0
// The array that rows are gathered from, and how a rate is told.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <contest.hpp>

namespace gather {

/// Far more than processors cache.
inline constexpr std::size_t array_bytes = std::size_t{512} << 20;

/// Of a batch, unless its size is given: what takes a while to fill next to what it takes to hand over.
inline constexpr std::size_t batch_bytes = std::size_t{2} << 20;

/// Floats from the beginning of a page on, so that contestants do not differ by how their memory happens to lie.
class floats {
 public:
  explicit floats(std::size_t count)
      : count_(count), values_(static_cast<float*>(::operator new(count * sizeof(float), page))) {
    std::fill_n(values_, count, 0.0f);
  }
  floats(const floats&) = delete;
  floats& operator=(const floats&) = delete;
  ~floats() { ::operator delete(values_, page); }

  std::size_t size() const { return count_; }
  float* data() const { return values_; }

 private:
  static constexpr std::align_val_t page{4096};
  std::size_t count_;
  float* values_;
};

/// Rows of floats, one after the other. Row i begins with 1.
struct array {
  explicit array(std::size_t bytes)
      : columns(bytes / sizeof(float)), rows(std::max<std::size_t>(array_bytes / bytes, 1)), values(rows * columns) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values.data()[i] = i % columns == 0 ? 1.0f : static_cast<float>(i % 1000);
  }
  const float* row(std::uint64_t index) const { return values.data() + index * columns; }
  std::size_t row_bytes() const { return columns * sizeof(float); }
  /// Of one measurement.
  int epochs() const { return 2; }

  std::size_t columns, rows;
  floats values;
};

inline std::vector<std::uint64_t> shuffled(std::size_t n) {
  std::vector<std::uint64_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  return order;
}

/// Ends a contestant that lost rows, or gave others.
inline void check(std::size_t rows, std::size_t wanted, float seen) {
  if (rows != wanted || !(seen >= 1))
    throw std::runtime_error(std::to_string(rows) + " rows came, wanted " + std::to_string(wanted));
}

inline contest::figures rate(const array& of, std::chrono::nanoseconds time) {
  return {static_cast<double>(of.rows * of.row_bytes()) * of.epochs() / static_cast<double>(time.count())};
}

/// LibTorch's forms: a tensor's index_select, and its data loader with 0 and more workers. Left out without it.
void add_libtorch(contest::question& ask, const std::string& name, const array& of, int batch, int most_workers);
std::vector<std::string> libtorch_forms(const std::string& name, int most_workers);

}  // namespace gather
