// SPDX-License-Identifier: Apache-2.0
// What is reduced: the result is that of the whole global batch, for any number of ranks.
#include <cmath>
#include <limits>
#include <numbers>

#include "support.hpp"

namespace {

using namespace replicated;
using penstock::reduction;
using penstock::replicas;

// The mean gradient of the samples of one step, as its formula says.
std::array<double, 2> closed_form(const line& model, std::span<const std::uint64_t> samples) {
  std::array<double, 2> sums{};
  for (const std::uint64_t index : samples) {
    const double x = rows::x_of(index), error = double{model.w[0]} * x + double{model.w[1]} - double{rows::y_of(index)};
    sums[0] += error * x;
    sums[1] += error;
  }
  for (double& sum : sums) sum /= static_cast<double>(samples.size());
  return sums;
}

// The order of epoch 0.
std::vector<std::uint64_t> order_of(std::uint64_t n, std::uint64_t seed) {
  std::vector<std::uint64_t> order(n);
  penstock::default_plan(n).order(seed, 0, 0, order);
  return order;
}

TEST(training, REP_5_thirteen_rows_in_unequal_parts_give_the_gradient_of_all) {
  const rows data{13};
  const auto all = order_of(13, 7);
  for (const std::uint64_t n : worlds)
    for (const std::int64_t global : {13, 5, 4, 1}) {
      by_rank<line> ends(n);
      replicas(static_cast<int>(n), [&](auto& replica) {
        line model;
        std::array<float, 2> gradient{};
        auto feed = replica.start(work_of(data, replica, {.global = global}));
        for (auto& batch : feed.epoch(0)) {
          model.gradient(batch, gradient);
          const auto first = batch.step() * static_cast<std::uint64_t>(global);
          const auto wanted = closed_form(
              model,
              std::span(all).subspan(first, std::min<std::uint64_t>(static_cast<std::uint64_t>(global), 13 - first)));
          const auto result = replica.all_reduce(batch, gradient);
          ASSERT_TRUE(result);
          EXPECT_EQ(result.samples, std::min<std::uint64_t>(static_cast<std::uint64_t>(global), 13 - first));
          for (std::size_t i = 0; i < 2; ++i) ASSERT_NEAR(gradient[i], wanted[i], 1e-6 * (1 + std::abs(wanted[i])));
          model.update(gradient);
        }
        ends.tell(replica, model);
      });
      ends.same();
    }
}

TEST(training, the_order_of_sums_is_fixed) {
  const rows data{101};
  for (const std::uint64_t n : worlds) {
    std::vector<line> runs;
    for (int run = 0; run < 5; ++run) {
      by_rank<line> ends(n);
      replicas(static_cast<int>(n), [&](auto& replica) {
        line model;
        std::vector<float> gradient(2);
        auto feed = replica.start(work_of(data, replica, {.global = 10, .readers = 1 + run % 3}));
        for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
          for (auto& batch : feed.epoch(epoch)) {
            model.gradient(batch, gradient);
            if (replica.all_reduce(batch, gradient)) model.update(gradient);
          }
        ends.tell(replica, model);
      });
      runs.push_back(ends.same());
      EXPECT_EQ(runs.back(), runs.front());
    }
  }
}

// 13 rows in steps of 6: the last one has one sample, for one rank.
TEST(training, law_8_what_a_rank_without_samples_holds_does_not_matter) {
  const rows data{13};
  replicas(4, [&](auto& replica) {
    auto feed = replica.start(work_of(data, replica, {.global = 6}));
    for (auto& batch : feed.epoch(0)) {
      std::vector<float> mean(3, batch.size() == 0 ? std::numeric_limits<float>::quiet_NaN() : 2.0F);
      std::vector<double> sum(2, batch.size() == 0 ? std::numeric_limits<double>::infinity() : 1.0);
      std::vector<std::int64_t> most(1, batch.size() == 0 ? 1000 : static_cast<std::int64_t>(batch.size()));
      ASSERT_TRUE(replica.all_reduce(batch, mean, penstock::buffer(sum, reduction::sum),
                                     penstock::buffer(most, reduction::maximum)));
      const std::uint64_t total = batch.step() == 2 ? 1 : 6;
      for (float one : mean) EXPECT_EQ(one, 2.0F);
      EXPECT_EQ(sum[0], static_cast<double>(std::min<std::uint64_t>(total, 4)));
      EXPECT_EQ(most[0], total == 1 ? 1 : 2);
    }
  });
}

TEST(training, weights_are_the_users_where_given) {
  const rows data{16};
  replicas(3, [&](auto& replica) {
    auto feed = replica.start(work_of(data, replica, {.global = 8}));
    for (auto& batch : feed.epoch(0)) {
      const auto rank = static_cast<double>(replica.rank());
      std::vector<double> mean(1, rank), of_sums(1, 10 * rank);
      // 0 * 0 + 1 * 1 + 2 * 2 over 3; rank 0 weighs nothing.
      const auto result =
          replica.all_reduce(batch, {.weight = rank}, mean, penstock::buffer(of_sums, penstock::mean_of_sums));
      ASSERT_TRUE(result);
      EXPECT_EQ(result.weight, 3);
      EXPECT_EQ(result.samples, 8U);
      EXPECT_DOUBLE_EQ(mean[0], 5.0 / 3);
      EXPECT_DOUBLE_EQ(of_sums[0], 30.0 / 3);
    }
  });
}

TEST(training, a_step_of_total_weight_zero_updates_nothing) {
  const rows data{16};
  const auto summary = replicas(3, [&](auto& replica) {
    auto feed = replica.start(work_of(data, replica, {.global = 8}));
    for (auto& batch : feed.epoch(0)) {
      std::vector<float> values(3, std::numeric_limits<float>::quiet_NaN());
      const double weight = batch.step() == 0 ? 0 : 1;
      if (weight != 0) values.assign(3, 1);
      EXPECT_EQ(replica.all_reduce(batch, {.weight = weight}, values).counts, weight != 0);
      for (float one : values) EXPECT_EQ(one, static_cast<float>(weight));
    }
  });
  EXPECT_EQ(summary.steps, 1U);
  EXPECT_EQ(summary.state.epoch, 1U);
}

TEST(training, values_of_any_size_and_type_are_reduced_whole) {
  const rows data{8};
  for (const std::uint64_t n : worlds)
    replicas(static_cast<int>(n), [&](auto& replica) {
      auto feed = replica.start(work_of(data, replica, {.global = 8}));
      for (auto& batch : feed.epoch(0)) {
        for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{31}, std::size_t{33},
                                       std::size_t{1000}, std::size_t{5003}}) {
          const auto check = [&](auto one) {
            using element = decltype(one);
            std::vector<element> values(size);
            for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<element>(i + replica.rank());
            std::vector<element> most = values;
            replica.ready(batch, penstock::buffer(values, reduction::sum), penstock::buffer(most, reduction::maximum));
            for (std::size_t i = 0; i < size; ++i) {
              ASSERT_EQ(values[i], static_cast<element>(n * i + n * (n - 1) / 2));
              ASSERT_EQ(most[i], static_cast<element>(i + n - 1));
            }
          };
          check(float{}), check(double{}), check(std::int32_t{}), check(std::int64_t{}), check(std::uint32_t{});
          check(std::uint64_t{});
        }
        EXPECT_TRUE(replica.all_reduce(batch));
      }
    });
}

