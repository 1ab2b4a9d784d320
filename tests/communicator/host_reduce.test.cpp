// SPDX-License-Identifier: Apache-2.0
// Values and words on the host: every bit of a result is decided by the order of the ranks and their factors.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/communicator/control_words.hpp>
#include <penstock/communicator/host_reduce.hpp>
#include <penstock/communicator/local_meeting.hpp>
#include <penstock/communicator/local_sum.hpp>

namespace {

using penstock::control_words;
using penstock::element_type;
using penstock::reduction;
using penstock::detail::reduce_range;

constexpr reduction all_reductions[] = {reduction::weighted_mean, reduction::mean_of_sums, reduction::sum,
                                        reduction::maximum};

std::vector<std::vector<float>> some_values(std::size_t ranks, std::size_t n) {
  std::vector<std::vector<float>> result(ranks, std::vector<float>(n));
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < n; ++i) result[r][i] = std::sin(static_cast<float>(1 + i + 100 * r)) * 10;
  return result;
}
std::vector<void*> pointers(std::vector<std::vector<float>>& of) {
  std::vector<void*> result;
  for (auto& one : of) result.push_back(one.data());
  return result;
}

TEST(host_reduce, values_are_added_in_the_order_of_the_ranks) {
  const std::vector<double> weights{3, 0, 1, 2};
  for (const reduction how : all_reductions) {
    auto values = some_values(4, 1200);
    const auto before = values;
    reduce_range<float>(pointers(values), weights, 6, how, 0, 1200);
    for (std::size_t i = 0; i < 1200; ++i) {
      float wanted = 0;
      bool first = true;
      for (const std::size_t r : {0, 2, 3}) {
        const float factor = how == reduction::weighted_mean  ? static_cast<float>(weights[r] / 6)
                             : how == reduction::mean_of_sums ? static_cast<float>(1.0 / 6)
                                                              : 1.0F;
        const volatile float one = factor * before[r][i];
        wanted = first ? float{one} : how == reduction::maximum ? (one > wanted ? float{one} : wanted) : wanted + one;
        first = false;
      }
      for (std::size_t r = 0; r < 4; ++r) ASSERT_EQ(values[r][i], wanted);
    }
  }
}

TEST(host_reduce, parts_make_no_difference_and_touch_nothing_else) {
  const std::vector<double> weights{1, 2, 3};
  auto whole = some_values(3, 1500), parts = some_values(3, 1500);
  const auto before = parts;
  reduce_range<float>(pointers(whole), weights, 6, reduction::weighted_mean, 0, 1500);
  reduce_range<float>(pointers(parts), weights, 6, reduction::weighted_mean, 700, 701);
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t i = 0; i < 1500; ++i) ASSERT_EQ(parts[r][i], i == 700 ? whole[r][i] : before[r][i]);
  for (std::uint64_t size : {1, 2, 3, 7, 64}) {
    auto shared = some_values(3, 1500);
    std::size_t at = 0;
    for (std::uint64_t rank = 0; rank < size; ++rank) {
      const auto [first, last] = penstock::detail::part_of(1500, rank, size);
      EXPECT_EQ(first, at);
      EXPECT_TRUE(first % 32 == 0);
      at = last;
      reduce_range<float>(pointers(shared), weights, 6, reduction::weighted_mean, first, last);
    }
    EXPECT_EQ(at, 1500U);
    EXPECT_EQ(shared, whole);
  }
  for (std::size_t count : {0, 1, 31, 33}) EXPECT_EQ(penstock::detail::part_of(count, 2, 3).last, count);
}

TEST(host_reduce, law_8_what_weighs_nothing_brings_nothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const reduction how : all_reductions) {
    std::vector<std::vector<float>> values{{nan, nan}, {2, -3}, {nan, nan}};
    auto at = pointers(values);
    reduce_range<float>(at, std::array{0.0, 5.0, 0.0}, 5, how, 0, 2);
    const float factor = how == reduction::mean_of_sums ? 0.2F : 1;
    for (const auto& one : values) EXPECT_EQ(one, (std::vector<float>{factor * 2, factor * -3}));
    // Nobody weighs anything: zeros.
    reduce_range<float>(at, std::array{0.0, 0.0, 0.0}, 0, how, 0, 2);
    for (const auto& one : values) EXPECT_EQ(one, (std::vector<float>{0, 0}));
    // Who has no buffer.
    std::vector<float> own{4, 5};
    void* some[] = {nullptr, own.data()};
    reduce_range<float>(some, std::array{1.0, 1.0}, 1, reduction::sum, 0, 2);
    EXPECT_EQ(own, (std::vector<float>{4, 5}));
  }
}

