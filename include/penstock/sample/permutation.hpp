// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <penstock/sample/philox.hpp>

namespace penstock {

namespace detail {

/// A keyed permutation of [0, n) for n from 2 to 2^62: a Feistel network on pairs (left, right), right below a power of
/// two, left below `rows_`, both about the root of n, with cycle walking for the few pairs at n and above.
///
/// Each round adds to one half, modulo its radix, a keyed hash of the other one. Up to 2^30 halves, keys and hashes are
/// words of 16 bits, above of 32: the words that processors multiply many of at once, and nothing is divided. There are
/// 8 rounds, and 12 where halves are so small that 8 leave pairs at a distance of the radix a little too often
/// together.
class feistel {
 public:
  constexpr feistel(std::uint64_t n, philox key) noexcept
      : n_(n), narrow_(n <= most_narrow), rounds_(n <= most_small ? most_rounds : 8) {
    int bits = 0;
    for (std::uint64_t rest = n - 1; rest != 0; rest >>= 1) ++bits;
    shift_ = bits / 2;
    rows_ = static_cast<std::uint32_t>((n - 1) >> shift_) + 1;
    for (int i = 0; i < rounds_; ++i) {
      round_key& round = keys_[i];
      if (narrow_) {
        const std::uint32_t a = key(), b = key();
        round = {a & 0xFFFFu, a >> 16 | 1u, b & 0xFFFFu, b >> 16 | 1u};
      } else {
        const std::uint32_t a = key(), b = key(), c = key(), d = key();
        round = {a, b | 1u, c, d | 1u};
      }
    }
  }

  constexpr std::uint64_t operator()(std::uint64_t i) const noexcept {
    return narrow_ ? one<std::uint16_t>(i) : one<std::uint32_t>(i);
  }
  constexpr void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    narrow_ ? some<std::uint16_t>(first, out) : some<std::uint32_t>(first, out);
  }

 private:
  static constexpr std::uint64_t most_narrow = std::uint64_t{1} << 30;
  static constexpr std::uint64_t most_small = std::uint64_t{1} << 14;
  static constexpr int most_rounds = 12;
  static constexpr std::size_t chunk = 128;

  struct round_key {
    std::uint32_t before, multiplier, between, second_multiplier;
  };
  /// Twice as wide: holds products of words, and indices.
  template <class Word>
  using wide = std::conditional_t<sizeof(Word) == 2, std::uint32_t, std::uint64_t>;

  template <class Word>
  constexpr std::uint64_t one(std::uint64_t i) const noexcept {
    do {
      Word left = static_cast<Word>(i >> shift_);
      Word right = static_cast<Word>(i & ((std::uint64_t{1} << shift_) - 1));
      encrypt<1>(&left, &right);
      i = std::uint64_t{left} << shift_ | right;
    } while (i >= n_);
    return i;
  }

  template <class Word>
  constexpr void some(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    Word left[chunk]{};
    Word right[chunk]{};
    const Word mask = static_cast<Word>((wide<Word>{1} << shift_) - 1);
    for (std::size_t done = 0; done < out.size(); done += chunk, first += chunk) {
      const wide<Word> from = static_cast<wide<Word>>(first);
      for (std::uint32_t i = 0; i < chunk; ++i) {
        left[i] = static_cast<Word>((from + i) >> shift_);
        right[i] = static_cast<Word>((from + i) & mask);
      }
      // Known counts make vector instructions; what a last chunk has too many are no numbers of use, but do no harm.
      encrypt<chunk>(left, right);
      const bool walks = out.size() - done < chunk ? join(left, right, out.subspan(done))
                                                   : join(left, right, out.subspan(done).first<chunk>());
      if (!walks) continue;
      for (std::uint64_t& index : out.subspan(done, out.size() - done < chunk ? out.size() - done : chunk))
        if (index >= n_) index = one<Word>(index);
    }
  }

  /// Makes indices of halves; tells whether there are any that must go on walking.
  template <class Word, std::size_t Extent>
  constexpr bool join(const Word* left, const Word* right, std::span<std::uint64_t, Extent> out) const noexcept {
    const auto n = static_cast<wide<Word>>(n_);
    wide<Word> above = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto index = static_cast<wide<Word>>(wide<Word>{left[i]} << shift_ | right[i]);
      above |= index >= n ? 1u : 0u;
      out[i] = index;
    }
    return above != 0;
  }

  /// One round: `to` = (`to` + a hash of `from` in [0, radix)) mod radix.
  template <std::size_t Count, class Word>
  static constexpr void mix(Word* to, const Word* from, std::uint32_t radix, round_key key) noexcept {
    using product = wide<Word>;
    constexpr int bits = 8 * sizeof(Word);
    const auto before = static_cast<Word>(key.before), between = static_cast<Word>(key.between);
    const auto multiplier = static_cast<Word>(key.multiplier), second = static_cast<Word>(key.second_multiplier);
    const auto modulus = static_cast<Word>(radix);
    for (std::size_t i = 0; i < Count; ++i) {
      Word hash = static_cast<Word>(product{static_cast<Word>(from[i] + before)} * multiplier);
      hash = static_cast<Word>((hash ^ (hash >> (bits / 2 - 1))) + between);
      hash = static_cast<Word>(product{hash} * second);
      // Halves are at most half of what a word holds: the sum fits, and only one of these is below the radix.
      const auto sum = static_cast<Word>(to[i] + static_cast<Word>((product{hash} * modulus) >> bits));
      const auto less = static_cast<Word>(sum - modulus);
      to[i] = less < sum ? less : sum;
    }
  }

  template <std::size_t Count, class Word>
  constexpr void encrypt(Word* left, Word* right) const noexcept {
    for (int round = 0; round < rounds_; round += 2) {
      mix<Count>(left, right, rows_, keys_[round]);
      mix<Count>(right, left, std::uint32_t{1} << shift_, keys_[round + 1]);
    }
  }

  std::uint64_t n_;
  bool narrow_;
  int rounds_;
  int shift_ = 0;  // bits of the right half
  std::uint32_t rows_ = 1;
  round_key keys_[most_rounds]{};
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
