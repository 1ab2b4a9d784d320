// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <penstock/dataset/range.hpp>

namespace penstock {

namespace detail {

template <class Factory>
auto make_range(const Factory& factory, [[maybe_unused]] std::uint64_t epoch,
                [[maybe_unused]] std::stop_token stop = {}) {
  if constexpr (std::is_invocable_v<const Factory&, std::uint64_t, std::stop_token>)
    return factory(epoch, std::move(stop));
  else if constexpr (std::is_invocable_v<const Factory&, std::uint64_t>)
    return factory(epoch);
  else
    return factory();
}

}  // namespace detail

/// Samples that can only be had one after another, and whose number nobody knows: an input range made anew for each
/// epoch.
///
/// `Factory` is called with the epoch's number, or with nothing, and gives an input range of samples (see
/// `range_dataset` for what a sample may be). A range that can block takes the number and a `std::stop_token`, and ends
/// or throws when a stop is requested: the feed is stopped, or ends. Elements are drawn under a lock, in the order of
/// the steps, by whichever reader's turn it is, and written to their places by many readers at once. Streams are exempt
/// from the law that the order depends on nothing but seed, epoch and world, as far as the range itself is. A resumed
/// feed draws and skips what was delivered. Each replica draws the whole stream and keeps every `world.size`-th sample.
template <class Factory>
class stream_dataset {
 public:
  using range_type = decltype(detail::make_range(std::declval<const Factory&>(), 0));
  using sample_type = std::remove_cvref_t<std::ranges::range_value_t<range_type>>;
  using schema_type = decltype(detail::schema_for(std::declval<const sample_type&>()));

  explicit stream_dataset(Factory factory) : factory_(std::move(factory)) {}

  /// The range of one epoch.
  range_type make(std::uint64_t epoch, std::stop_token stop = {}) const {
    return detail::make_range(factory_, epoch, std::move(stop));
  }

 private:
  Factory factory_;
};

/// A stream as the first thing of a pipeline: `stream([] { return lines_of(file); }) | partition({.shuffle =
/// shuffle::window(1000)}) | ...`. A full shuffle needs random access; a window's, or none, does not.
template <class Factory>
  requires(std::invocable<const Factory&> || std::invocable<const Factory&, std::uint64_t> ||
           std::invocable<const Factory&, std::uint64_t, std::stop_token>)
auto stream(Factory factory) {
  using range = decltype(detail::make_range(std::declval<const Factory&>(), 0));
  // The assertions name values, not concepts, whose every part a compiler would explain.
  constexpr bool is_range = std::ranges::input_range<range>;
  if constexpr (!is_range) {
    static_assert(is_range,
                  "penstock: stream takes a factory of input ranges, but what this one makes is not an input range");
    return detail::rejected{};
  } else if constexpr (detail::dangling_range<range>) {
    constexpr bool stays = !detail::dangling_range<range>;
    static_assert(
        stays,
        "penstock: stream takes a factory of ranges of samples, but the elements are rvalue references, which a "
        "member of a temporary element would dangle as: return the member by value, by a lambda");
    return detail::rejected{};
  } else if constexpr (!detail::sample_value<std::remove_cvref_t<std::ranges::range_value_t<range>>>) {
    constexpr bool of_samples = detail::sample_value<std::remove_cvref_t<std::ranges::range_value_t<range>>>;
    static_assert(
        of_samples,
        "penstock: stream takes a factory of ranges of samples, but the elements are not samples: numbers, rows of "
        "numbers (array, vector, span, tensor_view), or tuples of these");
    return detail::rejected{};
  } else {
    return stream_dataset<Factory>(std::move(factory));
  }
}

namespace detail {

template <class T>
inline constexpr bool is_stream = false;
template <class Factory>
inline constexpr bool is_stream<stream_dataset<Factory>> = true;

}  // namespace detail
}  // namespace penstock
