// SPDX-License-Identifier: Apache-2.0
// ctest: plain too: allocations are counted there alone
// Readers and depth that a feed chooses itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/schedule/describe.hpp>

#include "../laws/configurations.hpp"
#include "../support/counted_allocations.hpp"

namespace {

using namespace std::chrono_literals;
using penstock::automatic;

constexpr std::uint64_t samples = 4000;
constexpr int batch_size = 8;

std::vector<float> rows() {
  std::vector<float> out(samples);
  for (std::size_t i = 0; i < samples; ++i) out[i] = static_cast<float>(i);
  return out;
}
auto pipeline_of(const std::vector<float>& data) {
  return data | penstock::partition({.seed = 3}) | penstock::read({.readers = automatic}) | penstock::batch(batch_size);
}
template <class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return {};
}
std::size_t threads_of_ours() {
  std::size_t count = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/task")) {
    (void)one;
    ++count;
  }
  return count;
}

template <class Device>
class automatic_feed : public testing::Test {
 public:
  std::vector<float> data = rows();
};
TYPED_TEST_SUITE(automatic_feed, laws::devices, laws::device_name);

TYPED_TEST(automatic_feed, gives_what_any_fixed_one_gives_and_makes_nothing_after_the_start) {
  const auto fixed = this->data | penstock::partition({.seed = 3}) | penstock::read({.readers = 1}) |
                     penstock::batch(batch_size) | penstock::transfer(TypeParam::make(), {.depth = 2});
  auto feed = (pipeline_of(this->data) | penstock::transfer(TypeParam::make(), {.depth = automatic})).start();
  {
    auto first = feed.next();
  }
  const std::size_t threads = threads_of_ours(), before = laws::allocations;
  std::uint64_t wrong = 0, steps = 0;
  auto range = feed.epoch(0);
  for (auto& batch : range) {
    for (const std::uint64_t index : batch.indices()) wrong += index >= samples ? 1 : 0;
    ++steps;
  }
  EXPECT_EQ(laws::allocations, before);
  EXPECT_EQ(threads_of_ours(), threads);
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(steps, samples / batch_size);

  auto expected = fixed.start();
  auto wanted = expected.epoch(1);
  auto at = wanted.begin();
  for (auto& batch : feed.epoch(1)) {
    ASSERT_NE(at, wanted.end());
    ASSERT_TRUE(std::ranges::equal(batch.indices(), (*at).indices()));
    ++at;
  }
  EXPECT_EQ(at, wanted.end());
  const auto chosen = feed.tuning();
  EXPECT_GE(chosen.readers, 1U);
  EXPECT_LE(chosen.readers, chosen.most_readers);
  EXPECT_LE(chosen.depth, chosen.most_depth);
}

TYPED_TEST(automatic_feed, a_loop_that_holds_batches_gets_more_depth_until_there_is_none) {
  auto feed = (pipeline_of(this->data) | penstock::transfer(TypeParam::make(), {.depth = automatic})).start();
  using batch_type = typename decltype(feed)::batch_type;
  std::vector<batch_type> held;
  for (std::uint32_t i = 0; i < 16; ++i) {
    held.push_back(feed.next());
    ASSERT_EQ(held.back().step(), i);
  }
  EXPECT_EQ(feed.tuning().depth, 16U);
  const std::string problem = message_of([&] { feed.next(); });
  EXPECT_NE(problem.find("all 16 batches of this feed are held"), std::string::npos) << problem;
  held.clear();
  auto next = feed.next();
  EXPECT_EQ(next.step(), 16U);
}

TYPED_TEST(automatic_feed, restarts_leave_alone_what_is_not_in_use) {
  auto feed = (pipeline_of(this->data) | penstock::transfer(TypeParam::make(), {.depth = automatic})).start();
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::vector<typename decltype(feed)::batch_type> held;
    std::uint64_t step = 0;
    for (auto& batch : feed.epoch(round)) {
      ASSERT_EQ(batch.step(), step++);
      if (round == 10 && held.size() < 4) held.push_back(std::move(batch));  // one more than are in use at first
      if (step == 7) break;
    }
    EXPECT_GE(feed.tuning().depth, round < 10 ? 3U : 4U);
  }
}