TEST(training, a_maximum_shows_the_NaN_of_any_rank) {
  const rows data{8};
  for (std::uint64_t who = 0; who < 3; ++who)
    replicas(3, [&](auto& replica) {
      auto feed = replica.start(work_of(data, replica, {.global = 8}));
      for (auto& batch : feed.epoch(0)) {
        std::vector<float> most(40, replica.rank() == who ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
        replica.all_reduce(batch, penstock::buffer(most, reduction::maximum));
        for (const float one : most) EXPECT_TRUE(std::isnan(one));
      }
    });
}

TEST(training, layers_that_are_ready_early_come_to_the_same) {
  const rows data{13};
  by_rank<line> late(3), early(3);
  for (by_rank<line>* ends : {&late, &early})
    replicas(3, [&](auto& replica) {
      line model;
      std::array<float, 2> gradient{};
      auto feed = replica.start(work_of(data, replica));
      for (auto& batch : feed.epoch(0)) {
        model.gradient(batch, gradient);
        penstock::step_result result;
        if (ends == &early) {
          replica.ready(batch, std::span(gradient).last(1));
          result = replica.all_reduce(batch, std::span(gradient).first(1));
        } else {
          result = replica.all_reduce(batch, gradient);
        }
        if (result) model.update(gradient);
      }
      ends->tell(replica, model);
    });
  EXPECT_EQ(late.same(), early.same());
}

TEST(training, metrics_are_added_on_the_way) {
  const rows data{13};
  replicas(4, [&](auto& replica) {
    auto feed = replica.start(work_of(data, replica));
    for (auto& batch : feed.epoch(0)) {
      const double mine[] = {static_cast<double>(replica.rank()), 1};
      const auto result = replica.all_reduce(batch, {.metrics = mine});
      EXPECT_EQ(result.metrics[0], 6);
      EXPECT_EQ(result.metrics[1], 4);
      EXPECT_EQ(result.of, batch.step());
    }
  });
}

TEST(training, what_is_outside_the_loop_is_exchanged_too) {
  for (const std::uint64_t n : worlds)
    replicas(static_cast<int>(n), [&](auto& replica) {
      std::vector<double> numbers(19, static_cast<double>(replica.rank() + 1));
      replica.sum(numbers);
      for (double one : numbers) EXPECT_EQ(one, static_cast<double>(n * (n + 1) / 2));
      std::vector<float> parameters(
          7, replica.rank() == n - 1 ? std::numbers::pi_v<float> : std::numeric_limits<float>::quiet_NaN());
      std::vector<std::uint32_t> counts(2, static_cast<std::uint32_t>(replica.rank()));
      replica.broadcast(n - 1, {}, parameters, counts);
      for (float one : parameters) EXPECT_EQ(one, std::numbers::pi_v<float>);
      EXPECT_EQ(counts[1], n - 1);
      const auto texts = replica.gather("rank " + std::to_string(replica.rank()));
      ASSERT_EQ(texts.size(), n);
      for (std::uint64_t r = 0; r < n; ++r) EXPECT_EQ(texts[r], "rank " + std::to_string(r));
      replica.barrier();
    });
}

// Every second step, and what is left at the end is a loop that was left.
TEST(training, gradients_may_be_accumulated_over_steps) {
  const rows data{24};
  const auto summary = replicas(2, [&](auto& replica) {
    auto feed = replica.start(work_of(data, replica, {.global = 4}));
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::size_t batches = 0;
      for (auto& batch : feed.epoch(epoch)) {
        float value[1] = {1};
        if (++batches % 2 == 0) {
          EXPECT_TRUE(replica.all_reduce(batch, std::span(value)));
        }
      }
      EXPECT_EQ(batches, 6U);
    }
  });
  EXPECT_EQ(summary.steps, 6U);
  EXPECT_EQ(summary.state.epoch, 2U);
}

TEST(training, two_trainings_follow_each_other_in_one_body) {
  const rows data{13}, other{9};
  const auto summary = replicas(3, [&](auto& replica) {
    for (const rows* one : {&data, &other}) {
      auto feed = replica.start(work_of(*one, replica));
      for (auto& batch : feed.epoch(0)) {
        float value[1] = {1};
        EXPECT_TRUE(replica.all_reduce(batch, std::span(value)));
      }
    }
  });
  EXPECT_EQ(summary.steps, 4U + 3U);
}

}  // namespace
