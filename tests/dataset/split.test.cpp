// SPDX-License-Identifier: Apache-2.0
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using schema_type = penstock::schema<penstock::field<std::uint64_t>>;
using sample = penstock::sample_view<schema_type>;

/// Sample i is i.
struct described {
  std::uint64_t n = 0;
  std::uint64_t size() const { return n; }
  schema_type schema() const { return schema_type{penstock::field<std::uint64_t>{"id"}}; }
};
struct ids : described {
  void read(std::uint64_t index, const sample& to) const { std::get<0>(to)() = index; }
};
struct opened_ids : described {
  struct reader {
    void read(std::uint64_t index, const sample& to) { std::get<0>(to)() = index; }
  };
  reader open() const { return {}; }
};
struct context_ids : described {
  void read(std::uint64_t index, const sample& to, penstock::read_context& context) const {
    std::get<0>(to)() = index + (context.epoch << 32);
  }
};
struct bulk_ids : described {
  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    for (std::size_t row = 0; row < indices.size(); ++row) std::get<0>(to)[row] = indices[row];
  }
};

template <class Part>
std::vector<std::uint64_t> origins(const Part& part) {
  std::vector<std::uint64_t> result;
  for (std::uint64_t i = 0; i < part.size(); ++i) result.push_back(part.origin(i));
  return result;
}
/// All samples of a part, as a feed of it delivers them.
template <class Part>
std::set<std::uint64_t> fed(const Part& part, std::uint64_t seed = 0) {
  auto feed = (part | penstock::partition({.seed = seed}) | penstock::read({.readers = 2}) |
               penstock::batch({.size = 8, .allow_empty = true}) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::set<std::uint64_t> result;
  for (auto& batch : feed.epoch(0)) {
    const auto [id] = batch.fields();
    result.insert(id.begin(), id.end());
  }
  return result;
}

TEST(Split, sizes_follow_the_shares) {
  struct sizes {
    std::uint64_t n;
    double validation, test;
    std::uint64_t train_wanted, validation_wanted, test_wanted;
  };
  for (const sizes& one : {sizes{1000, 0.1, 0.2, 700, 100, 200}, sizes{10, 0, 0, 10, 0, 0}, sizes{10, 1, 0, 0, 10, 0},
                           sizes{3, 0.5, 0.5, 0, 1, 2}, sizes{0, 0.1, 0.1, 0, 0, 0}, sizes{1, 0.4, 0.4, 1, 0, 0}}) {
    const auto [train, validation, test] =
        penstock::split(ids{{one.n}}, {.validation = one.validation, .test = one.test});
    EXPECT_EQ(train.size(), one.train_wanted) << one.n;
    EXPECT_EQ(validation.size(), one.validation_wanted) << one.n;
    EXPECT_EQ(test.size(), one.test_wanted) << one.n;
  }
}

TEST(Split, parts_are_disjoint_and_together_all) {
  for (std::uint64_t n : {1U, 2U, 7U, 64U, 1000U})
    for (std::uint64_t seed : {0U, 1U, 2U}) {
      const auto [train, validation, test] = penstock::split(ids{{n}}, {.validation = 0.25, .test = 0.3, .seed = seed});
      std::set<std::uint64_t> all;
      std::size_t listed = 0;
      for (const auto* part : {&train, &validation, &test}) {
        const auto found = origins(*part);
        all.insert(found.begin(), found.end());
        listed += found.size();
      }
      EXPECT_EQ(listed, n);
      EXPECT_EQ(all.size(), n);
      EXPECT_LT(*all.rbegin(), n);
    }
}

TEST(Split, feeds_of_the_parts_deliver_them_and_nothing_of_the_others) {
  const auto [train, validation, test] = penstock::split(ids{{100}}, {.validation = 0.2, .test = 0.3, .seed = 1});
  const auto wanted = origins(train);
  EXPECT_EQ(fed(train, 1), std::set<std::uint64_t>(wanted.begin(), wanted.end()));
  std::set<std::uint64_t> all = fed(train, 1);
  all.merge(fed(validation, 1));
  all.merge(fed(test, 1));
  EXPECT_EQ(all.size(), 100U);
}

TEST(Split, is_the_same_for_the_same_seed_and_another_for_another) {
  const auto parts = [](std::uint64_t seed) {
    return origins(penstock::split(ids{{1000}}, {.validation = 0.1, .test = 0.1, .seed = seed}).test);
  };
  EXPECT_EQ(parts(1), parts(1));
  const auto one = parts(1);
  const auto two = parts(2);
  const std::set<std::uint64_t> in_one(one.begin(), one.end());
  std::size_t common = 0;
  for (std::uint64_t index : two) common += in_one.count(index);
  EXPECT_LT(common, 30U) << "10 of 100 are expected in both";
}

// A part that were the first samples of the feed's own order would make validation data of what training sees first.
TEST(Split, is_not_the_order_of_a_feed_of_the_same_seed) {
  const auto [train, validation, test] = penstock::split(ids{{1000}}, {.test = 0.1, .seed = 4});
  std::vector<std::uint64_t> order(100);
  penstock::default_plan(1000).order(4, 0, 0, order);
  const auto found = origins(test);
  const std::set<std::uint64_t> in_test(found.begin(), found.end());
  std::size_t common = 0;
  for (std::uint64_t index : order) common += in_test.count(index);
  EXPECT_LT(common, 30U) << "10 of 100 are expected in both";
}

template <class Dataset>
class SplitOf : public testing::Test {};
using Kinds = testing::Types<ids, opened_ids, context_ids, bulk_ids, penstock::any_dataset<schema_type>>;
TYPED_TEST_SUITE(SplitOf, Kinds);

TYPED_TEST(SplitOf, any_dataset_gives_parts_that_can_be_read) {
  TypeParam data = [] {
    if constexpr (std::constructible_from<TypeParam, ids>)
      return TypeParam(ids{{50}});
    else
      return TypeParam{{50}};
  }();
  const auto [train, validation, test] = penstock::split(data, {.validation = 0.2, .seed = 9});
  const auto wanted = origins(validation);
  EXPECT_EQ(fed(validation), std::set<std::uint64_t>(wanted.begin(), wanted.end()));
}

TEST(Split, of_a_split_gives_parts_of_a_part) {
  const auto whole = penstock::split(ids{{100}}, {.test = 0.5, .seed = 1});
  const auto part = penstock::split(whole.train, {.test = 0.5, .seed = 1});
  std::set<std::uint64_t> all = fed(part.train);
  all.merge(fed(part.test));
  all.merge(fed(whole.test));
  EXPECT_EQ(all.size(), 100U);
}

TEST(Split, an_lvalue_is_referred_to_and_an_rvalue_outlives_its_expression) {
  ids data{{4}};
  const auto referred = penstock::split(data);
  const auto owned = penstock::split(ids{{4}});
  EXPECT_EQ(fed(referred.train).size(), 4U);
  EXPECT_EQ(fed(owned.train).size(), 4U);
}

TEST(Split, shares_that_cannot_be_are_refused) {
  const auto message = [](penstock::split_options options) {
    try {
      penstock::split(ids{{10}}, options);
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_NE(message({.validation = -0.1}).find("split: validation is -0.1"), std::string::npos);
  EXPECT_NE(message({.test = 1.5}).find("split: test is 1.5"), std::string::npos);
  EXPECT_NE(message({.validation = 0.6, .test = 0.6}).find("validation + test is 1.2"), std::string::npos);
}

TEST(Split, a_range_is_split_as_any_dataset) {
  const std::vector<std::uint64_t> numbers{10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  const auto referred = penstock::split(numbers, {.test = 0.3, .seed = 1});
  const auto owned = penstock::split(std::vector(numbers), {.test = 0.3, .seed = 1});
  const auto viewed = penstock::split(numbers | std::views::drop(2), {.test = 0.5});
  EXPECT_EQ(fed(referred.test), fed(owned.test));
  std::set<std::uint64_t> all = fed(referred.train);
  all.merge(fed(referred.test));
  EXPECT_EQ(all, std::set<std::uint64_t>(numbers.begin(), numbers.end()));
  EXPECT_EQ(fed(viewed.test).size(), 4U);
}

// Longer than the stretch that is translated at a time.
TEST(Split, a_part_of_a_dataset_that_is_read_in_bulk_has_its_rows_in_order) {
  const auto parts = penstock::split(bulk_ids{{1000}}, {.test = 0.3, .seed = 1});
  auto feed = (parts.train | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = 1}) | penstock::batch(700) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  const auto batch = feed.next();
  const auto [id] = batch.fields();
  EXPECT_EQ(std::vector(id.begin(), id.end()), origins(parts.train));
}

}  // namespace
