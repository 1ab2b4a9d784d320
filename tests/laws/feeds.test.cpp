// SPDX-License-Identifier: Apache-2.0
// Feeds as values, and several of them alive together, with readers of their own or shared ones.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;

template <class Device>
class feeds : public testing::Test {
 public:
  using feed_type = penstock::feed<schema_type, typename Device::device>;
  samples<> data{23};
  samples<> other{14};
};
TYPED_TEST_SUITE(feeds, devices, device_name);

TYPED_TEST(feeds, move_also_in_the_middle_of_an_epoch_and_can_be_members) {
  struct trainer {
    typename TestFixture::feed_type feed;
  };
  for_each_schedule([&](const configuration& one) {
    trainer first{feed_of(this->data, TypeParam::make(), one)};
    std::vector<delivered> batches;
    const auto range = first.feed.epoch(0);
    for (auto at = range.begin(); batches.size() < 2 && at != range.end(); ++at) batches.push_back(take(*at));
    trainer second = std::move(first);
    for (auto& batch : range) batches.push_back(take(batch));
    ASSERT_EQ(batches, planned(23, one, 0));
    second.feed = feed_of(this->other, TypeParam::make(), one);  // ends the old one
    ASSERT_EQ(epoch_of(second.feed, 1), planned(14, one, 1));
  });
}

TYPED_TEST(feeds, two_alive_together_do_not_touch_each_other) {
  for_each_schedule([&](const configuration& one) {
    auto train = feed_of(this->data, TypeParam::make(), one);
    auto validate = feed_of(this->other, TypeParam::make(), one);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<delivered> batches;
      for (auto& batch : train.epoch(epoch)) {
        batches.push_back(take(batch));
        if (batch.step() == 2) {
          ASSERT_EQ(epoch_of(validate, epoch), planned(14, one, epoch));
        }
      }
      ASSERT_EQ(batches, planned(23, one, epoch));
    }
  });
}

TYPED_TEST(feeds, two_share_readers) {
  const auto threads = threads_now();
  for (int readers : {1, 2, 8})
    for (int depth : all_depths) {
      const configuration one{.readers = readers, .depth = depth};
      SCOPED_TRACE(text(one));
      const auto pool = penstock::reader_pool::make(readers);
      auto train = feed_of(this->data, TypeParam::make(), one, {.shared = pool});
      auto validate = feed_of(this->other, TypeParam::make(), one, {.shared = pool});
      ASSERT_EQ(threads_now(), threads + static_cast<std::size_t>(readers));
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<delivered> batches;
        for (auto& batch : train.epoch(epoch)) {
          batches.push_back(take(batch));
          // Beside it, and while the first one's buffers are full or held.
          if (batch.step() == 2) {
            ASSERT_EQ(epoch_of(validate, epoch), planned(14, one, epoch));
          }
        }
        ASSERT_EQ(batches, planned(23, one, epoch));
      }
      {
        const auto ends = std::move(train);
      }
      ASSERT_EQ(epoch_of(validate, 5), planned(14, one, 5));
      auto third = feed_of(this->data, TypeParam::make(), one, {.shared = pool});
      ASSERT_EQ(epoch_of(third, 0), planned(23, one, 0));
    }
  EXPECT_EQ(threads_left(threads), threads);
}

TYPED_TEST(feeds, share_readers_while_consumed_by_two_threads) {
  const configuration one{.readers = 2, .depth = 2};
  const auto pool = penstock::reader_pool::make(2);
  const auto consume = [&](const samples<>& from) {
    auto feed = feed_of(from, TypeParam::make(), one, {.shared = pool});
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch) EXPECT_EQ(epoch_of(feed, epoch), planned(from.n, one, epoch));
  };
  std::jthread beside([&] { consume(this->other); });
  consume(this->data);
}

TYPED_TEST(feeds, a_feed_that_nobody_consumes_holds_back_no_other_of_the_same_readers) {
  for (int depth : all_depths) {
    const configuration one{.readers = 1, .depth = depth};
    const auto pool = penstock::reader_pool::make(1);
    auto idle = feed_of(this->data, TypeParam::make(), one, {.shared = pool});
    auto held = idle.next();
    auto busy = feed_of(this->other, TypeParam::make(), one, {.shared = pool});
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) ASSERT_EQ(epoch_of(busy, epoch), planned(14, one, epoch));
    ASSERT_EQ(take(held), planned(23, one, 0)[0]);
  }
}

TYPED_TEST(feeds, of_ranges_read_their_elements) {
  std::vector<std::tuple<std::array<float, 2>, int>> table(10);
  for (int i = 0; i < 10; ++i) table[static_cast<std::size_t>(i)] = {{static_cast<float>(i), 0.5F}, -i};
  std::vector<int> seen;
  auto feed = (table | penstock::partition({.shuffle = shuffle::none}) | penstock::read({.readers = 2}) |
               penstock::batch(4) | penstock::transfer(TypeParam::make()))
                  .start();
  for (auto& batch : feed.epoch(0)) {
    batch.stream().synchronize();
    const auto [x, y] = batch.fields();
    const auto* const features = readable(x.data(), x.size());
    const auto* const targets = readable(y.data(), y.size());
    for (std::size_t row = 0; row < batch.size(); ++row) {
      seen.push_back(targets[row]);
      EXPECT_EQ(features[2 * row], static_cast<float>(-targets[row]));
    }
  }
  EXPECT_EQ(seen, (std::vector<int>{0, -1, -2, -3, -4, -5, -6, -7, -8, -9}));
}

// COV-7
TYPED_TEST(feeds, COV_7_of_a_stream_deliver_each_element_once_in_order_for_any_readers_and_share_it_among_ranks) {
  const auto numbers = penstock::stream([](std::uint64_t epoch) {
    return std::views::iota(0, 23) |
           std::views::transform([epoch](int i) { return i + 100 * static_cast<int>(epoch); });
  });
  for (int readers : all_readers)
    for (std::uint64_t ranks : {1U, 2U})
      for (std::uint64_t rank = 0; rank < ranks; ++rank) {
        auto feed = (numbers | penstock::partition({.shuffle = shuffle::none, .world = {rank, ranks}}) |
                     penstock::read({.readers = readers}) | penstock::batch(4) | penstock::transfer(TypeParam::make()))
                        .start();
        for (int epoch = 0; epoch < 3; ++epoch) {
          std::vector<int> seen, wanted;
          for (int i = static_cast<int>(rank); i < 23; i += static_cast<int>(ranks)) wanted.push_back(i + 100 * epoch);
          for (auto& batch : feed.epoch(static_cast<std::uint64_t>(epoch))) {
            const auto values = batch.template host<0>();
            seen.insert(seen.end(), values.begin(), values.begin() + batch.size());
          }
          ASSERT_EQ(seen, wanted) << readers << " readers, rank " << rank << " of " << ranks << ", epoch " << epoch;
        }
      }
}

}  // namespace
