// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include <penstock/channel/atomics.hpp>

namespace penstock {

/// Who is at work on what, and up to which number anybody may be. One thread may close the door, to wait then until all
/// have left.
///
/// Whoever enters says so first and looks at the limit afterwards; whoever closes sets the limit to 0 first and looks
/// for those inside afterwards, with a fence between that the rare side pays. So either the one sees the door closed,
/// or the other sees somebody inside; and once all have left a closed door, nobody comes in on what was true before.
template <class Policy = std_atomics>
class admission {
  template <class T>
  using atomic = typename Policy::template atomic<T>;

 public:
  /// Begins closed.
  explicit admission(std::uint32_t size) : size_(size), inside_(std::make_unique<word[]>(size)) {}

  /// Whether work on `number` may begin: a first look, which decides nothing.
  bool admits(std::uint64_t number) const noexcept { return number < limit_.load(std::memory_order_acquire); }
  /// Member `who` comes in to work on `number`. False if it may not; it must `leave` even so.
  bool enter(std::uint32_t who, std::uint64_t number) noexcept {
#if PENSTOCK_THREAD_SANITIZER
    // A locked instruction in place of the fence, see `gate`.
    inside_[who].busy.exchange(number + 1, std::memory_order_relaxed);
#else
    inside_[who].busy.store(number + 1, std::memory_order_relaxed);
#endif
    fence_.light();
    return admits(number);
  }
  void leave(std::uint32_t who) noexcept { inside_[who].busy.store(0, std::memory_order_release); }
  /// One more than the number that a member works on; 0 if it is not inside.
  std::uint64_t busy(std::uint32_t who) const noexcept { return inside_[who].busy.load(std::memory_order_acquire); }

  void close() noexcept {
    limit_.store(0, std::memory_order_seq_cst);
    fence_.heavy();
  }
  /// For numbers below `limit`; 0 is closed.
  void open(std::uint64_t limit) noexcept { limit_.store(limit, std::memory_order_release); }
  bool closed() const noexcept { return limit_.load(std::memory_order_acquire) == 0; }
  /// Meaningful while closed.
  bool empty() const noexcept {
    for (std::uint32_t i = 0; i < size_; ++i)
      if (busy(i) != 0) return false;
    return true;
  }

  /// A word of each member's own, in the same cache line; for anything.
  atomic<std::uint64_t>& note(std::uint32_t who) noexcept { return inside_[who].note; }
  const atomic<std::uint64_t>& note(std::uint32_t who) const noexcept { return inside_[who].note; }
  /// 0 while the door is closed.
  const atomic<std::uint64_t>& door() const noexcept { return limit_; }

 private:
  struct alignas(cache_line) word {
    atomic<std::uint64_t> busy{0};
    atomic<std::uint64_t> note{0};
  };

  std::uint32_t size_;
  std::unique_ptr<word[]> inside_;
  alignas(cache_line) atomic<std::uint64_t> limit_{0};
  typename Policy::asymmetric_fence fence_;
};

}  // namespace penstock
