// SPDX-License-Identifier: Apache-2.0
// ctest: no asan: endings and leaving have it
// Law 1 for replicas: a step's samples over all ranks are the same for every world that keeps the global batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "scene.hpp"

namespace {

using namespace scenes;

using samples_of_steps = std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::uint64_t>>;

// By a loop of one's own, or by run().
samples_of_steps steps_of(int ranks, std::uint64_t n, const plan& how, bool own_loop) {
  const dataset data = count_to(n);
  samples_of_steps all;
  std::mutex mutex;
  const auto note = [&](const auto& batch) {
    const std::scoped_lock lock(mutex);
    auto& step = all[{batch.epoch(), batch.step()}];
    const auto own = numbers_of(batch);
    step.insert(step.end(), own.begin(), own.end());
  };
  if (own_loop) {
    penstock::replicas(ranks, [&](rank& one) {
      auto feed = one.start(batches_of(one, data, how));
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
        for (auto& batch : feed.epoch(epoch)) {
          note(batch);
          one.all_reduce(batch);
        }
    });
  } else {
    std::vector<std::vector<float>> values(static_cast<std::size_t>(ranks), std::vector<float>(3));
    penstock::run(world(ranks),
                  [&](rank& one) {
                    return batches_of(one, data, how) |
                           penstock::compute([&, &own = values[one.rank()]](const auto& batch) {
                             note(batch);
                             return std::span(own);
                           }) |
                           penstock::all_reduce();
                  },
                  {.epochs = 2});
  }
  for (auto& [where, samples] : all) std::ranges::sort(samples);
  return all;
}

class worlds : public testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(replicas, worlds, testing::Combine(testing::Values(1, 2, 3, 4), testing::Bool()));

TEST_P(worlds, a_step_over_all_ranks_has_the_same_samples) {
  const hang_limit limit;
  const auto [ranks, own_loop] = GetParam();
  for (const std::uint64_t n : {13u, 22u, 64u}) {
    for (const std::int64_t global : {3, 5, 8}) {
      for (const auto how : {penstock::shuffle::full, penstock::shuffle::none}) {
        const plan one{.global = global, .readers = 0, .how = how};
        const plan other{.global = global, .readers = 2, .how = how};
        const auto expected = steps_of(1, n, one, true);
        EXPECT_EQ(expected.size(),
                  2 * ((n + static_cast<std::uint64_t>(global) - 1) / static_cast<std::uint64_t>(global)));
        EXPECT_EQ(steps_of(ranks, n, other, own_loop), expected) << n << " samples, global batch " << global;
      }
    }
  }
}

}  // namespace