TEST(automatic_depth, never_allocates_more_than_its_memory) {
  const auto data = rows();
  // 8 floats are rounded up to 256 bytes in slot and twin, each with a header of 256, and 32 are kept on the host.
  constexpr std::uint64_t one = 2 * (256 + 256) + 32;
  for (const std::uint64_t memory : {2 * one, 2 * one + 5, 3 * one - 1, 7 * one, 1000 * one}) {
    penstock::modelled_device device;
    auto feed = (pipeline_of(data) | penstock::transfer(device, {.depth = automatic, .memory = memory})).start();
    for (auto& batch : feed.steps(30)) batch.stream().synchronize();
    const auto chosen = feed.tuning();
    const std::uint64_t expected = memory / one < 16 ? memory / one : 16;
    EXPECT_EQ(chosen.most_depth, expected);
    EXPECT_EQ(chosen.bytes, expected * one);
    EXPECT_LE(chosen.bytes, memory);
    EXPECT_EQ(device.counts().live_allocations, expected);
    EXPECT_EQ(device.counts().live_host_allocations, expected);
  }
}

TEST(automatic_depth, says_what_it_wants_where_two_batches_do_not_fit) {
  const auto data = rows();
  const std::string problem = message_of([&] {
    (pipeline_of(data) | penstock::transfer(penstock::modelled_device(), {.depth = automatic, .memory = 2000})).start();
  });
  EXPECT_EQ(
      problem,
      "penstock: transfer: memory is 2000 bytes, wanted at least 2112: 2 batches, each of which takes 1056 on host "
      "and device");
}

TEST(automatic_readers, leave_a_depth_alone_that_was_given) {
  const auto data = rows();
  penstock::modelled_device device;
  auto feed = (pipeline_of(data) | penstock::transfer(device, {.depth = 2, .host_depth = 6})).start();
  using batch_type = decltype(feed)::batch_type;
  std::vector<batch_type> held;
  for (int i = 0; i < 2; ++i) held.push_back(feed.next());
  const std::string problem = message_of([&] { held.push_back(feed.next()); });
  EXPECT_NE(problem.find("all 2 batches of this feed are held"), std::string::npos) << problem;
  EXPECT_EQ(feed.tuning().depth, 2U);
  EXPECT_EQ(feed.tuning().most_depth, 2U);
  EXPECT_EQ(feed.tuning().bytes, 6U * (256 + 256) + 2U * (256 + 256 + 32));
}

TEST(automatic_depth, counts_all_readers_of_a_shared_pool) {
  const auto data = rows();
  auto feed = (data | penstock::partition() | penstock::read({.shared = penstock::reader_pool::make(3)}) |
               penstock::batch(batch_size) | penstock::transfer(penstock::cpu_device(), {.depth = automatic}))
                  .start();
  EXPECT_EQ(feed.tuning().readers, 3U);
  EXPECT_EQ(feed.tuning().most_readers, 3U);
}

TEST(automatic_options, that_make_no_sense_are_refused) {
  const auto refuses = [](auto&& stage, const std::string& part) {
    const std::string problem = message_of([&] { stage.validate(); });
    EXPECT_NE(problem.find(part), std::string::npos) << problem;
  };
  const penstock::cpu_device cpu;
  refuses(penstock::transfer(cpu, {.depth = 3, .memory = 100}), "memory is 100 bytes, wanted none");
  refuses(penstock::transfer(cpu, {.depth = automatic, .host_depth = 2}), "host_depth is 2, wanted 0");
  refuses(penstock::transfer(cpu, {.depth = -2}), "depth is -2, wanted 1 to 64, or automatic");
  refuses(penstock::read({.readers = -2}), "readers is -2, wanted 0 to 256, or automatic");
  refuses(penstock::read({.readers = automatic, .shared = penstock::reader_pool::make(1)}),
          "readers is automatic, wanted none");
}

TEST(automatic_feed_on_the_cpu, describes_what_it_may_choose) {
  const auto data = rows();
  const auto most = penstock::detail::allowed_cpus().size() < 2 ? 2 : penstock::detail::allowed_cpus().size();
  const auto text =
      penstock::describe(pipeline_of(data) | penstock::transfer(penstock::cpu_device(), {.depth = automatic}));
  EXPECT_NE(text.find("automatic (1 to " + std::to_string(most) + ") reader threads"), std::string::npos) << text;
  EXPECT_NE(text.find("automatic (3 to 16) host slots"), std::string::npos) << text;
  // What is read on the loop's own thread is not read ahead.
  const auto inline_reading = data | penstock::partition() | penstock::read({.readers = 0}) |
                              penstock::batch(batch_size) |
                              penstock::transfer(penstock::cpu_device(), {.depth = automatic});
  const auto of_it = penstock::describe(inline_reading);
  EXPECT_NE(of_it.find(" 3 host slots"), std::string::npos) << of_it;
  auto feed = inline_reading.start();
  EXPECT_EQ(feed.tuning().most_depth, 3U);
  for (auto& batch : feed.steps(5)) EXPECT_EQ(batch.size(), std::size_t{batch_size});
}

