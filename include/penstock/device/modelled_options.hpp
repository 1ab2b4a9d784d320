// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <penstock/device/clock.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// The stated timings of a modelled device. By default everything takes no time.
struct modelled_options {
  double bandwidth = 0;                      ///< of copies, bytes per second in each direction; 0: instantaneous
  std::chrono::nanoseconds copy_latency{};   ///< before each copy, on its engine
  std::chrono::nanoseconds event_latency{};  ///< from an event to what another stream starts after it
  std::chrono::nanoseconds notice{};         ///< from completion to the return of a host wait that had to block
  std::optional<std::chrono::nanoseconds> copy_time{};  ///< of each copy, whatever its size, instead of the bandwidth
  bool poison = true;                                   ///< write 0xDB to what holds nothing valid
  std::shared_ptr<modelled_clock> clock{};              ///< real time if empty
  std::size_t keep_operations = 0;  ///< so many, the first ones, are kept for `operations()`: the schedule that it was
};

/// The engines of a modelled device, which run side by side.
enum class modelled_engine { copy_to_device, copy_to_host, compute };

/// One operation of a modelled device: when its engine began and ended it, in the clock's time.
struct modelled_operation {
  modelled_engine engine;
  modelled_clock::time_point start, end;
};

/// What a modelled device was asked to do, since it was made.
struct modelled_counts {
  std::size_t copies_to_device = 0;
  std::size_t copies_to_host = 0;
  std::size_t pageable_copies = 0;  ///< whose host side is not of `allocate_host`; hardware would block the caller
  std::uint64_t bytes_to_device = 0;
  std::uint64_t bytes_to_host = 0;
  std::size_t kernels = 0;
  std::size_t records = 0;
  std::size_t stream_waits = 0;
  std::size_t host_waits = 0;                 ///< on events and streams
  std::size_t blocked_waits = 0;              ///< those of them that had to block
  std::size_t bound_threads = 0;              ///< calls of `bind_thread`
  std::size_t freed_in_use = 0;               ///< copies cancelled because their memory was freed before their end
  std::chrono::nanoseconds busy_to_device{};  ///< sum of the durations of all that was enqueued on the engine
  std::chrono::nanoseconds busy_to_host{};
  std::chrono::nanoseconds busy_compute{};
  std::size_t waiting = 0;  ///< threads blocked now
  std::size_t pending = 0;  ///< operations that have not ended
  std::size_t live_allocations = 0;
  std::size_t live_host_allocations = 0;
  std::size_t live_streams = 0;
  std::size_t live_events = 0;
};

namespace detail {

/// "3 us"
inline std::string duration_text(std::chrono::nanoseconds time) {
  const auto count = time.count();
  if (count % 1'000'000 == 0) return concat(count / 1'000'000, " ms");
  if (count % 1000 == 0) return concat(count / 1000, " us");
  return concat(count, " ns");
}

/// Throws `std::invalid_argument` for what cannot be; real time where no clock is given.
inline modelled_options checked(modelled_options options) {
  const auto not_negative = [](const char* option, std::chrono::nanoseconds time) {
    if (time < std::chrono::nanoseconds{0}) reject_option("modelled_device", option, duration_text(time), "0 or more");
  };
  if (!(options.bandwidth >= 0)) {
    reject_option("modelled_device", "bandwidth", std::to_string(options.bandwidth), "0 (instantaneous) or more");
  }
  not_negative("copy_latency", options.copy_latency);
  not_negative("event_latency", options.event_latency);
  not_negative("notice", options.notice);
  if (options.copy_time) not_negative("copy_time", *options.copy_time);
  if (!options.clock) options.clock = std::make_shared<real_clock>();
  return options;
}
/// "modelled (copy 12.0 GB/s, latency 3 us)"
inline std::string text_of(const modelled_options& options) {
  std::string text = "modelled (copy ";
  if (options.copy_time) {
    text += duration_text(*options.copy_time);
  } else if (options.bandwidth == 0) {
    text += "instantaneous";
  } else {
    const bool giga = options.bandwidth >= 1e9;
    const auto tenths = static_cast<std::uint64_t>(options.bandwidth / (giga ? 1e8 : 1e5) + 0.5);
    text += concat(tenths / 10, '.', tenths % 10, giga ? " GB/s" : " MB/s");
  }
  const auto part = [&](const char* name, std::chrono::nanoseconds time) {
    if (time != std::chrono::nanoseconds{0}) text += concat(", ", name, ' ', duration_text(time));
  };
  part("latency", options.copy_latency);
  part("event latency", options.event_latency);
  part("notice", options.notice);
  return text + ")";
}

}  // namespace detail
}  // namespace penstock
