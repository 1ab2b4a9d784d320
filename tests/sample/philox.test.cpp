// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <type_traits>
#include <vector>

#include <penstock/sample/philox.hpp>

namespace {

using penstock::philox;
using penstock::philox4x32;
using penstock::philox_block;
using penstock::random_domain;

static_assert(std::uniform_random_bit_generator<philox>);
static_assert(std::is_trivially_copyable_v<philox>);
static_assert(sizeof(philox) <= 48);

// The known-answer vectors that the authors publish for philox4x32 with 10 rounds.
TEST(philox4x32, gives_the_published_answers) {
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({}, {}), (philox_block{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  EXPECT_EQ(philox4x32({{ones, ones, ones, ones}}, {{ones, ones}}),
            (philox_block{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
  EXPECT_EQ(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {{0xa4093822, 0x299f31d0}}),
            (philox_block{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

TEST(philox, draws_the_blocks_of_the_documented_key_and_counter) {
  philox random(0x0123456789abcdef, 5, 0xfedcba9876543210, random_domain::plan);
  for (std::uint32_t block = 0; block < 3; ++block) {
    const philox_block counter{{0x76543210, 0xfedcba98, 5, (2u << 30) | block}};
    const philox_block expected = philox4x32(counter, {{0x89abcdef, 0x01234567}});
    for (std::uint32_t word : expected.word) EXPECT_EQ(random(), word);
  }
}

TEST(philox, is_a_function_of_seed_epoch_and_sample_only) {
  philox once(7, 2, 11);
  philox again(7, 2, 11);
  philox other(7, 2, 12);
  for (int i = 0; i < 9; ++i) {
    const std::uint32_t draw = once();
    static_cast<void>(other());  // another stream's draws in between change nothing
    EXPECT_EQ(draw, again());
  }
}

TEST(philox, changes_with_every_bit_of_seed_epoch_sample_and_domain) {
  std::set<std::vector<std::uint32_t>> seen;
  int streams = 0;
  const auto add = [&](philox random) {
    seen.insert({random(), random(), random(), random()});
    ++streams;
  };
  add(philox(7, 2, 11));
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t flip = std::uint64_t{1} << bit;
    add(philox(7 ^ flip, 2, 11));
    add(philox(7, 2 ^ flip, 11));
    add(philox(7, 2, 11 ^ flip));
  }
  for (auto domain : {random_domain::permutation, random_domain::plan, random_domain::user})
    add(philox(7, 2, 11, domain));
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(streams));
}

TEST(philox, gives_uniforms_with_24_bits_below_one) {
  philox bits(1, 2, 3);
  philox random(1, 2, 3);
  constexpr int draws = 100'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < draws; ++i) {
    const float x = random.uniform();
    ASSERT_EQ(x, std::ldexp(static_cast<float>(bits() >> 8), -24));
    ASSERT_GE(x, 0.0f);
    ASSERT_LT(x, 1.0f);
    sum += x;
    squares += double{x} * x;
  }
  // Standard deviations: 0.2887 / sqrt(draws) = 0.0009 and 0.298 / sqrt(draws) = 0.0009; five of them.
  EXPECT_NEAR(sum / draws, 0.5, 0.0046);
  EXPECT_NEAR(squares / draws, 1.0 / 3, 0.0048);
}

// At compile time nothing is fused: what the processor computes must be the same bits.
TEST(philox, gives_the_same_uniforms_at_compile_time_and_at_run_time) {
  static constexpr auto fill = [](auto& values) {
    philox random(3, 1, 4);
    for (float& value : values) value = random.uniform(-0.1f, 0.7f);
  };
  struct draws {
    float values[100]{};
    constexpr draws() { fill(values); }
  };
  static constexpr draws expected;
  volatile std::uint64_t seed = 3;  // keeps the compiler from computing it beforehand
  philox random(seed, 1, 4);
  for (float value : expected.values) {
    const float found = random.uniform(-0.1f, 0.7f);
    ASSERT_EQ(found, value);
    ASSERT_GE(found, -0.1f);
    ASSERT_LE(found, 0.7f);
  }
}

TEST(philox, gives_each_integer_below_n_equally_often) {
  constexpr int n = 7;
  constexpr int draws = 70'000;
  int count[n] = {};
  philox random(4, 0, 0);
  for (int i = 0; i < draws; ++i) ++count[random.below(n)];
  double chi_square = 0;
  for (int c : count) chi_square += std::pow(c - draws / n, 2) / (draws / n);
  EXPECT_LT(chi_square, 22.5);  // 6 degrees of freedom: exceeded once in a thousand seeds
}

// Without rejection every second result would be divisible by three here, not every third one.
template <class Integer>
void expect_thirds(Integer n) {
  constexpr int draws = 20'000;
  int divisible = 0;
  philox random(5, 0, 0);
  for (int i = 0; i < draws; ++i) {
    const Integer x = random.below(n);
    ASSERT_LT(x, n);
    divisible += x % 3 == 0;
  }
  EXPECT_NEAR(divisible, draws / 3.0, 5 * std::sqrt(draws * 2.0 / 9));
}
TEST(philox, is_unbiased_for_large_n) {
  expect_thirds(std::uint32_t{3} << 30);
  expect_thirds(std::uint64_t{3} << 30);
  expect_thirds(std::uint64_t{3} << 62);
}

TEST(philox, multiplies_64_bit_ranges_in_full) {
  __extension__ using wide = unsigned __int128;
  philox lengths(6, 0, 0);
  for (std::uint64_t sample = 0; sample < 1000; ++sample) {
    const std::uint64_t n = ((std::uint64_t{lengths()} << 32) | (std::uint64_t{1} << 63) | 12'345) >> (sample % 31);
    philox random(6, 1, sample);
    philox bits(6, 1, sample);
    const auto draw = [&] {
      const std::uint64_t low = bits();
      return low | (std::uint64_t{bits()} << 32);
    };
    wide product = wide{draw()} * n;
    while (static_cast<std::uint64_t>(product) < (0 - n) % n) product = wide{draw()} * n;
    ASSERT_EQ(random.below(n), static_cast<std::uint64_t>(product >> 64));
  }
}

TEST(philox, has_nothing_to_choose_below_two) {
  philox random(1, 1, 1);
  EXPECT_EQ(random.below(1), 0);
  EXPECT_EQ(random.below(0u), 0u);
  EXPECT_EQ(random.below(-3), 0);
  EXPECT_EQ(random(), philox(1, 1, 1)());
  static_assert(std::same_as<decltype(random.below(std::int64_t{9})), std::int64_t>);
}

TEST(philox, gives_normals_with_the_moments_of_the_normal_distribution) {
  constexpr int draws = 200'000;
  double moment[5] = {};
  philox random(8, 0, 0);
  for (int i = 0; i < draws; ++i) {
    const double x = random.normal();
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k < 5; ++k) moment[k] += std::pow(x, k) / draws;
  }
  // The variances of x, x^2, x^3 and x^4 are 1, 2, 15 and 96; five standard deviations.
  const double unit = 5 / std::sqrt(draws);
  EXPECT_NEAR(moment[1], 0, unit);
  EXPECT_NEAR(moment[2], 1, unit * std::sqrt(2));
  EXPECT_NEAR(moment[3], 0, unit * std::sqrt(15));
  EXPECT_NEAR(moment[4], 3, unit * std::sqrt(96));
}

}  // namespace
