// SPDX-License-Identifier: Apache-2.0
// ctest: no asan: it starts and joins readers as others do
// Where readers run, as the kernel tells it.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

#include "../laws/threads.hpp"

namespace {

using penstock::cpu_set;

const std::vector<float> numbers(1000, 1.0F);

auto work_of(const penstock::read_options& options) {
  return numbers | penstock::partition() | penstock::read(options) | penstock::batch(10) |
         penstock::transfer(penstock::cpu_device{});
}
/// "0-3,8" of each thread whose name begins so.
std::vector<std::string> places_of(const std::string& name) {
  std::vector<std::string> result;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string is;
    std::getline(std::ifstream(task.path() / "comm"), is);
    if (!is.starts_with(name)) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("Cpus_allowed_list:")) result.push_back(line.substr(line.find('\t') + 1));
  }
  return result;
}
/// Where the readers are once each has begun, and gone there: it is told of before.
std::multiset<std::string> places_of_readers(std::size_t readers, const cpu_set& wanted) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const auto found = places_of("penstock:read");
    const std::multiset<std::string> places(found.begin(), found.end());
    if (places.size() == readers && places.count(wanted.text()) == readers) return {};
    if (std::chrono::steady_clock::now() > deadline) return places;
    std::this_thread::yield();
  }
}
const std::multiset<std::string> as_wanted;
/// One that this program may not use.
int forbidden() {
  const cpu_set allowed = penstock::detail::allowed_cpus();
  int cpu = 0;
  while (allowed.contains(cpu)) ++cpu;
  return cpu;
}
std::string refusal(auto&& make) {
  const std::size_t threads = laws::threads_now();
  std::string text = "nothing";
  try {
    make();
  } catch (const std::invalid_argument& refused) {
    text = refused.what();
  }
  EXPECT_EQ(laws::threads_left(threads), threads);
  return text;
}

TEST(CpuSet, holds_numbers_and_writes_them_as_the_system_does) {
  EXPECT_EQ(cpu_set{}.text(), "");
  EXPECT_TRUE(cpu_set{}.empty());
  const cpu_set some{3, 0, 1, 2, 8, 63, 64, 1023, 8};
  EXPECT_EQ(some.text(), "0-3,8,63-64,1023");
  EXPECT_EQ(some.size(), 8U);
  EXPECT_EQ(some[0], 0);
  EXPECT_EQ(some[4], 8);
  EXPECT_EQ(some[7], 1023);
  EXPECT_TRUE(some.contains(64));
  EXPECT_FALSE(some.contains(65));
  EXPECT_FALSE(some.contains(-1));
  EXPECT_FALSE(some.contains(5000));
  EXPECT_FALSE(some.within({0, 1, 2, 3, 8}));
  EXPECT_EQ(some.one_not_in({0, 1, 2, 3, 8}), 63);
  EXPECT_TRUE(some.within(some));
  EXPECT_TRUE(cpu_set{}.within({}));
  // What no set holds is not lost.
  EXPECT_FALSE(cpu_set{-1}.empty());
  EXPECT_EQ((cpu_set{2, 1024}.text()), "2,1024");
  EXPECT_FALSE((cpu_set{2, 1024}.within({2})));
  EXPECT_EQ((cpu_set{2, 1024}.one_not_in({2})), 1024);
  constexpr cpu_set constant{1};
  static_assert(constant.contains(1) && constant[0] == 1);
}

TEST(Placement, readers_are_kept_where_they_are_put) {
  const cpu_set allowed = penstock::detail::allowed_cpus();
  for (std::size_t n = 0; n < std::min<std::size_t>(allowed.size(), 4); ++n)
    for (const int readers : {1, 3}) {
      const cpu_set one{allowed[n]};
      auto feed = work_of({.readers = readers, .cpus = one}).start();
      EXPECT_EQ(places_of_readers(static_cast<std::size_t>(readers), one), as_wanted);
      std::size_t samples = 0;
      for (auto& batch : feed.epoch(0)) samples += batch.size();
      EXPECT_EQ(samples, numbers.size());
      EXPECT_EQ(places_of_readers(static_cast<std::size_t>(readers), one), as_wanted);
      // The consumer stays where it was.
      EXPECT_EQ(penstock::detail::allowed_cpus(), allowed);
    }
}

