// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

struct CUstream_st;  // what a cudaStream_t points to, which needs no header of CUDA's to be handed on

namespace penstock {

/// A stream of a device that a feed's work goes onto: for observers with a hook `on_stream`, which are told of each
/// once, after the beginning of the run and before its first batch, on the thread that consumes the feed. Nothing is
/// told of the CPU. The stream lives as long as the feed.
struct stream_event {
  /// "batches": the one that the consumer gets with each batch, `batch.stream()`. "copies": to the device. Of a feed
  /// that `replica.start` made also "all_reduce", where the communicator has one of its own, and "barriers", for
  /// what replicas exchange outside their steps.
  std::string_view use{};
  CUstream_st* cuda = nullptr;  ///< the `cudaStream_t`; null on devices that are not CUDA's
  std::optional<int> device{};  ///< its ordinal, where devices have one
  std::uint64_t rank = 0;       ///< whose feed it is
  std::uint64_t ranks = 1;
  bool own = true;  ///< made by the library; else the application's, by `transfer_options::consumer`
};

namespace detail {

/// `stream`, of `device`.
template <class Device, class StreamView>
stream_event stream_of(const Device& device, const StreamView& stream, std::string_view use) {
  stream_event result;
  result.use = use;
  if constexpr (requires {
                  { stream.get() } -> std::same_as<CUstream_st*>;
                })
    result.cuda = stream.get();
  if constexpr (requires {
                  { device.ordinal() } -> std::same_as<int>;
                })
    result.device = device.ordinal();
  return result;
}

}  // namespace detail
}  // namespace penstock
