// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/sample/error.hpp>
#include <penstock/sample/permutation.hpp>
#include <penstock/sample/philox.hpp>

namespace penstock {

/// A plan is the order of an epoch: which sample stands at each of its `size()` positions.
///
/// `order(seed, epoch, first, out)` writes the sample indices at the positions from `first` on, as many as `out` holds;
/// `first + out.size()` is at most `size()`. It is a pure function of its arguments, allocates nothing, and is called
/// concurrently, for any part of the epoch. `size()` may differ from the dataset's: a weighted plan may repeat samples,
/// a k-fold one leaves some out. Steps, ranks and readers cut the order; they never change it.
template <class Plan>
concept plan = requires(const Plan& p, std::uint64_t number, std::span<std::uint64_t> out) {
  { p.size() } -> std::convertible_to<std::uint64_t>;
  p.order(number, number, number, out);
};

/// Samples in the dataset's order.
class sequential_plan {
 public:
  constexpr explicit sequential_plan(std::uint64_t n) noexcept : n_(n) {}

  constexpr std::uint64_t size() const noexcept { return n_; }
  constexpr void order(std::uint64_t, std::uint64_t, std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = first + i;
  }

 private:
  std::uint64_t n_;
};

/// All samples, in another random order in each epoch.
class shuffled_plan {
 public:
  constexpr explicit shuffled_plan(std::uint64_t n) noexcept : n_(n) {}

  constexpr std::uint64_t size() const noexcept { return n_; }
  constexpr void order(std::uint64_t seed, std::uint64_t epoch, std::uint64_t first,
                       std::span<std::uint64_t> out) const noexcept {
    permutation(n_, seed, epoch).fill(first, out);
  }

 private:
  std::uint64_t n_;
};

/// Blocks of `block` consecutive samples in random order, and the samples of each block in random order: all samples,
/// read from one neighbourhood of the disk at a time. The last block may be short, and stands anywhere in the epoch.
class block_shuffled_plan {
 public:
  /// `block` is at least 1.
  constexpr block_shuffled_plan(std::uint64_t n, std::uint64_t block) noexcept : n_(n), block_(block) {}

  constexpr std::uint64_t size() const noexcept { return n_; }
  constexpr void order(std::uint64_t seed, std::uint64_t epoch, std::uint64_t first,
                       std::span<std::uint64_t> out) const noexcept {
    // The full blocks are permuted, then the short one is put before one of them, or last: each order of all blocks is
    // as likely, and where the short one stands is known without inverting anything.
    const std::uint64_t full = n_ / block_;
    const std::uint64_t rest = n_ % block_;
    const std::uint64_t short_slot =
        rest == 0 ? full : philox(seed, epoch, 1, random_domain::permutation).below(full + 1);
    const std::uint64_t short_first = short_slot * block_;
    const permutation blocks(full, seed, epoch, 2);

    while (!out.empty()) {
      std::uint64_t id = full;  // of the block in the dataset
      std::uint64_t offset = first - short_first;
      std::uint64_t length = rest;
      if (first < short_first || offset >= rest) {
        const std::uint64_t position = first < short_first ? first : first - rest;
        id = blocks(position / block_);
        offset = position % block_;
        length = block_;
      }
      const std::uint64_t left = length - offset;
      const auto part = out.first(left < out.size() ? static_cast<std::size_t>(left) : out.size());
      permutation(length, seed, epoch, first_block_key + id).fill(offset, part);
      for (std::uint64_t& index : part) index += id * block_;
      first += part.size();
      out = out.subspan(part.size());
    }
  }

 private:
  static constexpr std::uint64_t first_block_key = 3;

  std::uint64_t n_;
  std::uint64_t block_;
};

/// How the default plan shuffles: `shuffle::none`, `shuffle::full`, or `shuffle::blocks(1024)`; streams, which have no
/// plan, take `shuffle::none` or `shuffle::window(1024)`.
class shuffle {
 public:
  static const shuffle none;
  static const shuffle full;
  /// Blocks of `samples` consecutive samples, for locality on disk. `std::invalid_argument` for 0.
  static constexpr shuffle blocks(std::uint64_t samples) {
    if (samples == 0) detail::reject_option("partition", "samples in a block to shuffle", "0", "1 or more");
    return shuffle(kind::blocks, samples);
  }

