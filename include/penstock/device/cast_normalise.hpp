// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/sample/config.hpp>

namespace penstock {

/// Where the channel is among a sample's dimensions: each of `channels` comes in runs of `inner` elements. `inner` is 1
/// where the channel is the last dimension (height, width, channel), and height * width where it is the first.
struct channel_order {
  std::uint32_t channels = 1;
  std::uint32_t inner = 1;

  constexpr std::uint64_t sample() const { return std::uint64_t{channels} * inner; }
};

namespace detail {

/// The channel of an element, kept up from element to element without a division.
struct channel_cursor {
  std::uint32_t channel = 0;
  std::uint32_t within = 0;  // its run

  channel_cursor() = default;
  PENSTOCK_HOST_DEVICE channel_cursor(const channel_order& order, std::size_t index)
      : channel(static_cast<std::uint32_t>(index / order.inner % order.channels)),
        within(static_cast<std::uint32_t>(index % order.inner)) {}

  PENSTOCK_HOST_DEVICE void next(const channel_order& order) {
    if (++within != order.inner) return;
    within = 0;
    if (++channel == order.channels) channel = 0;
  }
  /// As far on as `by` is from the first element.
  PENSTOCK_HOST_DEVICE void advance(const channel_order& order, const channel_cursor& by) {
    // What is left, compared instead of sums: these may not fit into 32 bits.
    const bool carry = within >= order.inner - by.within;
    within = carry ? within - (order.inner - by.within) : within + by.within;
    channel = channel >= order.channels - by.channel ? channel - (order.channels - by.channel) : channel + by.channel;
    if (carry && ++channel == order.channels) channel = 0;
  }
};

/// `Width` neighbours, loaded or stored at once.
template <class T, std::size_t Width>
struct alignas(Width * sizeof(T)) neighbours {
  T element[Width];
};

}  // namespace detail

/// What small elements, bytes or half floats, become on the device: `(x - mean[channel]) * scale[channel]` as float.
/// The tables are where the function is called.
struct cast_normalise {
  const float* mean;
  const float* scale;
  channel_order order{};

  /// Of one element. Nothing that a compiler could fuse, so equal on host and device.
  template <class From>
  PENSTOCK_HOST_DEVICE float operator()(const From& x, std::uint32_t channel) const {
    return (static_cast<float>(x) - mean[channel]) * scale[channel];
  }
  /// The part of thread `thread` of `threads` in `n` elements: groups of `Width` neighbours, every `threads`-th of
  /// them, and a share of what is left at the end. Both arrays are aligned to `Width` elements. `stride` is
  /// `channel_cursor(order, Width * threads)`, the same for all threads.
  template <std::size_t Width, class From>
  PENSTOCK_HOST_DEVICE void part(const From* from, float* to, std::size_t n, std::size_t thread, std::size_t threads,
                                 const detail::channel_cursor& stride) const {
    const std::size_t groups = n / Width;
    if (thread < groups) {
      detail::channel_cursor first(order, thread * Width);
      for (std::size_t group = thread; group < groups; group += threads) {
        const auto x = reinterpret_cast<const detail::neighbours<From, Width>*>(from)[group];
        detail::neighbours<float, Width> y;
        detail::channel_cursor at = first;
        for (std::size_t i = 0; i < Width; ++i) {
          y.element[i] = (*this)(x.element[i], at.channel);
          at.next(order);
        }
        reinterpret_cast<detail::neighbours<float, Width>*>(to)[group] = y;
        first.advance(order, stride);
      }
    }
    for (std::size_t last = groups * Width + thread; last < n; last += threads)
      to[last] = (*this)(from[last], detail::channel_cursor(order, last).channel);
  }
};

}  // namespace penstock
