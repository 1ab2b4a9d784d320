// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using schema_type = penstock::schema<penstock::field<std::uint64_t>>;
using sample = penstock::sample_view<schema_type>;

/// Counts how often it is opened, by readers that were started, and how many of it are alive.
struct counted {
  std::uint64_t n = 10;
  std::shared_ptr<std::atomic<int>> openings = std::make_shared<std::atomic<int>>(0);

  struct reader {
    void read(std::uint64_t index, const sample& to) { std::get<0>(to)() = index; }
  };
  std::uint64_t size() const { return n; }
  schema_type schema() const { return schema_type{penstock::field<std::uint64_t>{"id"}}; }
  reader open() const {
    ++*openings;
    return {};
  }
};

template <class Batch>
std::vector<std::uint64_t> ids(Batch& batch) {
  const auto [id] = batch.fields();
  return {id.begin(), id.end()};
}
template <class Range>
std::vector<std::vector<std::uint64_t>> all(Range&& batches) {
  std::vector<std::vector<std::uint64_t>> result;
  for (auto& batch : batches) result.push_back(ids(batch));
  return result;
}

constexpr auto in_order = [](auto&& data) {
  return std::forward<decltype(data)>(data) | penstock::partition({.shuffle = penstock::shuffle::none}) |
         penstock::read({.readers = 2}) | penstock::batch(4) | penstock::transfer(penstock::cpu_device{});
};
const std::vector<std::vector<std::uint64_t>> wanted{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}};

TEST(Pipeline, describes_and_starts_nothing_until_it_is_asked_for_batches) {
  counted data;
  auto work = in_order(data);
  EXPECT_EQ(*data.openings, 0);
  EXPECT_EQ(all(work.epoch(0)), wanted);
  EXPECT_EQ(*data.openings, 2);
  EXPECT_EQ(all(work.epoch(1)), wanted);
  EXPECT_EQ(*data.openings, 2) << "readers persist";
}

TEST(Pipeline, stages_may_be_added_one_by_one) {
  counted data;
  auto partitioned = data | penstock::partition({.shuffle = penstock::shuffle::none});
  auto read = partitioned | penstock::read();
  auto small = read | penstock::batch(4) | penstock::transfer(penstock::cpu_device{});
  auto big = read | penstock::batch(10) | penstock::transfer(penstock::cpu_device{});
  EXPECT_EQ(all(small.epoch(0)), wanted);
  EXPECT_EQ(all(big.epoch(0)).size(), 1U);
}

TEST(Pipeline, copies_share_the_dataset_and_nothing_else) {
  counted data;
  auto one = in_order(data);
  auto iterator_alive = one.epoch(0);
  auto two = one;
  EXPECT_EQ(&one.dataset(), &two.dataset());
  EXPECT_EQ(ids(*iterator_alive.begin()), wanted[0]);
  EXPECT_EQ(all(two.epoch(0)), wanted) << "from the beginning, with readers of its own";
  EXPECT_EQ(*data.openings, 4);
  EXPECT_EQ(one.state().samples, 4U);
}

TEST(Pipeline, feeds_started_from_one_are_independent) {
  const auto work = in_order(counted{});
  auto one = work.start();
  auto two = work.start();
  auto first = one.next();
  auto second = two.next();
  EXPECT_EQ(ids(first), wanted[0]);
  EXPECT_EQ(ids(second), wanted[0]);
}

TEST(Pipeline, an_lvalue_dataset_is_referred_to_and_an_rvalue_owned_by_the_feed_as_well) {
  const counted data;
  EXPECT_EQ(&in_order(data).dataset(), &data);
  auto feed = in_order(counted{}).start();  // the pipeline is gone
  EXPECT_EQ(all(feed.epoch(0)), wanted);
}

TEST(Pipeline, next_gives_each_epoch_and_then_nothing_once) {
  auto work = in_order(counted{});
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::size_t step = 0;
    while (auto batch = work.next()) {
      EXPECT_EQ(batch.epoch(), epoch);
      EXPECT_EQ(ids(batch), wanted[step++]);
    }
    EXPECT_EQ(step, 3U);
  }
}

TEST(Pipeline, steps_go_over_the_ends_of_epochs) {
  auto work = in_order(counted{});
  EXPECT_EQ(all(work.steps(4)).back(), wanted[0]);
  EXPECT_EQ(work.state().epoch, 1U);
  EXPECT_EQ(all(work.steps(1)).front(), wanted[1]);
}

TEST(Pipeline, resumes_from_a_state_of_another_of_its_kind) {
  auto first = in_order(counted{});
  first.next();
  const auto text = first.state().text();
  auto second = in_order(counted{});
  second.resume(penstock::feed_state::parse(text));
  EXPECT_EQ(all(second.epoch(0)), (std::vector<std::vector<std::uint64_t>>{wanted[1], wanted[2]}));
}

