// SPDX-License-Identifier: Apache-2.0
// Streams of unknown length, weights that the device alone knows, communicators that exist already, and delays.
#include <cmath>
#include <ranges>

#include "nccl_support.hpp"

namespace {

using namespace doubled;

using lengths = std::vector<int>;
constexpr int size = 4;

// The means over all ranks' numbers of each step.
std::vector<float> expected(const lengths& all, bool join) {
  std::vector<float> result;
  for (int step = 0;; ++step) {
    double sum = 0, count = 0;
    bool any = false, every = true;
    for (std::size_t r = 0; r < all.size(); ++r) {
      int own = 0;
      for (int i = size * step; i < size * (step + 1) && i < all[r]; ++i, ++own)
        sum += 100. * static_cast<double>(r) + i;
      count += own;
      any = any || own != 0;
      every = every && own != 0;
    }
    if (join ? !any : !every) return result;
    result.push_back(static_cast<float>(sum / count));
  }
}

TEST(nccl_streams, that_end_at_different_steps_end_all_loops_at_one) {
  for (const lengths& all :
       {lengths{9, 2}, lengths{2, 9}, lengths{8, 8}, lengths{9, 2, 5}, lengths{4, 3, 12}, lengths{40, 1}})
    for (const bool join : {true, false})
      for (const std::uint32_t lag : {0u, 1u, 3u, 8u}) {
        const std::string what = penstock::detail::concat(join ? "join" : "stop", ", lag ", lag, ", first ", all[0]);
        SCOPED_TRACE(what);
        const watchdog guard(what);
        fresh({.seed = lag + 1, .devices = 4});
        std::vector<std::vector<float>> seen(all.size());
        const auto summary = penstock::replicas(
            penstock::nccl_world<penstock::local_world<>, test_kernels>(devices(static_cast<int>(all.size()))),
            [&](auto& replica) {
              on_device current(static_cast<int>(replica.rank()));
              const auto r = static_cast<std::size_t>(replica.rank());
              const int first = 100 * static_cast<int>(r);
              auto memory = replica.device().allocate(4);
              auto* const mean = reinterpret_cast<float*>(memory.data());
              for (int epoch = 0; epoch < 2; ++epoch) {
                auto feed = replica.start(
                    penstock::stream([first, n = all[r]] { return std::views::iota(first, first + n); }) |
                    penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 1}) |
                    penstock::batch({.size = size}) | penstock::transfer(replica.device()));
                for (auto& one : feed.epoch(0)) {
                  const auto [field] = one.fields();
                  cuda_double::launch(one.stream(), {reads(field.data(), 4 * one.size()), writes(mean, 4)},
                                      [x = field.data(), n = one.size(), mean] {
                                        float sum = n == 0 ? NAN : 0;
                                        for (std::size_t i = 0; i < n; ++i) sum += static_cast<float>(x[i]);
                                        *mean = n == 0 ? sum : sum / static_cast<float>(n);
                                      });
                  replica.all_reduce(one, penstock::buffer(mean, 1));
                  cuda_double::launch(one.stream(),
                                      {reads(replica.gate(), sizeof(penstock::control_words)), reads(mean, 4)},
                                      [gate = replica.gate(), mean, to = &seen[r]] {
                                        if (gate->counts()) to->push_back(*mean);
                                      });
                }
              }
              replica.barrier();
              cuda_double::finish();
            },
            {.lag = lag, .uneven = join ? penstock::uneven::join : penstock::uneven::stop});
        auto right = expected(all, join);
        EXPECT_EQ(summary.steps, 2 * right.size());
        right.insert(right.end(), right.begin(), right.end());
        for (const auto& each : seen) {
          ASSERT_EQ(each.size(), right.size());
          for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(each[i], right[i], 1e-3);
        }
        expect_nothing_left();
        if (HasFailure()) return;
      }
}

TEST(nccl_streams, communicators_that_exist_are_used_and_left) {
  const watchdog guard("adopted");
  std::vector<ncclComm_t> own(2);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  for (int r = 0; r < 2; ++r) {
    const on_device current(r);
    ASSERT_EQ(ncclCommInitRankConfig(&own[static_cast<std::size_t>(r)], 2, id, r, &config), ncclInProgress);
  }
  for (ncclComm_t one : own)
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;)
      ASSERT_EQ(ncclCommGetAsyncError(one, &state), ncclSuccess);
  for (int run = 0; run < 2; ++run)
    penstock::replicas(penstock::nccl_world(devices(2), own), [&](auto& replica) {
      on_device current(static_cast<int>(replica.rank()));
      double one[1] = {1};
      replica.sum(one);
      EXPECT_EQ(one[0], 2);
    });
  EXPECT_EQ(cuda_double::communicators_alive(), 2u);
  for (ncclComm_t one : own) EXPECT_EQ(ncclCommDestroy(one), ncclSuccess);
}

TEST(nccl_streams, thirteen_rows_on_two_ranks_under_all_delays) {
  for_each_delay(6, [](std::uint64_t) {
    const watchdog guard("13 rows");
    const auto x = line(13);
    double a = 0, b = 0;  // the closed form of the gradient at 0, 0
    for (const float one : x) {
      const double e = -(2. * static_cast<double>(one) + 1);
      a += e * static_cast<double>(one) / 13;
      b += e / 13;
    }
    penstock::replicas(penstock::nccl_world(devices(2)), [&](auto& replica) {
      on_device current(static_cast<int>(replica.rank()));
      model mine(replica.device());
      {
        auto feed = replica.start(x | penstock::partition({.world = replica}) | penstock::read({.readers = 2}) |
                                  penstock::batch({.global = 13}) | penstock::transfer(replica.device()));
        for (auto& one : feed.epoch(0)) {
          mine.clear(one.stream());
          mine.differentiate(one, one.stream());
          replica.all_reduce(one, mine.gradient());
        }
      }
      cuda_double::finish();
      EXPECT_NEAR(mine.values[2], a, 1e-6 * std::abs(a));
      EXPECT_NEAR(mine.values[3], b, 1e-6 * std::abs(b));
    });
    expect_nothing_left();
  });
}

}  // namespace
