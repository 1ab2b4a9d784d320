// SPDX-License-Identifier: Apache-2.0
// Streams whose length nobody knows before: ranks that run dry at different steps, joined or stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ranges>

#include "scene.hpp"

namespace {

using namespace scenes;

using lengths = std::vector<std::uint64_t>;
constexpr std::uint64_t size = 4;

// A stream of the rank's own, of `n` numbers from 100 times the rank on.
auto stream_of(const rank& one, std::uint64_t n, int readers) {
  const std::uint64_t first = 100 * one.rank();
  return penstock::stream([first, n] { return std::views::iota(first, first + n); }) |
         penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = readers}) |
         penstock::batch({.size = size}) | penstock::transfer(one.device());
}

struct step {
  double sum = 0;  // of all ranks' numbers
  std::uint64_t samples = 0;
  bool operator==(const step&) const = default;
};
std::ostream& operator<<(std::ostream& out, const step& one) { return out << one.sum << "/" << one.samples; }

std::uint64_t batches_of_length(std::uint64_t n) { return (n + size - 1) / size; }

std::vector<step> expected(const lengths& all, bool join) {
  std::uint64_t steps = join ? 0 : std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t n : all) {
    const std::uint64_t own = batches_of_length(n);
    if (join ? own > steps : own < steps) steps = own;
  }
  std::vector<step> result(static_cast<std::size_t>(steps));
  for (std::size_t r = 0; r < all.size(); ++r)
    for (std::uint64_t i = 0; i < all[r] && i < steps * size; ++i) {
      result[static_cast<std::size_t>(i / size)].sum += static_cast<double>(100 * r + i);
      ++result[static_cast<std::size_t>(i / size)].samples;
    }
  return result;
}

class streams : public testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(replicas, streams, testing::Combine(testing::Values(0, 1, 3), testing::Bool()));

const lengths cases[] = {{9},       {8},       {9, 2},      {2, 9},     {4, 8},        {8, 8},
                         {1, 1, 1}, {9, 2, 5}, {1, 20, 16}, {4, 3, 12}, {17, 4, 8, 1}, {3, 3, 4, 5}};

TEST_P(streams, that_end_at_different_steps_end_all_loops_at_one) {
  const hang_limit limit;
  const int readers = std::get<0>(GetParam());
  const bool join = std::get<1>(GetParam());
  for (const lengths& all : cases) {
    SCOPED_TRACE(testing::PrintToString(all));
    const auto wanted = expected(all, join);
    std::vector<std::vector<step>> seen(all.size());
    const auto body = [&](rank& one) {
      auto feed = one.start(stream_of(one, all[one.rank()], readers));
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<step> steps;
        // What is left from the step before would count where a stale value is taken.
        double mean[1] = {1e6}, sum[1] = {1e6};
        for (auto& batch : feed.epoch(epoch)) {
          if (batch.size() != 0) {
            sum[0] = 0;
            for (const std::uint64_t number : numbers_of(batch)) sum[0] += static_cast<double>(number);
          } else {
            sum[0] = std::numeric_limits<double>::quiet_NaN();
          }
          mean[0] = sum[0] / static_cast<double>(batch.size());
          const auto result = one.all_reduce(batch, penstock::buffer(std::span(mean)),
                                             penstock::buffer(std::span(sum), penstock::reduction::sum));
          if (!result) continue;
          EXPECT_DOUBLE_EQ(mean[0] * static_cast<double>(result.samples), sum[0]);
          steps.push_back({sum[0], result.samples});
        }
        EXPECT_EQ(one.state().epoch, epoch + 1);
        EXPECT_EQ(one.state().samples, 0u);
        if (epoch == 0)
          seen[one.rank()] = steps;
        else
          EXPECT_EQ(steps, seen[one.rank()]);
      }
      // All are at the same place.
      double ranks[1] = {1};
      one.sum(ranks);
      EXPECT_EQ(ranks[0], static_cast<double>(one.size()));
    };
    const auto summary = penstock::replicas(static_cast<int>(all.size()), body,
                                            {.uneven = join ? penstock::uneven::join : penstock::uneven::stop});
    for (const auto& steps : seen) EXPECT_EQ(steps, wanted);
    EXPECT_EQ(summary.steps, 2 * wanted.size());
    EXPECT_FALSE(summary.stopped);
  }
}

TEST_P(streams, and_in_a_run) {
  const hang_limit limit;
  const int readers = std::get<0>(GetParam());
  const bool join = std::get<1>(GetParam());
  for (const lengths& all : cases) {
    SCOPED_TRACE(testing::PrintToString(all));
    std::vector<std::vector<double>> sums(all.size(), std::vector<double>(1));
    std::vector<std::vector<double>> seen(all.size());
    const auto result =
        penstock::run(world(static_cast<int>(all.size())),
                      [&](rank& one) {
                        auto& sum = sums[one.rank()];
                        auto& own = seen[one.rank()];
                        return stream_of(one, all[one.rank()], readers) | penstock::compute([&sum](const auto& batch) {
                                 sum[0] = batch.size() == 0 ? std::numeric_limits<double>::quiet_NaN() : 0;
                                 for (const std::uint64_t number : numbers_of(batch))
                                   sum[0] += static_cast<double>(number);
                                 return std::span(sum);
                               }) |
                               penstock::all_reduce(penstock::reduction::sum) |
                               penstock::compute([&own](std::span<double> all_sum) { own.push_back(all_sum[0]); });
                      },
                      {.epochs = 2, .replicas = {.uneven = join ? penstock::uneven::join : penstock::uneven::stop}});
    std::vector<double> wanted;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const step& one : expected(all, join)) wanted.push_back(one.sum);
    for (const auto& own : seen) EXPECT_EQ(own, wanted);
    EXPECT_EQ(result.steps, wanted.size());
    EXPECT_EQ(result.state.epoch, 2u);
  }
}

