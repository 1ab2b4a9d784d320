// SPDX-License-Identifier: Apache-2.0
// ctest: plain too: allocations are counted there alone
// What the law of no allocation does not run over: readers' own states, casts, observers and several held batches.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/dataset/cached.hpp>
#include <penstock/dataset/quarantine.hpp>

#include "../laws/configurations.hpp"
#include "../support/counted_allocations.hpp"

namespace {

using namespace laws;

/// Allocations of epochs 1 to 3, the first step of epoch 0 having been received.
template <class Feed>
std::size_t allocations_of(Feed& feed) {
  {
    auto first = feed.next();
  }
  const std::size_t before = allocations;
  for (std::uint64_t epoch = 1; epoch < 4; ++epoch)
    for (auto& batch : feed.epoch(epoch)) batch.stream().synchronize();
  return allocations - before;
}

template <class Device>
class allocation : public testing::Test {
 public:
  samples<> data{23};
};
TYPED_TEST_SUITE(allocation, devices, device_name);

TYPED_TEST(allocation, opened_readers_and_casts_have_all_at_the_start) {
  struct opened : samples<> {
    struct reader {
      std::vector<int> buffer;
      void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) {
        buffer[0] = static_cast<int>(index);
        std::get<0>(to)() = index;
      }
    };
    reader open() const { return {std::vector<int>(100)}; }
  };
  for (int readers : all_readers) {
    auto feed = (opened{{23}} | penstock::partition() | penstock::read({.readers = readers}) |
                 penstock::batch(4, penstock::cast<penstock::keep, double>) | penstock::transfer(TypeParam::make()))
                    .start();
    EXPECT_EQ(allocations_of(feed), 0U) << readers << " readers";
  }
}

TYPED_TEST(allocation, an_observer_costs_none_of_ours) {
  struct counting {
    std::uint64_t batches = 0;
    void on_batch(const penstock::batch_event&) { ++batches; }
  } counter;
  auto feed = feed_of(this->data, TypeParam::make(), {.readers = 2});
  feed.observe(counter);
  EXPECT_EQ(allocations_of(feed), 0U);
  EXPECT_EQ(counter.batches, 19U);
}

/// The first that reads sample 9 of epoch 2 stays there until it is let go.
struct stays_once {
  std::atomic<int>* come;
  std::latch* go_on;
  void operator()(std::uint64_t index, penstock::read_context& context) const {
    if (index == 9 && context.epoch == 2 && come->fetch_add(1) == 0) go_on->wait();
  }
};
TYPED_TEST(allocation, reads_that_are_issued_again_cost_none) {
  std::atomic<int> come{0};
  std::latch go_on(1);
  auto feed = (samples{23, stays_once{&come, &go_on}} | penstock::partition() |
               penstock::read({.readers = 3,
                               .late = penstock::late_reads::reread,
                               .late_factor = 2,
                               .late_floor = std::chrono::milliseconds(1)}) |
               penstock::batch(4) | penstock::transfer(TypeParam::make(), {.depth = 2}))
                  .start();
  EXPECT_EQ(allocations_of(feed), 0U);
  go_on.count_down();
  EXPECT_GE(come, 2);
  EXPECT_GE(feed.rereads().won, 1U);
}

TEST(no_memory, to_note_a_bad_sample_is_its_batchs_error) {
  struct bad_one {
    void operator()(std::uint64_t index, penstock::read_context&) const {
      if (index == 9) throw penstock::error("cut");
    }
  };
  for (const auto late : {penstock::late_reads::wait, penstock::late_reads::reread}) {
    auto feed = (samples{23, bad_one{}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                 penstock::read({.readers = 2, .late = late, .bad = penstock::bad_samples::skip}) | penstock::batch(4) |
                 penstock::transfer(penstock::cpu_device{}))
                    .start();
    refused = sizeof(penstock::sample_fault);
    std::uint64_t batches = 0;
    try {
      for (auto& batch : feed.epoch(0)) batches += batch.size() != 0 ? 1 : 0;
      ADD_FAILURE() << "no error";
    } catch (const penstock::error& caught) {
      EXPECT_EQ(caught.where().sample, 9U) << caught.what();
      EXPECT_NE(std::string_view(caught.what()).find("bad_alloc"), std::string_view::npos) << caught.what();
    }
    EXPECT_EQ(batches, 2U);
    EXPECT_EQ(refused, 0U);
  }
}

TYPED_TEST(allocation, samples_that_a_cache_keeps_and_lists_of_bad_ones_cost_none) {
  const std::vector<std::tuple<float, int>> rows(23);
  for (const int readers : all_readers) {
    auto kept = penstock::cached(rows, {.memory = 1 << 20});
    auto feed = (kept | penstock::partition() |
                 penstock::read({.readers = readers,
                                 .bad = penstock::bad_samples::skip,
                                 .most_bad_share = 0.5,
                                 .quarantine = penstock::quarantine(testing::TempDir() + "/penstock-allocation.csv")}) |
                 penstock::batch(4) | penstock::transfer(TypeParam::make()))
                    .start();
    for (auto& batch : feed.epoch(0)) batch.stream().synchronize();
    EXPECT_EQ(allocations_of(feed), 0U) << readers << " readers";
    EXPECT_EQ(kept.counts().misses, 23U);
  }
}

TYPED_TEST(allocation, held_batches_cost_none) {
  auto feed = feed_of(this->data, TypeParam::make(), {.readers = 2, .depth = 4});
  {
    auto first = feed.next();
  }
  const std::size_t before = allocations;
  for (int round = 0; round < 10; ++round) {
    auto a = feed.next(), b = feed.next(), c = feed.next();
    a = std::move(c);
  }
  const std::size_t after = allocations;
  EXPECT_EQ(after, before);
}

}  // namespace
