// SPDX-License-Identifier: Apache-2.0
// Law 9: a feed that is restored from a state goes on with the very next sample, whatever its readers, depth and
// device.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "configurations.hpp"

namespace {

using namespace laws;

template <class Device>
class law_9 : public testing::Test {};
TYPED_TEST_SUITE(law_9, devices, device_name);

/// Another schedule and another device than the one a state was taken from.
template <class Device>
using other_device = std::conditional_t<std::same_as<Device, cpu>, modelled, cpu>;
configuration otherwise(configuration one) {
  one.readers = one.readers == 0 ? 2 : one.readers == 8 ? 0 : 8;
  one.depth = one.depth == 1 ? 4 : 1;
  return one;
}

/// The next `count` batches, over the ends of epochs.
template <class Feed>
std::vector<delivered> next_of(Feed& feed, std::uint64_t count) {
  std::vector<delivered> result;
  for (auto& batch : feed.steps(count)) result.push_back(take(batch));
  return result;
}

std::vector<delivered> planned_epochs(std::uint64_t n, const configuration& one, std::uint64_t epochs) {
  std::vector<delivered> all;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
    for (auto& batch : planned(n, one, epoch)) all.push_back(batch);
  return all;
}

TYPED_TEST(law_9, resuming_after_any_step_goes_on_with_the_very_next_sample) {
  const samples<> data{19};
  for_each_configuration([&](const configuration& one) {
    const auto wanted = planned_epochs(data.n, one, 4);
    const std::uint64_t per_epoch = planned(data.n, one, 0).size();
    auto feed = feed_of(data, TypeParam::make(), one);
    auto restored = feed_of(data, other_device<TypeParam>::make(), otherwise(one));
    // From the very beginning to the second epoch's end, through both epochs' borders.
    for (std::uint64_t done = 0; done <= 2 * per_epoch; ++done) {
      if (done > 0) {
        ASSERT_EQ(next_of(feed, 1), std::vector(1, wanted[done - 1]));
      }
      // A new feed costs threads: one for each state of a shuffle and a policy will do.
      if (one.how.is_full() && one.last == last_batch::keep) {
        restored = feed_of(data, other_device<TypeParam>::make(), otherwise(one));
      }
      restored.resume(penstock::feed_state::parse(feed.state().text()));
      ASSERT_EQ(next_of(restored, per_epoch + 1),
                std::vector(wanted.begin() + static_cast<std::ptrdiff_t>(done),
                            wanted.begin() + static_cast<std::ptrdiff_t>(done + per_epoch + 1)))
          << "after " << done << " steps";
    }
  });
}

TYPED_TEST(law_9, a_loop_over_epochs_goes_on_in_the_middle_of_one) {
  const samples<> data{23};
  for_each_schedule([&](const configuration& one) {
    penstock::feed_state state;
    {
      auto feed = feed_of(data, TypeParam::make(), one);
      for (auto& batch : feed.epoch(3)) {
        state = feed.state();
        if (batch.step() == 2) break;
      }
      EXPECT_EQ(state, feed.state()) << "what is read ahead or thrown away is not in the state";
    }
    EXPECT_EQ(state.epoch, 3U);
    EXPECT_EQ(state.samples, 12U);
    auto feed = feed_of(data, TypeParam::make(), otherwise(one));
    feed.resume(state);
    std::vector<delivered> rest;
    for (std::uint64_t epoch = feed.state().epoch; epoch < 5; ++epoch)
      for (auto& batch : feed.epoch(epoch)) rest.push_back(take(batch));
    auto wanted = planned(data.n, one, 3);
    wanted.erase(wanted.begin(), wanted.begin() + 3);
    for (auto& batch : planned(data.n, one, 4)) wanted.push_back(batch);
    ASSERT_EQ(rest, wanted);
    // Asked for by number it is a whole one again.
    ASSERT_EQ(epoch_of(feed, 3), planned(data.n, one, 3));
  });
}

TYPED_TEST(law_9, a_running_feed_can_be_set_back) {
  const samples<> data{23};
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(data, TypeParam::make(), one);
    const auto wanted = planned_epochs(data.n, one, 2);
    ASSERT_EQ(next_of(feed, 2).back(), wanted[1]);
    const auto state = feed.state();
    ASSERT_EQ(next_of(feed, 6).back(), wanted[7]);
    feed.resume(state);
    ASSERT_EQ(next_of(feed, 1).back(), wanted[2]);
  });
}