TEST(automatic_feed_on_the_cpu, reads_with_no_more_threads_than_it_says) {
  struct counted {
    using schema_type = penstock::schema<penstock::field<float>>;
    std::uint64_t size() const { return samples; }
    schema_type schema() const { return schema_type({"x"}); }
    void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
      const int now = 1 + reading->fetch_add(1);
      for (int seen = most->load(); seen < now && !most->compare_exchange_weak(seen, now);) {
      }
      std::get<0>(to)() = static_cast<float>(index);
      // Time for another one to come, if there is one.
      const auto end = std::chrono::steady_clock::now() + 200us;
      while (most->load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      reading->fetch_sub(1);
    }
    std::shared_ptr<std::atomic<int>> reading = std::make_shared<std::atomic<int>>(0);
    std::shared_ptr<std::atomic<int>> most = std::make_shared<std::atomic<int>>(0);
  } data;
  // Before it has measured anything there is one reader.
  auto feed = (data | penstock::partition() | penstock::read({.readers = automatic}) | penstock::batch(batch_size) |
               penstock::transfer(penstock::cpu_device()))
                  .start();
  for (auto& batch : feed.steps(5)) EXPECT_EQ(batch.size(), std::size_t{batch_size});
  EXPECT_EQ(feed.tuning().readers, 1U);
  EXPECT_EQ(data.most->load(), 1);
  EXPECT_EQ(feed.tuning().depth, 3U);
  EXPECT_EQ(feed.tuning().most_depth, 3U);
}

/// The samples of every `slow_every`-th batch take their reader time; counts who reads at once.
struct busy_samples {
  using schema_type = penstock::schema<penstock::field<float>>;
  std::uint64_t size() const { return 1 << 20; }
  schema_type schema() const { return schema_type({"x"}); }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    const int now = 1 + of->reading.fetch_add(1);
    for (int seen = of->most; seen < now && !of->most.compare_exchange_weak(seen, now);) {
    }
    const auto end = std::chrono::steady_clock::now() + (index / batch_size % of->slow_every == 0 ? of->slow : 0us);
    while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
    std::get<0>(to)() = static_cast<float>(index);
    of->reading.fetch_sub(1);
    of->done.fetch_add(1);
  }
  struct counts {
    std::uint64_t slow_every = 1;
    std::chrono::microseconds slow{100};
    std::atomic<int> reading{0}, most{0};
    std::atomic<std::uint64_t> done{0};
  };
  std::shared_ptr<counts> of = std::make_shared<counts>();
};

TEST(automatic_feed_on_the_cpu, lets_another_reader_work_where_reading_bounds) {
  const busy_samples data;
  auto feed = (data | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = automatic, .timeout = 1min}) | penstock::batch(batch_size) |
               penstock::transfer(penstock::cpu_device()))
                  .start();
  std::uint64_t steps = 0;
  while (data.of->most < 2 && steps < 2000) {
    auto batch = feed.next();
    ++steps;
  }
  EXPECT_GE(data.of->most, 2) << feed.tuning().why;
}

TEST(automatic_depth, that_was_chosen_is_read_ahead) {
  busy_samples data;
  data.of->slow_every = 8;
  auto feed = (data | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = 1, .timeout = 1min}) | penstock::batch(batch_size) |
               penstock::transfer(penstock::cpu_device(), {.depth = automatic}))
                  .start();
  std::uint64_t steps = 0;
  for (; feed.tuning().depth == 3 && steps < 2000; ++steps) {
    auto batch = feed.next();
    const auto end = std::chrono::steady_clock::now() + 100us;
    while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }
  const std::uint64_t depth = feed.tuning().depth;
  EXPECT_GT(depth, 3U) << feed.tuning().why;
  // While the loop holds nothing.
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (data.of->done < (steps + depth) * batch_size && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_EQ(data.of->done, (steps + depth) * batch_size);
}

TEST(automatic_depth, is_not_chosen_by_what_passes_between_epochs) {
  const std::vector<float> few(4 * batch_size);
  const auto settles_in = [&](std::chrono::nanoseconds between) {
    const auto clock = std::make_shared<penstock::manual_clock>();
    const penstock::modelled_device device({.clock = clock});
    auto feed = (few | penstock::partition() | penstock::read() | penstock::batch(batch_size) |
                 penstock::transfer(device, {.depth = automatic}))
                    .start();
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch, clock->advance(between))
      for (auto& batch : feed.epoch(epoch)) {
        EXPECT_EQ(batch.size(), std::size_t{batch_size});
        clock->advance(100us);
      }
    EXPECT_TRUE(feed.tuning().settled);
    return feed.tuning().steps;
  };
  EXPECT_EQ(settles_in(3s), settles_in(0s));
}

}  // namespace
