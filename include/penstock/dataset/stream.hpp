// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <type_traits>
#include <utility>

#include <penstock/dataset/range.hpp>

namespace penstock {

/// Samples that can only be had one after another, and whose number nobody knows: an input range made anew for each epoch.
///
/// `Factory` is called with the epoch's number, or with nothing, and gives an input range of samples (see
/// `range_dataset` for what a sample may be). Elements are drawn under a lock, in the order of the steps, by whichever
/// reader's turn it is, and written to their places by many readers at once. Streams are exempt from the law that the order
/// depends on nothing but seed, epoch and world, as far as the range itself is. A resumed feed draws and skips what was
/// delivered. Each replica draws the whole stream and keeps every `world.size`-th sample.
template <class Factory>
class stream_dataset {
  Factory factory_;  // before `make`, whose result the types below are made of

 public:
  explicit stream_dataset(Factory factory) : factory_(std::move(factory)) {}

  /// The range of one epoch.
  auto make(std::uint64_t epoch) const {
    if constexpr (std::is_invocable_v<const Factory&, std::uint64_t>)
      return factory_(epoch);
    else
      return factory_();
  }

  using range_type = std::remove_cvref_t<decltype(std::declval<const stream_dataset&>().make(0))>;
  using sample_type = std::remove_cvref_t<std::ranges::range_value_t<range_type>>;
  using schema_type = decltype(detail::schema_for(std::declval<const sample_type&>()));

};

/// A stream as the first thing of a pipeline: `stream([] { return lines_of(file); }) | partition({.shuffle =
/// shuffle::window(1000)}) | ...`. A full shuffle needs random access; a window's, or none, does not.
template <class Factory>
  requires(std::invocable<const Factory&> || std::invocable<const Factory&, std::uint64_t>)
auto stream(Factory factory) {
  using made = stream_dataset<Factory>;
  static_assert(std::ranges::input_range<typename made::range_type>,
                "penstock: stream takes a factory of input ranges, but what this one makes is not an input range");
  static_assert(detail::sample_value<typename made::sample_type>,
                "penstock: stream takes a factory of ranges of samples, but the elements are not samples: numbers, rows of "
                "numbers (array, vector, span, tensor_view), or tuples of these");
  return made(std::move(factory));
}

namespace detail {

template <class T>
inline constexpr bool is_stream = false;
template <class Factory>
inline constexpr bool is_stream<stream_dataset<Factory>> = true;

}  // namespace detail
}  // namespace penstock
