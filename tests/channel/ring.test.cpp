// SPDX-License-Identifier: Apache-2.0
// The ring's rules, one thread; what several threads may do to it is the checker's matter.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/channel/ring.hpp>

namespace {

using penstock::take_result;
using penstock::ticket;

constexpr std::uint64_t unbounded = std::uint64_t{1} << 54;

/// A ring, and what it has asked to be copied.
struct played {
  explicit played(const penstock::ring_shape& shape) : ring(shape) {}

  penstock::ring<> ring;
  std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> copies;  // step, slot, twin
  bool passed = true;                                                           // whether fences have passed

  take_result take(ticket& out, std::uint32_t reader = 0) {
    return ring.try_take(reader, out, [this](std::uint32_t) { return passed; });
  }
  auto enqueue() {
    return [this](std::uint64_t step, std::uint32_t slot, std::uint32_t twin) noexcept {
      copies.emplace_back(step, slot, twin);
    };
  }
  void fill(const ticket& held, std::uint32_t reader = 0) {
    if (ring.arrive(held)) ring.publish(held, enqueue());
    ring.leave(reader);
  }
  /// Reads as long as there is a ticket; returns the steps.
  std::vector<std::uint64_t> read_all() {
    std::vector<std::uint64_t> steps;
    for (ticket held; take(held) == take_result::taken; fill(held)) steps.push_back(held.step);
    return steps;
  }
  bool release(std::uint32_t index) { return ring.release(index, enqueue()); }
  void widen(std::uint32_t count) { ring.widen(count, enqueue()); }
  std::uint64_t restart() {
    return ring.restart([](std::uint32_t) {});
  }
};
using steps = std::vector<std::uint64_t>;

TEST(ring, begins_parked_and_gives_tickets_up_to_the_limit_when_opened) {
  played of({.host = 4});
  EXPECT_TRUE(of.ring.parked());
  EXPECT_EQ(of.read_all(), steps());
  of.ring.open(2);
  EXPECT_EQ(of.read_all(), (steps{0, 1}));
  of.ring.open(3);
  EXPECT_EQ(of.read_all(), steps{2});
}

TEST(ring, slots_that_are_handed_over_come_back_with_their_release) {
  played of({.host = 2});
  of.ring.open(unbounded);
  EXPECT_FALSE(of.ring.is_ready());
  EXPECT_EQ(of.read_all(), (steps{0, 1}));
  const auto first = of.ring.receive(), second = of.ring.receive();
  EXPECT_NE(first, second);
  EXPECT_EQ(of.ring.outstanding(), 2U);
  EXPECT_EQ(of.read_all(), steps());
  of.release(second);  // in any order
  EXPECT_EQ(of.read_all(), steps{2});
  EXPECT_TRUE(of.ring.is_ready());
  EXPECT_EQ(of.ring.receive(), second);
  of.release(first);
  EXPECT_EQ(of.read_all(), steps{3});
}

TEST(ring, a_step_is_published_by_whoever_brings_its_last_range) {
  played of({.host = 2, .ranges = 4, .readers = 4});
  of.ring.open(unbounded);
  ticket held[4];
  for (std::uint32_t reader = 0; reader < 4; ++reader) {
    ASSERT_EQ(of.take(held[reader], reader), take_result::taken);
    EXPECT_EQ(held[reader].step, 0U);
    EXPECT_EQ(held[reader].range, reader);
  }
  for (std::uint32_t reader : {2U, 0U, 3U}) {
    of.fill(held[reader], reader);
    EXPECT_FALSE(of.ring.is_ready());
  }
  EXPECT_TRUE(of.ring.reader_activity(1).busy);
  EXPECT_FALSE(of.ring.quiet());
  of.fill(held[1], 1);
  EXPECT_TRUE(of.ring.is_ready());
  EXPECT_TRUE(of.ring.quiet());
}

TEST(ring, copies_are_enqueued_in_step_order_as_slots_are_full_and_twins_free) {
  played of({.host = 2, .device = 1});
  of.ring.open(unbounded);
  ticket first, second;
  ASSERT_EQ(of.take(first), take_result::taken);
  ASSERT_EQ(of.take(second), take_result::taken);
  of.fill(second);
  EXPECT_TRUE(of.copies.empty());
  of.fill(first);
  ASSERT_EQ(of.copies.size(), 1U) << "one twin";
  EXPECT_EQ(of.copies[0], std::tuple(0U, 0U, 0U));
  const auto twin = of.ring.receive();
  EXPECT_EQ(of.copies.size(), 1U);
  of.release(twin);
  ASSERT_EQ(of.copies.size(), 2U);
  EXPECT_EQ(std::get<0>(of.copies[1]), 1U);
}

TEST(ring, a_slot_is_bound_anew_when_its_copy_is_enqueued_and_taken_when_its_fence_has_passed) {
  played of({.host = 1, .device = 4});
  of.ring.open(unbounded);
  ticket held;
  ASSERT_EQ(of.take(held), take_result::taken);
  of.fill(held);
  of.passed = false;
  EXPECT_EQ(of.take(held), take_result::fenced);
  EXPECT_EQ(held.slot, 0U);
  EXPECT_TRUE(of.ring.quiet()) << "it waits without a ticket in hand";
  of.passed = true;
  EXPECT_EQ(of.read_all(), (steps{1, 2, 3, 4})) << "the last one waits in the slot for a twin";
}

TEST(ring, a_twin_that_is_kept_is_only_one_less) {
  played of({.host = 2, .device = 2});
  of.ring.open(unbounded);
  of.read_all();
  const auto kept = of.ring.receive();
  for (std::uint64_t step = 1; step < 10; ++step) {
    of.read_all();
    ASSERT_TRUE(of.ring.is_ready());
    const auto twin = of.ring.receive();
    EXPECT_NE(twin, kept);
    of.release(twin);
  }
}

TEST(ring, a_restart_skips_what_was_begun_and_keeps_what_is_held) {
  for (const std::uint32_t device : {0U, 3U}) {
    played of({.host = 3, .device = device, .ranges = 2, .readers = 2});
    of.ring.open(unbounded);
    of.read_all();
    const auto held = of.ring.receive();
    // One range of some step is in, the other was taken and given up.
    of.release(of.ring.receive());
    ticket given_up;
    if (of.take(given_up, 1) == take_result::taken) {
      of.ring.park();
      of.ring.leave(1);
    }
    of.ring.park();
    ASSERT_TRUE(of.ring.quiet());
    const std::uint64_t base = of.restart();
    EXPECT_EQ(of.ring.next_step(), base);
    EXPECT_FALSE(of.ring.is_ready());
    EXPECT_TRUE(of.ring.parked());
    of.ring.open(base + 4);
    steps received;
    of.read_all();
    while (of.ring.is_ready()) {
      received.push_back(of.ring.next_step());
      const auto index = of.ring.receive();
      EXPECT_NE(index, held);
      of.release(index);
      of.read_all();
    }
    EXPECT_EQ(received, (steps{base, base + 1, base + 2, base + 3}));
    EXPECT_EQ(of.ring.outstanding(), 1U);
  }
}

TEST(ring, many_restarts_lose_no_buffer) {
  for (const std::uint32_t device : {0U, 2U}) {
    played of({.host = 2, .device = device});
    for (int round = 0; round < 50; ++round) {
      of.ring.open(unbounded);
      of.read_all();
      for (int i = 0; i < round % 3; ++i) {
        ASSERT_TRUE(of.ring.is_ready());
        of.release(of.ring.receive());
        of.read_all();
      }
      of.ring.park();
      of.restart();
    }
    EXPECT_EQ(of.ring.outstanding(), 0U);
    of.ring.open(unbounded);
    EXPECT_EQ(of.read_all().size(), device == 0 ? 2U : 4U);
  }
}

TEST(ring, what_is_withheld_stays_so_over_restarts_until_it_is_given_in) {
  for (const std::uint32_t device : {0U, 4U}) {
    played of({.host = 4, .device = device, .in_use = 2});
    EXPECT_EQ(of.ring.buffers(), 2U);
    for (int round = 0; round < 3; ++round) {
      of.ring.open(unbounded);
      EXPECT_EQ(of.read_all().size(), device == 0 ? 2U : 4U);
      of.release(of.ring.receive());
      of.read_all();
      of.ring.park();
      of.restart();
      EXPECT_EQ(of.ring.free_slots(), 2U);
    }
    const std::uint64_t base = of.ring.next_step();
    of.ring.open(unbounded);
    const std::size_t before = of.read_all().size();
    of.widen(3);
    EXPECT_EQ(before + of.read_all().size(), device == 0 ? 3U : 6U);
    of.widen(9);
    EXPECT_EQ(of.ring.buffers(), 4U);
    of.read_all();
    for (std::uint64_t step = base; step < base + 20; ++step) {
      ASSERT_TRUE(of.ring.is_ready());
      EXPECT_EQ(of.ring.next_step(), step);
      of.release(of.ring.receive());
      of.read_all();
    }
    of.ring.park();
    of.restart();
    EXPECT_EQ(of.ring.free_slots(), 4U);
    of.ring.open(unbounded);
    EXPECT_EQ(of.read_all().size(), device == 0 ? 4U : 8U);
  }
}

TEST(ring, where_nothing_is_withheld_there_is_nothing_to_give_in) {
  for (const std::uint32_t device : {0U, 2U}) {
    played of({.host = 4, .device = device});
    of.ring.open(unbounded);
    const auto read = of.read_all().size();
    while (of.ring.is_ready()) of.ring.receive();
    of.widen(4);
    EXPECT_EQ(of.ring.buffers(), device == 0 ? 4U : 2U);
    EXPECT_EQ(of.ring.outstanding(), of.ring.buffers());
    EXPECT_FALSE(of.ring.is_ready());
    EXPECT_EQ(read + of.read_all().size(), device == 0 ? 4U : 6U);
  }
}

TEST(ring, the_last_release_after_the_consumer_has_gone_owns_it) {
  for (const std::uint32_t device : {0U, 2U}) {
    played with({.host = 2, .device = device}), without({.host = 2, .device = device});
    EXPECT_TRUE(without.ring.abandon());
    with.ring.open(unbounded);
    with.read_all();
    const auto first = with.ring.receive(), second = with.ring.receive();
    with.ring.park();
    EXPECT_FALSE(with.ring.abandon());
    EXPECT_FALSE(with.release(first));
    EXPECT_TRUE(with.release(second));
  }
}

TEST(ring, tells_what_readers_are_at) {
  played of({.host = 2, .ranges = 2, .readers = 2});
  of.ring.open(unbounded);
  ticket held;
  ASSERT_EQ(of.take(held, 1), take_result::taken);
  of.ring.sample_word(1).store(42);
  EXPECT_FALSE(of.ring.reader_activity(0).busy);
  EXPECT_TRUE(of.ring.reader_activity(1).busy);
  EXPECT_EQ(of.ring.reader_activity(1).step, 0U);
  EXPECT_EQ(of.ring.reader_activity(1).sample, 42U);
  EXPECT_NE(of.ring.interrupt_word().load(), 0U);
  of.ring.park();
  EXPECT_EQ(of.ring.interrupt_word().load(), 0U);
}

}  // namespace
