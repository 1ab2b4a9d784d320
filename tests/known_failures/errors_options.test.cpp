// SPDX-License-Identifier: Apache-2.0
// Errors of options: named, and before any thread starts.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <pthread.h>

#include <chrono>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support.hpp"

namespace {

std::atomic<int> threads_started{0};

}  // namespace

// Every thread of this process is started here.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto original = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
  threads_started.fetch_add(1);
  return original(thread, attributes, body, argument);
}

namespace {

using namespace known_failures;
using namespace std::chrono_literals;

// `make()` is refused, the message has all `parts`, and no thread was started for it.
template <class Make>
void expect_refused(Make&& make, std::initializer_list<std::string_view> parts) {
  const int before = threads_started.load();
  try {
    (void)make();
    ADD_FAILURE() << "nothing was thrown, wanted " << *parts.begin() << ", " << *(parts.begin() + 1);
  } catch (const std::invalid_argument& caught) {
    const std::string_view what = caught.what();
    EXPECT_TRUE(what.starts_with("penstock: ")) << what;
    for (const auto part : parts) EXPECT_NE(what.find(part), what.npos) << what << " has no " << part;
  }
  EXPECT_EQ(threads_started.load(), before);
}

struct options {
  penstock::partition_options partition{};
  penstock::read_options read{.readers = 2};
  penstock::batch_options batch{.size = 4};
  penstock::transfer_options<penstock::cpu_device> transfer{};
  std::uint64_t rows = 20;
};
auto start(const options& with) {
  return (numbers<>{with.rows} | penstock::partition(with.partition) | penstock::read(with.read) |
          penstock::batch(with.batch) | penstock::transfer(penstock::cpu_device{}, with.transfer))
      .start();
}
void expect_refused(const options& with, std::initializer_list<std::string_view> parts) {
  expect_refused([&] { return start(with); }, parts);
}

TEST(known_failures, ERR_4_the_count_of_started_threads_sees_a_feed_s_readers) {
  const int before = threads_started.load();
  {
    const auto feed = start({});
  }
  EXPECT_EQ(threads_started.load(), before + 2);
}

TEST(known_failures, ERR_4_partition) {
  expect_refused({.partition = {.world = {3, 3}}}, {"partition", "world.rank is 3", "wanted 0 to 2"});
  expect_refused({.partition = {.world = {7, 3}}}, {"partition", "world.rank is 7", "wanted 0 to 2"});
  expect_refused({.partition = {.world = {0, 0}}}, {"partition", "world.size is 0", "wanted 1 or more"});
  expect_refused({.partition = {.shuffle = penstock::shuffle::window(5)}},
                 {"partition", "shuffle is window", "wanted shuffle::full, blocks(n) or none"});
  expect_refused([] { return penstock::shuffle::blocks(0); }, {"partition", "block", "is 0", "wanted 1 or more"});
  expect_refused([] { return penstock::shuffle::window(0); }, {"partition", "window", "is 0", "wanted 1 or more"});
}

TEST(known_failures, ERR_4_read) {
  expect_refused({.read = {.readers = -1}}, {"read", "readers is -1", "wanted 0 to 256"});
  expect_refused({.read = {.readers = 257}}, {"read", "readers is 257", "wanted 0 to 256"});
  expect_refused({.read = {.timeout = -1ns}}, {"read", "timeout is -1 ns", "wanted more than 0"});
  expect_refused({.read = {.timeout = 0ns}}, {"read", "timeout is 0 ns", "wanted more than 0"});
  expect_refused({.read = {.first_timeout = -5s}}, {"read", "first_timeout is -5000000000 ns", "wanted more than 0"});
  expect_refused({.read = {.readers = 0, .timeout = 1s}},
                 {"read", "timeout is 1000000000 ns", "wanted none", "readers is 0"});
  expect_refused({.read = {.readers = 0, .first_timeout = 1s}},
                 {"read", "first_timeout is", "wanted none", "readers is 0"});
  expect_refused({.read = {.readers = 2, .late = penstock::late_reads::reread},
                  .batch = {.size = 1 << 26},
                  .rows = std::uint64_t{1} << 26},
                 {"read", "late is late_reads::reread", "wanted late_reads::wait", "more than 16777216 samples"});
}

TEST(known_failures, ERR_4_reader_pool) {
  expect_refused([] { return penstock::reader_pool::make(0); }, {"reader_pool", "readers is 0", "wanted 1 to 256"});
  expect_refused([] { return penstock::reader_pool::make(-3); }, {"reader_pool", "readers is -3", "wanted 1 to 256"});
  expect_refused([] { return penstock::reader_pool::make(257); }, {"reader_pool", "readers is 257", "wanted 1 to 256"});
}

TEST(known_failures, ERR_4_batch) {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_refused({.batch = {.size = 0}}, {"batch", "size is 0", "wanted 1 to 2^31"});
  expect_refused({.batch = {.size = -1}}, {"batch", "size is -1", "wanted 1 to 2^31"});
  expect_refused({.batch = {.size = least}}, {"batch", "size is -9223372036854775808", "wanted 1 to 2^31"});
  expect_refused({.batch = {.size = most}}, {"batch", "size is 9223372036854775807", "wanted 1 to 2^31"});
  expect_refused({.batch = {.global = -8}}, {"batch", "global is -8", "wanted 1 to 2^31"});
  expect_refused({.batch = {.size = 4, .global = 8}}, {"batch", "global is 8", "wanted none", "size"});
  expect_refused({.batch = {.size = 32, .last = penstock::last_batch::drop}},
                 {"batch", "size is 32", "wanted at most 20"});
  expect_refused({.rows = 0}, {"batch", "number of samples is 0", "wanted 1 or more"});
}

TEST(known_failures, ERR_4_transfer) {
  expect_refused({.transfer = {.depth = 0}}, {"transfer", "depth is 0", "wanted 1 to 64"});
  expect_refused({.transfer = {.depth = -2}}, {"transfer", "depth is -2", "wanted 1 to 64"});
  expect_refused({.transfer = {.depth = 65}}, {"transfer", "depth is 65", "wanted 1 to 64"});
  expect_refused({.transfer = {.host_depth = -1}}, {"transfer", "host_depth is -1", "wanted", "64"});
  expect_refused({.transfer = {.host_depth = 65}}, {"transfer", "host_depth is 65", "wanted", "64"});
}

TEST(known_failures, ERR_4_split) {
  const auto cut = [](double validation, double test) {
    return [=] { return penstock::split(numbers<>{20}, {.validation = validation, .test = test}); };
  };
  expect_refused(cut(-0.1, 0), {"split", "validation is -0.1", "wanted 0 to 1"});
  expect_refused(cut(1.5, 0), {"split", "validation is 1.5", "wanted 0 to 1"});
  expect_refused(cut(0, -1), {"split", "test is -1", "wanted 0 to 1"});
  expect_refused(cut(0, 2), {"split", "test is 2", "wanted 0 to 1"});
  expect_refused(cut(std::nan(""), 0), {"split", "validation is ", "nan", "wanted 0 to 1"});
  expect_refused(cut(0.6, 0.5), {"split", "validation + test is 1.1", "wanted 0 to 1"});
}

TEST(known_failures, ERR_4_pad_to) {
  expect_refused([] { return penstock::pad_to({.length = 0}); }, {"pad_to", "length is 0", "wanted 1 or more"});
}

TEST(known_failures, ERR_4_streams_cannot_be_shuffled_like_a_dataset) {
  const auto start = [](penstock::shuffle how) {
    return [how] {
      return (penstock::stream([] { return std::views::iota(0, 10); }) | penstock::partition({.shuffle = how}) |
              penstock::read({.readers = 2}) | penstock::batch(2) | penstock::transfer(penstock::cpu_device{}))
          .start();
    };
  };
  expect_refused(start(penstock::shuffle::full),
                 {"partition", "shuffle is full", "wanted shuffle::none or shuffle::window(n)"});
  expect_refused(start(penstock::shuffle::blocks(4)), {"partition", "shuffle is blocks", "wanted shuffle::none or"});
}

}  // namespace