// One stream dealt out over all ranks, the last of which get none.
TEST_P(streams, of_fewer_samples_than_ranks_leave_some_without_any) {
  const hang_limit limit;
  const int readers = std::get<0>(GetParam());
  const bool join = std::get<1>(GetParam());
  const auto three = penstock::stream([] { return std::views::iota(std::uint64_t{0}, std::uint64_t{3}); });
  std::vector<std::size_t> sizes(4);
  const auto summary = penstock::replicas(
      4,
      [&](rank& one) {
        auto feed = one.start(three | penstock::partition({.shuffle = penstock::shuffle::none, .world = one}) |
                              penstock::read({.readers = readers}) | penstock::batch({.size = 2}) |
                              penstock::transfer(one.device()));
        double count[1];
        for (auto& batch : feed.epoch(0)) {
          sizes[one.rank()] += batch.size();
          count[0] = batch.size() == 0 ? std::nan("") : static_cast<double>(batch.size());
          if (one.all_reduce(batch, penstock::buffer(std::span(count), penstock::reduction::sum))) {
            EXPECT_EQ(count[0], 3);
          }
        }
      },
      {.uneven = join ? penstock::uneven::join : penstock::uneven::stop});
  if (join) {
    EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 1, 1, 0}));
  }
  EXPECT_EQ(summary.steps, join ? 1u : 0u);
}

// Whoever is dry is still told of what happens to the others.
TEST_P(streams, that_are_dry_on_one_rank_take_part_in_anothers_end) {
  const hang_limit limit;
  const int readers = std::get<0>(GetParam());
  const bool join = std::get<1>(GetParam());
  if (!join) return;
  for (const bool fails : {false, true}) {
    std::vector<std::uint64_t> updates(3);
    const auto caught = error_of([&] {
      const auto summary = penstock::replicas(3, [&](rank& one) {
        auto feed = one.start(stream_of(one, one.rank() == 0 ? 40 : 3, readers));
        for (auto& batch : feed.epoch(0)) {
          if (one.rank() == 0 && batch.step() == 5) {
            if (fails) throw std::domain_error("by the body");
            one.stop();
          }
          if (one.all_reduce(batch)) ++updates[one.rank()];
        }
      });
      EXPECT_TRUE(summary.stopped);
    });
    EXPECT_EQ(caught.has_value(), fails);
    EXPECT_EQ(updates, (std::vector<std::uint64_t>{5, 5, 5}));
  }
}

TEST_P(streams, whose_range_throws_end_all) {
  const hang_limit limit;
  const int readers = std::get<0>(GetParam());
  const bool join = std::get<1>(GetParam());
  std::vector<std::uint64_t> updates(3);
  const auto caught = error_of([&] {
    penstock::replicas(3,
                       [&](rank& one) {
                         const auto make = [bad = one.rank() == 2] {
                           return std::views::iota(std::uint64_t{0}, std::uint64_t{40}) |
                                  std::views::transform([bad](std::uint64_t i) {
                                    if (bad && i == 9) throw std::domain_error("by the range");
                                    return i;
                                  });
                         };
                         auto feed = one.start(penstock::stream(make) |
                                               penstock::partition({.shuffle = penstock::shuffle::none}) |
                                               penstock::read({.readers = readers}) | penstock::batch({.size = 4}) |
                                               penstock::transfer(one.device()));
                         for (auto& batch : feed.epoch(0))
                           if (one.all_reduce(batch)) ++updates[one.rank()];
                       },
                       {.uneven = join ? penstock::uneven::join : penstock::uneven::stop});
  });
  ASSERT_TRUE(caught);
  EXPECT_EQ(caught->rank(), 2u);
  EXPECT_TRUE(has(caught->what(), "by the range")) << caught->what();
  EXPECT_EQ(updates, (std::vector<std::uint64_t>{2, 2, 2}));
}

TEST_P(streams, a_loop_without_all_reduce_is_told_of_and_not_fed_for_ever) {
  const hang_limit limit;
  const int readers = std::get<0>(GetParam());
  try {
    std::uint64_t batches = 0;
    penstock::replicas(1, [&](rank& one) {
      auto feed = one.start(stream_of(one, 9, readers));
      for (auto& batch : feed.epoch(0)) batches += batch.size() == 0 ? 1 : 0;
    });
    FAIL();
  } catch (const penstock::replica_error& caught) {
    EXPECT_NE(std::string(caught.what()).find("empty batches have passed without an all_reduce"), std::string::npos)
        << caught.what();
  }
}

}  // namespace