TYPED_TEST(law_9, another_number_of_replicas_goes_on_with_the_same_samples) {
  const samples<> data{23};
  const configuration one{.readers = 2, .batch = 6};
  auto feed = feed_of(data, TypeParam::make(), one);
  ASSERT_EQ(next_of(feed, 2).size(), 2U);
  const auto wanted = planned(data.n, one, 0);
  for (std::uint64_t size = 2; size <= 4; ++size) {
    std::vector<std::uint64_t> step_2;
    for (std::uint64_t rank = 0; rank < size; ++rank) {
      configuration mine = one;
      mine.world = {rank, size};
      auto restored = feed_of(data, TypeParam::make(), mine);
      restored.resume(feed.state());
      auto batch = restored.next();
      EXPECT_EQ(batch.step(), 2U);
      for (std::uint64_t index : batch.indices()) step_2.push_back(index);
    }
    EXPECT_EQ(step_2, wanted[2].indices) << size << " ranks";
  }
}

// With readers at work and batches in the user's hands; then on 1 to 3 ranks, in steps that divide nothing.
TYPED_TEST(law_9, another_batch_and_number_of_replicas_give_the_rest_of_the_epoch_once) {
  const samples<> data{23};
  std::vector<std::uint64_t> order(data.n);
  penstock::default_plan(data.n).order(7, 1, 0, order);
  std::size_t schedule = 0;
  auto feed = feed_of(data, TypeParam::make(), {.readers = 2, .depth = 3});
  auto range = feed.epoch(1);
  auto at = range.begin();
  std::vector<typename decltype(feed)::batch_type> held;
  for (std::uint64_t done = 1; done <= 5; ++done, ++at) {
    ASSERT_FALSE(at == range.end());
    held.clear();
    held.push_back(std::move(*at));
    const auto state = penstock::feed_state::parse(feed.state().text());
    ASSERT_EQ(state.samples, 4 * done);
    for (const last_batch last : all_lasts)
      for (const std::int64_t batch : {1, 3, 5, 30})
        for (std::uint64_t size = 1; size <= 3; ++size) {
          std::vector<std::vector<std::uint64_t>> steps;
          for (std::uint64_t rank = 0; rank < size; ++rank) {
            ++schedule;
            const configuration mine{.readers = std::array{0, 2, 1}[schedule % 3],
                                     .depth = all_depths[schedule % 2],
                                     .last = last,
                                     .batch = batch,
                                     .world = {rank, size}};
            const testing::ScopedTrace trace(
                __FILE__, __LINE__, text(mine) + ", batch " + std::to_string(batch) + " after " + std::to_string(done));
            auto restored = (data | penstock::partition({.seed = mine.seed, .world = mine.world}) |
                             penstock::read({.readers = mine.readers}) |
                             penstock::batch({.global = batch, .last = last, .allow_empty = true}) |
                             penstock::transfer(other_device<TypeParam>::make(), {.depth = mine.depth}))
                                .start();
            restored.resume(state);
            if (restored.state().epoch == 1) {
              std::uint64_t number = state.samples / static_cast<std::uint64_t>(batch);
              std::size_t k = 0;
              for (auto& one : restored.epoch(1)) {
                const auto got = take(one);
                ASSERT_EQ(one.step(), number);
                ASSERT_LT(number++, restored.steps_per_epoch());
                if (steps.size() == k) steps.emplace_back();
                steps[k].insert(steps[k].end(), got.indices.begin(), got.indices.end());
                ++k;
              }
              ASSERT_EQ(k, steps.size());
            }
            // The next one is whole, and cut as usual.
            ASSERT_EQ(restored.state().epoch, 2U);
            ASSERT_EQ(restored.state().samples, 0U);
            ASSERT_EQ(epoch_of(restored, 2), planned(data.n, mine, 2));
          }
          const auto each = static_cast<std::size_t>(batch);
          std::vector<std::vector<std::uint64_t>> wanted;
          for (std::size_t first = state.samples; first < data.n; first += each) {
            const std::size_t end = std::min<std::size_t>(first + each, data.n);
            if (last == last_batch::drop && end - first < each) break;
            wanted.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(first),
                                order.begin() + static_cast<std::ptrdiff_t>(end));
          }
          ASSERT_EQ(steps, wanted) << "batch " << batch << " over " << size << " ranks, after " << done;
        }
  }
}

