// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread that switches stacks by itself
// ctest: no asan: it copies stacks away and back
//
// Readers that serve two replicas, whose consumers go in lock-step through an all-reduce.
#include <penstock/channel/ring.hpp>

#include <cstdint>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "channel_model.hpp"
#include "report.hpp"

namespace penstock::checker {
namespace {

struct pool_settings {
  std::uint32_t host = 1;
  std::uint32_t steps = 3;
  bool waits_with_a_ticket = false;  ///< fault: takes a ticket for the replica behind, then waits for its slot
};

class pool_model {
 public:
  pool_model(explorer& explorer, const pool_settings& settings)
      : x_(explorer), set_(settings), rings_{replica_ring(shape(), &gate_), replica_ring(shape(), &gate_)} {
    name_words(x_, 1, shape(), "a.");
    name_words(x_, x_.named("a.returned") + 1, shape(), "b.");
    for (auto& each : rings_) add_plain_members(x_, each);
    x_.add_memory(&s_, sizeof(s_));
    shared_ = x_.make_object("all_reduce");
    for (std::uint32_t i = 0; i < 2; ++i) content_[i] = x_.make_object("content");
    for (std::uint32_t i = 0; i < 2; ++i) x_.add_fiber("reader" + std::to_string(i), [this, i] { read(i); });
    for (std::uint32_t i = 0; i < 2; ++i) x_.add_fiber("consumer" + std::to_string(i), [this, i] { consume(i); });
  }

 private:
  using replica_ring = ring<checked_atomics>;
  struct state {
    std::uint8_t content[2][3], claimed[2], delivered[2], arrived[8], left, quit;
  };
  ring_shape shape() const { return {.host = set_.host, .device = 0, .ranges = 1, .readers = 2}; }
  static constexpr auto no_fence = [](std::uint32_t) { return true; };
  static constexpr auto no_copy = [](std::uint64_t, std::uint32_t, std::uint32_t) {};

  void read(std::uint32_t me) {
    for (;;) {
      x_.at(1);
      ticket t;
      std::uint32_t of = 0;
      bool taken = false;
      if (set_.waits_with_a_ticket) {
        x_.yield();
        x_.touch(shared_, true);
        of = s_.claimed[1] < set_.steps && (s_.claimed[0] == set_.steps || s_.delivered[1] < s_.delivered[0]);
        if (s_.claimed[of] == set_.steps) return;
        ++s_.claimed[of];
        x_.at(2, of);
        gate_.wait([&] { return rings_[of].try_take(me, t, no_fence) == take_result::taken; });
        taken = true;
      } else {
        gate_.wait([&] {
          const bool second_first = rings_[1].ticket_step() < rings_[0].ticket_step();
          for (std::uint32_t i = 0; i < 2 && !taken; ++i) {
            of = second_first ? 1 - i : i;
            taken = rings_[of].try_take(me, t, no_fence) == take_result::taken;
          }
          x_.touch(shared_, false);
          return taken || s_.quit != 0;
        });
      }
      if (!taken) return;
      x_.at(3, of, t.step, t.slot);
      x_.yield();
      x_.touch(content_[of], true);
      s_.content[of][t.slot] = static_cast<std::uint8_t>(t.step + 1);
      x_.at(4, of, t.step, t.slot);
      if (rings_[of].arrive(t)) rings_[of].publish(t, no_copy);
      x_.at(5, of);
      rings_[of].leave(me);
    }
  }
  void consume(std::uint32_t me) {
    auto& own = rings_[me];
    x_.at(1);
    own.open(set_.steps);
    for (std::uint32_t step = 0; step < set_.steps; ++step) {
      x_.at(2, step);
      own.consumer.wait([&] { return own.is_ready(); });
      x_.at(3, step);
      const std::uint32_t slot = own.receive();
      x_.touch(content_[me], false);
      x_.expect(s_.content[me][slot] == step + 1, "a batch of another step is received");
      x_.at(4, step, slot);
      x_.yield();
      x_.touch(shared_, true);
      ++s_.arrived[step];
      x_.at(5, step, slot);
      x_.await([this, step] { return s_.arrived[step] == 2; });
      x_.touch(shared_, true);
      ++s_.delivered[me];
      x_.at(6, step, slot);
      own.release(slot, no_copy);
    }
    x_.at(7);
    own.park();
    x_.at(8);
    x_.yield();
    x_.touch(shared_, true);
    if (++s_.left == 2) {
      s_.quit = 1;
      gate_.notify();
    }
  }

  explorer& x_;
  pool_settings set_;
  gate<checked_atomics> gate_;
  replica_ring rings_[2];
  state s_{};
  object shared_ = 0, content_[2]{};
};

explorer::outcome explore_pool(const std::string& name, const pool_settings& settings) {
  explorer x;
  pool_model model(x, settings);
  const auto found = x.explore({});
  tell("pool, " + name, found);
  return found;
}

TEST(pool, serves_two_replicas_in_lock_step) {
  for (const std::uint32_t host : {1u, 2u}) {
    const std::uint32_t steps = check_all() ? 3 : 2;
    const auto found = explore_pool(std::to_string(host) + " slots each, " + std::to_string(steps) + " steps",
                                    {.host = host, .steps = steps});
    EXPECT_EQ(found.violation, "") << found.trace;
    EXPECT_TRUE(found.complete);
  }
}
TEST(pool, a_reader_that_waits_with_a_ticket_in_hand_is_found) {
  const auto found = explore_pool("a reader waits with a ticket in hand", {.waits_with_a_ticket = true});
  EXPECT_NE(found.violation.find("deadlock"), std::string::npos);
  std::printf("  found: %s%s\n", found.violation.c_str(), found.trace.c_str());
}

}  // namespace
}  // namespace penstock::checker
