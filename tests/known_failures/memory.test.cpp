// SPDX-License-Identifier: Apache-2.0
// Growth of memory and of other resources.
#include <gtest/gtest.h>
#include <malloc.h>

#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <ranges>
#include <stdexcept>
#include <string>

#include "../support/temporary_directory.hpp"
#include "support.hpp"

namespace {

using namespace known_failures;

std::atomic<std::int64_t> rows_alive{0};
std::atomic<std::int64_t> most_rows_alive{0};

// A row of 4 kB on the heap that is counted.
class counted_row {
 public:
  counted_row() : counted_row(0) {}
  explicit counted_row(std::uint64_t number) : data_(512, number) { count(); }
  counted_row(const counted_row& other) : data_(other.data_) { count(); }
  counted_row(counted_row&& other) noexcept : data_(std::move(other.data_)) { count(); }
  counted_row& operator=(const counted_row&) = default;
  counted_row& operator=(counted_row&&) noexcept = default;
  ~counted_row() { rows_alive.fetch_sub(1); }

  const std::uint64_t* begin() const { return data_.data(); }
  const std::uint64_t* end() const { return data_.data() + data_.size(); }

 private:
  static void count() {
    const std::int64_t now = rows_alive.fetch_add(1) + 1;
    std::int64_t most = most_rows_alive.load();
    while (most < now && !most_rows_alive.compare_exchange_weak(most, now)) {
    }
  }
  std::vector<std::uint64_t> data_;
};

std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long size = 0, resident = 0;
  const int found = file == nullptr ? 0 : std::fscanf(file, "%lu %lu", &size, &resident);
  if (file != nullptr) std::fclose(file);
  return found == 2 ? resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

TEST(known_failures, MEM_1_a_shuffle_window_does_not_grow_over_the_epochs) {
  const hang_limit limit(280);
  // One arena for all threads: with one for each, what a row's drawer leaves free is no use to the next one's, and
  // resident memory tells how the system's allocator spreads rows over threads, not how many there are.
  ::mallopt(M_ARENA_MAX, 1);
  constexpr std::int64_t window = 5000;
  constexpr std::int64_t batch = 100;
  const std::uint64_t epochs = KNOWN_FAILURES_SANITIZED ? 4 : 50;
  {
    auto feed = (penstock::stream([] {
                   return std::views::iota(std::uint64_t{0}, std::uint64_t{10'000}) |
                          std::views::transform([](std::uint64_t i) { return counted_row(i); });
                 }) |
                 penstock::partition({.shuffle = penstock::shuffle::window(window)}) | penstock::read({.readers = 2}) |
                 penstock::batch(batch) | penstock::transfer(penstock::cpu_device{}))
                    .start();
    std::size_t after_three = 0;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      std::uint64_t rows = 0;
      for (auto& one : feed.epoch(epoch)) {
        rows += one.size();
        // Every third epoch is left.
        if (epoch % 3 == 2 && one.step() == 20) break;
      }
      EXPECT_EQ(rows, epoch % 3 == 2 ? 21u * 100 : 10'000u);
      if (epoch == 3) after_three = resident_bytes();
    }
    // The window, what two readers carry to their slots, and what is on its way between these.
    EXPECT_LE(most_rows_alive.load(), window + 2 * batch + 16);
    if (KNOWN_FAILURES_SANITIZED) {
      std::puts("resident memory is not compared: it is the sanitizer's");
    } else {
      ASSERT_GT(after_three, std::size_t{5000} * 4096);
      EXPECT_LE(resident_bytes(), after_three + after_three / 20);
    }
  }
  EXPECT_EQ(rows_alive.load(), 0);
}

// Row 0 is read last of all that may be read while its batch is not there: nothing else is begun until then.
TEST(known_failures, MEM_3_a_slow_batch_holds_back_what_does_not_fit_in_the_depth) {
  const hang_limit limit;
  constexpr std::uint64_t batch = 16;
  for (const int readers : {2, 8}) {
    for (const int depth : {1, 4}) {
      const std::uint64_t bound = static_cast<std::uint64_t>(depth) * batch;
      const std::uint64_t behind =
          batch / static_cast<std::uint64_t>(readers);  // row 0 and what its reader has after it
      std::atomic<std::uint64_t> others{0};
      std::atomic<std::uint64_t> beyond{0};
      std::atomic<bool> there{false};
      auto hook = [&](std::uint64_t index) {
        if (index == 0) {
          while (others.load() < bound - behind) std::this_thread::yield();
          // Chances for the others to go too far.
          for (int i = 0; i < 2000; ++i) std::this_thread::yield();
          there = true;
          return;
        }
        if (!there && index >= bound) beyond.fetch_add(1);
        others.fetch_add(1);
      };
      auto feed = (numbers{50 * batch, hook} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                   penstock::read({.readers = readers}) | penstock::batch(batch) |
                   penstock::transfer(penstock::cpu_device{}, {.depth = depth}))
                      .start();
      EXPECT_EQ(joined(all_of(feed.epoch(0))), first_numbers(50 * batch));
      EXPECT_EQ(beyond.load(), 0u) << readers << " readers, depth " << depth;
    }
  }
}

// The consumer is what is slow.
TEST(known_failures, MEM_3_a_slow_consumer_holds_back_the_readers) {
  const hang_limit limit;
  constexpr std::uint64_t batch = 16;
  std::atomic<std::uint64_t> begun{0};
  auto hook = [&](std::uint64_t) { begun.fetch_add(1); };
  auto feed = (numbers{50 * batch, hook} | penstock::partition() | penstock::read({.readers = 8}) |
               penstock::batch(batch) | penstock::transfer(penstock::cpu_device{}, {.depth = 4}))
                  .start();
  std::uint64_t received = 0;
  for (auto& one : feed.epoch(0)) {
    received += one.size();
    if (received > 10 * batch) continue;
    // One of the four is here, three are full.
    ASSERT_TRUE(comes_true([&] { return begun.load() == received + 3 * batch; }));
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    EXPECT_EQ(begun.load(), received + 3 * batch);
  }
}

// ---- descriptors

using penstock_test::temporary_directory;

constexpr std::uint64_t files = 2000;

struct closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// One image a file; readers hold an index file open, and the image that they read.
struct images {
  std::string directory;

  struct reader {
    std::string directory;
    std::unique_ptr<std::FILE, closer> index;

    template <class To>
    void read(std::uint64_t number, const To& to) {
      const std::string path = directory + "/" + std::to_string(number);
      const std::unique_ptr<std::FILE, closer> file(std::fopen(path.c_str(), "rb"));
      if (!file) throw penstock::error("cannot open", {.path = path});
      std::uint64_t content[2] = {};
      if (std::fread(content, sizeof(std::uint64_t), 2, file.get()) != 2)
        throw penstock::error("cut short", {.path = path});
      *std::get<0>(to).data() = content[0];
    }
  };
  std::uint64_t size() const { return files; }
  auto schema() const { return penstock::schema{penstock::field<std::uint64_t>{"image"}}; }
  reader open() const {
    reader result{directory, std::unique_ptr<std::FILE, closer>(std::fopen((directory + "/0").c_str(), "rb"))};
    if (!result.index) throw penstock::error("cannot open", {.path = directory + "/0"});
    return result;
  }
};

class descriptors : public testing::Test {
 protected:
  descriptors() {
    for (std::uint64_t i = 0; i < files; ++i) write(i, true);
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = 64;
    ::setrlimit(RLIMIT_NOFILE, &low);
  }
  ~descriptors() override { ::setrlimit(RLIMIT_NOFILE, &before_); }

  void write(std::uint64_t i, bool whole) const {
    const std::uint64_t content[2] = {i, i};
    const std::unique_ptr<std::FILE, closer> file(std::fopen(directory_.file(std::to_string(i)).c_str(), "wb"));
    ASSERT_TRUE(file);
    std::fwrite(content, sizeof(std::uint64_t), whole ? 2 : 1, file.get());
  }
  auto feed() const {
    return (images{directory_.path()} | penstock::partition({.seed = 1}) | penstock::read({.readers = 8}) |
            penstock::batch(16) | penstock::transfer(penstock::cpu_device{}))
        .start();
  }

  temporary_directory directory_;
  rlimit before_{};
  static constexpr std::size_t readers = 8;
};

TEST_F(descriptors, MEM_4_readers_hold_a_bounded_number_over_the_epochs) {
  const hang_limit limit;
  const std::size_t before = open_descriptors();
  {
    auto images_feed = feed();
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      auto rows = joined(all_of(images_feed.epoch(epoch)));
      std::ranges::sort(rows);
      EXPECT_EQ(rows, first_numbers(files));
      EXPECT_LE(open_descriptors(), before + 2 * readers);
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(descriptors, MEM_4_also_when_every_tenth_file_is_corrupt) {
  const hang_limit limit;
  for (std::uint64_t i = 9; i < files; i += 10) write(i, false);
  const std::size_t before = open_descriptors();
  std::size_t errors = 0;
  {
    auto images_feed = feed();
    for (std::uint64_t epoch = 0; epoch < 300; ++epoch) {
      try {
        (void)all_of(images_feed.epoch(epoch));
      } catch (const penstock::error& caught) {
        EXPECT_EQ(caught.problem().substr(0, 9), "cut short") << caught.what();
        EXPECT_EQ(caught.where().path, directory_.file(std::to_string(caught.where().sample.value())));
        ++errors;
      }
      EXPECT_LE(open_descriptors(), before + 2 * readers);
    }
  }
  EXPECT_EQ(errors, 300u);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(descriptors, MEM_4_feeds_that_come_and_go_give_all_back) {
  const hang_limit limit;
  for (std::uint64_t i = 9; i < files; i += 10) write(i, false);
  const std::size_t before = open_descriptors();
  const std::size_t threads = threads_alive();
  for (int repetition = 0; repetition < 50; ++repetition) {
    auto images_feed = feed();
    if (repetition % 2 == 0)
      EXPECT_THROW((void)all_of(images_feed.epoch(0)), penstock::error);
    else
      (void)images_feed.epoch(0);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(threads_come_back_to(threads));
}

// Readers that serve one feed after the other: what they opened for one goes with it.
TEST_F(descriptors, MEM_4_feeds_on_shared_readers_give_all_back) {
  const hang_limit limit;
  const std::size_t before = open_descriptors();
  const auto pool = penstock::reader_pool::make(8);
  for (int repetition = 0; repetition < 50; ++repetition) {
    auto images_feed =
        (images{directory_.path()} | penstock::partition({.seed = 1}) | penstock::read({.shared = pool}) |
         penstock::batch(16) | penstock::transfer(penstock::cpu_device{}))
            .start();
    EXPECT_EQ(joined(all_of(images_feed.steps(3))).size(), 48u);
  }
  EXPECT_TRUE(comes_true([&] { return open_descriptors() == before; }));
}

}  // namespace
