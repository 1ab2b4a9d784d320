// SPDX-License-Identifier: Apache-2.0
// Checkpoint and resume: the state of a feed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <ranges>
#include <string>
#include <string_view>

#include "support.hpp"

namespace {

using namespace known_failures;

struct setting {
  int readers = 2;
  int depth = 3;
};
constexpr setting settings[] = {{0, 1}, {1, 2}, {4, 8}};

// A state goes through its text, as in a file.
penstock::feed_state stored(const penstock::feed_state& state) {
  return penstock::feed_state::parse(state.text() + "\n");
}

// 125 steps an epoch, each row with a random draw.
auto training(setting with, penstock::world where = {}) {
  return numbers<>{1000} | penstock::partition({.seed = 9, .world = where}) |
         penstock::read({.readers = with.readers},
                        [](const auto& sample, penstock::philox& random) {
                          auto& number = *std::get<0>(sample).data();
                          number = number << 32 | random();
                        }) |
         penstock::batch({.global = 8}) | penstock::transfer(penstock::cpu_device{}, {.depth = with.depth});
}
// A model of one number whose bits tell every draw and its order.
double step(double model, const std::vector<std::uint64_t>& rows) {
  for (const std::uint64_t row : rows) model = model * 0.9 + static_cast<double>(row & 0xFFFFFFFF) * 1e-9;
  return model;
}

struct trained {
  std::vector<std::vector<std::uint64_t>> rows;
  std::vector<double> losses;
};
template <class Range>
void train(Range&& range, trained& into) {
  for (auto& batch : range) {
    into.rows.push_back(numbers_of(batch));
    into.losses.push_back(step(into.losses.empty() ? 1.0 : into.losses.back(), into.rows.back()));
  }
}

TEST(known_failures, CKP_1_a_resume_in_mid_epoch_goes_on_with_the_same_rows_and_bits) {
  const hang_limit limit;
  trained whole;
  train(training({}).steps(500), whole);
  ASSERT_EQ(whole.rows.size(), 500u);

  for (const std::size_t stop : {1u, 124u, 125u, 126u, 200u, 250u, 499u}) {
    for (const setting with : settings) {
      trained parts;
      auto before = training({}).start();
      train(before.steps(stop), parts);
      const penstock::feed_state state = stored(before.state());
      EXPECT_EQ(state.epoch, stop / 125);
      auto after = training(with).start();
      after.resume(state);
      train(after.steps(500 - stop), parts);
      EXPECT_EQ(parts.rows, whole.rows) << "stopped at " << stop;
      ASSERT_EQ(parts.losses.size(), whole.losses.size());
      for (std::size_t i = 0; i < parts.losses.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint64_t>(parts.losses[i]), std::bit_cast<std::uint64_t>(whole.losses[i])) << i;
    }
  }
}

TEST(known_failures, CKP_1_resumed_loops_over_epochs_see_the_rest_of_theirs_first) {
  const hang_limit limit;
  for (const setting with : settings) {
    auto before = training({}).start();
    for (auto& batch : before.epoch(0)) (void)batch;
    for (auto& batch : before.epoch(1))
      if (batch.step() == 74) break;
    auto after = training(with).start();
    after.resume(stored(before.state()));
    trained resumed, whole;
    for (std::uint64_t epoch = after.state().epoch; epoch < 4; ++epoch) train(after.epoch(epoch), resumed);
    train(training({}).steps(500), whole);
    ASSERT_EQ(resumed.rows.size(), 300u);
    EXPECT_TRUE(std::ranges::equal(resumed.rows, whole.rows | std::views::drop(200)));
  }
}

TEST(known_failures, CKP_1_batches_keep_their_numbers_after_a_resume) {
  const hang_limit limit;
  auto before = training({}).start();
  (void)all_of(before.steps(200));
  auto after = training({}).start();
  after.resume(stored(before.state()));
  auto batch = after.next();
  EXPECT_EQ(batch.epoch(), 1u);
  EXPECT_EQ(batch.step(), 75u);
}

// The global batch is the same, so a step is the same rows over all replicas.
TEST(known_failures, CKP_1_a_resume_with_another_number_of_replicas) {
  const hang_limit limit;
  trained whole;
  train(training({}).steps(300), whole);
  for (const std::uint64_t size_before : {1u, 2u, 4u}) {
    auto before = training({}, {size_before - 1, size_before}).start();
    (void)all_of(before.steps(200));
    for (const std::uint64_t size_after : {1u, 2u, 3u, 8u}) {
      std::vector<std::vector<std::uint64_t>> rows(100);
      for (std::uint64_t rank = 0; rank < size_after; ++rank) {
        auto after = training({}, {rank, size_after}).start();
        after.resume(stored(before.state()));
        std::size_t at = 0;
        for (auto& part : all_of(after.steps(100))) {
          rows[at].insert(rows[at].end(), part.begin(), part.end());
          ++at;
        }
        EXPECT_EQ(at, 100u);
      }
      EXPECT_TRUE(std::ranges::equal(rows, whole.rows | std::views::drop(200))) << size_before << " to " << size_after;
    }
  }
}

class checkpoint_at_a_border : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(known_failures, checkpoint_at_a_border, testing::Values(0, 1, 2));

// Epoch 1 of 3 has ended: the state is taken in the body of its last step, after the loop, or before the next one.
TEST_P(checkpoint_at_a_border, CKP_2_the_next_epoch_does_not_vanish) {
  const hang_limit limit;
  for (const setting with : settings) {
    auto before = training({}).start();
    penstock::feed_state state;
    for (auto& batch : before.epoch(0))
      if (GetParam() == 0 && batch.step() == 124) state = before.state();
    if (GetParam() == 1) state = before.state();
    if (GetParam() == 2) {
      const auto range = before.epoch(1);
      state = before.state();
    }
    EXPECT_EQ(state.epoch, 1u);
    EXPECT_EQ(state.samples, 0u);

    std::vector<std::size_t> steps;
    auto after = training(with).start();
    after.resume(stored(state));
    for (std::uint64_t epoch = after.state().epoch; epoch < 3; ++epoch)
      steps.push_back(all_of(after.epoch(epoch)).size());
    EXPECT_EQ(steps, (std::vector<std::size_t>{125, 125}));
  }
}

TEST(known_failures, CKP_2_a_run_that_is_resumed_at_a_border_takes_all_its_steps) {
  const hang_limit limit;
  const auto counting = [](setting with) {
    return training(with) | penstock::reduce(0, [](int count, auto&) { return count + 1; });
  };
  const auto first = penstock::run(counting({}), {.epochs = 1});
  EXPECT_EQ(first.steps, 125u);
  const penstock::feed_state border = stored(first.state);
  for (const setting with : settings) {
    const auto rest = penstock::run(counting(with), {.epochs = 3, .resume = border});
    EXPECT_EQ(rest.steps, 250u);
    EXPECT_EQ(rest.epochs, (std::vector<int>{125, 125}));
    // Nothing is left to do for one that has all its epochs.
    const penstock::feed_state end = stored(rest.state);
    EXPECT_EQ(penstock::run(counting(with), {.epochs = 3, .resume = end}).steps, 0u);
  }
}

// The last rows of an epoch make no batch: to have delivered all others is to be at its end.
TEST(known_failures, CKP_2_a_border_before_dropped_rows) {
  const hang_limit limit;
  const auto start = [] {
    return (numbers<>{103} | penstock::partition({.seed = 9}) | penstock::read({.readers = 2}) |
            penstock::batch({.size = 10, .last = penstock::last_batch::drop}) |
            penstock::transfer(penstock::cpu_device{}))
        .start();
  };
  auto before = start();
  auto range = before.epoch(0);
  auto at = range.begin();
  for (int i = 0; i < 10; ++i, ++at) ASSERT_FALSE(at == range.end());
  auto after = start();
  after.resume(stored(before.state()));
  EXPECT_EQ(after.state().epoch, 1u);
  EXPECT_EQ(all_of(after.epoch(1)).size(), 10u);
}

TEST(known_failures, CKP_4_the_state_counts_what_was_delivered_not_what_was_read_ahead) {
  const hang_limit limit;
  std::atomic<std::uint64_t> begun{0};
  auto hook = [&](std::uint64_t) { begun.fetch_add(1); };
  for (const int readers : {1, 4}) {
    begun = 0;
    auto feed = (numbers{50 * 4, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                 penstock::read({.readers = readers}) | penstock::batch(4) |
                 penstock::transfer(penstock::cpu_device{}, {.depth = 8}))
                    .start();
    for (int i = 0; i < 5; ++i) (void)feed.next();
    // Eight batches more are ready, or as good as.
    ASSERT_TRUE(comes_true([&] { return begun.load() == 13 * 4; }));
    EXPECT_EQ(feed.state().samples, 20u);
    auto resumed = (numbers<>{50 * 4} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                    penstock::read({.readers = readers}) | penstock::batch(4) |
                    penstock::transfer(penstock::cpu_device{}, {.depth = 8}))
                       .start();
    resumed.resume(stored(feed.state()));
    auto batch = resumed.next();
    EXPECT_EQ(batch.step(), 5u);
    EXPECT_EQ(numbers_of(batch).front(), 20u);
    // The one that was asked goes on as if it had not been.
    EXPECT_EQ(numbers_of(feed.next()).front(), 20u);
  }
}

TEST(known_failures, CKP_4_a_resume_of_the_same_feed_forgets_what_it_had_read_ahead) {
  const hang_limit limit;
  for (const setting with : settings) {
    auto feed = training(with).start();
    (void)all_of(feed.steps(130));
    const auto state = stored(feed.state());
    const auto expected = all_of(feed.steps(20));
    feed.resume(state);
    EXPECT_EQ(all_of(feed.steps(20)), expected);
    feed.resume(state);
    EXPECT_EQ(all_of(feed.epoch(1)).size(), 120u);
  }
}

TEST(known_failures, CKP_4_a_resumed_stream_goes_on_with_the_very_next_sample) {
  const hang_limit limit;
  const auto start = [](int readers) {
    return (penstock::stream([] { return std::views::iota(std::uint64_t{0}, std::uint64_t{200}); }) |
            penstock::partition({.seed = 3, .shuffle = penstock::shuffle::window(30)}) |
            penstock::read({.readers = readers}) | penstock::batch(4) |
            penstock::transfer(penstock::cpu_device{}, {.depth = 8}))
        .start();
  };
  const auto whole = all_of(start(1).epoch(1));
  ASSERT_EQ(whole.size(), 50u);
  for (const int readers : {0, 1, 4}) {
    auto before = start(readers);
    (void)all_of(before.epoch(0));
    EXPECT_EQ(before.state().epoch, 1u);
    EXPECT_EQ(before.state().samples, 0u);
    for (auto& batch : before.epoch(1))
      if (batch.step() == 4) break;
    auto after = start(readers);
    after.resume(stored(before.state()));
    const auto rest = all_of(after.epoch(1));
    EXPECT_TRUE(std::ranges::equal(rest, whole | std::views::drop(5))) << readers << " readers";
  }
}

// The class of damage and of mistakes; the file itself is the trainer's.
TEST(known_failures, CKP_6_a_damaged_state_is_refused) {
  const penstock::feed_state state{.seed = 1, .epoch = 22, .samples = 333, .fingerprint = 4444};
  const std::string text = state.text();
  EXPECT_EQ(penstock::feed_state::parse(text), state);
  for (std::size_t length = 0; length + 4 < text.size(); ++length)
    EXPECT_THROW((void)penstock::feed_state::parse(text.substr(0, length)), penstock::error) << text.substr(0, length);
  for (const std::string_view bad : {"penstock-state 3 seed 1 epoch 22 samples 333 fingerprint 4444",
                                     "penstock-state 2 seed -1 epoch 22 samples 333 fingerprint 4444",
                                     "penstock-state 2 seed 1 epoch 22 samples 333 fingerprint 4444x",
                                     "penstock-state 2 seed 1 epoch 22 samples 99999999999999999999 fingerprint 4444",
                                     "penstock-state 2 epoch 22 seed 1 samples 333 fingerprint 4444"})
    EXPECT_THROW((void)penstock::feed_state::parse(bad), penstock::error) << bad;
}

TEST(known_failures, CKP_6_the_state_of_another_feed_is_refused) {
  const hang_limit limit;
  const auto start = [](std::uint64_t rows, std::uint64_t seed, std::int64_t batch, penstock::shuffle how,
                        penstock::last_batch last) {
    return (numbers<>{rows} | penstock::partition({.seed = seed, .shuffle = how}) | penstock::read({.readers = 1}) |
            penstock::batch({.size = batch, .last = last}) | penstock::transfer(penstock::cpu_device{}))
        .start();
  };
  using penstock::last_batch;
  using penstock::shuffle;
  auto feed = start(1000, 9, 8, shuffle::full, last_batch::keep);
  (void)feed.next();
  const auto state = stored(feed.state());
  EXPECT_THROW(start(1001, 9, 8, shuffle::full, last_batch::keep).resume(state), penstock::error);
  EXPECT_THROW(start(1000, 10, 8, shuffle::full, last_batch::keep).resume(state), penstock::error);
  EXPECT_THROW(start(1000, 9, 8, shuffle::none, last_batch::keep).resume(state), penstock::error);
  auto beyond = state;
  beyond.samples = 1001;
  EXPECT_THROW(start(1000, 9, 8, shuffle::full, last_batch::keep).resume(beyond), penstock::error);
  // Refused, the feed is as it was.
  EXPECT_THROW(feed.resume(beyond), penstock::error);
  EXPECT_EQ(feed.next().step(), 1u);
  start(1000, 9, 8, shuffle::full, last_batch::keep).resume(state);
  // Of the same samples in the same order it is welcome, however they are cut.
  start(1000, 9, 16, shuffle::full, last_batch::drop).resume(state);
}

TEST(known_failures, CKP_8_a_resume_reads_nothing_that_was_delivered) {
  const hang_limit limit;
  for (const setting with : settings) {
    std::atomic<std::uint64_t> begun{0}, below{0};
    auto hook = [&](std::uint64_t index) {
      begun.fetch_add(1);
      if (index < 9000 * 4) below.fetch_add(1);
    };
    auto feed = (numbers{10'000 * 4, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                 penstock::read({.readers = with.readers}) | penstock::batch(4) |
                 penstock::transfer(penstock::cpu_device{}, {.depth = with.depth}))
                    .start();
    auto state = feed.state();
    state.samples = 9000 * 4;
    feed.resume(stored(state));
    auto batch = feed.next();
    EXPECT_EQ(batch.step(), 9000u);
    EXPECT_LE(begun.load(), static_cast<std::uint64_t>(with.depth) * 4);
    EXPECT_EQ(below.load(), 0u);
  }
}

}  // namespace
