// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <stop_token>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using schema_type = penstock::schema<penstock::field<std::uint64_t>>;
using sample = penstock::sample_view<schema_type>;
using numbers = std::vector<std::uint64_t>;

/// What all the datasets below are: sample i is i squared.
struct described {
  static constexpr std::uint64_t n = 20;
  std::uint64_t size() const { return n; }
  schema_type schema() const { return schema_type{penstock::field<std::uint64_t>{"square"}}; }
};

template <class Dataset>
auto feed_of(Dataset& data, int readers, std::int64_t batch = 4, penstock::shuffle how = penstock::shuffle::none) {
  return (data | penstock::partition({.seed = 3, .shuffle = how}) | penstock::read({.readers = readers}) |
          penstock::batch(batch) | penstock::transfer(penstock::cpu_device{}))
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
numbers squares() {
  numbers result;
  for (std::uint64_t i = 0; i < described::n; ++i) result.push_back(i * i);
  return result;
}

struct plain : described {
  void read(std::uint64_t index, const sample& to) const { std::get<0>(to)() = index * index; }
};
/// Its reader's state is not shared: `read` is not const.
struct opened : described {
  struct reader {
    std::atomic<int>* alive;
    std::uint64_t calls = 0;
    reader(std::atomic<int>& count) : alive(&count) { ++*alive; }
    reader(reader&& other) noexcept : alive(std::exchange(other.alive, nullptr)) {}
    ~reader() {
      if (alive != nullptr) --*alive;
    }
    void read(std::uint64_t index, const sample& to) {
      ++calls;
      std::get<0>(to)() = index * index;
    }
  };
  mutable std::atomic<int> alive{0};
  mutable std::atomic<int> openings{0};
  reader open() const {
    ++openings;
    return reader(alive);
  }
};
struct one_at_a_time : described {
  static constexpr bool serial = true;
  std::uint64_t unguarded = 0;  // a race, if two are in it
  void read(std::uint64_t index, const sample& to) {
    unguarded = index;
    std::get<0>(to)() = unguarded * unguarded;
  }
};
struct bulk : described {
  mutable std::atomic<std::size_t> calls{0};
  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    ++calls;
    for (std::size_t row = 0; row < indices.size(); ++row) std::get<0>(to)[row] = indices[row] * indices[row];
  }
};
static_assert(penstock::dataset<plain> && penstock::dataset<opened> && penstock::dataset<one_at_a_time> &&
              penstock::dataset<bulk>);

template <class Dataset>
class Datasets : public testing::Test {};
using Kinds = testing::Types<plain, opened, one_at_a_time, bulk>;
TYPED_TEST_SUITE(Datasets, Kinds);

TYPED_TEST(Datasets, all_samples_arrive_whoever_reads) {
  for (int readers : {0, 1, 3}) {
    TypeParam data;
    auto feed = feed_of(data, readers);
    EXPECT_EQ(epoch_of(feed), squares()) << readers << " readers";
    EXPECT_EQ(epoch_of(feed, 1), squares()) << readers << " readers";
  }
}

TEST(Dataset, each_reader_opens_once_and_closes) {
  opened data;
  {
    auto feed = feed_of(data, 3);
    epoch_of(feed);
    epoch_of(feed, 1);
    EXPECT_EQ(data.alive, 3);
  }
  EXPECT_EQ(data.openings, 3);
  EXPECT_EQ(data.alive, 0);
}

TEST(Dataset, what_open_throws_arrives_at_the_consumer) {
  struct closed : described {
    struct reader {
      void read(std::uint64_t, const sample&) {}
    };
    reader open() const { throw penstock::error("found no file", {.path = "a.bin"}); }
  };
  const closed data;
  for (int readers : {0, 2}) {
    auto feed = feed_of(data, readers);
    try {
      epoch_of(feed);
      FAIL() << "it was read";
    } catch (const penstock::error& caught) {
      EXPECT_EQ(caught.where().path, "a.bin");
    }
  }
}

TEST(Dataset, a_range_is_read_by_one_call_for_each_reader_and_batch) {
  bulk data;
  auto feed = feed_of(data, 0, 5);
  epoch_of(feed);
  EXPECT_EQ(data.calls, 4U);
}

TEST(Dataset, the_context_knows_epoch_and_gives_each_sample_numbers_of_its_own) {
  struct random : described {
    void read(std::uint64_t index, const sample& to, penstock::read_context& context) const {
      // What is read ahead, of the epoch after, may be told to stop when the feed goes.
      if (context.epoch < 2) {
        EXPECT_FALSE(context.stop.stop_requested());
      }
      std::get<0>(to)() = (context.epoch << 40) + (index << 32) + context.random();
    }
  };
  const random data;
  auto inline_feed = feed_of(data, 0);
  auto threads_feed = feed_of(data, 3);
  for (std::uint64_t epoch : {0U, 1U}) {
    const numbers found = epoch_of(inline_feed, epoch);
    EXPECT_EQ(found, epoch_of(threads_feed, epoch));
    for (std::uint64_t i = 0; i < described::n; ++i)
      EXPECT_EQ(found[i], (epoch << 40) + (i << 32) + penstock::philox(3, epoch, i)());
  }
}

TEST(Dataset, prefetch_is_called_ahead_of_each_read) {
  struct hinted : described {
    mutable std::vector<std::uint64_t> hints{};
    mutable std::vector<std::uint64_t> hints_before_read{};
    void prefetch(std::uint64_t index) const { hints.push_back(index); }
    void read(std::uint64_t index, const sample& to) const {
      EXPECT_NE(std::find(hints.begin(), hints.end(), index), hints.end()) << "sample " << index;
      hints_before_read.push_back(hints.size());
      std::get<0>(to)() = index * index;
    }
  };
  const hinted data;
  auto feed = feed_of(data, 0, 20, penstock::shuffle::full);
  epoch_of(feed);
  EXPECT_EQ(std::set<std::uint64_t>(data.hints.begin(), data.hints.end()).size(), described::n);
  EXPECT_EQ(data.hints.size(), described::n) << "each once";
  EXPECT_GT(data.hints_before_read[0], 1U) << "ahead";
}

TEST(Dataset, a_blocked_read_is_told_when_its_feed_ends) {
  struct blocking : described {
    mutable std::mutex mutex{};
    mutable std::condition_variable_any changed{};
    mutable bool entered = false;
    mutable bool told = false;
    void read(std::uint64_t, const sample&, penstock::read_context& context) const {
      std::unique_lock lock(mutex);
      entered = true;
      changed.notify_all();
      changed.wait(lock, context.stop, [] { return false; });
      told = context.stop.stop_requested();
    }
  };
  const blocking data;
  {
    auto feed = feed_of(data, 1);
    const auto batches = feed.epoch(0);  // sets the reader to work
    std::unique_lock lock(data.mutex);
    data.changed.wait(lock, [&] { return data.entered; });
  }
  EXPECT_TRUE(data.told);
}

}  // namespace
