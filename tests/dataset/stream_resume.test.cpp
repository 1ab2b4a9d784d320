// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using numbers = std::vector<std::uint64_t>;

/// What a stream was asked for.
struct use {
  std::uint64_t made = 0;    // elements looked at
  std::uint64_t passed = 0;  // elements gone over
  std::uint64_t opened = 0;  // ranges
};

/// Numbers from `first` up to below `end`, one after another and once only.
class counted {
 public:
  struct iterator {
    using value_type = std::uint64_t;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    std::uint64_t operator*() const {
      ++uses->made;
      return at;
    }
    iterator& operator++() {
      ++uses->passed;
      ++at;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& one, std::default_sentinel_t) { return one.at >= one.end; }

    std::uint64_t at = 0, end = 0;
    use* uses = nullptr;
  };
  counted(std::uint64_t first, std::uint64_t end, use* uses) : begin_{first, end, uses} {}
  iterator begin() const { return begin_; }
  std::default_sentinel_t end() const { return {}; }

 private:
  iterator begin_;
};
static_assert(!std::ranges::forward_range<counted>);

auto from_anywhere(std::uint64_t n, use* uses) {
  return penstock::stream([n, uses](std::uint64_t, std::stop_token, std::uint64_t first) {
    ++uses->opened;
    return counted(first, n, uses);
  });
}
auto from_the_beginning(std::uint64_t n, use* uses) {
  return penstock::stream([n, uses](std::uint64_t) {
    ++uses->opened;
    return counted(0, n, uses);
  });
}

constexpr std::int64_t batch_size = 3;

template <class Stream>
auto feed_of(Stream stream, std::uint64_t window, penstock::world where, int readers = 0) {
  const auto how = window == 0 ? penstock::shuffle::none : penstock::shuffle::window(window);
  return (std::move(stream) | penstock::partition({.seed = 5, .shuffle = how, .world = where}) |
          penstock::read({.readers = readers}) | penstock::batch(batch_size) |
          penstock::transfer(penstock::cpu_device{}))
      .start();
}
template <class Feed>
numbers rest_of(Feed& feed, std::uint64_t epoch) {
  numbers result;
  for (auto& batch : feed.epoch(epoch)) {
    const auto [values] = batch.fields();
    for (std::size_t row = 0; row < batch.size(); ++row) {
      result.push_back(values[row]);
      result.push_back(batch.indices()[row]);
    }
  }
  return result;
}

struct shape {
  std::uint64_t window, ranks;
};
void PrintTo(const shape& one, std::ostream* out) { *out << "window " << one.window << ", ranks " << one.ranks; }
class Resumed : public testing::TestWithParam<shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Resumed,
                         testing::Values(shape{0, 1}, shape{0, 3}, shape{1, 1}, shape{7, 1}, shape{7, 2}, shape{7, 3},
                                         shape{64, 1}, shape{64, 3}, shape{1000, 1}, shape{1000, 2}));

// From every position, of streams that end before, at and long after the window is full: what is left is what an
// unbroken feed gives, numbers included, and what is looked at again is no more than the window holds.
TEST_P(Resumed, streams_that_begin_anywhere_go_on_with_the_very_next_sample) {
  const auto [window, ranks] = GetParam();
  constexpr std::uint64_t epoch = 1;
  for (const std::uint64_t n : {1U, 6U, 7U, 8U, 64U, 100U, 200U})
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      use whole_use, use_of;
      const penstock::world where{rank, ranks};
      auto whole = feed_of(from_the_beginning(n, &whole_use), window, where);
      auto feed = feed_of(from_anywhere(n, &use_of), window, where, rank == 1 ? 2 : 0);
      const numbers all = rest_of(whole, epoch);
      ASSERT_EQ(rest_of(feed, epoch), all);
      auto state = feed.state();
      state.epoch = epoch;
      for (std::uint64_t at = 1; at <= all.size() / 2; ++at) {
        const std::uint64_t drawn = std::min(at * ranks, n);  // by all replicas
        state.samples = drawn;
        use_of = {};
        feed.resume(state);
        const numbers rest = rest_of(feed, epoch);
        ASSERT_EQ(rest, numbers(all.begin() + 2 * static_cast<std::ptrdiff_t>(at), all.end()))
            << n << " samples, rank " << rank << " at " << at;
        const std::uint64_t left = n - drawn;  // none of which can be had without being looked at
        const std::uint64_t most = drawn + window <= n ? left : left + std::min(window, n);
        ASSERT_LE(use_of.made, most) << n << " samples, rank " << rank << " at " << at;
        ASSERT_LE(use_of.passed, left + std::min(window, n)) << n << " samples, rank " << rank << " at " << at;
        ASSERT_LE(use_of.opened, 1 + std::min(window, n));
      }
    }
}

// In the middle of a long stream, to tell it from drawing and skipping: a window's worth and no more.
TEST(ResumedStream, makes_again_only_what_the_window_held) {
  use once, again;
  const auto resumed_at = [](auto feed, use& uses) {
    auto state = feed.state();
    state.samples = 30000;
    uses = {};
    feed.resume(state);
    for (auto& batch : feed.epoch(0)) {
      const auto [values] = batch.fields();
      return std::pair(values[0], values[1]);
    }
    return std::pair(std::uint64_t{0}, std::uint64_t{0});
  };
  const auto skipped = resumed_at(feed_of(from_the_beginning(100000, &once), 64, {}), once);
  const auto found = resumed_at(feed_of(from_anywhere(100000, &again), 64, {}), again);
  EXPECT_EQ(found, skipped);
  EXPECT_GT(once.made, 30000U);
  // The window's 63 samples and those of the batches that the slots hold.
  EXPECT_LE(again.made, 63U + 8 * batch_size);
  EXPECT_GE(again.made, 63U + batch_size);
}

// Ranges with random access can begin anywhere by themselves.
TEST(ResumedStream, of_random_access_is_not_drawn_from_the_beginning) {
  auto made = std::make_shared<std::uint64_t>(0);
  auto feed = feed_of(penstock::stream([made] {
                        return std::views::iota(std::uint64_t{0}, std::uint64_t{50000}) |
                               std::views::transform([made](std::uint64_t i) { return ++*made, 3 * i; });
                      }),
                      0, {});
  auto state = feed.state();
  state.samples = 49998;
  *made = 0;
  feed.resume(state);
  EXPECT_EQ(rest_of(feed, 0), (numbers{3 * 49998, 49998, 3 * 49999, 49999}));
  EXPECT_EQ(*made, 2U);
}

// The samples that a window held are gone from the stream: not the feed that it was.
TEST(ResumedStream, that_lost_what_the_window_held_is_an_error) {
  auto length = std::make_shared<std::uint64_t>(100);
  auto feed = feed_of(penstock::stream([length](std::uint64_t, std::stop_token, std::uint64_t first) {
                        static use uses;
                        return counted(first, first < 40 ? std::min<std::uint64_t>(*length, 40) : 100, &uses);
                      }),
                      32, {});
  auto state = feed.state();
  state.samples = 60;
  *length = 0;
  feed.resume(state);
  try {
    rest_of(feed, 0);
    FAIL() << "no error";
  } catch (const penstock::error& caught) {
    EXPECT_NE(std::string(caught.what()).find("any more"), std::string::npos) << caught.what();
  }
}

}  // namespace
