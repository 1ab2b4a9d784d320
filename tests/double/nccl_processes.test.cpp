// SPDX-License-Identifier: Apache-2.0
// One process for each device, which another world brings together: here threads that share no more than that.
#include <thread>

#include "../laws/threads.hpp"
#include "nccl_support.hpp"

namespace {

using namespace doubled;

/// A rank of a world of single processes.
struct process_world {
  using communicator_type = penstock::local_communicator<penstock::cpu_device>;
  static constexpr bool threads = false;
  std::shared_ptr<penstock::detail::local_group> group;
  std::uint64_t rank;
  penstock::replica_options options{};

  std::uint64_t size() const { return group->size(); }
  std::size_t local_size() const { return 1; }
  void begin(const penstock::replica_options& with, std::uint32_t) { options = with; }
  void abort(std::uint64_t of, penstock::provenance where, std::string problem) {
    group->abort(of, std::move(where), std::move(problem));
  }
  communicator_type join(std::size_t) { return {group, rank, penstock::cpu_device{}, options}; }
};

enum class act { none, leave, stop, fail };

TEST(nccl_processes, end_alike_whatever_one_does) {
  for (const act what : {act::none, act::leave, act::stop, act::fail})
    for (const std::uint32_t lag : {0u, 2u, 8u})
      for (const std::uint64_t when : {1u, 3u, 5u}) {
        const std::string scene =
            penstock::detail::concat("act ", static_cast<int>(what), ", lag ", lag, ", at ", when);
        SCOPED_TRACE(scene);
        const watchdog guard(scene);
        fresh({.seed = when + lag, .devices = 2});
        const auto group = std::make_shared<penstock::detail::local_group>(2, 0);
        const auto x = line(23);
        std::uint64_t updates[2] = {}, steps[2] = {};
        std::string failed[2];
        const auto process = [&](std::uint64_t r) {
          // Longer than the run: what `ready` has named is under way while an exception leaves the loop.
          model mine{penstock::cuda_device(static_cast<int>(r))};
          try {
            steps[r] = penstock::replicas(
                           penstock::nccl_world(penstock::cuda_device(static_cast<int>(r)), process_world{group, r}),
                           [&](auto& replica) {
                             {
                               auto feed = replica.start(
                                   x | penstock::partition({.world = replica}) | penstock::read({.readers = 1}) |
                                   penstock::batch({.global = 4}) | penstock::transfer(replica.device()));
                               for (auto& one : feed.epoch(0)) {
                                 if (one.step() == 0) mine.clear(one.stream());
                                 const bool here = r == 1 && one.step() == when;
                                 mine.differentiate(one, one.stream());
                                 replica.ready(one, penstock::buffer(mine.values + 3, 1));
                                 if (here && what == act::leave) break;
                                 if (here && what == act::stop) replica.stop();
                                 if (here && what == act::fail) throw std::domain_error("by the body");
                                 replica.all_reduce(one, penstock::buffer(mine.values + 2, 1));
                                 mine.update(one.stream(), replica.gate());
                               }
                             }
                             replica.barrier();
                             cuda_double::finish();
                             updates[r] = mine.updates;
                           },
                           {.timeout = std::chrono::seconds(20), .lag = lag})
                           .steps;
          } catch (const std::exception& caught) {
            failed[r] = caught.what();
          }
        };
        std::thread other([&] {
          on_device current(1);
          process(1);
        });
        process(0);
        other.join();
        cuda_double::finish();
        for (int r = 0; r < 2; ++r) {
          if (what == act::fail) {
            EXPECT_NE(failed[r].find("by the body"), std::string::npos) << failed[r];
          } else {
            EXPECT_EQ(failed[r], "");
            EXPECT_EQ(updates[r], what == act::none ? 6 : when);
            EXPECT_EQ(steps[r], updates[r]);
          }
        }
        // What a process makes while another's rank is missing cannot wait for it: the double has one process.
        for (const std::string& fault : cuda_double::take_faults())
          EXPECT_NE(fault.find("while a collective waits"), std::string::npos) << fault;
        expect_nothing_left();
        if (HasFailure()) return;
      }
}

struct listener {
  laws::signpost* told;
  void on_late(const penstock::late_event& event) {
    if (event.where.step != 2U) return;
    EXPECT_TRUE(event.missing.empty());
    EXPECT_NE(event.message.find("rank 0 has waited for others for "), event.message.npos) << event.message;
    EXPECT_NE(event.message.find("NCCL does not tell"), event.message.npos) << event.message;
    told->reach();
  }
};

// Who the others are that do not come is not known, and is said to be so.
TEST(nccl_processes, a_rank_that_waits_tells_that_it_does_not_know_for_whom) {
  const watchdog guard("a late process");
  fresh({.devices = 2});
  const auto group = std::make_shared<penstock::detail::local_group>(2, 0);
  const auto x = line(23);
  laws::signpost told;
  const auto process = [&](std::uint64_t r) {
    model mine{penstock::cuda_device(static_cast<int>(r))};
    const auto body = [&](auto& replica) {
      auto feed = replica.start(x | penstock::partition({.world = replica}) | penstock::read({.readers = 1}) |
                                penstock::batch({.global = 4}) | penstock::transfer(replica.device()));
      if (r == 0) feed.observe(listener{&told});
      for (auto& one : feed.epoch(0)) {
        if (one.step() == 0) mine.clear(one.stream());
        mine.differentiate(one, one.stream());
        if (r == 1 && one.step() == 2) {
          EXPECT_TRUE(told.await());
        }
        replica.all_reduce(one, mine.gradient());
      }
    };
    EXPECT_EQ(
        penstock::replicas(penstock::nccl_world(penstock::cuda_device(static_cast<int>(r)), process_world{group, r}),
                           body, {.warn_after = std::chrono::milliseconds(1), .lag = 0})
            .steps,
        6U);
  };
  std::thread other([&] {
    on_device current(1);
    process(1);
  });
  process(0);
  other.join();
  cuda_double::finish();
  (void)cuda_double::take_faults();  // as above
  expect_nothing_left();
}

}  // namespace
