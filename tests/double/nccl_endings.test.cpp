// SPDX-License-Identifier: Apache-2.0
// Where words come back behind the host: every way to end, at every step, on one rank of several.
#include <optional>
#include <stdexcept>

#include "nccl_support.hpp"

namespace {

using namespace doubled;

enum class act { leave, fail, stop, fail_before, caught };
constexpr std::uint64_t steps = 5, epochs = 2;

struct ending {
  std::vector<std::uint64_t> updates;
  std::vector<std::array<float, 2>> models;
  std::vector<penstock::feed_state> states;
  penstock::replica_summary summary;
  std::optional<penstock::replica_error> failure;
};

// Rank `who` does `what` at update `when` of all, before its all_reduce.
ending play(act what, int ranks, std::uint64_t who, std::uint64_t when, std::uint32_t lag, bool early) {
  const watchdog guard(penstock::detail::concat("act ", static_cast<int>(what), " of rank ", who, " at ", when,
                                                ", lag ", lag, early ? ", early" : ""));
  const auto x = line(4 * steps - 1);
  ending result;
  result.updates.resize(static_cast<std::size_t>(ranks));
  result.models.resize(result.updates.size());
  result.states.resize(result.updates.size());
  try {
    result.summary = penstock::replicas(
        penstock::nccl_world(devices(ranks)),
        [&](auto& replica) {
          on_device current(static_cast<int>(replica.rank()));
          const auto r = static_cast<std::size_t>(replica.rank());
          model mine(replica.device());
          {
            auto feed = replica.start(x | penstock::partition({.world = replica}) | penstock::read({.readers = 1}) |
                                      penstock::batch({.global = 4}) | penstock::transfer(replica.device()));
            bool begun = false;
            const auto epoch_of = [&](std::uint64_t e) {
              for (auto& one : feed.epoch(e)) {
                if (!std::exchange(begun, true)) mine.clear(one.stream());
                const bool here = r == who && when == e * steps + one.step();
                if (here && what == act::fail_before) throw std::domain_error("by the body");
                mine.differentiate(one, one.stream());
                if (early) replica.ready(one, penstock::buffer(mine.values + 3, 1));
                if (here && what == act::leave) break;
                if (here && what == act::stop) replica.stop();
                if (here && what != act::stop) throw std::domain_error("by the body");
                if (early)
                  replica.all_reduce(one, penstock::buffer(mine.values + 2, 1));
                else
                  replica.all_reduce(one, mine.gradient());
                mine.update(one.stream(), replica.gate());
              }
            };
            for (std::uint64_t e = 0; e < epochs && !replica.stopped(); ++e) try {
                epoch_of(e);
              } catch (const std::domain_error&) {
                cuda_double::finish();
                if (what != act::caught) throw;
              }
            result.states[r] = replica.state();
            EXPECT_EQ(feed.state(), replica.state()) << "rank " << r;
          }
          replica.barrier();
          cuda_double::finish();
          result.updates[r] = mine.updates;
          result.models[r] = {mine.values[0], mine.values[1]};
        },
        {.lag = lag});
  } catch (const penstock::replica_error& caught) {
    result.failure = caught;
  }
  cuda_double::finish();
  return result;
}

TEST(nccl_endings, at_every_step_on_every_rank) {
  for (const act what : {act::leave, act::stop, act::fail, act::fail_before, act::caught})
    for (const std::uint32_t lag : {0u, 1u, 2u, 8u})
      for (std::uint64_t when = 0; when < epochs * steps; ++when)
        for (const bool early : {false, true}) {
          const int ranks = 2 + static_cast<int>(when % 2);
          const std::uint64_t who = when % 3 % static_cast<std::uint64_t>(ranks);
          SCOPED_TRACE(penstock::detail::concat("act ", static_cast<int>(what), ", lag ", lag, ", rank ", who, " at ",
                                                when, early ? ", early" : ""));
          fresh({.seed = cuda_double::seed_or(when + 1), .devices = 4});
          const ending all = play(what, ranks, who, when, lag, early);
          if (what == act::fail || what == act::fail_before) {
            ASSERT_TRUE(all.failure);
            EXPECT_EQ(all.failure->rank(), who);
            EXPECT_NE(std::string(all.failure->what()).find("by the body"), std::string::npos) << all.failure->what();
          } else {
            if (all.failure) ADD_FAILURE() << all.failure->what();
            // The epoch's steps from there on are void; a stop ends the other epochs, too.
            const std::uint64_t rest = what == act::stop ? 0 : when < steps ? steps : 0;
            for (std::size_t r = 0; r < all.updates.size(); ++r) {
              EXPECT_EQ(all.updates[r], when + (what == act::stop ? 0 : rest - (when < steps ? 0 : rest))) << r;
              EXPECT_EQ(all.models[r], all.models[0]);
              EXPECT_EQ(all.states[r], all.states[0]);
            }
            EXPECT_EQ(all.summary.steps, all.updates[0]);
            EXPECT_EQ(all.summary.stopped, what == act::stop);
            if (what == act::stop) {
              EXPECT_EQ(all.summary.state.epoch, when / steps);
              EXPECT_EQ(all.summary.state.samples, when % steps * 4);
            }
          }
          expect_nothing_left();
          if (HasFailure()) return;
        }
}

}  // namespace
