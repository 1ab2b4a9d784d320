// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace penstock {

/// What all ranks' values become. Each rank's weight is its number of samples unless the user gives one; a rank of
/// weight zero contributes nothing, whatever its buffer holds, and gets the result as all others do.
enum class reduction : std::uint8_t {
  weighted_mean,  ///< each rank brings the mean over its own samples: the mean over all samples
  mean_of_sums,   ///< each rank brings the sum over its own samples: the mean over all samples
  sum,
  maximum  ///< NaN where a rank brings it (with NCCL, what its maximum makes of NaN)
};
inline constexpr reduction weighted_mean = reduction::weighted_mean;
inline constexpr reduction mean_of_sums = reduction::mean_of_sums;

enum class element_type : std::uint8_t { float32, float64, int32, int64, uint32, uint64 };

constexpr std::size_t size_of(element_type type) noexcept {
  return type == element_type::float32 || type == element_type::int32 || type == element_type::uint32 ? 4 : 8;
}

namespace detail {

template <class T>
inline constexpr bool is_reducible =
    std::same_as<T, float> || std::same_as<T, double> || (std::integral<T> && (sizeof(T) == 4 || sizeof(T) == 8));

template <class T>
constexpr element_type element_type_of() {
  if constexpr (std::same_as<T, float>) return element_type::float32;
  if constexpr (std::same_as<T, double>) return element_type::float64;
  if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? element_type::int32 : element_type::uint32;
  return std::is_signed_v<T> ? element_type::int64 : element_type::uint64;
}

}  // namespace detail

/// Values that are reduced over the ranks, in place: in the memory of the communicator's device.
struct reduce_buffer {
  void* data = nullptr;
  std::size_t count = 0;
  element_type type = element_type::float32;
  reduction how = reduction::weighted_mean;

  std::size_t bytes() const noexcept { return count * size_of(type); }
};

namespace detail {

template <class Values>
concept reducible_values = requires(Values& values) {
  { values.size() } -> std::convertible_to<std::size_t>;
  requires is_reducible<std::remove_pointer_t<decltype(values.data())>>;
};

}  // namespace detail

/// Names values and how they are reduced: `buffer(loss, reduction::sum)`. Anything with `data()` and `size()`: a
/// vector, a span, a tensor_view of the device's memory, an Eigen matrix.
template <class Values>
  requires(!std::same_as<std::remove_cvref_t<Values>, reduce_buffer>)
reduce_buffer buffer(Values&& values, reduction how = reduction::weighted_mean) {
  using element = std::remove_pointer_t<decltype(values.data())>;
  constexpr bool fits = detail::is_reducible<std::remove_const_t<element>> && !std::is_const_v<element>;
  static_assert(fits,
                "penstock: all_reduce takes values that can be changed in place: float, double, or integers of 4 or 8 "
                "bytes, with data() and size()");
  if constexpr (fits)
    return {values.data(), static_cast<std::size_t>(values.size()), detail::element_type_of<element>(), how};
  else
    return {};
}
/// The same by pointer and number of elements.
template <class T>
  requires detail::is_reducible<T>
reduce_buffer buffer(T* data, std::size_t count, reduction how = reduction::weighted_mean) {
  return {data, count, detail::element_type_of<T>(), how};
}
inline reduce_buffer buffer(const reduce_buffer& one) { return one; }

}  // namespace penstock
