// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/dataset/stream.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/stage/collate.hpp>

namespace penstock {

struct bucket_options {
  /// Lengths that sequences are padded to, ascending; the last one is the longest that a sequence may have.
  std::vector<std::size_t> bounds;
  /// Elements of a batch, padding included: at most `tokens` / bound samples of each bucket. 0: only batch's size
  /// counts.
  std::size_t tokens = 0;
  penstock::longer longer = penstock::longer::error;  ///< what happens to a sequence longer than the last bound
};

/// A collate for streams of sequences whose lengths differ much: each batch is of sequences of similar length.
///
/// `stream(...) | partition({.shuffle = shuffle::none}) | read() | batch({.size = 64}, bucket_by_length({.bounds = {16,
/// 64, 256}, .tokens = 4096}))`. A sample's length is that of its longest row (vector or span); it waits in the bucket
/// of the least bound that is not below it. A bucket gives a step when it has as many samples as batch's size and
/// `tokens` allow, for every replica; what is left when the stream ends follows, shortest first. The step's samples,
/// sorted by length, are dealt to the replicas, whose sums of lengths differ by no more than the longest sample has,
/// and whose steps are as many. Each sample comes once; in which step follows from stream, seed and world alone. A
/// resumed feed draws the stream from its beginning.
///
/// Fields are those of `pad_to` with the last bound as length. `batch.info().bound` is the bound that all samples of
/// the step keep to, on every replica: what lies behind it in a row is padding, so a kernel need go no further. Host
/// memory holds, beside the slots, less than one step of each bucket. Throws `std::invalid_argument` for bounds and
/// tokens that do not fit together. batch's `last` is `keep`.
class bucket_by_length {
 public:
  explicit bucket_by_length(bucket_options options) : options_(checked(std::move(options))), pad_(padding(options_)) {}

  const bucket_options& options() const noexcept { return options_; }

  template <class Sample>
  auto schema(const detail::stream_elements<Sample>& elements) const {
    return pad_.schema(elements);
  }
  template <class Sample, class... Views>
  void operator()(const Sample& sample, const std::tuple<Views...>& to) const {
    pad_(sample, to);
  }

  /// Elements of the sample's longest row.
  template <class Sample>
  static std::uint64_t length(const Sample& sample) {
    if constexpr (detail::field_value<Sample>) {
      if constexpr (pad_to::pads<Sample>)
        return static_cast<std::uint64_t>(std::ranges::size(sample));
      else
        return 0;
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        using std::get;
        return std::max({std::uint64_t{0}, length<detail::element_of<Sample, I>>(get<I>(sample))...});
      }(std::make_index_sequence<std::tuple_size_v<Sample>>{});
    }
  }

 private:
  static bucket_options checked(bucket_options options) {
    const auto& bounds = options.bounds;
    if (bounds.empty()) detail::reject_option("bucket_by_length", "bounds", "no bound", "1 bound or more");
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      const std::size_t below = i == 0 ? 0 : bounds[i - 1];
      if (bounds[i] <= below)
        detail::reject_option("bucket_by_length", detail::concat("bounds[", i, "]"), std::to_string(bounds[i]),
                              detail::concat(below + 1, " or more: bounds ascend"));
    }
    if (options.tokens != 0 && options.tokens < bounds.back())
      detail::reject_option("bucket_by_length", "tokens", std::to_string(options.tokens),
                            detail::concat("at least ", bounds.back(), ", one sample of the last bound"));
    return options;
  }
  static pad_options padding(const bucket_options& from) {
    pad_options result;
    result.length = from.bounds.back();
    result.longer = from.longer;
    return result;
  }

  bucket_options options_;
  pad_to pad_;
};

namespace detail {

template <class Sample>
inline constexpr bool varies_in_length = [] {
  if constexpr (field_value<Sample>)
    return pad_to::pads<Sample>;
  else
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (pad_to::pads<element_of<Sample, I>> || ...);
    }(std::make_index_sequence<std::tuple_size_v<Sample>>{});
}();

}  // namespace detail
}  // namespace penstock
