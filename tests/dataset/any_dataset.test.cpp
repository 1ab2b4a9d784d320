// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using schema_type = penstock::schema<penstock::field<std::uint64_t>, penstock::field<float>>;
using sample = penstock::sample_view<schema_type>;
using any = penstock::any_dataset<schema_type>;

struct described {
  std::uint64_t size() const { return 21; }
  schema_type schema() const {
    return schema_type{penstock::field<std::uint64_t>{"number"}, penstock::field<float>{"noise"}};
  }
};
struct plain : described {
  void read(std::uint64_t index, const sample& to) const {
    std::get<0>(to)() = index;
    std::get<1>(to)() = static_cast<float>(index) / 2;
  }
};
struct with_context : described {
  void read(std::uint64_t index, const sample& to, penstock::read_context& context) const {
    std::get<0>(to)() = index + (context.epoch << 32);
    std::get<1>(to)() = context.random.uniform();
  }
};
struct opened : described {
  struct reader {
    std::unique_ptr<float> scratch;  // move-only
    void read(std::uint64_t index, const sample& to) {
      std::get<0>(to)() = index;
      std::get<1>(to)() = *scratch = static_cast<float>(index) / 2;
    }
  };
  reader open() const { return {std::make_unique<float>()}; }
};
struct one_at_a_time : described {
  static constexpr bool serial = true;
  std::uint64_t unguarded = 0;  // a race, if two are in it
  void read(std::uint64_t index, const sample& to) {
    unguarded = index;
    std::get<0>(to)() = unguarded;
    std::get<1>(to)() = static_cast<float>(unguarded) / 2;
  }
};
struct bulk : described {
  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    for (std::size_t row = 0; row < indices.size(); ++row) {
      std::get<0>(to)[row] = indices[row];
      std::get<1>(to)[row] = static_cast<float>(indices[row]) / 2;
    }
  }
};

using rows = std::vector<std::vector<std::pair<std::uint64_t, float>>>;

/// The batches of two epochs.
template <class Dataset>
rows batches_of(Dataset data, int readers) {
  auto feed = (std::move(data) | penstock::partition({.seed = 5}) | penstock::read({.readers = readers}) |
               penstock::batch(4) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  rows result;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : feed.epoch(epoch)) {
      const auto [number, noise] = batch.fields();
      result.emplace_back();
      for (std::size_t row = 0; row < batch.size(); ++row) result.back().emplace_back(number[row], noise[row]);
    }
  return result;
}

template <class Dataset>
class AnyDataset : public testing::Test {};
using Kinds = testing::Types<plain, with_context, opened, one_at_a_time, bulk>;
TYPED_TEST_SUITE(AnyDataset, Kinds);

TYPED_TEST(AnyDataset, gives_the_batches_of_the_dataset_in_it) {
  const rows wanted = batches_of(TypeParam{}, 0);
  ASSERT_EQ(wanted.size(), 12U);
  for (int readers : {0, 1, 3}) EXPECT_EQ(batches_of(any(TypeParam{}), readers), wanted) << readers << " readers";
}

TEST(AnyDataset, is_chosen_at_run_time) {
  for (const bool first : {true, false}) {
    const any chosen = first ? any(plain{}) : any(with_context{});
    EXPECT_EQ(batches_of(chosen, 1), first ? batches_of(plain{}, 1) : batches_of(with_context{}, 1));
  }
}

TEST(AnyDataset, copies_share_the_dataset) {
  struct counted : plain {
    std::shared_ptr<int> owner = std::make_shared<int>();
  };
  const counted data;
  {
    const any one(data);
    const any two = one;
    EXPECT_EQ(data.owner.use_count(), 2);
    EXPECT_EQ(two.size(), 21U);
  }
  EXPECT_EQ(data.owner.use_count(), 1);
}

}  // namespace
