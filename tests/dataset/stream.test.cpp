// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using numbers = std::vector<std::uint64_t>;

/// `n` numbers from 1000 times the epoch on, one after another.
auto counting(std::uint64_t n) {
  return penstock::stream([n](std::uint64_t epoch) {
    return std::views::iota(std::uint64_t{0}, n) |
           std::views::transform([epoch](std::uint64_t i) { return 1000 * epoch + i; });
  });
}

struct settings {
  int readers = 1;
  penstock::shuffle how = penstock::shuffle::none;
  std::int64_t batch = 4;
  penstock::last_batch last = penstock::last_batch::keep;
  penstock::world world{};
};
template <class Stream>
auto feed_of(Stream stream, settings with = {}) {
  return (std::move(stream) | penstock::partition({.seed = 11, .shuffle = with.how, .world = with.world}) |
          penstock::read({.readers = with.readers}) | penstock::batch({.size = with.batch, .last = with.last}) |
          penstock::transfer(penstock::cpu_device{}))
      .start();
}
template <class Feed>
numbers epoch_of(Feed& feed, std::uint64_t epoch = 0) {
  numbers result;
  for (auto& batch : feed.epoch(epoch)) {
    const auto [values] = batch.fields();
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}
numbers iota(std::uint64_t from, std::uint64_t to) {
  numbers result;
  for (; from < to; ++from) result.push_back(from);
  return result;
}

class Streams : public testing::TestWithParam<int> {
 protected:
  int readers() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Readers, Streams, testing::Values(0, 1, 4), testing::PrintToStringParamName());

TEST_P(Streams, arrive_in_their_order) {
  auto feed = feed_of(counting(30), {.readers = readers()});
  EXPECT_EQ(epoch_of(feed), iota(0, 30));
}

TEST_P(Streams, that_end_with_a_full_batch_have_no_empty_one) {
  auto feed = feed_of(counting(8), {.readers = readers()});
  std::size_t batches = 0;
  for (auto& batch : feed.epoch(0)) {
    EXPECT_EQ(batch.size(), 4U);
    ++batches;
  }
  EXPECT_EQ(batches, 2U);
}

TEST_P(Streams, a_short_last_batch_is_dropped_if_asked_for) {
  auto feed = feed_of(counting(10), {.readers = readers(), .last = penstock::last_batch::drop});
  EXPECT_EQ(epoch_of(feed), iota(0, 8));
}

TEST_P(Streams, are_made_anew_for_each_epoch_by_its_number) {
  auto feed = feed_of(counting(9), {.readers = readers()});
  EXPECT_EQ(epoch_of(feed, 0), iota(0, 9));
  EXPECT_EQ(epoch_of(feed, 1), iota(1000, 1009));
  EXPECT_EQ(epoch_of(feed, 5), iota(5000, 5009));
  EXPECT_EQ(epoch_of(feed, 0), iota(0, 9));
}

TEST_P(Streams, a_window_shuffles_and_loses_nothing) {
  constexpr std::uint64_t n = 101;
  auto feed = feed_of(counting(n), {.readers = readers(), .how = penstock::shuffle::window(10)});
  numbers found = epoch_of(feed);
  EXPECT_NE(found, iota(0, n));
  // What comes out at position p was drawn from the first p + 10.
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_LT(found[i], i + 10);
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, iota(0, n));
}

TEST_P(Streams, a_window_shuffles_the_same_for_any_readers) {
  auto feed = feed_of(counting(50), {.readers = readers(), .how = penstock::shuffle::window(8)});
  auto other = feed_of(counting(50), {.readers = 2, .how = penstock::shuffle::window(8)});
  EXPECT_EQ(epoch_of(feed), epoch_of(other));
}

TEST_P(Streams, a_window_wider_than_the_stream_is_a_full_shuffle) {
  auto feed = feed_of(counting(7), {.readers = readers(), .how = penstock::shuffle::window(100)});
  numbers found = epoch_of(feed);
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, iota(0, 7));
}

