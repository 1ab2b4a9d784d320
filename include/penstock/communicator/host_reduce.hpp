// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <penstock/communicator/reduce_buffer.hpp>

namespace penstock::detail {

/// The factor of a rank's values in the result: the order and the factors alone decide every bit of it.
inline double factor_of(reduction how, double weight, double total) noexcept {
  if (how == reduction::weighted_mean) return weight / total;
  if (how == reduction::mean_of_sums) return 1 / total;
  return 1;
}

/// `n` elements from `at` of every rank's buffer, by way of `sum`, which stays in the first cache: each buffer is read
/// once and written once. `Count` is a constant for all blocks but the last, without which g++ -O2 uses no vectors.
template <class T, class Count>
void reduce_block(std::span<void* const> buffers, std::span<const double> weights, double total, reduction how,
                  std::size_t at, Count n, T* sum) {
  bool empty = true;
  for (std::size_t r = 0; r < buffers.size(); ++r) {
    if (weights[r] == 0 || buffers[r] == nullptr) continue;
    const T* const from = static_cast<const T*>(buffers[r]) + at;
    const T factor = static_cast<T>(factor_of(how, weights[r], total));
    if (empty)
      for (std::size_t i = 0; i < n; ++i) sum[i] = factor * from[i];
    else if (how == reduction::maximum)
      for (std::size_t i = 0; i < n; ++i)
        sum[i] = from[i] > sum[i] || from[i] != from[i] ? from[i] : sum[i];  // NaN stays
    else
      for (std::size_t i = 0; i < n; ++i) sum[i] += factor * from[i];
    empty = false;
  }
  if (empty)
    for (std::size_t i = 0; i < n; ++i) sum[i] = T{};
  for (void* const buffer : buffers)
    if (buffer != nullptr) std::memcpy(static_cast<T*>(buffer) + at, sum, n * sizeof(T));
}

/// Elements from `first` to `last` of every rank's buffer become the reduction of all ranks', in the order of the
/// ranks. `from[r]` is rank r's, `weights[r]` its weight; ranks of weight 0 bring nothing.
template <class T>
void reduce_range(std::span<void* const> buffers, std::span<const double> weights, double total, reduction how,
                  std::size_t first, std::size_t last) {
  constexpr std::size_t block = 512;
  alignas(64) T sum[block];
  std::size_t at = first;
  for (; last - at >= block; at += block)
    reduce_block(buffers, weights, total, how, at, std::integral_constant<std::size_t, block>{}, sum);
  if (at != last) reduce_block(buffers, weights, total, how, at, last - at, sum);
}

/// Calls `function(T{})` with the element type.
template <class Function>
decltype(auto) with_element(element_type type, Function&& function) {
  switch (type) {
    case element_type::float32: return function(float{});
    case element_type::float64: return function(double{});
    case element_type::int32: return function(std::int32_t{});
    case element_type::int64: return function(std::int64_t{});
    case element_type::uint32: return function(std::uint32_t{});
    default: return function(std::uint64_t{});
  }
}

}  // namespace penstock::detail
