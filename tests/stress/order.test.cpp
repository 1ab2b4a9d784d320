// SPDX-License-Identifier: Apache-2.0
// Order, many times over: what is wrong once in thousands of runs.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "../known_failures/support.hpp"

namespace {

using namespace known_failures;

constexpr std::uint64_t batches = 64;
constexpr std::uint64_t size = 8;
constexpr int depth = 4;
constexpr std::uint64_t epochs = 20;
constexpr int runs = 50;  // of 20 epochs

// Row 0 of each epoch is read when all is read that can be before it: but for the rows that its own reader has after
// it.
struct slow_first_row {
  std::shared_ptr<std::array<std::atomic<std::uint64_t>, epochs>> others =
      std::make_shared<std::array<std::atomic<std::uint64_t>, epochs>>();

  std::uint64_t size() const { return batches * ::size; }
  auto schema() const { return penstock::schema{penstock::field<std::uint64_t>{"number"}}; }
  template <class To>
  void read(std::uint64_t index, const To& to, penstock::read_context& context) const {
    std::atomic<std::uint64_t>& done = others->at(context.epoch);
    if (index == 0)
      while (done.load() < (depth - 1) * ::size && !context.stop.stop_requested()) std::this_thread::yield();
    else
      done.fetch_add(1);
    *std::get<0>(to).data() = index;
  }
};

TEST(stress, ORD_4_ten_readers_two_serial_stages_1000_epochs_of_64_batches) {
  const hang_limit limit(280);
  for (int run = 0; run < runs; ++run) {
    std::uint64_t first = 0, second = 0;
    const auto result = penstock::run(slow_first_row{} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                                          penstock::read({.readers = 10}) | penstock::batch(size) |
                                          penstock::transfer(penstock::cpu_device{}, {.depth = depth}) |
                                          penstock::compute([&](auto& batch) {
                                            EXPECT_EQ(batch.epoch() * batches + batch.step(), first);
                                            ++first;
                                            return batch.template host<0>()[0];
                                          }) |
                                          penstock::compute([&](std::uint64_t row, auto& batch) {
                                            EXPECT_EQ(batch.epoch() * batches + batch.step(), second);
                                            ++second;
                                            EXPECT_EQ(row, batch.step() * size);
                                            for (std::size_t i = 0; i < size; ++i)
                                              EXPECT_EQ(batch.template host<0>()[i], row + i);
                                            return row;
                                          }) |
                                          penstock::reduce(std::uint64_t{0},
                                                           [](std::uint64_t expected, std::uint64_t row) {
                                                             EXPECT_EQ(row, expected * size);
                                                             return expected + 1;
                                                           }),
                                      {.epochs = epochs});
    ASSERT_EQ(result.epochs, std::vector<std::uint64_t>(epochs, batches));
  }
}

}  // namespace
