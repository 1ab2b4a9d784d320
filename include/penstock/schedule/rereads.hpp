// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <penstock/channel/atomics.hpp>
#include <penstock/sample/usual_time.hpp>

namespace penstock::detail {

/// When a read is late; `factor` 0: nothing ever is.
struct late_limits {
  double factor = 0;
  std::chrono::nanoseconds floor{};
};

/// Who may write which row of a slot, where a row that takes long is read by another reader, too.
///
/// Each range of each slot has one word, its *front*: the step, the row that is read, and whether that row has been
/// claimed. Readers read a row elsewhere and then claim it: of those who read the same row the first one gets it,
/// copies it to its place and goes on with the next row; the others have lost the range, whenever they come, and touch
/// nothing of it. So rows are claimed in order, and whoever claims the last one knows that all are in place. Steps,
/// below 2^39, never come back, so that a word of a step that has passed is never taken for one of now.
///
/// A row is late if it was begun longer ago than `floor`, and `factor` times what reads usually take: a running
/// estimate of the median, which a few slow reads do not move. Who reads it, too, begins it anew for that, so that a
/// third one comes only if both are late.
///
/// Threads: all by any reader; `forget` while none is at work.
class row_claims {
  using clock = std::chrono::steady_clock;

 public:
  static constexpr std::uint64_t most_rows = std::uint64_t{1} << 24;  // of a range

  row_claims(std::uint32_t slots, std::uint32_t ranges, std::uint32_t readers, const late_limits& limits)
      : limits_(limits),
        ranges_(ranges),
        count_(std::size_t{slots} * ranges),
        size_(readers),
        fronts_(std::make_unique<front[]>(count_)),
        readers_(std::make_unique<reader_word[]>(readers)) {}

  struct late_row {
    std::uint64_t step = 0;
    std::uint32_t slot = 0, range = 0, row = 0;
    std::uint64_t word = 0;
    std::int64_t begun = 0;
  };

  /// How often those who have nothing to do are to look for late rows.
  clock::duration look_every() const noexcept {
    return std::chrono::duration_cast<clock::duration>(
        std::clamp<std::chrono::nanoseconds>(limits_.floor / 2, std::chrono::milliseconds(1), std::chrono::seconds(1)));
  }

  /// While no reader is at work: what was begun is void.
  void forget() noexcept {
    for (std::size_t i = 0; i < count_; ++i) fronts_[i].word.store(nobody, std::memory_order_relaxed);
    surplus_.store(0, std::memory_order_relaxed);
  }

  /// The reader that was given a range begins with its first row.
  void begin(std::uint32_t reader, std::uint64_t step, std::uint32_t slot, std::uint32_t range,
             clock::time_point now) noexcept {
    front& of = at(slot, range);
    of.begun.store(count(now), std::memory_order_relaxed);
    of.word.store(reading(step, 0), std::memory_order_release);
    enter(reader, slot, range);
  }
  /// Whether the row is this reader's to put in its place; else it has lost the range.
  bool claim(std::uint64_t step, std::uint32_t slot, std::uint32_t range, std::uint32_t row) noexcept {
    std::uint64_t expected = reading(step, row);
    const bool mine = at(slot, range)
                          .word.compare_exchange_strong(expected, expected | claimed, std::memory_order_acq_rel,
                                                        std::memory_order_relaxed);
    if (!mine) surplus_.fetch_sub(1, std::memory_order_relaxed);
    return mine;
  }
  /// By the one who has claimed `row`, and has put it in its place: goes on with the next.
  void next(std::uint64_t step, std::uint32_t slot, std::uint32_t range, std::uint32_t row,
            clock::time_point now) noexcept {
    front& of = at(slot, range);
    of.begun.store(count(now), std::memory_order_relaxed);
    of.word.store(reading(step, row + 1), std::memory_order_release);
  }
  void leave(std::uint32_t reader) noexcept { readers_[reader].at.store(0, std::memory_order_relaxed); }

