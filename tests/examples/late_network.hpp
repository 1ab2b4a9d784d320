// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/sample/philox.hpp>

#include "batches.hpp"
#include "device_network.hpp"

namespace program_test {

/// The calls of a GPU, done by loops on the host: products as BLAS defines them, function objects by the lanes and
/// tiles of the kernels, in an order that no kernel promises. Work is done at once, but what comes to the host comes
/// late, by chance: until then its memory holds NaN. What breaks a rule fails the test.
class late_calls {
 public:
  explicit late_calls(std::uint64_t seed) : chance_(seed, 0, 0) {}
  late_calls(const late_calls&) = delete;
  ~late_calls() {
    for (const auto& each : memory_)
      for (std::size_t i = each.size() - guards; i < each.size(); ++i)
        EXPECT_EQ(each[i], guard) << "written past an end";
  }

  float* device_floats(std::size_t count) {
    EXPECT_FALSE(closed_) << "memory was asked for after the first step";
    auto& made = memory_.emplace_back(count + guards, guard);
    std::fill_n(made.begin(), count, 0.0f);
    return made.data();
  }
  float* host_floats(std::size_t count) { return device_floats(count); }
  /// No memory from now on.
  void close() { closed_ = true; }

  void to_device(float* to, const float* from, std::size_t count) {
    std::copy_n(from, count, to);
    queue_.push_back({const_cast<float*>(from), {from, from + count}, true, none});
  }
  void to_host(float* to, const float* from, std::size_t count) {
    queue_.push_back({to, {from, from + count}, false, none});
    std::fill_n(to, count, std::numeric_limits<float>::quiet_NaN());
  }
  void copy(float* to, const float* from, std::size_t count) { std::copy_n(from, count, to); }
  void zero(float* at, std::size_t count) { std::fill_n(at, count, 0.0f); }

  static void sgemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float* a, int lda, const float* b,
                    int ldb, float* c, int ldc) {
    ASSERT_GE(lda, transpose_a ? k : m);  // as cuBLAS refuses it
    ASSERT_GE(ldb, transpose_b ? n : k);
    ASSERT_GE(ldc, m);
    for (std::ptrdiff_t j = 0; j < n; ++j)
      for (std::ptrdiff_t i = 0; i < m; ++i) {
        float sum = 0;
        for (std::ptrdiff_t p = 0; p < k; ++p)
          sum += (transpose_a ? a[i * lda + p] : a[p * lda + i]) * (transpose_b ? b[p * ldb + j] : b[j * ldb + p]);
        c[j * ldc + i] = sum;
      }
  }
  static void each(std::size_t count, const auto& f) {
    for (std::size_t i = count; i-- > 0;) f(i);
  }
  static void cells(std::size_t rows, std::size_t columns, const auto& f) {
    for (std::size_t column = columns; column-- > 0;)
      for (std::size_t row = rows; row-- > 0;) f(row, column);
  }
  template <class Terms>
  static void sums(std::size_t rows, std::size_t columns, const Terms& f) {
    const unsigned lanes = (columns == 1 ? trainer::one_column : trainer::many_columns).lanes;
    std::vector<typename Terms::sum> part(lanes);
    for (std::size_t column = columns; column-- > 0;) {
      for (unsigned lane = lanes; lane-- > 0;) part[lane] = trainer::lane_sum(f, rows, column, lane, lanes);
      for (unsigned half = lanes / 2; half > 0; half /= 2)
        for (unsigned lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
      f.finish(column, part[0]);
    }
  }

  std::size_t make_mark() {
    EXPECT_FALSE(closed_) << "a mark was asked for after the first step";
    marks_.push_back(0);
    return marks_.size() - 1;
  }
  void record(std::size_t mark) {
    ++marks_.at(mark);
    queue_.push_back({nullptr, {}, false, mark});
  }
  bool ready(std::size_t mark) {
    for (auto some = chance_.below(3u); some > 0 && !queue_.empty(); --some) deliver();
    return marks_.at(mark) == 0;
  }
  void wait(std::size_t mark) {
    while (marks_.at(mark) != 0) deliver();
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0}, guards = 64;
  static constexpr float guard = 12345.5f;
  struct work {
    float* at;
    std::vector<float> values;
    bool only_read;
    std::size_t mark;
  };

  void deliver() {
    const work& first = queue_.front();
    if (first.only_read)
      EXPECT_TRUE(std::equal(first.values.begin(), first.values.end(), first.at)) << "changed while it was copied";
    else
      std::copy(first.values.begin(), first.values.end(), first.at);
    if (first.mark != none) --marks_[first.mark];
    queue_.pop_front();
  }

  penstock::philox chance_;
  bool closed_ = false;
  std::deque<std::vector<float>> memory_;
  std::vector<int> marks_;  // records that the work has not come to
  std::deque<work> queue_;
};

/// The network of a GPU on these calls, fed on the CPU.
class late_network : public trainer::device_network<late_calls> {
 public:
  late_network(const trainer::network_layout& layout, const trainer::settings& s, penstock::cpu_device = {})
      : device_network(layout, s, 1) {}

  void prepare(std::initializer_list<std::uint64_t> sizes) {
    device_network::prepare(sizes);
    calls().close();
  }
  static auto batches(const trainer::table& data, const trainer::settings& s, penstock::shuffle order,
                      const trainer::standardise& inputs, penstock::world world = {}) {
    return trainer::batches(data, s, order, inputs, world, penstock::cpu_device{});
  }
};

}  // namespace program_test
