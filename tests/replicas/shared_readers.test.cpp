// SPDX-License-Identifier: Apache-2.0
// Readers that serve several replicas, and what their user met when they were built by hand.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <ranges>
#include <set>
#include <string>
#include <vector>

#include <penstock/schedule/describe_replicas.hpp>

#include "scene.hpp"

namespace {
std::atomic<int> pretended_cpus{0};  // that there seem to be, and no others; 0: those that there are
}
/// In place of the C library's.
extern "C" int sched_getaffinity(pid_t thread, std::size_t size, cpu_set_t* to) noexcept {
  CPU_ZERO_S(size, to);
  if (pretended_cpus == 0) return syscall(SYS_sched_getaffinity, thread, size, to) < 0 ? -1 : 0;
  for (int cpu = 0; cpu < pretended_cpus; ++cpu) CPU_SET(cpu, to);
  return 0;
}

namespace {

using namespace scenes;

class shared_readers : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  std::shared_ptr<penstock::reader_pool> pool() const { return penstock::reader_pool::make(std::get<1>(GetParam())); }
  const hang_limit limit;
};
INSTANTIATE_TEST_SUITE_P(replicas, shared_readers,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::Values(1, 2, 5)));

// Each rank's batches by a feed that reads inline, of the same plan.
std::vector<std::vector<std::uint64_t>> alone(std::uint64_t rank, int ranks, const dataset& data, std::uint64_t epoch) {
  auto work = data | penstock::partition({.seed = 7, .world = {rank, static_cast<std::uint64_t>(ranks)}}) |
              penstock::read({.readers = 0}) | penstock::batch({.global = 8}) |
              penstock::transfer(penstock::cpu_device{});
  return known_failures::all_of(work.epoch(epoch));
}

TEST_P(shared_readers, keep_each_replicas_order_in_lockstep) {
  const std::size_t before = threads_alive();
  {
    const dataset data = count_to(61);
    const auto readers = pool();
    const auto summary = penstock::replicas(ranks(), [&](rank& one) {
      auto feed = one.start(batches_of(one, data, {.pool = readers}));
      double value[2] = {1, 2};
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<std::vector<std::uint64_t>> seen;
        for (auto& batch : feed.epoch(epoch)) {
          seen.push_back(numbers_of(batch));
          one.all_reduce(batch, std::span(value));
        }
        EXPECT_EQ(seen, alone(one.rank(), ranks(), data, epoch)) << "rank " << one.rank() << ", epoch " << epoch;
      }
    });
    EXPECT_EQ(summary.steps, 3 * 8u);
  }
  EXPECT_TRUE(threads_come_back_to(before));
}

// The others' readers are in the same pool.
TEST_P(shared_readers, outlive_a_replica_that_fails) {
  const dataset data = count_to(61);
  const auto readers = pool();
  for (int turn = 0; turn < 3; ++turn) {
    const auto caught = error_of([&] {
      penstock::replicas(ranks(), [&](rank& one) {
        auto feed = one.start(batches_of(one, data, {.pool = readers}));
        for (auto& batch : feed.epoch(0)) {
          if (batch.step() == 3 && one.rank() + 1 == one.size()) throw std::domain_error("by the body");
          one.all_reduce(batch);
        }
      });
    });
    ASSERT_TRUE(caught);
    EXPECT_EQ(caught->where().step, 3u);
  }
  const auto summary = penstock::replicas(ranks(), [&](rank& one) {
    auto feed = one.start(batches_of(one, data, {.pool = readers}));
    for (auto& batch : feed.epoch(0)) one.all_reduce(batch);
  });
  EXPECT_EQ(summary.steps, 8u);
}

// A replica whose sample is held back holds one reader, and its own slots; one that takes no batch its slots alone.
TEST_P(shared_readers, serve_the_others_while_one_replica_is_held_back) {
  if (std::get<1>(GetParam()) == 1) return;  // the one reader that there is would be held
  latch others_done;
  const dataset held_back{61, [&](std::uint64_t index) {
                            if (index == 0) others_done.wait();
                          }};
  const dataset data = count_to(61);
  const auto readers = pool();
  const auto begin = [&](const dataset& of) {
    return (of | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.shared = readers}) |
            penstock::batch(1) | penstock::transfer(penstock::cpu_device{}))
        .start();
  };
  auto held = begin(held_back), not_taken = begin(data);
  std::vector<std::uint64_t> seen(static_cast<std::size_t>(ranks()) + 1);
  std::thread late([&] {
    for (auto& batch : held.epoch(0)) seen.back() += batch.size();
  });
  std::vector<std::thread> consumers;
  for (std::size_t r = 0; r + 1 < seen.size(); ++r)
    consumers.emplace_back([&, r] {
      auto feed = begin(data);
      for (auto& batch : feed.epoch(0)) seen[r] += batch.size();
    });
  for (auto& one : consumers) one.join();
  EXPECT_EQ(seen.back(), 0u);
  others_done.open();
  late.join();
  for (const std::uint64_t rows : seen) EXPECT_EQ(rows, 61u);
}

