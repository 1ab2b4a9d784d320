// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <tuple>
#include <utility>

#include <penstock/channel/channel.hpp>

namespace penstock {

/// A received batch, and the right to its memory; move-only. Letting go returns the memory, behind all work that was
/// enqueued on the batch's stream until then.
///
/// Several may be held, and outlive the feed; each held one is a buffer less for what is read ahead. A lease is used by
/// one thread at a time, which need not be the one that received it.
template <class Schema, class Device>
class lease {
  static constexpr bool separate = separate_device<Device>;

 public:
  using schema_type = Schema;
  using device_type = Device;
  using memory_space = typename Device::memory_space;
  using stream_view = typename Device::stream_view;

  /// Holds nothing.
  lease() = default;
  lease(lease&& other) noexcept : channel_(std::exchange(other.channel_, nullptr)), index_(other.index_) {}
  lease& operator=(lease&& other) noexcept {
    if (this != &other) {
      release();
      channel_ = std::exchange(other.channel_, nullptr);
      index_ = other.index_;
    }
    return *this;
  }
  ~lease() { release(); }

  /// True while it holds a batch. Everything below needs one.
  explicit operator bool() const noexcept { return channel_ != nullptr; }

  /// Real samples in the batch.
  std::size_t size() const noexcept { return info().count; }
  /// Rows of the fields: real samples and, if `last_batch::pad` was asked for, padding of zeros after them.
  std::size_t rows() const noexcept { return info().rows; }
  std::uint64_t epoch() const noexcept { return info().epoch; }
  /// Of the epoch, from 0.
  std::uint64_t step() const noexcept { return info().step; }
  const batch_info& info() const noexcept { return channel_->leased_record(index_).info; }
  /// Which samples of the dataset these are, row by row. For streams the running number of each.
  std::span<const std::uint64_t> indices() const noexcept {
    return std::span(channel_->leased_record(index_).indices).first(size());
  }
  /// Samples of this batch that could not be read, by row: left out or replaced, see `read_options::bad`.
  std::span<const sample_fault> faults() const noexcept { return channel_->leased_record(index_).faults; }

  /// The fields as views in the device's memory; the first extent is `rows()`. `auto [x, y] = batch.fields();`
  batch_view<Schema, memory_space> fields() const {
    return channel_->layout().template views<memory_space>(channel_->leased_data(index_), rows());
  }
  /// One of them.
  template <std::size_t I>
  auto get() const {
    return channel_->layout().template view<I, memory_space>(channel_->leased_data(index_), rows());
  }
  /// A field that the host may read, without waiting for the device: any field of a batch in host memory, and copies of
  /// the scalar fields (labels, weights, ids) of a batch on a device.
  template <std::size_t I>
  auto host() const {
    using element = const typename field_t<I, Schema>::element_type;
    constexpr std::size_t rank = field_t<I, Schema>::rank;
    static_assert(
        !separate || rank == 0,
        "penstock: host<I>() of a batch on a device is for scalar fields, which are kept on the host; this field "
        "has a shape: copy it back, or ask for it before it is transferred");
    if constexpr (separate) {
      const auto* data = channel_->twins_[index_].small.data() + channel_->small_offset_[I];
      return tensor_view<element, 1>(reinterpret_cast<element*>(data), {rows()});
    } else {
      return tensor_view<element, rank + 1>(get<I>());
    }
  }

  /// Of a batch on a device: what kernels may want to know of the step, at an address in the device's memory.
  const step_header* header() const noexcept
    requires separate
  {
    return reinterpret_cast<const step_header*>(channel_->twins_[index_].memory.data());
  }

  /// Where work on the batch is to be enqueued: it comes after the copy, and is waited for before the memory is reused.
  stream_view stream() const noexcept { return channel_->stream(); }
  /// Work on the batch was, or will be until it is let go, enqueued on `stream`, too. The caller has made that stream
  /// wait for this batch's. It outlives the feed and its leases. Four further streams at most.
  void used_on(stream_view stream) { channel_->used_on(index_, stream); }

  /// Lets go at once.
  void release() noexcept {
    if (channel_ != nullptr) std::exchange(channel_, nullptr)->release(index_);
  }

 private:
  friend class channel<Schema, Device>;
  lease(channel<Schema, Device>* channel, std::uint32_t index) noexcept : channel_(channel), index_(index) {}

  channel<Schema, Device>* channel_ = nullptr;
  std::uint32_t index_ = 0;
};

namespace detail {

/// The error that a failed step arrives as: what is known of the place, with the original inside.
[[noreturn]] inline void throw_failure(const step_failure& failure, const batch_info& info) {
  provenance where = failure.where;
  if (where.stage.empty()) where.stage = "read";
  where.epoch = info.epoch;
  where.step = info.step;
  std::string problem = message_of(failure.cause);
  bool timed_out = false;
  try {
    std::rethrow_exception(failure.cause);
  } catch (const error& caught) {
    timed_out = dynamic_cast<const timeout_error*>(&caught) != nullptr;
    provenance inner = caught.where();
    inner.complete_from(where);
    where = std::move(inner);
    problem = caught.problem();
  } catch (...) {
  }
  if (failure.number > 1) problem += concat(" (and ", failure.number - 1, " more in this batch)");
  if (timed_out) throw timeout_error(problem, where, failure.cause);
  throw error(problem, where, failure.cause);
}

}  // namespace detail

template <class Schema, class Device>
lease<Schema, Device> channel<Schema, Device>::receive() {
  const std::uint32_t index = turns.receive();
  if (const std::uint32_t next = turns.upcoming(); next < turns.buffers())
    __builtin_prefetch(&leased_record(next).info);
  auto batch = checked(index);
  if constexpr (separate) {
    if (batch.rows() != 0) {
      try {
        device_.wait(work_view_, twins_[index].ready);
        twins_[index].received = true;
      } catch (...) {
        detail::throw_failure({std::current_exception(), {.stage = "transfer"}, 0, 1}, batch.info());
      }
    }
  }
  return batch;
}
template <class Schema, class Device>
lease<Schema, Device> channel<Schema, Device>::receive(const ticket& filled) {
  return checked(filled.slot);
}
template <class Schema, class Device>
lease<Schema, Device> channel<Schema, Device>::checked(std::uint32_t index) {
  lease<Schema, Device> batch(this, index);
  const auto& record = leased_record(index);
  if (record.failure) {
    const detail::step_failure failure = record.failure;
    detail::throw_failure(failure, record.info);
  }
  return batch;
}

template <class Schema, class Device>
void channel<Schema, Device>::take_back(lease<Schema, Device>& batch) noexcept {
  if (batch.channel_ != this) return batch.release();  // nothing, or another feed's that was put there
  batch.channel_ = nullptr;
  end_use(batch.index_);
  turns.take_back(batch.index_, enqueue());
}

}  // namespace penstock