TYPED_TEST(law_9, a_stream_goes_on_by_skipping_what_was_delivered) {
  const auto numbers = penstock::stream([](std::uint64_t epoch) {
    return std::views::iota(0, 14) |
           std::views::transform([epoch](int i) { return i + 100 * static_cast<int>(epoch); });
  });
  const auto values_of = [](auto& feed, std::uint64_t steps) {
    std::vector<int> result;
    for (auto& batch : feed.steps(steps)) {
      const auto values = batch.template host<0>();
      result.insert(result.end(), values.begin(), values.begin() + batch.size());
    }
    return result;
  };
  for (shuffle how : {shuffle::none, shuffle::window(5)})
    for (std::uint64_t done = 0; done <= 9; ++done) {
      const auto start = [&](int readers) {
        return (numbers | penstock::partition({.seed = 3, .shuffle = how}) | penstock::read({.readers = readers}) |
                penstock::batch(4) | penstock::transfer(TypeParam::make()))
            .start();
      };
      auto unbroken = start(1), first = start(2), resumed = start(0);
      values_of(first, done);
      resumed.resume(first.state());
      auto wanted = values_of(unbroken, done + 5);
      const auto rest = values_of(resumed, 5);
      wanted.erase(wanted.begin(), wanted.end() - static_cast<std::ptrdiff_t>(rest.size()));
      ASSERT_EQ(rest, wanted) << "after " << done << " steps, window " << how.block();
      ASSERT_GE(rest.size(), 16U);
    }
}

// Each replica keeps its part of a stream: the parts of 1 to 3 replicas are what the others have not delivered.
TYPED_TEST(law_9, a_stream_goes_on_with_another_batch_and_number_of_replicas) {
  static constexpr int n = 29;
  const auto numbers = penstock::stream([] { return std::views::iota(0, n); });
  const auto start = [&](shuffle how, int readers, std::int64_t batch, penstock::world where) {
    return (numbers | penstock::partition({.seed = 3, .shuffle = how, .world = where}) |
            penstock::read({.readers = readers}) | penstock::batch(batch) | penstock::transfer(TypeParam::make()))
        .start();
  };
  const auto receive = [](auto& batch) {
    const auto values = batch.template host<0>();
    return std::vector<int>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(batch.size()));
  };
  for (const shuffle how : {shuffle::none, shuffle::window(5)})
    for (std::uint64_t before = 1; before <= 3; ++before)
      for (std::uint64_t done = 1; done <= 3; ++done) {
        std::vector<int> delivered;
        penstock::feed_state state;
        for (std::uint64_t rank = 0; rank < before; ++rank) {
          auto feed = start(how, 1, 2, {rank, before});
          for (auto& batch : feed.steps(done))
            for (const int value : receive(batch)) delivered.push_back(value);
          if (rank != 0) {
            EXPECT_EQ(feed.state(), state) << "all ranks stand at the same place";
          }
          state = penstock::feed_state::parse(feed.state().text());
        }
        EXPECT_EQ(state.samples, delivered.size());
        for (std::uint64_t after = 1; after <= 3; ++after) {
          std::vector<int> all = delivered;
          for (std::uint64_t rank = 0; rank < after; ++rank) {
            auto feed = start(how, static_cast<int>(rank + done) % 3, 3, {rank, after});
            feed.resume(state);
            for (auto& batch : feed.epoch(0))
              for (const int value : receive(batch)) all.push_back(value);
            EXPECT_EQ(feed.state().epoch, 1U);
          }
          std::ranges::sort(all);
          ASSERT_TRUE(std::ranges::equal(all, std::views::iota(0, n)))
              << before << " ranks to " << after << " after " << done << " steps, window " << how.block();
        }
      }
}

TYPED_TEST(law_9, a_state_of_another_dataset_plan_or_seed_is_refused) {
  const samples<> data{23}, longer{24};
  const configuration one{};
  auto feed = feed_of(data, TypeParam::make(), one);
  ASSERT_TRUE(feed.next());
  const auto state = feed.state();
  const auto refuses = [&](const samples<>& on, configuration other) {
    auto restored = feed_of(on, TypeParam::make(), other);
    EXPECT_THROW(restored.resume(state), penstock::error);
    // It was not touched.
    EXPECT_EQ(epoch_of(restored, 0), planned(on.n, other, 0));
  };
  refuses(longer, one);
  refuses(data, {.seed = 8});
  refuses(data, {.how = shuffle::none});
  refuses(data, {.how = shuffle::blocks(5)});
  // Cut otherwise it is no other order.
  EXPECT_NO_THROW(feed_of(data, TypeParam::make(), {.last = last_batch::drop, .batch = 5}).resume(state));
  auto broken = state;
  broken.samples = 24;
  EXPECT_THROW(feed.resume(broken), penstock::error);
}

}  // namespace