// ---- by hand these hung

TEST(by_hand, two_replicas_with_four_workers_where_the_extra_ones_must_deliver_samples) {
  const hang_limit limit;
  // No sample is delivered before all four have begun to read one.
  std::mutex mutex;
  std::set<std::thread::id> readers;
  latch all_there;
  const dataset data{64, [&](std::uint64_t) {
                       {
                         const std::scoped_lock lock(mutex);
                         readers.insert(std::this_thread::get_id());
                         if (readers.size() == 4) all_there.open();
                       }
                       all_there.wait();
                     }};
  std::vector<std::uint64_t> rows(2);
  const auto summary = penstock::replicas(2, [&](rank& one) {
    auto feed = one.start(batches_of(one, data, {.global = 16, .readers = 2}));
    double value[2] = {1, 2};
    for (auto& batch : feed.epoch(0)) {
      rows[one.rank()] += batch.size();
      one.all_reduce(batch, std::span(value));
    }
  });
  EXPECT_EQ(summary.steps, 4u);
  EXPECT_EQ(rows, (std::vector<std::uint64_t>{32, 32}));
  EXPECT_EQ(readers.size(), 4u);
}

TEST(by_hand, both_sides_sending_first) {
  const hang_limit limit;
  const dataset data = count_to(64);
  penstock::replicas(2, [&](rank& one) {
    // More than any buffer between the two would hold, by both before either receives.
    std::vector<double> mine(300'000, static_cast<double>(one.rank() + 1));
    one.broadcast(0, {}, mine);
    EXPECT_EQ(mine.back(), 1);
    auto feed = one.start(batches_of(one, data, {.global = 16, .readers = 2}));
    for (auto& batch : feed.epoch(0)) {
      std::ranges::fill(mine, static_cast<double>(one.rank() + 1));
      one.all_reduce(batch, mine);
      EXPECT_EQ(mine.front(), 1.5);
      EXPECT_EQ(mine.back(), 1.5);
    }
  });
}

// Readers fill all that there is before anybody receives.
TEST(by_hand, both_sides_sending_first_by_their_readers) {
  const hang_limit limit;
  std::atomic<std::uint64_t> begun{0};
  const dataset data{64, [&](std::uint64_t) { begun.fetch_add(1); }};
  const auto summary = penstock::replicas(2, [&](rank& one) {
    auto feed = one.start(batches_of(one, data, {.global = 16, .readers = 2}));
    auto epoch = feed.epoch(0);
    EXPECT_TRUE(comes_true([&] { return begun.load() >= 32; }));
    for (auto& batch : epoch) one.all_reduce(batch);
  });
  EXPECT_EQ(summary.steps, 4u);
}

TEST(by_hand, a_receive_with_nothing_to_come) {
  const hang_limit limit;
  const dataset one_row = count_to(1);
  std::vector<std::vector<std::size_t>> sizes(3);
  penstock::replicas(3, [&](rank& one) {
    auto feed = one.start(batches_of(one, one_row, {.global = 6}));
    double value[1];
    for (auto& batch : feed.epoch(0)) {
      sizes[one.rank()].push_back(batch.size());
      value[0] = batch.size() == 0 ? -1 : 7;
      EXPECT_TRUE(one.all_reduce(batch, std::span(value)));
      EXPECT_EQ(value[0], 7);
    }
    feed.set_last_epoch(0);
    // Behind the last one there is the next epoch's, which all ask for alike; and nothing once the feed is stopped.
    feed.stop();
    EXPECT_FALSE(feed.next());
    EXPECT_FALSE(feed.next());
  });
  EXPECT_EQ(sizes, (std::vector<std::vector<std::size_t>>{{1}, {0}, {0}}));
}

TEST(by_hand, one_partition_ending_early_under_both_options) {
  const hang_limit limit;
  for (const auto how : {penstock::uneven::join, penstock::uneven::stop}) {
    std::vector<std::uint64_t> rows(2);
    const auto summary = penstock::replicas(
        2,
        [&](rank& one) {
          const std::uint64_t n = one.rank() == 0 ? 40 : 12;
          auto feed = one.start(penstock::stream([n] { return std::views::iota(std::uint64_t{0}, n); }) |
                                penstock::partition({.shuffle = penstock::shuffle::none}) |
                                penstock::read({.readers = 2}) | penstock::batch(4) | penstock::transfer(one.device()));
          double value[1];
          for (auto& batch : feed.epoch(0)) {
            value[0] = 3;
            if (!one.all_reduce(batch, std::span(value))) continue;
            EXPECT_EQ(value[0], 3);
            rows[one.rank()] += batch.size();
          }
        },
        {.uneven = how});
    const bool join = how == penstock::uneven::join;
    EXPECT_EQ(summary.steps, join ? 10u : 3u);
    EXPECT_EQ(rows, (std::vector<std::uint64_t>{join ? 40u : 12u, 12}));
  }
}

TEST(by_hand, a_first_batch_held_back_by_a_latch) {
  const hang_limit limit;
  for (const bool shared : {false, true}) {
    latch other_is_there;
    // Row 1 is the second rank's first.
    const dataset data{16, [&](std::uint64_t index) {
                         if (index == 1) other_is_there.wait();
                       }};
    const auto readers = shared ? penstock::reader_pool::make(3) : nullptr;
    std::vector<std::vector<std::uint64_t>> seen(2);
    const auto summary = penstock::replicas(2, [&](rank& one) {
      auto feed = one.start(
          batches_of(one, data, {.global = 2, .readers = 2, .how = penstock::shuffle::none, .pool = readers}));
      for (auto& batch : feed.epoch(0)) {
        if (one.rank() == 0) other_is_there.open();
        seen[one.rank()].push_back(numbers_of(batch).at(0));
        one.all_reduce(batch);
      }
    });
    EXPECT_EQ(summary.steps, 8u);
    EXPECT_EQ(seen[0], (std::vector<std::uint64_t>{0, 2, 4, 6, 8, 10, 12, 14}));
    EXPECT_EQ(seen[1], (std::vector<std::uint64_t>{1, 3, 5, 7, 9, 11, 13, 15}));
  }
}

// What each rank's feed may have of readers, where their number is automatic.
std::vector<std::uint32_t> most_readers(int ranks, const std::function<penstock::read_options(std::uint64_t)>& how) {
  const dataset data = count_to(61);
  std::vector<std::uint32_t> most(static_cast<std::size_t>(ranks));
  std::vector<std::string> table(most.size());
  penstock::replicas(ranks, [&](rank& one) {
    const auto work = data | penstock::partition({.world = one}) | penstock::read(how(one.rank())) |
                      penstock::batch({.global = 16}) | penstock::transfer(one.device());
    table[one.rank()] = penstock::describe(one, work);
    auto feed = one.start(work);
    most[one.rank()] = feed.tuning().most_readers;
    for (auto& batch : feed.epoch(0)) one.all_reduce(batch);
  });
  for (std::size_t one = 0; one < most.size(); ++one)
    if (const std::uint32_t readers = most[one]; readers > 1 && how(one).readers == penstock::automatic) {
      EXPECT_NE(table[0].find(" to " + std::to_string(readers) + ") reader threads"), std::string::npos) << table[0];
    }
  return most;
}

TEST(automatic_readers, of_replicas_share_the_cpus) {
  using found = std::vector<std::uint32_t>;
  const hang_limit limit;
  const auto automatic = [](std::uint64_t) { return penstock::read_options{.readers = penstock::automatic}; };
  pretended_cpus = 8;
  EXPECT_EQ(most_readers(1, automatic), (found{8}));
  EXPECT_EQ(most_readers(2, automatic), (found{4, 4}));
  EXPECT_EQ(most_readers(3, automatic), (found{3, 3, 2}));
  EXPECT_EQ(most_readers(9, automatic), (found{1, 1, 1, 1, 1, 1, 1, 1, 1}));
  // Where each has CPUs of its own they are all its own, and in part where they are in part.
  const auto placed = [](std::vector<penstock::cpu_set> cpus) {
    return [=](std::uint64_t rank) {
      return penstock::read_options{.readers = penstock::automatic, .cpus = cpus[static_cast<std::size_t>(rank)]};
    };
  };
  EXPECT_EQ(most_readers(2, placed({{0, 1, 2, 3, 4}, {5, 6, 7}})), (found{5, 3}));
  EXPECT_EQ(most_readers(2, placed({{0, 1, 2, 3}, {2, 3, 4}})), (found{3, 2}));
  // Of two nodes whose CPUs are numbered in turn, two ranks are on each.
  EXPECT_EQ(most_readers(4, placed({{0, 2, 4, 6}, {0, 2, 4, 6}, {1, 3, 5, 7}, {1, 3, 5, 7}})), (found{2, 2, 2, 2}));
  // Readers that were counted by the user, or that another is to come beside.
  EXPECT_EQ(most_readers(2,
                         [](std::uint64_t rank) {
                           return penstock::read_options{.readers = rank == 0 ? penstock::automatic : 5};
                         })[0],
            8U);
  EXPECT_EQ(most_readers(5,
                         [](std::uint64_t) {
                           return penstock::read_options{.readers = penstock::automatic,
                                                         .late = penstock::late_reads::reread};
                         }),
            (found{2, 2, 2, 2, 2}));
  pretended_cpus = 1;
  EXPECT_EQ(most_readers(1, automatic), (found{2}));  // as reading also waits
  EXPECT_EQ(most_readers(2, automatic), (found{1, 1}));
  pretended_cpus = 0;
}

}  // namespace
