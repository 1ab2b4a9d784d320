// SPDX-License-Identifier: Apache-2.0
// Law 11, as far as the host shows it: nothing of the process's or the caller's is changed, and nothing stays behind.
#include <gtest/gtest.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "configurations.hpp"
#include "threads.hpp"

namespace {

using namespace laws;

template <class Device>
class law_11 : public testing::Test {};
TYPED_TEST_SUITE(law_11, devices, device_name);

std::set<int> blocked_signals() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  std::set<int> result;
  for (int signal = 1; signal < NSIG; ++signal)
    if (sigismember(&mask, signal) == 1) result.insert(signal);
  return result;
}
std::vector<int> cpus() {
  cpu_set_t mask;
  sched_getaffinity(0, sizeof(mask), &mask);
  std::vector<int> result;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) result.push_back(cpu);
  return result;
}

TYPED_TEST(law_11, the_callers_signals_and_processors_are_as_before_and_no_thread_is_left) {
  const samples<> data{23};
  const auto threads = threads_now();
  const auto signals = blocked_signals();
  const auto allowed = cpus();
  for_each_schedule([&](const configuration& one) {
    auto feed = feed_of(data, TypeParam::make(), one);
    ASSERT_EQ(epoch_of(feed, 0).size(), 6U);
    ASSERT_EQ(blocked_signals(), signals);
    ASSERT_EQ(cpus(), allowed);
  });
  EXPECT_EQ(threads_left(threads), threads);
}

TYPED_TEST(law_11, describing_a_pipeline_starts_nothing) {
  const samples<> data{23};
  const auto threads = threads_now();
  const auto device = TypeParam::make();
  const auto described = pipeline_of(data, device, {.readers = 8}, penstock::read());
  const auto copy = described;
  EXPECT_EQ(threads_now(), threads);
}

TYPED_TEST(law_11, readers_take_no_signals_carry_names_and_are_as_many_as_asked_for) {
  const auto threads = threads_now();
  std::atomic<std::size_t> deaf = 0, named = 0;
  const samples data{24, [&](std::uint64_t, penstock::read_context&) {
                       sigset_t mask;
                       pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                       deaf += sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1;
                       char name[16] = {};
                       pthread_getname_np(pthread_self(), name, sizeof(name));
                       named += std::string(name).starts_with("penstock:read");
                     }};
  for (int readers : {1, 2, 8}) {
    deaf = named = 0;
    auto feed = feed_of(data, TypeParam::make(), {.readers = readers, .depth = 1});
    feed.set_last_epoch(0);
    EXPECT_EQ(epoch_of(feed, 0).size(), 6U);
    EXPECT_EQ(threads_now(), threads + static_cast<std::size_t>(readers));
    EXPECT_EQ(deaf, 24U);
    EXPECT_EQ(named, 24U);
    {
      const auto ends = std::move(feed);
    }
    EXPECT_EQ(threads_left(threads), threads);
  }
}

TEST(law_11, inline_reading_starts_no_thread_and_reads_on_the_callers) {
  const auto threads = threads_now();
  const auto here = std::this_thread::get_id();
  std::size_t reads = 0;
  const samples data{24, [&](std::uint64_t, penstock::read_context&) { reads += std::this_thread::get_id() == here; }};
  auto feed = feed_of(data, cpu::make(), {.readers = 0});
  feed.set_last_epoch(0);
  EXPECT_EQ(epoch_of(feed, 0).size(), 6U);
  EXPECT_EQ(threads_now(), threads);
  EXPECT_EQ(reads, 24U);
}

TEST(law_11, the_consumer_may_name_its_own_stream) {
  const samples<> data{23};
  const auto device = modelled::make();
  const auto own = device.make_stream();
  auto feed = (data | penstock::partition({.shuffle = shuffle::none}) | penstock::read({.readers = 2}) |
               penstock::batch(4) | penstock::transfer(device, {.depth = 2, .consumer = own.view()}))
                  .start();
  const configuration one{.how = shuffle::none};
  std::vector<delivered> batches;
  for (auto& batch : feed.epoch(0)) {
    EXPECT_EQ(batch.stream(), own.view());
    batches.push_back(take(batch));
  }
  EXPECT_EQ(batches, planned(23, one, 0));
}

}  // namespace
