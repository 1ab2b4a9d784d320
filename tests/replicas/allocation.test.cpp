// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: it counts what the plain program allocates
// ctest: no asan: it counts what the plain program allocates
// Law 2 for replicas: nothing is allocated once the first steps are done.
#include <gtest/gtest.h>

#include "../support/counted_allocations.hpp"
#include "scene.hpp"

namespace {

using namespace scenes;

class allocation : public testing::TestWithParam<std::tuple<int, int>> {};
INSTANTIATE_TEST_SUITE_P(replicas, allocation, testing::Combine(testing::Values(1, 2, 4), testing::Values(0, 2)));

// All ranks are between two barriers when the count is taken.
TEST_P(allocation, steps_of_a_loop_of_ones_own_allocate_nothing) {
  const hang_limit limit;
  const int ranks = std::get<0>(GetParam()), readers = std::get<1>(GetParam());
  const dataset data = count_to(61);
  penstock::replicas(ranks, [&](rank& one) {
    auto feed = one.start(batches_of(one, data, {.readers = readers}));
    std::vector<float> first(1000), last(7);
    std::vector<std::int64_t> counts(3);
    double sums[2] = {1, 2};
    std::size_t before = 0;
    for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
      if (epoch == 2) {
        one.barrier();
        before = laws::allocations;
        one.barrier();
      }
      for (auto& batch : feed.epoch(epoch)) {
        one.ready(batch, last);
        one.all_reduce(batch, {.metrics = sums}, first, penstock::buffer(counts, penstock::reduction::sum));
        if (batch.step() == 3) one.sum(sums);
      }
      one.barrier();
    }
    EXPECT_EQ(laws::allocations, before);
    one.barrier();
  });
}

TEST_P(allocation, steps_of_a_run_allocate_nothing) {
  const hang_limit limit;
  const int ranks = std::get<0>(GetParam()), readers = std::get<1>(GetParam());
  const dataset data = count_to(61);
  std::vector<std::vector<float>> gradients(static_cast<std::size_t>(ranks), std::vector<float>(1000));
  std::size_t before = 0;
  penstock::run(world(ranks),
                [&](rank& one) {
                  return batches_of(one, data, {.readers = readers}) |
                         penstock::compute([&own = gradients[one.rank()]](const auto&) { return std::span(own); }) |
                         penstock::all_reduce() | penstock::compute([&](std::span<float>, const auto& batch) {
                           // All have begun long ago, and none ends before this one.
                           if (one.rank() != 0) return;
                           if (batch.epoch() == 2 && batch.step() == 0) before = laws::allocations;
                           if (batch.epoch() == 5 && batch.step() == 6) {
                             EXPECT_EQ(laws::allocations, before);
                           }
                         });
                },
                {.epochs = 6});
  EXPECT_NE(before, 0u);
}

}  // namespace
