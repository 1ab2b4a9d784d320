// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
// ctest: no asan: statistics over millions of draws; its memory is the test's own
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/sample/permutation.hpp>

namespace {

using penstock::permutation;
using order = std::vector<std::uint64_t>;

order entries(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  order out(n);
  permutation(n, seed, epoch).fill(0, out);
  return out;
}

bool is_bijection(const order& entries) {
  std::vector<bool> seen(entries.size());
  for (std::uint64_t entry : entries) {
    if (entry >= entries.size() || seen[entry]) return false;
    seen[entry] = true;
  }
  return true;
}

TEST(permutation, has_every_entry_once) {
  for (std::uint64_t n = 0; n <= 300; ++n) ASSERT_TRUE(is_bijection(entries(n, 1, n))) << n;
  for (std::uint64_t n : {1'000u, 4'095u, 4'096u, 4'097u, 65'537u, 1'000'000u})
    ASSERT_TRUE(is_bijection(entries(n, 2, 3))) << n;
}

TEST(permutation, gives_the_same_one_by_one_and_in_any_range) {
  for (std::uint64_t n : {5u, 64u, 65u, 777u}) {
    const permutation p(n, 9, 4);
    const order all = entries(n, 9, 4);
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(p(i), all[i]) << n;
    for (std::uint64_t length : {1u, 3u, 64u, 100u})
      for (std::uint64_t first = 0; first + length <= n; first += 7) {
        order part(length);
        p.fill(first, part);
        for (std::uint64_t i = 0; i < length; ++i) ASSERT_EQ(part[i], all[first + i]) << n;
      }
  }
}

TEST(permutation, does_not_repeat_far_entries_of_64_bit_sizes) {
  for (std::uint64_t n : {std::uint64_t{5'000'000'007}, (std::uint64_t{1} << 53) + 1, std::uint64_t{1} << 62}) {
    const permutation p(n, 1, 1);
    order some(4'000);
    p.fill(n / 2, std::span(some).first(2'000));
    p.fill(n - 2'000, std::span(some).last(2'000));
    double mean = 0;
    for (std::uint64_t entry : some) {
      ASSERT_LT(entry, n);
      mean += static_cast<double>(entry) / static_cast<double>(n) / 4'000;
    }
    EXPECT_NEAR(mean, 0.5, 5 * 0.2887 / std::sqrt(4'000));
    std::sort(some.begin(), some.end());
    EXPECT_EQ(std::adjacent_find(some.begin(), some.end()), some.end());
  }
}

TEST(permutation, differs_by_seed_epoch_and_which_and_is_otherwise_the_same) {
  for (std::uint64_t n : {20u, 500u}) {
    const order base = entries(n, 1, 1);
    EXPECT_EQ(base, entries(n, 1, 1));
    EXPECT_NE(base, entries(n, 1, 2));
    EXPECT_NE(base, entries(n, 2, 1));
    order other(n);
    permutation(n, 1, 1, 1).fill(0, other);
    EXPECT_NE(base, other);
  }
}

// Orders are part of what a saved state means: these may never change.
TEST(permutation, keeps_its_orders_over_releases) {
  EXPECT_EQ(entries(10, 7, 0), (order{7, 1, 2, 4, 5, 3, 6, 0, 9, 8}));
  order first(6);
  permutation(65'537, 7, 0).fill(0, first);
  EXPECT_EQ(first, (order{23245, 40783, 32314, 42707, 61473, 16259}));
}

// Pearson's statistic of a table of counts. In a random permutation a given cell is hit with probability p in each of
// `epochs` independent ones, so the statistic's expectation is the number of cells, and its standard deviation
// about sqrt(2 cells) (cells of one table hang together a little, the less the larger n is).
double deviations(const std::vector<double>& count, std::size_t n, bool with_diagonal, double p, double epochs) {
  double statistic = 0;
  double cells = 0;
  for (std::size_t i = 0; i < n * n; ++i) {
    if (!with_diagonal && i % (n + 1) == 0) continue;
    statistic += std::pow(count[i] - epochs * p, 2) / (epochs * p * (1 - p));
    ++cells;
  }
  return (statistic - cells) / std::sqrt(2 * cells);
}

// Every entry at every position, and every entry after every other one, equally often. 6 deviations: the tables of
// small n are skewed, and 200 tables are looked at; a network with 4 rounds already fails.
void expect_uniform(std::size_t n, const auto& fill) {
  constexpr int epochs = 2'000;
  std::vector<double> at(n * n);
  std::vector<double> after(n * n);
  order out(n);
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    fill(epoch, out);
    for (std::size_t i = 0; i < n; ++i) ++at[i * n + out[i]];
    for (std::size_t i = 1; i < n; ++i) ++after[out[i - 1] * n + out[i]];
  }
  const double p = 1.0 / static_cast<double>(n);
  EXPECT_LT(deviations(at, n, true, p, epochs), 6) << "position, n = " << n;
  EXPECT_LT(deviations(after, n, false, p, epochs), 6) << "successor, n = " << n;
}

TEST(permutation, has_uniform_positions_and_successors_at_every_small_n) {
  for (std::size_t n = 2; n <= 90; ++n)
    expect_uniform(n, [n](std::uint64_t epoch, order& out) { permutation(n, 1, epoch).fill(0, out); });
}

// Entries as far apart as the network's halves are wide share one half: what such pairs become is as even as for
// others.
TEST(permutation, has_uniform_pairs_at_every_distance_of_a_radix) {
  for (std::size_t n : {65u, 80u, 128u, 200u})
    for (std::size_t distance : {8u, 9u, 16u}) {
      constexpr int epochs = 60'000;
      std::vector<double> pairs(n * n);
      order out(n);
      for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
        permutation(n, 1, epoch).fill(0, out);
        for (std::size_t i = distance; i < n; ++i) ++pairs[out[i - distance] * n + out[i]];
      }
      const double p = static_cast<double>(n - distance) / static_cast<double>(n * (n - 1));
      EXPECT_LT(deviations(pairs, n, false, p, epochs), 5) << n << ", distance " << distance;
    }
}

TEST(permutation, has_uniform_positions_and_successors_over_seeds) {
  for (std::size_t n : {3u, 17u, 64u, 65u, 97u})
    expect_uniform(n, [n](std::uint64_t seed, order& out) { permutation(n, seed, 0).fill(0, out); });
}

// A random permutation keeps (n - 1) / n neighbours in their order, and as many in reverse, whatever n is: Poisson.
TEST(permutation, keeps_as_many_neighbours_as_chance_does) {
  constexpr std::uint64_t n = 65'537;
  constexpr int epochs = 60;
  int kept = 0;
  int reversed = 0;
  int fixed = 0;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const order out = entries(n, 3, epoch);
    for (std::size_t i = 1; i < n; ++i) {
      kept += out[i] == out[i - 1] + 1;
      reversed += out[i] + 1 == out[i - 1];
    }
    for (std::size_t i = 0; i < n; ++i) fixed += out[i] == i;
  }
  const double allowed = 4 * std::sqrt(epochs);
  EXPECT_NEAR(kept, epochs, allowed);
  EXPECT_NEAR(reversed, epochs, allowed);
  EXPECT_NEAR(fixed, epochs, allowed);
}

// One epoch's order says nothing about the next one's: entries move by a random distance from epoch to epoch.
TEST(permutation, is_uncorrelated_between_epochs) {
  for (std::uint64_t n : {64u, 1'000u}) {
    constexpr int epochs = 400;
    double sum = 0;
    order before = entries(n, 5, 0);
    const double middle = static_cast<double>(n - 1) / 2;
    const double variance = (static_cast<double>(n) * static_cast<double>(n) - 1) / 12;
    for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
      const order now = entries(n, 5, epoch);
      for (std::size_t i = 0; i < n; ++i)
        sum += (static_cast<double>(before[i]) - middle) * (static_cast<double>(now[i]) - middle) / variance;
      before = now;
    }
    // Each epoch's correlation has the standard deviation 1 / sqrt(n - 1).
    EXPECT_NEAR(sum / static_cast<double>(n) / epochs, 0, 5 / std::sqrt(static_cast<double>(n - 1) * epochs)) << n;
  }
}

}  // namespace
