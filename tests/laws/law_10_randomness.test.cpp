// SPDX-License-Identifier: Apache-2.0
// Law 10: randomness belongs to the sample: its draws are a function of (seed, epoch, sample index).
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "configurations.hpp"

namespace {

using namespace laws;

template <class Device>
class law_10 : public testing::Test {};
TYPED_TEST_SUITE(law_10, devices, device_name);

/// Overwrites the values with draws: the first one was drawn while the sample was read.
struct draws {
  void operator()(const penstock::sample_view<schema_type>& sample, penstock::philox& random) const {
    const auto& [id, values] = sample;
    values[1] = random.uniform();
    values[2] = static_cast<float>(random.below(1000));
  }
};
struct drawing : samples<> {
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to, penstock::read_context& context) const {
    samples::read(index, to, context);
    std::get<1>(to)[0] = context.random.uniform();
  }
};

// ORD-1
TYPED_TEST(law_10, ORD_1_draws_are_bit_equal_for_any_readers_depth_shuffle_and_batch) {
  const drawing data{{23}};
  for_each_configuration([&](configuration one) {
    one.batch = one.depth == 4 ? 7 : 4;
    auto feed = pipeline_of(data, TypeParam::make(), one, penstock::read({}, draws{})).start();
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
      for (auto& batch : feed.epoch(epoch)) {
        batch.stream().synchronize();
        const float* const values = std::get<1>(batch.fields()).data();
        for (std::size_t row = 0; row < batch.size(); ++row) {
          penstock::philox random(one.seed, epoch, batch.indices()[row]);
          ASSERT_EQ(values[3 * row], random.uniform());
          ASSERT_EQ(values[3 * row + 1], random.uniform());
          ASSERT_EQ(values[3 * row + 2], static_cast<float>(random.below(1000)));
        }
      }
  });
}

TYPED_TEST(law_10, a_resumed_feed_draws_what_the_unbroken_one_would_have) {
  const drawing data{{23}};
  const auto values_of = [](auto& feed, std::uint64_t steps) {
    std::vector<float> result;
    for (auto& batch : feed.steps(steps)) {
      batch.stream().synchronize();
      const float* const values = std::get<1>(batch.fields()).data();
      result.assign(values, values + 3 * batch.size());
    }
    return result;
  };
  auto unbroken = pipeline_of(data, TypeParam::make(), {.readers = 2}, penstock::read({}, draws{})).start();
  auto broken = pipeline_of(data, TypeParam::make(), {.readers = 8}, penstock::read({}, draws{})).start();
  values_of(broken, 7);
  auto resumed = pipeline_of(data, TypeParam::make(), {.readers = 0}, penstock::read({}, draws{})).start();
  resumed.resume(broken.state());
  EXPECT_EQ(values_of(resumed, 1), values_of(unbroken, 8));
}

}  // namespace