TEST(host_reduce, the_kernels_of_devices_come_to_the_same_bits) {
  const std::vector<double> weights{3, 1, 2};
  for (const reduction how : all_reductions) {
    auto host = some_values(3, 100), device = some_values(3, 100);
    reduce_range<float>(pointers(host), weights, 6, how, 0, 100);
    penstock::local_sum what;
    what.count = 100;
    what.maximum = how == reduction::maximum;
    for (std::size_t r = 0; r < 3; ++r) {
      what.from[what.ranks] = device[r].data();
      what.factors[what.ranks++] = penstock::detail::factor_of(how, weights[r], 6);
      what.to[what.targets++] = device[r].data();
    }
    penstock::detail::sum_on_host(what);
    EXPECT_EQ(device, host);
    EXPECT_EQ(what.bytes(), 6U * 100 * sizeof(float));
  }
}

TEST(host_reduce, integers_are_exact_at_their_ends) {
  std::vector<std::uint64_t> a{~std::uint64_t{0}, 1}, b{0, std::uint64_t{1} << 63};
  void* at[] = {a.data(), b.data()};
  reduce_range<std::uint64_t>(at, std::array{1.0, 1.0}, 2, reduction::sum, 0, 2);
  EXPECT_EQ(a, (std::vector<std::uint64_t>{~std::uint64_t{0}, (std::uint64_t{1} << 63) + 1}));
  EXPECT_EQ(b, a);
}

// ---- buffers

TEST(reduce_buffer, is_named_by_whatever_has_data_and_a_size) {
  std::vector<double> values(3);
  std::array<std::int32_t, 5> counts{};
  unsigned long more[2] = {};
  const auto one = penstock::buffer(values);
  EXPECT_EQ(one.data, values.data());
  EXPECT_EQ(one.count, 3U);
  EXPECT_EQ(one.type, element_type::float64);
  EXPECT_EQ(one.how, reduction::weighted_mean);
  EXPECT_EQ(one.bytes(), 24U);
  EXPECT_EQ(penstock::buffer(counts, reduction::maximum).type, element_type::int32);
  EXPECT_EQ(penstock::buffer(counts, reduction::maximum).how, reduction::maximum);
  EXPECT_EQ(penstock::buffer(std::span(more)).type, element_type::uint64);
  EXPECT_EQ(penstock::buffer(values.data(), 2, reduction::sum).count, 2U);
  EXPECT_EQ(penstock::buffer(one).data, one.data);
  for (int type = 0; type <= static_cast<int>(element_type::uint64); ++type)
    penstock::detail::with_element(static_cast<element_type>(type), [&](auto element) {
      EXPECT_EQ(sizeof(element), penstock::size_of(static_cast<element_type>(type)));
      EXPECT_EQ(static_cast<int>(penstock::detail::element_type_of<decltype(element)>()), type);
    });
}

// ---- words

TEST(control_words, sums_add_up_and_of_maxima_the_lowest_rank_remains) {
  control_words a, b, c;
  a.sums[control_words::samples] = 9007199254740000;  // exact to 2^53
  b.sums[control_words::samples] = 991;
  b.maxima[control_words::failing] = control_words::named(3);
  c.maxima[control_words::failing] = control_words::named(1);
  EXPECT_FALSE(a.ends());
  for (const auto& one : {b, c}) a.add(one);
  EXPECT_EQ(a.sums[control_words::samples], 9007199254740991.0);
  EXPECT_TRUE(a.ends() && a.has(control_words::failing));
  EXPECT_EQ(a.rank_of(control_words::failing), 1U);
  control_words first;
  first.maxima[control_words::stopping] = control_words::named(0);
  EXPECT_TRUE(first.has(control_words::stopping));
  EXPECT_EQ(first.rank_of(control_words::stopping), 0U);
}

TEST(control_words, ranks_agree_if_all_who_say_something_say_the_same) {
  const auto with = [](std::uint64_t what, std::uint64_t count) {
    control_words result;
    result.describe(what, count);
    return result;
  };
  const auto agree = [](control_words one, const control_words& other) {
    one.add(other);
    return one.agree();
  };
  EXPECT_TRUE(control_words{}.agree());
  EXPECT_TRUE(agree(with(5, 10), with(5, 10)));
  EXPECT_TRUE(agree(with(5, 10), {}));
  EXPECT_TRUE(agree(with(0, 0), with(0, 0)));
  EXPECT_TRUE(agree(with(~std::uint64_t{0}, 0), with(~std::uint64_t{0}, 0)));
  EXPECT_FALSE(agree(with(5, 10), with(5, 11)));
  EXPECT_FALSE(agree(with(5, 10), with(6, 10)));
  EXPECT_FALSE(agree(with(0, 0), with(6, 0)));
}

}  // namespace
