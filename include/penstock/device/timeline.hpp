// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>

namespace penstock::detail {

/// What memory of a modelled device holds that nothing valid was written to.
inline constexpr unsigned char poison_byte = 0xDB;

/// A callable at rest: inline when it is small, on the heap otherwise. Stays where it was made.
class kernel_body {
 public:
  static constexpr std::size_t inline_bytes = 64;

  kernel_body() = default;
  kernel_body(kernel_body&&) = delete;
  ~kernel_body() { clear(); }

  template <class Work>
  void set(Work&& work) {
    using stored = std::decay_t<Work>;
    clear();
    if constexpr (sizeof(stored) <= inline_bytes && alignof(stored) <= alignof(std::max_align_t)) {
      target_ = ::new (static_cast<void*>(buffer_)) stored(std::forward<Work>(work));
      destroy_ = [](void* target) noexcept { static_cast<stored*>(target)->~stored(); };
    } else {
      target_ = new stored(std::forward<Work>(work));
      destroy_ = [](void* target) noexcept { delete static_cast<stored*>(target); };
    }
    run_ = [](void* target) { (*static_cast<stored*>(target))(); };
  }
  void run() {
    if (target_ != nullptr) run_(target_);
  }
  void clear() noexcept {
    if (target_ != nullptr) destroy_(std::exchange(target_, nullptr));
  }

 private:
  alignas(std::max_align_t) std::byte buffer_[inline_bytes];
  void* target_ = nullptr;
  void (*run_)(void*) = nullptr;
  void (*destroy_)(void*) noexcept = nullptr;
};

/// The engines of a modelled device and the operations on them that have not ended.
///
/// An engine takes its operations in the order in which they were added; so start and end are known at once. What an
/// operation does happens when `advance` passes its end, over all engines in the order of ends, of adding where those
/// are equal: an operation never comes before one that it depends on. Not synchronised.
class timeline {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::nanoseconds;
  enum engine : std::size_t { to_device, to_host, compute, engines };

  /// With `poison`, the destination of a copy is poisoned at the copy's start. Allocates for the next operation count
  /// `reserve`; more pending operations than that allocate.
  explicit timeline(bool poison, std::size_t reserve = 256) : poison_(poison) {
    for (std::size_t i = 0; i < reserve; ++i) recycle(pool_.emplace_back());
  }

  /// Adds a copy that may start at `earliest`; returns its end.
  time_point add_copy(engine on, time_point earliest, duration length, void* to, const void* from, std::size_t bytes) {
    operation& added = take();
    added.to = static_cast<std::byte*>(to);
    added.from = static_cast<const std::byte*>(from);
    added.bytes = bytes;
    return place(added, on, earliest, length);
  }
  /// Adds a kernel whose body is `work()`; returns its end.
  template <class Work>
  time_point add_kernel(time_point earliest, duration length, Work&& work) {
    operation& added = take();
    try {
      added.body.set(std::forward<Work>(work));
    } catch (...) {
      recycle(added);
      throw;
    }
    return place(added, compute, earliest, length);
  }

  /// Lets happen all that happens until `now`.
  void advance(time_point now) {
    while (next_at_ <= now) {
      const engine on = next_engine();
      operation& next = *lanes_[on].first;
      if (next.started) {
        lanes_[on].first = next.next;
        --pending_;
        finish(next);
        find_next();
        continue;
      }
      next.started = true;
      find_next();
      // Nobody can look in between where the end is the very next thing to happen.
      const bool unseen = next.end <= now && lanes_[next_engine()].first == &next;
      if (next.bytes > 0 && !unseen) std::memset(next.to, poison_byte, next.bytes);
    }
  }

  /// Cancels the copies that read or write any of the `bytes` at `data`; returns their number.
  std::size_t cancel(const std::byte* data, std::size_t bytes) noexcept {
    std::size_t cancelled = 0;
    for (operation& candidate : pool_) {
      if (candidate.bytes == 0 || !(touches(candidate.to, candidate.bytes, data, bytes) ||
                                    touches(candidate.from, candidate.bytes, data, bytes))) {
        continue;
      }
      candidate.bytes = 0;
      ++cancelled;
    }
    return cancelled;
  }

  std::size_t pending() const noexcept { return pending_; }
  duration busy(engine of) const noexcept { return busy_[of]; }
  /// What the first kernel body that threw has thrown.
  const std::exception_ptr& failure() const noexcept { return failure_; }

 private:
  struct operation {
    std::uint64_t number = 0;
    time_point start{}, end{};
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    operation* next = nullptr;  // on its engine, or free
    bool started = false;       // or nothing happens at its start
    kernel_body body;

    time_point next_at() const noexcept { return started ? end : start; }
  };
  /// An engine's operations, which start and end in the order in which they were added.
  struct lane {
    operation* first = nullptr;
    operation* last = nullptr;
  };

  static bool touches(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) noexcept {
    const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
    const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
    return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
  }

  operation& take() {
    if (free_ == nullptr) return pool_.emplace_back();
    return *std::exchange(free_, free_->next);
  }
  void recycle(operation& used) noexcept {
    used.body.clear();
    used.bytes = 0;
    used.next = std::exchange(free_, &used);
  }
  time_point place(operation& added, engine on, time_point earliest, duration length) {
    const time_point start = earliest < free_at_[on] ? free_at_[on] : earliest;
    added.number = ++added_;
    added.start = start;
    added.end = start + length;
    added.started = !poison_ || added.bytes == 0;
    added.next = nullptr;
    lane& to = lanes_[on];
    if (to.first == nullptr) {
      to.first = &added;
      if (added.next_at() < next_at_) next_at_ = added.next_at();
    } else {
      to.last->next = &added;
    }
    to.last = &added;
    ++pending_;
    free_at_[on] = added.end;
    busy_[on] += length;
    return added.end;
  }
  // Of what happens at the same time, what was added first.
  engine next_engine() const noexcept {
    const operation* next = nullptr;
    std::size_t found = 0;
    for (std::size_t i = 0; i < engines; ++i) {
      const operation* const first = lanes_[i].first;
      if (first == nullptr) continue;
      if (next != nullptr &&
          (first->next_at() > next->next_at() || (first->next_at() == next->next_at() && first->number > next->number)))
        continue;
      next = first;
      found = i;
    }
    return static_cast<engine>(found);
  }
  void find_next() noexcept {
    next_at_ = time_point::max();
    for (const lane& each : lanes_)
      if (each.first != nullptr && each.first->next_at() < next_at_) next_at_ = each.first->next_at();
  }
  void finish(operation& ended) {
    if (ended.bytes > 0) std::memmove(ended.to, ended.from, ended.bytes);
    try {
      if (!failure_) ended.body.run();
    } catch (...) {
      failure_ = std::current_exception();
    }
    recycle(ended);
  }

  bool poison_;
  time_point next_at_ = time_point::max();  // when something happens next
  std::array<lane, engines> lanes_{};
  std::array<time_point, engines> free_at_{};
  std::array<duration, engines> busy_{};
  std::uint64_t added_ = 0;
  std::size_t pending_ = 0;
  operation* free_ = nullptr;
  std::exception_ptr failure_;
  std::deque<operation> pool_;  // operations stay where they are when it grows
};

}  // namespace penstock::detail