  /// For streams: each sample is drawn from the next `samples` of the stream. `std::invalid_argument` for 0.
  static constexpr shuffle window(std::uint64_t samples) {
    if (samples == 0) detail::reject_option("partition", "samples in a window to shuffle", "0", "1 or more");
    return shuffle(kind::window, samples);
  }

  constexpr bool is_none() const noexcept { return kind_ == kind::none; }
  constexpr bool is_full() const noexcept { return kind_ == kind::full; }
  constexpr bool is_window() const noexcept { return kind_ == kind::window; }
  /// Samples in a block or window; 0 for `none` and `full`.
  constexpr std::uint64_t block() const noexcept { return block_; }
  bool operator==(const shuffle&) const = default;

 private:
  enum class kind : std::uint8_t { none, full, blocks, window };
  constexpr shuffle(kind which, std::uint64_t block) noexcept : kind_(which), block_(block) {}

  kind kind_;
  std::uint64_t block_;
};
inline constexpr shuffle shuffle::none{kind::none, 0};
inline constexpr shuffle shuffle::full{kind::full, 0};

/// What `partition` uses unless it is given a plan: each sample once in each epoch, ordered as `how` says.
class default_plan {
 public:
  constexpr explicit default_plan(std::uint64_t n, shuffle how = shuffle::full) noexcept : n_(n), how_(how) {}

  constexpr std::uint64_t size() const noexcept { return n_; }
  constexpr shuffle how() const noexcept { return how_; }
  constexpr void order(std::uint64_t seed, std::uint64_t epoch, std::uint64_t first,
                       std::span<std::uint64_t> out) const noexcept {
    if (how_.is_none()) return sequential_plan(n_).order(seed, epoch, first, out);
    if (how_.is_full()) return shuffled_plan(n_).order(seed, epoch, first, out);
    block_shuffled_plan(n_, how_.block()).order(seed, epoch, first, out);
  }

 private:
  std::uint64_t n_;
  shuffle how_;
};

/// Which of how many replicas; `rank` is below `size`.
struct world {
  std::uint64_t rank = 0;
  std::uint64_t size = 1;
  bool operator==(const world&) const = default;
};

/// Consecutive positions of an epoch.
struct position_range {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool operator==(const position_range&) const = default;
};

/// A rank's part of a step's `count` positions from `first` on: ranks' parts are contiguous, in rank order, and the
/// first `count % size` ranks have one more than the others. 10 over 3 ranks are 4, 3 and 3.
constexpr position_range rank_share(std::uint64_t first, std::uint64_t count, world where) noexcept {
  const std::uint64_t each = count / where.size;
  const std::uint64_t more = count % where.size;
  const std::uint64_t before = where.rank * each + (where.rank < more ? where.rank : more);
  return {first + before, each + (where.rank < more ? 1 : 0)};
}

/// What happens to an epoch's last global batch if it is incomplete: it is kept with its real size, dropped, or padded
/// to the full size with marked samples that weigh nothing.
enum class last_batch { keep, drop, pad };

/// How an epoch of `positions` is cut into steps of `batch` global samples, from position `start` on.
///
/// Steps are numbered from 0 at `start`, which is 0, or where a feed resumes. Nothing is lost or repeated; `drop`
/// leaves out the last step if it is incomplete. Counts are of real samples: padding is not in them.
struct step_shape {
  std::uint64_t positions = 0;
  std::uint64_t batch = 1;  ///< over all ranks, at least 1
  last_batch last = last_batch::keep;
  std::uint64_t start = 0;

  constexpr std::uint64_t steps() const noexcept {
    const std::uint64_t left = start < positions ? positions - start : 0;
    return left / batch + (last != last_batch::drop && left % batch != 0 ? 1 : 0);
  }
  /// The positions of step `k`, which is below `steps()`.
  constexpr position_range step(std::uint64_t k) const noexcept {
    const std::uint64_t first = start + k * batch;
    const std::uint64_t left = positions - first;
    return {first, left < batch ? left : batch};
  }
  /// The part of step `k` that the given rank reads; it may be empty in the last step.
  constexpr position_range step(std::uint64_t k, world where) const noexcept {
    const position_range all = step(k);
    return rank_share(all.first, all.count, where);
  }
  /// What the given rank reads in all steps.
  constexpr std::uint64_t samples(world where) const noexcept {
    const std::uint64_t n = steps();
    return n == 0 ? 0 : (n - 1) * step(0, where).count + step(n - 1, where).count;
  }
};

}  // namespace penstock