TEST_P(Streams, resume_goes_on_with_the_very_next_sample) {
  for (const auto how : {penstock::shuffle::none, penstock::shuffle::window(6)}) {
    auto whole = feed_of(counting(30), {.readers = readers(), .how = how});
    const numbers all = epoch_of(whole, 1);
    auto first = feed_of(counting(30), {.readers = readers(), .how = how});
    std::size_t batches = 0;
    for (auto& batch : first.epoch(1)) {
      static_cast<void>(batch);
      if (++batches == 3) break;
    }
    const auto state = first.state();
    EXPECT_EQ(state.samples, 12U);
    auto second = feed_of(counting(30), {.readers = 2, .how = how});
    second.resume(state);
    EXPECT_EQ(epoch_of(second, 1), numbers(all.begin() + 12, all.end()));
  }
}

TEST_P(Streams, what_the_range_throws_arrives_after_the_batches_before_it) {
  const auto failing = penstock::stream([] {
    return std::views::iota(0, 20) | std::views::transform([](int i) {
             if (i == 10) throw std::runtime_error("line 10 is torn");
             return i;
           });
  });
  auto feed = feed_of(failing, {.readers = readers()});
  std::size_t batches = 0;
  try {
    for (auto& batch : feed.epoch(0)) {
      EXPECT_EQ(batch.template get<0>()[0], static_cast<int>(4 * batches));
      ++batches;
    }
    FAIL() << "no error";
  } catch (const penstock::error& caught) {
    EXPECT_NE(std::string(caught.what()).find("line 10 is torn"), std::string::npos) << caught.what();
    EXPECT_EQ(caught.where().step, 2U);
    EXPECT_THROW(caught.rethrow_cause(), std::runtime_error);
  }
  EXPECT_EQ(batches, 2U);
}

TEST_P(Streams, transforms_draw_from_the_sample_s_own_stream) {
  const auto drawn = [](int count) {
    auto feed = (counting(40) | penstock::partition({.seed = 2, .shuffle = penstock::shuffle::none}) |
                 penstock::read({.readers = count},
                                [](const auto& sample, penstock::philox& random) {
                                  std::get<0>(sample)() += random.below(1000);
                                }) |
                 penstock::batch(4) | penstock::transfer(penstock::cpu_device{}))
                    .start();
    return epoch_of(feed);
  };
  const numbers found = drawn(readers());
  EXPECT_EQ(found, drawn(2));
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_EQ(found[i], i + penstock::philox(2, 0, i).below(1000));
}

// The number of a sample, which its random stream follows from, is that of the whole stream on every rank.
TEST_P(Streams, each_rank_keeps_every_nth_sample_and_its_number) {
  std::set<std::uint64_t> all;
  for (std::uint64_t rank : {0U, 1U, 2U}) {
    auto feed = feed_of(counting(20), {.readers = readers(), .world = {rank, 3}});
    std::uint64_t next = rank;
    for (auto& batch : feed.epoch(0))
      for (std::size_t row = 0; row < batch.size(); ++row, next += 3) {
        EXPECT_EQ(batch.get<0>()[row], next);
        EXPECT_EQ(batch.indices()[row], next);
        all.insert(next);
      }
  }
  EXPECT_EQ(all.size(), 20U);
}

TEST(Stream, the_running_number_of_each_sample_is_its_index) {
  auto feed = feed_of(counting(6));
  numbers found;
  for (auto& batch : feed.epoch(3)) found.insert(found.end(), batch.indices().begin(), batch.indices().end());
  EXPECT_EQ(found, iota(0, 6));
}

TEST(Stream, steps_of_an_epoch_are_unknown) { EXPECT_EQ(feed_of(counting(6)).steps_per_epoch(), std::nullopt); }

TEST(Stream, a_full_shuffle_is_refused_before_anything_is_read) {
  try {
    feed_of(counting(6), {.how = penstock::shuffle::full});
    FAIL() << "it was started";
  } catch (const std::invalid_argument& caught) {
    EXPECT_NE(std::string(caught.what()).find("shuffle::window(n)"), std::string::npos) << caught.what();
  }
}

TEST(Stream, an_empty_one_is_an_error_that_says_so) {
  try {
    feed_of(counting(0));
    FAIL() << "it was started";
  } catch (const penstock::error& caught) {
    EXPECT_NE(std::string(caught.what()).find("stream is empty"), std::string::npos) << caught.what();
  }
}

}  // namespace