  /// What a read took, of whoever's.
  void took(clock::duration time) noexcept {
    usual_.store(usual_after(usual_.load(std::memory_order_relaxed), std::chrono::nanoseconds(time).count()),
                 std::memory_order_relaxed);
  }

  /// A row of another reader's that is late. A look, which decides nothing: whoever finds one enters the door for its
  /// step, and then asks whether it may `join`.
  std::optional<late_row> find_late(std::uint32_t reader, clock::time_point now) const noexcept {
    const std::int64_t limit = patience();
    for (std::uint32_t i = 0; i < size_; ++i) {
      const std::uint32_t place = i == reader ? 0 : readers_[i].at.load(std::memory_order_relaxed);
      if (place == 0) continue;
      const front& of = fronts_[place - 1];
      const std::uint64_t word = of.word.load(std::memory_order_acquire);
      const std::int64_t begun = of.begun.load(std::memory_order_relaxed);
      if ((word & claimed) != 0 || count(now) - begun <= limit) continue;
      return late_row{word >> step_shift,
                      (place - 1) / ranges_,
                      (place - 1) % ranges_,
                      static_cast<std::uint32_t>(word >> 1 & (most_rows - 1)),
                      word,
                      begun};
    }
    return std::nullopt;
  }
  /// True for one of those who have found it, while it is still late. Inside the door no restart comes between.
  bool join(std::uint32_t reader, const late_row& late, clock::time_point now) noexcept {
    front& of = at(late.slot, late.range);
    if (of.word.load(std::memory_order_acquire) != late.word) return false;
    std::int64_t begun = late.begun;
    if (!of.begun.compare_exchange_strong(begun, count(now), std::memory_order_relaxed)) return false;
    surplus_.fetch_add(1, std::memory_order_relaxed);
    enter(reader, late.slot, late.range);
    return true;
  }
  /// How many readers read what another does, too: those that have joined, less those that have lost. Until they come
  /// back they are not there for anything else.
  std::uint32_t surplus() const noexcept { return surplus_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t claimed = 1, nobody = claimed;
  static constexpr std::uint32_t step_shift = 25;

  struct alignas(cache_line) front {
    std::atomic<std::uint64_t> word{nobody};
    std::atomic<std::int64_t> begun{0};
  };
  struct alignas(cache_line) reader_word {
    std::atomic<std::uint32_t> at{0};  // one more than the front of the range that it is in; 0: none
  };

  static constexpr std::uint64_t reading(std::uint64_t step, std::uint32_t row) noexcept {
    return step << step_shift | std::uint64_t{row} << 1;
  }
  static std::int64_t count(clock::time_point time) noexcept {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
  }
  front& at(std::uint32_t slot, std::uint32_t range) noexcept { return fronts_[std::size_t{slot} * ranges_ + range]; }
  void enter(std::uint32_t reader, std::uint32_t slot, std::uint32_t range) noexcept {
    readers_[reader].at.store(slot * ranges_ + range + 1, std::memory_order_relaxed);
  }
  // Before the first read has ended, nobody knows what is usual.
  std::int64_t patience() const noexcept {
    const std::int64_t usual = usual_.load(std::memory_order_relaxed);
    const double least = static_cast<double>(limits_.floor.count());
    const double most = limits_.factor * (usual == 0 ? least : static_cast<double>(usual));
    return static_cast<std::int64_t>(std::min(std::max(least, most), 9e18));
  }

  late_limits limits_;
  std::uint32_t ranges_;
  std::size_t count_;
  std::uint32_t size_;
  std::unique_ptr<front[]> fronts_;
  std::unique_ptr<reader_word[]> readers_;
  alignas(cache_line) std::atomic<std::int64_t> usual_{0};
  std::atomic<std::uint32_t> surplus_{0};
};

}  // namespace penstock::detail
