// SPDX-License-Identifier: Apache-2.0
// Parts of datasets that are read in bulk: every sample of a part, and no other, for ranges of any size.
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using schema_type = penstock::schema<penstock::field<std::uint64_t>, penstock::field<std::uint64_t, 1>>;
using batch = penstock::batch_view<schema_type>;

/// Sample i is i and (i, 3 i).
struct described {
  std::uint64_t n = 0;
  std::uint64_t size() const { return n; }
  schema_type schema() const {
    return schema_type{penstock::field<std::uint64_t>{"id"}, penstock::field<std::uint64_t, 1>{"pair", {2}}};
  }
  static void fill(std::span<const std::uint64_t> indices, const batch& to) {
    for (std::size_t row = 0; row < indices.size(); ++row) {
      std::get<0>(to)(row) = indices[row];
      std::get<1>(to)(row, 0) = indices[row];
      std::get<1>(to)(row, 1) = 3 * indices[row];
    }
  }
};
struct bulk : described {
  void read_range(std::span<const std::uint64_t> indices, const batch& to) const { fill(indices, to); }
};
struct bulk_with_context : described {
  void read_range(std::span<const std::uint64_t> indices, const batch& to, const penstock::range_context&) const {
    fill(indices, to);
  }
};
struct opened_bulk : described {
  struct reader {
    std::uint64_t rows = 0;
    void read_range(std::span<const std::uint64_t> indices, const batch& to) {
      fill(indices, to);
      rows += indices.size();
    }
  };
  reader open() const { return {}; }
};
struct opened_bulk_with_context : described {
  struct reader {
    void read_range(std::span<const std::uint64_t> indices, const batch& to, const penstock::range_context&) {
      fill(indices, to);
    }
  };
  reader open() const { return {}; }
};
struct single : described {
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    const auto& [id, pair] = to;
    id() = pair(0) = index;
    pair(1) = 3 * index;
  }
};
struct erased : penstock::any_dataset<schema_type> {
  explicit erased(std::uint64_t n) : penstock::any_dataset<schema_type>(single{{n}}) {}
};

template <class Dataset>
class SplitBulk : public testing::Test {
 protected:
  static Dataset of(std::uint64_t n) {
    if constexpr (std::is_same_v<Dataset, erased>)
      return erased(n);
    else
      return Dataset{{n}};
  }
};
using Kinds = testing::Types<bulk, bulk_with_context, opened_bulk, opened_bulk_with_context, erased>;
TYPED_TEST_SUITE(SplitBulk, Kinds);

TYPED_TEST(SplitBulk, a_part_is_a_dataset_of_its_own_samples) {
  const auto [train, validation, test] = penstock::split(this->of(1000), {.validation = 0.1, .test = 0.2, .seed = 3});
  static_assert(penstock::dataset<std::remove_cvref_t<decltype(train)>>);
  // Ranges longer and shorter than what is mapped at a time, and of one sample.
  for (const std::size_t size : {1U, 7U, 256U, 257U, 700U}) {
    auto feed = (train | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 1}) |
                 penstock::batch(static_cast<std::int64_t>(size)) | penstock::transfer(penstock::cpu_device{}))
                    .start();
    std::uint64_t at = 0;
    for (auto& one : feed.epoch(0)) {
      const auto [id, pair] = one.fields();
      for (std::size_t row = 0; row < one.size(); ++row, ++at) {
        ASSERT_EQ(id(row), train.origin(at));
        ASSERT_EQ(pair(row, 0), train.origin(at));
        ASSERT_EQ(pair(row, 1), 3 * train.origin(at));
      }
    }
    EXPECT_EQ(at, 700U);
  }
}

TYPED_TEST(SplitBulk, a_part_of_a_part_is_one_too) {
  const auto whole = penstock::split(this->of(600), {.test = 0.5, .seed = 1});
  const auto half = penstock::split(whole.train, {.test = 0.5, .seed = 2});
  auto feed = (half.train | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 2}) |
               penstock::batch(64) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::uint64_t at = 0;
  for (auto& one : feed.epoch(0)) {
    const auto [ids, pair] = one.fields();
    for (const std::uint64_t id : ids) ASSERT_EQ(id, whole.train.origin(half.train.origin(at++)));
  }
  EXPECT_EQ(at, 150U);
}

}  // namespace
