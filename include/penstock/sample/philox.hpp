// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include <penstock/sample/config.hpp>

namespace penstock {

/// Four 32-bit words: the counter of Philox, and what it is turned into.
struct philox_block {
  std::uint32_t word[4]{};
  bool operator==(const philox_block&) const = default;
};

/// The two 32-bit words of the key.
struct philox_key {
  std::uint32_t word[2]{};
};

/// Philox4x32-10: for each key a bijection of the counter, whose values in counter order serve as random numbers.
///
/// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
PENSTOCK_HOST_DEVICE constexpr philox_block philox4x32(const philox_block& counter, const philox_key& key) {
  std::uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  std::uint32_t k0 = key.word[0], k1 = key.word[1];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// What a stream is for. Streams of different domains share no block of numbers, whatever their other keys are.
enum class random_domain : std::uint32_t {
  sample = 0,       ///< the draws that a sample's `read` and transform make
  permutation = 1,  ///< the keys of `permutation`
  plan = 2,         ///< the draws of a plan: splits, weighted sampling
  user = 3,         ///< the application's own: initial weights, for example
};

/// The random numbers of one sample in one epoch: a stream that is a function of (seed, epoch, sample) alone.
///
/// Making one computes nothing; every fourth draw computes one block of Philox. Usable in host and device code with
/// equal results: integers and uniforms are bit-equal, `normal()` only as far as the two logarithms and cosines are.
/// A uniform random bit generator for the standard distributions, too (whose results differ among libraries).
///
/// Key and counter are laid out so that no two streams overlap: the key is the seed; the counter is the sample (64
/// bits), the epoch (32 bits), the domain (2 bits) and the block in the stream (30 bits). A stream thus repeats after
/// 2^32 draws. Epochs from 2^32 on are folded into the key, where they may meet another seed's.
class philox {
 public:
  using result_type = std::uint32_t;

  PENSTOCK_HOST_DEVICE constexpr philox(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                                        random_domain domain = random_domain::sample)
      : counter_{{low(sample), high(sample), low(epoch), static_cast<std::uint32_t>(domain) << block_bits}},
        key_{{low(folded(seed, epoch)), high(folded(seed, epoch))}} {}

  PENSTOCK_HOST_DEVICE static constexpr result_type min() { return 0; }
  PENSTOCK_HOST_DEVICE static constexpr result_type max() { return 0xFFFFFFFFu; }

  /// The next 32 random bits.
  PENSTOCK_HOST_DEVICE constexpr result_type operator()() {
    if (used_ == 4) {
      block_ = philox4x32(counter_, key_);
      counter_.word[3] = (counter_.word[3] & ~block_mask) | ((counter_.word[3] + 1) & block_mask);
      used_ = 0;
    }
    return block_.word[used_++];
  }

  /// A multiple of 2^-24 in [0, 1), each equally likely, exact.
  PENSTOCK_HOST_DEVICE constexpr float uniform() { return static_cast<float>((*this)() >> 8) * 0x1p-24f; }

  /// `a + (b - a) * uniform()`, rounded once: in [a, b], `b` itself only by that rounding. `b - a` must be finite.
  PENSTOCK_HOST_DEVICE constexpr float uniform(float a, float b) {
    // A product of two floats is exact as a double, so whether the compiler fuses it with the sum makes no difference.
    const float width = static_cast<float>(static_cast<double>(b) - static_cast<double>(a));
    return static_cast<float>(static_cast<double>(a) + static_cast<double>(width) * static_cast<double>(uniform()));
  }

  /// An integer in [0, n), each exactly equally likely; 0 for n below 2. One draw below 2^32, else two; seldom more.
  ///
  /// Lemire: "Fast random integer generation in an interval", 2019.
  template <std::integral Integer>
  PENSTOCK_HOST_DEVICE constexpr Integer below(Integer n) {
    if (n < 2) return 0;
    const auto range = static_cast<std::uint64_t>(n);
    return static_cast<Integer>(high(range) == 0 ? below32(low(range)) : below64(range));
  }

  /// Normal with mean 0 and standard deviation 1 (Box-Muller, of two draws); at most 6.7 from the mean.
  PENSTOCK_HOST_DEVICE float normal() {
    const float radius = (static_cast<float>((*this)()) + 1.0f) * 0x1p-32f;  // in (0, 1]: its logarithm is finite
    const float angle = 6.28318530717958647692f * uniform();
#if defined(__CUDA_ARCH__)
    return ::sqrtf(-2.0f * ::logf(radius)) * ::cosf(angle);
#else  // <cmath> would cost more to include than the rest of the sample layer
    return __builtin_sqrtf(-2.0f * __builtin_logf(radius)) * __builtin_cosf(angle);
#endif
  }

 private:
  static constexpr int block_bits = 30;
  static constexpr std::uint32_t block_mask = (1u << block_bits) - 1;

  PENSTOCK_HOST_DEVICE static constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  PENSTOCK_HOST_DEVICE static constexpr std::uint32_t high(std::uint64_t x) {
    return static_cast<std::uint32_t>(x >> 32);
  }
  PENSTOCK_HOST_DEVICE static constexpr std::uint64_t folded(std::uint64_t seed, std::uint64_t epoch) {
    return seed + high(epoch) * std::uint64_t{0x9E3779B97F4A7C15u};
  }

  PENSTOCK_HOST_DEVICE constexpr std::uint32_t below32(std::uint32_t n) {
    std::uint64_t product = std::uint64_t{(*this)()} * n;
    if (low(product) < n) {
      const std::uint32_t surplus = (0u - n) % n;
      while (low(product) < surplus) product = std::uint64_t{(*this)()} * n;
    }
    return high(product);
  }

  PENSTOCK_HOST_DEVICE constexpr std::uint64_t below64(std::uint64_t n) {
    const std::uint64_t surplus = (std::uint64_t{0} - n) % n;
    for (;;) {
      const std::uint32_t x0 = (*this)();
      const std::uint32_t x1 = (*this)();
      // The 128-bit product of x1:x0 and n, by halves: the upper half is the result, the lower one whether to keep it.
      const std::uint64_t p00 = std::uint64_t{x0} * low(n);
      const std::uint64_t p01 = std::uint64_t{x0} * high(n);
      const std::uint64_t p10 = std::uint64_t{x1} * low(n);
      const std::uint64_t middle = std::uint64_t{high(p00)} + low(p01) + low(p10);
      const std::uint64_t lower = (middle << 32) | low(p00);
      if (lower >= surplus) return std::uint64_t{x1} * high(n) + high(p01) + high(p10) + high(middle);
    }
  }

  philox_block counter_;
  philox_key key_;
  philox_block block_{};
  std::uint32_t used_ = 4;
};

}  // namespace penstock