TEST(Pipeline, a_state_of_another_dataset_is_refused) {
  auto first = in_order(counted{10});
  first.next();
  auto second = in_order(counted{11});
  EXPECT_THROW(second.resume(first.state()), penstock::error);
}

TEST(Pipeline, a_stopped_one_gives_no_batch) {
  auto work = in_order(counted{});
  work.stop();
  EXPECT_TRUE(work.stopped());
  EXPECT_TRUE(all(work.epoch(0)).empty());
}

TEST(Pipeline, is_copyable_and_movable) {
  using type = decltype(in_order(counted{}));
  static_assert(std::is_copy_constructible_v<type> && std::is_copy_assignable_v<type>);
  static_assert(std::is_nothrow_move_constructible_v<type> && std::is_move_assignable_v<type>);
  auto one = in_order(counted{});
  one.next();
  auto two = std::move(one);
  EXPECT_EQ(all(two.steps(1)).front(), wanted[1]) << "the feed moves along";
}

// ---- options: each bad one is told before any reader starts

struct bad_option {
  const char* name;
  penstock::partition_options partition{};
  penstock::read_options read{};
  penstock::batch_options batch{.size = 4};
  penstock::transfer_options<penstock::cpu_device> transfer{};
  const char* message;
};

class BadOption : public testing::TestWithParam<bad_option> {};
INSTANTIATE_TEST_SUITE_P(
    Pipeline, BadOption,
    testing::Values(
        bad_option{.name = "world_size",
                   .partition = {.world = {0, 0}},
                   .message = "partition: world.size is 0, wanted 1 or more"},
        bad_option{.name = "rank",
                   .partition = {.world = {2, 2}},
                   .message = "partition: world.rank is 2, wanted 0 to 1 in a world of 2"},
        bad_option{.name = "window",
                   .partition = {.shuffle = penstock::shuffle::window(3)},
                   .message = "partition: shuffle is window, wanted"},
        bad_option{.name = "readers", .read = {.readers = -1}, .message = "read: readers is -1, wanted 0 to 256"},
        bad_option{
            .name = "many_readers", .read = {.readers = 257}, .message = "read: readers is 257, wanted 0 to 256"},
        bad_option{.name = "timeout",
                   .read = {.timeout = std::chrono::seconds(0)},
                   .message = "read: timeout is 0 ns, wanted more than 0"},
        bad_option{.name = "inline_timeout",
                   .read = {.readers = 0, .timeout = std::chrono::seconds(1)},
                   .message = "read: timeout is 1000000000 ns, wanted none, as readers is 0"},
        bad_option{.name = "no_batch_size", .batch = {}, .message = "batch: size is 0, wanted 1 to 2^31"},
        bad_option{
            .name = "negative_batch_size", .batch = {.size = -4}, .message = "batch: size is -4, wanted 1 to 2^31"},
        bad_option{.name = "two_batch_sizes",
                   .batch = {.size = 4, .global = 8},
                   .message = "batch: global is 8, wanted none beside size, which is 4"},
        bad_option{.name = "no_whole_batch",
                   .batch = {.size = 11, .last = penstock::last_batch::drop},
                   .message = "batch: size is 11, wanted at most 10, the number of samples"},
        bad_option{.name = "depth", .transfer = {.depth = 0}, .message = "transfer: depth is 0, wanted 1 to 64"},
        bad_option{.name = "host_depth",
                   .transfer = {.host_depth = 65},
                   .message = "transfer: host_depth is 65, wanted 0 (as depth) to 64"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_P(BadOption, is_refused_by_a_sentence_before_any_reader_starts) {
  counted data;
  const bad_option& bad = GetParam();
  const auto work = data | penstock::partition(bad.partition) | penstock::read(bad.read) | penstock::batch(bad.batch) |
                    penstock::transfer(penstock::cpu_device{}, bad.transfer);
  try {
    work.start();
    FAIL() << "it was started";
  } catch (const std::invalid_argument& caught) {
    EXPECT_NE(std::string(caught.what()).find(bad.message), std::string::npos) << caught.what();
    EXPECT_TRUE(std::string(caught.what()).starts_with("penstock: "));
  }
  EXPECT_EQ(*data.openings, 0);
}

TEST(Pipeline, an_empty_dataset_is_refused_unless_allowed) {
  const auto start = [](bool allowed) {
    return (counted{0} | penstock::partition() | penstock::read() |
            penstock::batch({.size = 4, .allow_empty = allowed}) | penstock::transfer(penstock::cpu_device{}))
        .start();
  };
  EXPECT_THROW(start(false), std::invalid_argument);
  auto feed = start(true);
  EXPECT_TRUE(all(feed.epoch(0)).empty());
  EXPECT_TRUE(all(feed.epoch(1)).empty());
}

}  // namespace
