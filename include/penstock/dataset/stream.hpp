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
inline constexpr bool begins_anywhere =
    std::is_invocable_v<const Factory&, std::uint64_t, std::stop_token, std::uint64_t>;

template <class Factory>
auto make_range(const Factory& factory, [[maybe_unused]] std::uint64_t epoch,
                [[maybe_unused]] std::stop_token stop = {}, [[maybe_unused]] std::uint64_t first = 0) {
  if constexpr (begins_anywhere<Factory>)
    return factory(epoch, std::move(stop), first);
  else if constexpr (std::is_invocable_v<const Factory&, std::uint64_t, std::stop_token>)
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
/// from the law that the order depends on nothing but seed, epoch and world, as far as the range itself is. Each
/// replica draws the whole stream and keeps every `world.size`-th sample.
///
/// A resumed feed draws and skips what was delivered, unless the stream can begin anywhere: its range has random
/// access, or its factory takes a third argument, the number of the first element that is wanted, `(epoch, stop,
/// first)`, and gives a range from there on, which is empty where there are not so many. Then only what the shuffle
/// window held is drawn again: at most as many samples as the window has, and near the end of the stream at most twice
/// as many. The factory may then be called several times for one epoch, and two of its ranges be alive at once.
template <class Factory>
class stream_dataset {
 public:
  using range_type = decltype(detail::make_range(std::declval<const Factory&>(), 0));
  using sample_type = std::remove_cvref_t<std::ranges::range_value_t<range_type>>;
  using schema_type = decltype(detail::schema_for(std::declval<const sample_type&>()));

  /// Whether `make` can begin at another element than the first one.
  static constexpr bool begins_anywhere = detail::begins_anywhere<Factory>;

  explicit stream_dataset(Factory factory) : factory_(std::move(factory)) {}

  /// The range of one epoch, from element `first` on, which is 0 unless `begins_anywhere`.
  range_type make(std::uint64_t epoch, std::stop_token stop = {}, std::uint64_t first = 0) const {
    return detail::make_range(factory_, epoch, std::move(stop), first);
  }

 private:
  Factory factory_;
};

/// A stream as the first thing of a pipeline: `stream([] { return lines_of(file); }) | partition({.shuffle =
/// shuffle::window(1000)}) | ...`. A full shuffle needs random access; a window's, or none, does not.
template <class Factory>
  requires(std::invocable<const Factory&> || std::invocable<const Factory&, std::uint64_t> ||
           std::invocable<const Factory&, std::uint64_t, std::stop_token> || detail::begins_anywhere<Factory>)
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

/// What a collate sees of a stream in place of a dataset: its first sample.
template <class Sample>
struct stream_elements {
  const Sample* first = nullptr;
  const Sample& element(std::uint64_t) const { return *first; }
};

template <class T>
inline constexpr bool is_stream = false;
template <class Factory>
inline constexpr bool is_stream<stream_dataset<Factory>> = true;

}  // namespace detail
}  // namespace penstock
