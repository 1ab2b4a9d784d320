// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/device/device.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

struct results_options {
  std::size_t size = 1;                                         ///< numbers of each result
  std::size_t depth = 64;                                       ///< results under way or unread at once
  std::chrono::nanoseconds timeout = std::chrono::seconds(10);  ///< for what is under way at the end
};

/// Small results (losses, norms, counts) on their way back from a device, in the order in which they were asked for.
///
/// `enqueue` copies numbers that the stream's work has made into memory of the host, behind that work, and waits for
/// nothing; `next` gives the oldest result once it is complete, never a part of one. All memory and events are made at
/// the start. One thread at a time. Ends by waiting for what is under way; on a device that does not answer in time the
/// memory is left to it.
///
///     penstock::results<float, Device> losses(device);
///     losses.enqueue(loss, batch.stream(), batch.step());
///     while (auto loss = losses.next()) show(loss->step, loss->values[0]);
template <class T, separate_device Device>
class results {
  static_assert(std::is_trivially_copyable_v<T>, "penstock: results are of a type that can be copied bytewise");

 public:
  using stream_view = typename Device::stream_view;

  /// What has come back; the values are there until the next call.
  struct result {
    std::uint64_t step = 0;
    std::span<const T> values;
  };

  explicit results(Device device, results_options options = {}) : device_(std::move(device)), options_(options) {
    if (options.size == 0) detail::reject_option("results", "size", "0", "1 or more");
    if (options.depth == 0) detail::reject_option("results", "depth", "0", "1 or more");
    memory_.emplace(device_.allocate_host(stride() * options.depth));
    slots_.reserve(options.depth);
    for (std::size_t i = 0; i < options.depth; ++i) slots_.push_back({device_.make_event(), 0});
  }
  results(const results&) = delete;
  results& operator=(const results&) = delete;
  ~results() {
    if (arrived()) return;
    std::fputs("penstock: nobody can tell whether results still come back; their memory is not freed\n", stderr);
    new host_memory(std::move(*memory_));
  }

  /// Asks for the `size` numbers at `from`, in the device's memory, as they are when the stream gets there; `step`
  /// comes back with them. Throws `penstock::error` when `depth` results are unread.
  void enqueue(const T* from, stream_view stream, std::uint64_t step = 0) {
    if (enqueued_ - taken_ == options_.depth)
      throw error(detail::concat("results: all ", options_.depth,
                                 " are under way or unread: take some by next() or wait(), or ask for more depth"));
    const std::size_t place = enqueued_ % options_.depth;
    device_.copy_to_host(at(place), from, options_.size * sizeof(T), stream);
    ++enqueued_;  // from here on there is a copy to wait for
    slots_[place].step = step;
    try {
      device_.record(slots_[place].arrived, stream);
    } catch (...) {
      // Nothing will tell when it is there.
      stream.synchronize();
      --enqueued_;
      throw;
    }
  }

  /// The oldest result if it is complete, else nothing. Never waits.
  std::optional<result> next() {
    if (taken_ == enqueued_ || !device_.ready(slots_[taken_ % options_.depth].arrived)) return std::nullopt;
    return take();
  }
  /// The oldest result, waited for; nothing if none is under way, or when `interrupted()` or the deadline came first.
  template <interrupt Interrupt>
  std::optional<result> wait(const Interrupt& interrupted, std::chrono::steady_clock::time_point deadline) {
    if (taken_ == enqueued_ ||
        device_.wait(slots_[taken_ % options_.depth].arrived, interrupted, deadline) != wait_result::complete)
      return std::nullopt;
    return take();
  }
  std::optional<result> wait() {
    return wait([] { return false; }, std::chrono::steady_clock::time_point::max());
  }
  /// Asked for and not taken.
  std::size_t pending() const noexcept { return static_cast<std::size_t>(enqueued_ - taken_); }

 private:
  struct slot {
    typename Device::event arrived;
    std::uint64_t step;
  };

  // Results do not share a cache line with one that is being written.
  std::size_t stride() const noexcept { return (options_.size * sizeof(T) + 63) / 64 * 64; }
  T* at(std::size_t place) const noexcept { return reinterpret_cast<T*>(memory_->data() + place * stride()); }
  result take() {
    const std::size_t place = taken_++ % options_.depth;
    return {slots_[place].step, {at(place), options_.size}};
  }
  bool arrived() noexcept {
    try {
      const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
      const auto never = [] { return false; };
      for (; taken_ != enqueued_; ++taken_)
        if (device_.wait(slots_[taken_ % options_.depth].arrived, never, deadline) != wait_result::complete)
          return false;
      return true;
    } catch (...) {
      return false;
    }
  }

  using host_memory = decltype(std::declval<const Device&>().allocate_host(1));

  Device device_;
  results_options options_;
  std::optional<host_memory> memory_;
  std::vector<slot> slots_;
  std::uint64_t enqueued_ = 0, taken_ = 0;
};

}  // namespace penstock
