// SPDX-License-Identifier: Apache-2.0
// Law 3: a fence for every hand-over: nothing is read before it has arrived, nothing overwritten before it was used,
// and the host does not block where a stream can wait.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;
using namespace std::chrono_literals;

/// A modelled device whose time the test moves.
struct stage {
  std::shared_ptr<penstock::manual_clock> clock = std::make_shared<penstock::manual_clock>();
  penstock::modelled_device device{{.event_latency = 3us, .notice = 5us, .copy_time = 100us, .clock = clock}};
};

/// Moves time on, a little at a time, as long as it lives.
class passing_time {
 public:
  explicit passing_time(std::shared_ptr<penstock::manual_clock> clock)
      : thread_([clock = std::move(clock)](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            clock->advance(7us);
            std::this_thread::yield();
          }
        }) {}

 private:
  std::jthread thread_;
};

/// Enqueues a kernel that looks at the batch when it ends; `right` counts rows that hold what they should.
template <class Batch, class Stream>
void look_at(Batch& batch, Stream stream, std::chrono::nanoseconds duration, std::atomic<std::uint64_t>& right) {
  const auto [id, values] = batch.fields();
  const std::uint64_t first = batch.indices()[0];
  stream.launch(duration, [id = id.data(), values = values.data(), rows = batch.size(), first, &right] {
    for (std::size_t row = 0; row < rows; ++row)
      right += id[row] == first + row && values[3 * row + 2] == samples<>::value(first + row, 2);
  });
}

TEST(law_3, kernels_see_their_batch_however_long_copies_and_kernels_take) {
  const samples<> data{23};
  for_each_schedule([&](configuration one) {
    one.how = shuffle::none;
    stage on;
    std::atomic<std::uint64_t> right = 0;
    {
      const passing_time time(on.clock);
      auto feed = feed_of(data, on.device, one);
      for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
        for (auto& batch : feed.epoch(epoch))
          look_at(batch, batch.stream(), (batch.step() * 37 + epoch * 101) % 5 * 60us, right);
      // Let go of unfinished: the feed's end waits for what is enqueued on its memory.
    }
    EXPECT_EQ(on.device.counts().freed_in_use, 0U);
    EXPECT_EQ(right, 4 * data.n);
  });
}

TEST(law_3, work_on_further_streams_is_waited_for_when_it_was_named) {
  const samples<> data{23};
  for_each_schedule([&](configuration one) {
    one.how = shuffle::none;
    stage on;
    std::atomic<std::uint64_t> right = 0;
    const auto other = on.device.make_stream();
    auto arrived = on.device.make_event();
    {
      const passing_time time(on.clock);
      auto feed = feed_of(data, on.device, one);
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
        for (auto& batch : feed.epoch(epoch)) {
          on.device.record(arrived, batch.stream());
          on.device.wait(other.view(), arrived);
          look_at(batch, other.view(), 300us, right);
          batch.used_on(other.view());
        }
    }
    EXPECT_EQ(right, 2 * data.n);
  });
}

TEST(law_3, a_slot_is_not_written_before_its_copy_has_ended) {
  signpost reads;
  const auto count = [&reads](std::uint64_t, penstock::read_context&) { reads.reach(); };
  const samples data{24, count};
  stage on;
  std::optional<passing_time> time;  // outlives the feed, whose end waits for the last copies
  auto feed = (data | penstock::partition({.shuffle = shuffle::none}) | penstock::read({.readers = 1}) |
               penstock::batch(4) | penstock::transfer(on.device, {.depth = 3, .host_depth = 1}))
                  .start();
  // Time stands still, so the copy of the first batch is under way when it is received.
  auto first = feed.next();
  while (on.device.counts().waiting == 0) std::this_thread::yield();
  EXPECT_EQ(reads.reached(), 4U);
  on.clock->advance(100us);
  EXPECT_EQ(reads.reached(), 4U) << "the end of the copy was noticed before it could be";
  on.clock->advance(5us);
  auto second = feed.next();
  while (on.device.counts().waiting == 0) std::this_thread::yield();
  EXPECT_EQ(reads.reached(), 8U);
  time.emplace(on.clock);
  EXPECT_EQ(take(first).indices, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(take(second).indices, (std::vector<std::uint64_t>{4, 5, 6, 7}));
}

TEST(law_3, the_consumer_does_not_block_while_a_copy_is_under_way) {
  const samples<> data{24};
  stage on;
  std::optional<passing_time> time;
  auto feed = feed_of(data, on.device, {.readers = 2, .depth = 3, .how = shuffle::none});
  // Time stands still: nothing that is received here has arrived, and the next kernels only wait behind it.
  auto first = feed.next(), second = feed.next(), third = feed.next();
  std::atomic<std::uint64_t> right = 0;
  for (auto* batch : {&first, &second, &third}) look_at(*batch, batch->stream(), 10us, right);
  EXPECT_EQ(right, 0U);
  EXPECT_EQ(third.host<0>()[3], 11U) << "scalar fields are on the host at once";
  const auto stream = third.stream();
  first.release(), second.release(), third.release();
  time.emplace(on.clock);
  stream.synchronize();
  EXPECT_EQ(right, 12U);
}

TEST(law_3, a_copy_goes_on_beside_the_work_on_the_batch_before) {
  // A loop that only enqueues, in computed time: equal stages would take twice as long one after the other.
  for (const int depth : {2, 3, 5}) {
    const samples<> data{400};
    const auto clock = std::make_shared<penstock::simulated_clock>();
    const penstock::modelled_device device{{.event_latency = 3us, .copy_time = 100us, .clock = clock}};
    auto feed = feed_of(data, device, {.readers = 0, .depth = depth});
    for (auto& batch : feed.epoch(0)) batch.stream().launch(100us);
    // The first batch of the next epoch comes after all of this one.
    feed.next().stream().synchronize();
    EXPECT_LE(clock->elapsed(), 105 * 110us) << "depth " << depth;
  }
}

}  // namespace
