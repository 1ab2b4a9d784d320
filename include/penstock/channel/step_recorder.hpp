// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/channel/record.hpp>
#include <penstock/channel/step_events.hpp>
#include <penstock/device/device.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/step_record.hpp>

namespace penstock::detail {

/// Writes down when a feed's steps were read, copied, received and let go. Made while no reader is at work; everything
/// is allocated then. Each call is one or two looks at a clock, on a device also two records of an event.
///
/// A step's entry is found by its number. What readers and the copy's cursor write comes to the consumer as the batch
/// does. The consumer takes it over at once, so that the readers' side can be overwritten when the slot may be; the
/// events of a step wait in their entry until the device has passed them, and steps that need the entry meanwhile go
/// without times. Threads: as `ring`.
template <class Device>
class step_recorder {
  static constexpr bool tells = tells_times<Device>;
  using stream_view = typename Device::stream_view;

 public:
  using time = std::chrono::nanoseconds;

  /// `work`: the stream on which batches are consumed.
  step_recorder(const Device& device, std::uint32_t buffers, std::uint32_t ranges, std::uint32_t readers,
                stream_view work)
      : device_(device), readers_(readers), work_(work), mask_(std::bit_ceil(2 * buffers + 8) - 1) {
    origin_ = clock_now();
    entries_.reserve(mask_ + 1);
    for (std::size_t i = 0; i <= mask_; ++i) entries_.emplace_back(std::make_unique<entry>(device_, ranges));
    open_ = std::make_unique<open_step[]>(mask_ + 1);
    for (std::size_t i = 0; i <= mask_; ++i) open_[i].reads.resize(ranges);
    if constexpr (tells && !states_times<Device>) {
      // On a stream with nothing on it: the consumer's may be busy for as long as it likes.
      const auto idle = device_.make_stream();
      anchor_.emplace(device_.make_timing_event());
      device_.record(*anchor_, idle.view());
      if (device_.wait(
              *anchor_, [] { return false; }, std::chrono::steady_clock::now() + std::chrono::seconds(10)) !=
          wait_result::complete)
        throw timeout_error("the device did not pass an event on an idle stream within 10 s, to tell its time from",
                            provenance{});
      anchored_ = now();
    }
  }

  time now() const { return clock_now() - origin_; }

  /// Who is told by whoever works, while it happens; before the first step.
  void tell_stages(void (*tell)(const void*, const stage_event&) noexcept, const void* whom) noexcept {
    whom_ = whom;
    tell_.store(tell, std::memory_order_release);
  }
  /// They go: returns when nobody is told any more. Batches may be let go after them.
  void tell_nobody() noexcept {
    tell_.store(nullptr);
    while (telling_.load() != 0) std::this_thread::yield();
  }
  void mark(stage_event::stage what, bool begins, std::uint64_t step, std::uint32_t reader = 0) const noexcept {
    if (tell_.load(std::memory_order_relaxed) == nullptr) return;
    telling_.fetch_add(1);
    if (const auto tell = tell_.load()) tell(whom_, {what, begins, reader, step});
    telling_.fetch_sub(1);
  }

  // ---- readers

  void read(std::uint64_t step, std::uint32_t range, const read_span& span) noexcept { of(step).reads[range] = span; }
  void filled(std::uint64_t step) { of(step).filled = now(); }

  // ---- the copy's cursor

  void copy_begins(std::uint64_t step, stream_view on) {
    copying_ = true;
    mark(stage_event::stage::transfer, true, step);
    if constexpr (tells) {
      entry& here = of(step);
      here.timed = !here.taken.load(std::memory_order_acquire);
      if (!here.timed) return;
      here.taken.store(true, std::memory_order_relaxed);
      device_.record(here.events.copy_begin, on);
    }
  }
  void copy_ends(std::uint64_t step, stream_view on) {
    if constexpr (tells)
      if (of(step).timed) device_.record(of(step).events.copy_end, on);
    copy_is_over(step);
  }
  /// Of a copy that has begun, also where enqueueing it failed.
  void copy_is_over(std::uint64_t step) noexcept {
    if (std::exchange(copying_, false)) mark(stage_event::stage::transfer, false, step);
  }

