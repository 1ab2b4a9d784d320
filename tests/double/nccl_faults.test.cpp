// SPDX-License-Identifier: Apache-2.0
// NCCL's calls that fail, ranks that do not come, come with something else, or twice on a device.
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "../laws/heard_on_stderr.hpp"
#include "../laws/threads.hpp"
#include "nccl_support.hpp"

namespace {

using namespace doubled;
using namespace std::chrono_literals;

/// On the thread of the rank that waits, and no other.
template <class Hear>
struct hears_late {
  Hear hear;
  std::uint64_t rank;
  std::thread::id thread = std::this_thread::get_id();
  void on_late(const penstock::late_event& event) {
    EXPECT_EQ(std::this_thread::get_id(), thread);
    EXPECT_EQ(event.rank, rank);
    hear(event);
  }
};
struct nobody {};

// A short run of two ranks; what it throws. A loop is left where `in_loop` says so, by true.
template <class InLoop, class Hear = nobody>
std::optional<penstock::replica_error> run_two(const penstock::replica_options& options, InLoop&& in_loop,
                                               Hear hear = {}) {
  const auto x = line(24);
  try {
    penstock::replicas(
        penstock::nccl_world(devices(2)),
        [&](auto& replica) {
          on_device current(static_cast<int>(replica.rank()));
          model mine(replica.device());
          {
            auto feed = replica.start(x | penstock::partition({.world = replica}) | penstock::read({.readers = 1}) |
                                      penstock::batch({.global = 4}) | penstock::transfer(replica.device()));
            if constexpr (!std::same_as<Hear, nobody>) feed.observe(hears_late<Hear>{hear, replica.rank()});
            bool begun = false;
            for (auto& one : feed.epoch(0)) {
              if (!std::exchange(begun, true)) mine.clear(one.stream());
              mine.differentiate(one, one.stream());
              if constexpr (std::same_as<decltype(in_loop(replica, one, mine)), bool>) {
                if (in_loop(replica, one, mine)) break;
              } else {
                in_loop(replica, one, mine);
              }
              mine.update(one.stream(), replica.gate());
            }
          }
          cuda_double::finish();
        },
        options);
  } catch (const penstock::replica_error& caught) {
    return caught;
  }
  return {};
}
const auto as_usual = [](auto& replica, auto& one, model& mine) {
  replica.ready(one, penstock::buffer(mine.values + 3, 1));
  replica.all_reduce(one, penstock::buffer(mine.values + 2, 1));
};
void expect_usable() {
  cuda_double::finish();
  expect_nothing_left();
  const auto failure = run_two({}, as_usual);
  EXPECT_FALSE(failure) << failure->what();
  expect_nothing_left();
}

TEST(nccl_faults, every_call_that_fails_is_one_error_and_leaves_nothing) {
  fresh({});
  ASSERT_FALSE(run_two({.lag = 2}, as_usual));
  std::vector<std::pair<std::string, std::uint64_t>> calls;
  for (const std::string& name : cuda_double::functions_called())
    if (name.starts_with("nccl") && name != "ncclCommAbort") calls.emplace_back(name, cuda_double::calls(name));
  EXPECT_GE(calls.size(), 9u);
  for (const auto& [name, times] : calls) {
    const bool few = times > 24;
    for (std::uint64_t n = 1; n <= times; n += few ? times / 12 : 1) {
      SCOPED_TRACE(name + " " + std::to_string(n));
      const watchdog guard(name + " " + std::to_string(n));
      fresh({.seed = n});
      cuda_double::fail_nccl(name, n, ncclSystemError);
      const auto failure = run_two({.lag = 2}, as_usual);
      // At the very end there is nobody to tell, and how many are asked depends on the delays.
      const bool at_the_end = name == "ncclCommDestroy" || name == "ncclCommFinalize" || name == "ncclRedOpDestroy" ||
                              name == "ncclCommGetAsyncError" || n + 1 >= times;
      EXPECT_TRUE(failure || at_the_end);
      if (failure) {
        EXPECT_NE(std::string(failure->what()).find("nccl"), std::string::npos) << failure->what();
      }
      cuda_double::fail_nccl(name, std::uint64_t{1} << 40, ncclSystemError);  // it may not have been called so often
      expect_usable();
      if (HasFailure()) return;
    }
  }
}

TEST(nccl_faults, an_asynchronous_error_ends_all_ranks) {
  const watchdog guard("asynchronous");
  const auto failure = run_two({}, [](auto& replica, auto& one, model& mine) {
    if (one.step() == 2 && replica.rank() == 1) cuda_double::set_async_error(1, ncclRemoteError);
    as_usual(replica, one, mine);
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank(), 1u);
  EXPECT_EQ(cuda_double::nccl_aborts(), 2u);
  expect_usable();
}

TEST(nccl_faults, the_watchdog_ends_a_wait_of_the_users_own) {
  const watchdog guard("a wait of the user's own");
  std::atomic<bool> over = false;
  const auto failure = run_two({.timeout = 200ms}, [&](auto& replica, auto& one, model& mine) {
    if (one.step() == 2 && replica.rank() == 1) {
      while (!over) std::this_thread::yield();
      return;
    }
    as_usual(replica, one, mine);
    if (one.step() == 2) {
      one.stream().synchronize();  // until the abort
      over = true;
    }
  });
  ASSERT_TRUE(failure);
  EXPECT_NE(std::string(failure->what()).find("200 ms"), std::string::npos) << failure->what();
  expect_usable();
}

TEST(nccl_faults, what_would_hang_is_found_before) {
  const watchdog guard("mismatch");
  const auto sizes = run_two({.timeout = 30s}, [](auto& replica, auto& one, model& mine) {
    const bool other = one.step() == 3 && replica.rank() == 1;
    replica.all_reduce(one, penstock::buffer(mine.values + 2, other ? 1 : 2));
  });
  ASSERT_TRUE(sizes);
  const std::string text = sizes->what();
  EXPECT_NE(text.find("1 and 2 elements"), std::string::npos) << text;
  EXPECT_NE(text.find("step 3"), std::string::npos) << text;
  expect_usable();
  const auto order = run_two({.timeout = 30s}, [](auto& replica, auto& one, model& mine) {
    const bool other = one.step() == 1 && replica.rank() == 1;
    const auto a = penstock::buffer(mine.values + 2, 1), b = penstock::buffer(mine.values, 3);
    replica.ready(one, other ? b : a);
    replica.all_reduce(one, other ? a : b);
  });
  ASSERT_TRUE(order);
  EXPECT_NE(std::string(order->what()).find("step 1"), std::string::npos) << order->what();
  expect_usable();
}

TEST(nccl_faults, a_rank_that_does_not_come_is_named) {
  const watchdog guard("missing");
  std::atomic<bool> over = false;
  const auto failure = run_two({.timeout = 200ms, .lag = 0}, [&](auto& replica, auto& one, model& mine) {
    if (one.step() == 2 && replica.rank() == 1)
      while (!over) std::this_thread::yield();
    try {
      as_usual(replica, one, mine);
    } catch (...) {
      over = true;
      throw;
    }
  });
  ASSERT_TRUE(failure);
  expect_usable();
}

// Where nothing is called that tells: in a step's words with and without lag, where ranks meet on the host in the first
// step, and where one has left its loop and looks what others bring.
TEST(nccl_faults, who_waits_for_a_rank_is_told_of_it_and_goes_on_when_it_comes) {
  struct scene {
    std::uint64_t late;
    std::uint32_t lag;
    bool left;
  };
  for (const auto& [late, lag, left] :
       {scene{0, 0, false}, scene{2, 0, false}, scene{2, 1, false}, scene{2, 0, true}}) {
    SCOPED_TRACE(penstock::detail::concat("step ", late, ", lag ", lag, left ? ", left" : ""));
    const watchdog guard("a late rank");
    laws::signpost warned;
    const auto failure = run_two(
        {.warn_after = 1ms, .lag = lag},
        [&, late = late, left = left](auto& replica, auto& one, model& mine) {
          if (one.step() == late && replica.rank() == 0 && left) return true;
          if (one.step() == late && replica.rank() == 1) {
            EXPECT_TRUE(warned.await());
          }
          as_usual(replica, one, mine);
          return false;
        },
        [&, late = late](const penstock::late_event& event) {
          // On a slow machine others may be waited for, too.
          if (event.rank != 0U || event.where.step != late) return;
          if (event.missing.size() != 1 || event.missing[0].step != (late == 0 ? 0 : late - 1)) return;
          EXPECT_EQ(event.missing[0].rank, 1U);
          const std::string text(event.message);
          EXPECT_TRUE(text.starts_with("all_reduce: epoch 0, step " + std::to_string(late) +
                                       ": rank 0 has waited for rank 1 for "))
              << text;
          EXPECT_NE(text.find("; rank 1 came last in epoch 0, step "), text.npos) << text;
          warned.reach();
        });
    EXPECT_FALSE(failure) << failure->what();
    expect_usable();
  }
}

// The rank's thread is in CUDA: no observer can be told.
TEST(nccl_faults, a_wait_of_the_users_own_is_told_of_on_stderr) {
  const watchdog guard("a wait of the user's own");
  {
    laws::heard_on_stderr heard;
    const auto failure = run_two({.warn_after = 1ms}, [&](auto& replica, auto& one, model& mine) {
      if (one.step() == 2 && replica.rank() == 1) {
        EXPECT_TRUE(heard.await("penstock: all_reduce: epoch 0, step 2: rank 0 has waited for rank 1 for "));
      }
      as_usual(replica, one, mine);
      if (one.step() == 2) one.stream().synchronize();
    });
    EXPECT_FALSE(failure) << failure->what();
  }
  expect_usable();
}

TEST(nccl_faults, a_rank_that_returns_is_named) {
  const watchdog guard("returns");
  const auto x = line(24);
  std::optional<penstock::replica_error> failure;
  try {
    penstock::replicas(penstock::nccl_world(devices(2)), [&](auto& replica) {
      if (replica.rank() == 1) return;
      replica.barrier();
    });
  } catch (const penstock::replica_error& caught) {
    failure = caught;
  }
  ASSERT_TRUE(failure);
  EXPECT_EQ(std::string(failure->what()).find("mismatch"), std::string::npos);
  EXPECT_NE(std::string(failure->what()).find("rank 1 has returned"), std::string::npos) << failure->what();
  expect_usable();
}

TEST(nccl_faults, two_ranks_on_one_device_are_refused) {
  const watchdog guard("one device");
  std::vector<penstock::cuda_device> same{penstock::cuda_device(0), penstock::cuda_device(1), penstock::cuda_device(0)};
  try {
    penstock::replicas(penstock::nccl_world(same), [](auto&) { FAIL(); });
    FAIL() << "it was taken";
  } catch (const penstock::replica_error& caught) {
    EXPECT_NE(std::string(caught.what()).find("ranks 0 and 2 are both on device 0000:3a:00.0"), std::string::npos)
        << caught.what();
  }
  EXPECT_EQ(cuda_double::calls("ncclCommInitRankConfig"), 0u);
  expect_usable();
}

TEST(nccl_faults, means_of_unknown_weight_want_kernels) {
  const watchdog guard("no kernels");
  const auto failure = run_two(
      {}, [](auto& replica, auto& one, model& mine) { replica.all_reduce(one, {.weight = 2}, mine.gradient()); });
  ASSERT_TRUE(failure);
  EXPECT_NE(std::string(failure->what()).find("nccl.cuh"), std::string::npos) << failure->what();
  expect_usable();
}

TEST(nccl_faults, a_second_all_reduce_in_a_step_is_refused) {
  fresh({});
  const auto failure = run_two({.lag = 2}, [](auto& replica, auto& one, model& mine) {
    as_usual(replica, one, mine);
    as_usual(replica, one, mine);
  });
  ASSERT_TRUE(failure);
  EXPECT_NE(std::string(failure->what()).find("a second all_reduce in a step"), std::string::npos) << failure->what();
  expect_usable();
}

}  // namespace
