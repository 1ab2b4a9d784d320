// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include <penstock/sample/config.hpp>

namespace penstock {

/// `a + b`, also in kernels, where the standard library's may not be called.
struct plus {
  template <class T>
  PENSTOCK_HOST_DEVICE constexpr T operator()(const T& a, const T& b) const {
    return a + b;
  }
};

namespace detail {

/// What a function of a row number gives.
template <class Function>
using folded_type = std::remove_cvref_t<std::invoke_result_t<const Function&, std::size_t>>;

/// How the rows of a batch are dealt out to threads: thread t of all takes rows t, t + threads, t + 2 threads, ... The
/// greatest number of blocks is a constant, not the device's: a fold of floats then rounds the same on every device.
struct fold_shape {
  static constexpr unsigned threads = 256;       // of a block
  static constexpr unsigned most_blocks = 1024;  // enough to fill a large GPU

  PENSTOCK_HOST_DEVICE static constexpr unsigned blocks(std::size_t rows) {
    const std::size_t wanted = (rows + threads - 1) / threads;
    return wanted < most_blocks ? static_cast<unsigned>(wanted) : most_blocks;
  }
  /// How many threads of a block have a row: the first so many.
  PENSTOCK_HOST_DEVICE static constexpr unsigned busy(std::size_t rows, unsigned block) {
    const std::size_t left = rows - std::size_t{block} * threads;
    return left < threads ? static_cast<unsigned>(left) : threads;
  }
};

// The function may be one that kernels alone can call.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
/// Folds the rows `first`, `first + stride`, ... below `rows`, of which there is at least one.
template <class Function, class Operation>
PENSTOCK_HOST_DEVICE folded_type<Function> fold_rows(const Function& function, std::size_t first, std::size_t stride,
                                                     std::size_t rows, const Operation& operation) {
  folded_type<Function> value = function(first);
  for (std::size_t row = first + stride; row < rows; row += stride) value = operation(value, function(row));
  return value;
}

/// The elements of an array, as a function of a row number.
template <class T>
struct array_rows {
  const T* data;
  PENSTOCK_HOST_DEVICE T operator()(std::size_t row) const { return data[row]; }
};

}  // namespace detail
}  // namespace penstock
