// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/sample/philox.hpp>

namespace penstock {

namespace detail {

/// A keyed permutation of [0, n) for n from 2 to 2^62: a Feistel network on pairs (left, right) below `rows` and
/// `columns`, both about the root of n, with cycle walking for the few pairs at n and above.
///
/// Each round adds to one half, modulo its radix, a keyed hash of the other one. Halves and hashes fit 32 bits,
/// whatever n is, and nothing is divided in the rounds, so that compilers make vector instructions of them.
class feistel {
 public:
  static constexpr int rounds = 8;

  constexpr feistel(std::uint64_t n, philox key) noexcept : n_(n) {
    columns_ = static_cast<std::uint32_t>(root_above(n));
    rows_ = static_cast<std::uint32_t>((n + columns_ - 1) / columns_);
    for (auto& round : keys_) round = {key(), key() | 1u, key()};
  }

  constexpr std::uint64_t operator()(std::uint64_t i) const noexcept {
    do {
      std::uint32_t left = static_cast<std::uint32_t>(i / columns_);
      std::uint32_t right = static_cast<std::uint32_t>(i % columns_);
      encrypt(&left, &right, 1);
      i = std::uint64_t{left} * columns_ + right;
    } while (i >= n_);
    return i;
  }

  constexpr void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    constexpr std::size_t chunk = 64;
    std::uint32_t left[chunk];
    std::uint32_t right[chunk];
    std::uint32_t row = static_cast<std::uint32_t>(first / columns_);
    std::uint32_t column = static_cast<std::uint32_t>(first % columns_);
    for (std::size_t done = 0; done < out.size(); done += chunk) {
      const std::size_t count = out.size() - done < chunk ? out.size() - done : chunk;
      for (std::size_t i = 0; i < count; ++i) {
        left[i] = row;
        right[i] = column;
        if (++column == columns_) column = 0, ++row;
      }
      // A known count is worth a third of the time to g++.
      count == chunk ? encrypt(left, right, chunk) : encrypt(left, right, count);
      const auto part = out.subspan(done, count);
      for (std::size_t i = 0; i < count; ++i) part[i] = std::uint64_t{left[i]} * columns_ + right[i];
      for (std::uint64_t& index : part)
        if (index >= n_) index = (*this)(index);
    }
  }

 private:
  struct round_key {
    std::uint32_t before, multiplier, between;
  };

  /// The smallest integer whose square is at least n.
  static constexpr std::uint64_t root_above(std::uint64_t n) noexcept {
    std::uint64_t root = 1;
    while (root < (std::uint64_t{1} << 32) && root * root < n) root *= 2;
    for (std::uint64_t better = (root + n / root) / 2; better < root; better = (root + n / root) / 2) root = better;
    return root * root < n ? root + 1 : root;
  }

  /// One round: `to` = (`to` + a hash of `from` in [0, radix)) mod radix.
  static constexpr void mix(std::uint32_t* to, const std::uint32_t* from, std::size_t count, std::uint32_t radix,
                            round_key key) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t hash = (from[i] + key.before) * key.multiplier;
      hash = ((hash ^ (hash >> 15)) + key.between) * 0xCD9E8D57u;
      const std::uint32_t added = static_cast<std::uint32_t>((std::uint64_t{hash} * radix) >> 32);
      // Halves are below 2^31, so that the sign of the difference says whether to take it back.
      const std::uint32_t wrapped = to[i] + added - radix;
      to[i] = wrapped + (radix & (0u - (wrapped >> 31)));
    }
  }

  constexpr void encrypt(std::uint32_t* left, std::uint32_t* right, std::size_t count) const noexcept {
    for (int round = 0; round < rounds; round += 2) {
      mix(left, right, count, rows_, keys_[round]);
      mix(right, left, count, columns_, keys_[round + 1]);
    }
  }

  std::uint64_t n_;
  std::uint32_t rows_ = 1;
  std::uint32_t columns_ = 1;
  round_key keys_[rounds]{};
};

}  // namespace detail

/// A random permutation of [0, n) that is computed, not stored: a function of (n, seed, epoch, which), in O(1) memory.
///
/// `which` tells apart the permutations that one epoch needs. Up to 64 entries it is a shuffle of a small table, with
/// each of the n! orders equally likely; above, a keyed Feistel network. Its keys come from a domain of their own of
/// Philox, so they are independent of every sample's random numbers. `n` is at most 2^62.
class permutation {
 public:
  static constexpr std::uint64_t table_size = 64;

  constexpr permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, std::uint64_t which = 0) noexcept
      : n_(n), network_(n > table_size ? n : 2, philox(seed, epoch, which, random_domain::permutation)) {
    if (n > table_size) return;
    philox random(seed, epoch, which, random_domain::permutation);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t j = random.below(i + 1);
      table_[i] = table_[j];
      table_[j] = static_cast<std::uint8_t>(i);
    }
  }

  constexpr std::uint64_t size() const noexcept { return n_; }
  /// The entry at position `i`, which is below `size()`.
  constexpr std::uint64_t operator()(std::uint64_t i) const noexcept {
    return n_ > table_size ? network_(i) : table_[i % table_size];
  }

  /// The entries at the positions from `first` on, as many as `out` holds; several times faster than one by one.
  constexpr void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    if (n_ > table_size) return network_.fill(first, out);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = table_[(first + i) % table_size];
  }

 private:
  std::uint64_t n_;
  detail::feistel network_;
  std::uint8_t table_[table_size]{};
};

}  // namespace penstock