TEST(Placement, a_pool_is_kept_where_it_is_put) {
  const cpu_set allowed = penstock::detail::allowed_cpus();
  const cpu_set last{allowed[allowed.size() - 1]};
  const auto pool = penstock::reader_pool::make(2, {.cpus = last});
  EXPECT_EQ(pool->cpus(), last);
  auto feed = work_of({.shared = pool}).start();
  EXPECT_EQ(places_of_readers(2, last), as_wanted);
}

TEST(Placement, all_allowed_ones_unless_told_otherwise) {
  const cpu_set allowed = penstock::detail::allowed_cpus();
  {
    auto feed = work_of({.readers = 2}).start();
    EXPECT_EQ(places_of_readers(2, allowed), as_wanted);
  }
  EXPECT_EQ(penstock::reader_pool::make(1)->cpus(), allowed);
  // Those of the thread that starts the feed, where they are fewer.
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(allowed[0], &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    auto feed = work_of({.readers = 2}).start();
    EXPECT_EQ(places_of_readers(2, {allowed[0]}), as_wanted);
  }).join();
}

TEST(Placement, cpus_that_cannot_be_are_refused_with_those_that_can) {
  const std::string allowed = penstock::detail::allowed_cpus().text();
  for (const int bad : {forbidden(), -1, 1024, 100'000}) {
    const std::string wanted =
        "some of " + allowed + ", which this thread may run on: " + std::to_string(bad) + " is none of them";
    for (const auto& text : {refusal([&] { penstock::reader_pool::make(2, {.cpus = {bad}}); }),
                             refusal([&] { work_of({.readers = 2, .cpus = {bad}}).start(); }), refusal([&] {
                               static_cast<void>(penstock::describe(work_of({.readers = 2, .cpus = {bad}})));
                             })})
      EXPECT_NE(text.find(wanted), text.npos) << text;
  }
  EXPECT_TRUE(refusal([&] {
                penstock::reader_pool::make(2, {.cpus = {-7}});
              }).starts_with("penstock: reader_pool: cpus is -7, "));
}

TEST(Placement, of_readers_that_are_none_is_refused) {
  const cpu_set one{penstock::detail::allowed_cpus()[0]};
  EXPECT_NE(refusal([&] { work_of({.readers = 0, .cpus = one}).start(); }).find("wanted none, as readers is 0"),
            std::string::npos);
  const auto pool = penstock::reader_pool::make(1);
  EXPECT_NE(refusal([&] { work_of({.shared = pool, .cpus = one}).start(); }).find("a shared pool's"),
            std::string::npos);
}

TEST(Placement, is_described) {
  const cpu_set allowed = penstock::detail::allowed_cpus();
  if (allowed.size() < 2) GTEST_SKIP() << "all readers are on the only CPU";
  const cpu_set one{allowed[0]};
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != text.npos; };
  EXPECT_TRUE(
      has(penstock::describe(work_of({.readers = 3, .cpus = one})), "  3 reader threads on CPU " + one.text() + "  "));
  EXPECT_TRUE(
      has(penstock::describe(work_of({.readers = 1, .cpus = one})), "  1 reader thread on CPU " + one.text() + "  "));
  EXPECT_TRUE(has(penstock::describe(work_of({.readers = 3})), "  3 reader threads  "));
  EXPECT_TRUE(has(penstock::describe(work_of({.shared = penstock::reader_pool::make(2, {.cpus = one})})),
                  "  shared reader threads on CPU " + one.text() + "  "));
  EXPECT_TRUE(
      has(penstock::describe(work_of({.shared = penstock::reader_pool::make(2)})), "  shared reader threads  "));
}

}  // namespace