  // ---- the consumer

  void received(std::uint64_t step, time asked, const batch_info& info, std::uint64_t bytes) {
    open_step& here = open_[step & mask_];
    if (here.used) {
      ++lost_;  // the one that is held
      last_is_open_ = false;
      if (of(step).timed && !here.timed) of(step).taken.store(false, std::memory_order_release);
      return;
    }
    const entry& from = of(step);
    std::ranges::copy(from.reads, here.reads.begin());
    here.used = last_is_open_ = true;
    here.info = info;
    here.bytes = bytes;
    here.filled = from.filled;
    here.asked.begin = asked;
    here.asked.end = now();
    here.timed = tells && from.timed && info.rows != 0;
    here.ended.store(false, std::memory_order_relaxed);
    here.failed = false;
    here.reduce = time{0};
    here.reduce_count = 0;
    if constexpr (tells) {
      if (here.timed) device_.record(of(step).events.compute_begin, work_);
    }
    here.step.store(step, std::memory_order_release);
    if (open_count_ == 0) first_open_ = step;
    order_next(step);
    mark(stage_event::stage::compute, true, step);
  }
  /// Of the step received last.
  void reduces(bool begins) noexcept {
    open_step& here = open_[last_open_ & mask_];
    if (!last_is_open_ || open_count_ == 0 || !here.used) return;
    const time at = now();
    here.reduce += begins ? -at : at;
    if (begins) {
      if (here.reduce_count != here.reduces.size()) here.reduces[here.reduce_count++] = {at, at};
      here.reduce_begun = at;
    } else if (here.reduce_count != 0) {
      here.reduces[here.reduce_count - 1].end += at - here.reduce_begun;
    }
  }
  /// By whoever lets go. `in_order`: nothing went wrong with the events that order what comes after.
  void let_go(std::uint64_t step, bool in_order = true) noexcept {
    open_step& here = open_[step & mask_];
    if (here.step.load(std::memory_order_acquire) != step || here.ended.load(std::memory_order_relaxed)) return;
    mark(stage_event::stage::compute, false, step);
    try {
      here.let_go = now();
      here.failed = !in_order;
      if constexpr (tells)
        if (here.timed && in_order) device_.record(of(step).events.compute_end, work_);
    } catch (...) {
      here.failed = true;
    }
    here.ended.store(true, std::memory_order_release);
  }
  /// Calls `tell(step_record)` for each step that is over, in order. `wait(event)`: called for events to come; false
  /// ends it.
  template <class Tell, class Wait>
  void collect(Tell&& tell, Wait&& wait) {
    while (open_count_ != 0) {
      open_step& here = open_[first_open_ & mask_];
      if (!here.ended.load(std::memory_order_acquire)) return;
      if constexpr (tells)
        if (here.timed && !here.failed) {
          const auto& last = of(first_open_).events.compute_end;
          if (!device_.ready(last) && !wait(last)) return;
        }
      const std::uint64_t step = first_open_;
      here.used = false;
      here.step.store(none, std::memory_order_relaxed);
      --open_count_;
      first_open_ = here.next;
      tell(closed(here, step));
    }
  }
  template <class Tell>
  void collect(Tell&& tell) {
    collect(tell, [](const auto&) { return false; });
  }
  /// While no reader is at work: what was read and will not be received.
  void restart() noexcept {
    for (std::size_t i = 0; i <= mask_; ++i)
      if (!(open_[i].used && open_[i].timed)) entries_[i]->taken.store(false, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  struct entry {
    entry(const Device& device, std::uint32_t ranges) : reads(ranges), events(device) {}

    std::vector<read_span> reads;
    time filled{0};
    bool timed = false;              // the events are this step's
    std::atomic<bool> taken{false};  // by a step whose times are still to be told
    step_events<Device> events;
  };
  struct open_step {
    std::atomic<std::uint64_t> step{none};
    std::atomic<bool> ended{false};
    bool used = false;  // the consumer's own
    bool timed = false;
    bool failed = false;
    std::uint64_t next = 0;
    batch_info info;
    std::uint64_t bytes = 0;
    std::vector<read_span> reads;
    time filled{0};
    time_span asked;
    time reduce{0}, reduce_begun{0};
    std::array<time_span, 32> reduces{};
    std::uint32_t reduce_count = 0;
    time let_go{0};
  };

  entry& of(std::uint64_t step) noexcept { return *entries_[step & mask_]; }
  time clock_now() const {
    if constexpr (tells && states_times<Device>)
      return device_.now().time_since_epoch();
    else
      return std::chrono::steady_clock::now().time_since_epoch();
  }
  void order_next(std::uint64_t step) noexcept {
    if (open_count_++ != 0) open_[last_open_ & mask_].next = step;
    last_open_ = step;
  }

  step_record closed(open_step& here, std::uint64_t step) {
    step_record out;
    out.epoch = here.info.epoch;
    out.step = here.info.step;
    out.samples = here.info.count;
    out.bytes = here.bytes;
    std::size_t kept = 0;
    for (const read_span& one : here.reads)
      if (one.samples != 0) here.reads[kept++] = one;
    out.reads = std::span<const read_span>(here.reads).first(kept);
    out.filled = here.filled;
    out.asked = here.asked;
    out.compute = {here.asked.end, here.let_go};
    out.reduce = here.reduce;
    out.reduces = std::span<const time_span>(here.reduces).first(here.reduce_count);
    out.readers = readers_;
    out.lost = lost_;
    if constexpr (tells) {
      if (here.timed) {
        entry& at = of(step);
        if (!here.failed) {
          out.copied = true;
          // No copy begins before its batch is read: what the two clocks have gone apart by since the last step.
          if (const time early = here.filled - time_of(at.events.copy_begin); early > time{0}) correct(early);
          out.copy.begin = time_of(at.events.copy_begin);
          out.copy.end = time_of(at.events.copy_end);
          out.compute.begin = time_of(at.events.compute_begin);
          out.compute.end = time_of(at.events.compute_end);
          move_anchor(at.events.copy_begin, out.copy.begin);
        }
        at.taken.store(false, std::memory_order_release);
      }
    }
    return out;
  }

  template <class Event>
  time time_of(const Event& passed) const {
    if constexpr (states_times<Device>)
      return device_.completion(passed).time_since_epoch() - origin_;
    else
      return anchored_ + std::chrono::nanoseconds(device_.elapsed(*anchor_, passed));
  }
  // The time since an event long ago would lose digits: each step's is counted from the step before, whose copy began
  // before anything of this one did.
  template <class Event>
  void move_anchor([[maybe_unused]] Event& passed, [[maybe_unused]] time at) {
    if constexpr (!states_times<Device>) {
      std::swap(*anchor_, passed);
      anchored_ = at;
    }
  }

  void correct([[maybe_unused]] time by) noexcept {
    if constexpr (!states_times<Device>) anchored_ += by;
  }

  struct no_event {};
  template <class D, bool>
  struct event_of {
    using type = no_event;
  };
  template <class D>
  struct event_of<D, true> {
    using type = typename D::event;
  };

  const Device device_;
  std::uint32_t readers_;
  stream_view work_;
  std::uint64_t mask_;
  time origin_{0};
  std::vector<std::unique_ptr<entry>> entries_;  // readers' and the cursor's
  std::unique_ptr<open_step[]> open_;            // the consumer's, and of those who let go
  std::optional<typename event_of<Device, tells>::type> anchor_;
  time anchored_{0};
  std::uint64_t first_open_ = 0, last_open_ = 0, open_count_ = 0;
  std::uint64_t lost_ = 0;
  bool last_is_open_ = false;  // the step received last has a place
  bool copying_ = false;       // the cursor's: a copy's begin was told of, its end not yet
  std::atomic<void (*)(const void*, const stage_event&) noexcept> tell_{nullptr};
  mutable std::atomic<int> telling_{0};
  const void* whom_ = nullptr;
};

}  // namespace penstock::detail
