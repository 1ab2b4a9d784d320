// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "nccl_support.hpp"

namespace {

using namespace doubled;
using penstock::batch;
using penstock::nccl_world;
using penstock::partition;
using penstock::read;
using penstock::replica_options;
using penstock::transfer;

struct trained {
  float a = 0, b = 0;
  std::vector<std::array<float, 2>> models;
  std::vector<std::uint64_t> updates;
  penstock::replica_summary summary;
};
trained train(int ranks, std::size_t rows, std::uint64_t global, std::uint64_t epochs, std::uint32_t lag, bool early) {
  const watchdog guard("train");
  const auto x = line(rows);
  trained result;
  std::mutex mutex;
  result.summary = penstock::replicas(
      nccl_world(devices(ranks)),
      [&](auto& replica) {
        on_device current(static_cast<int>(replica.rank()));
        model mine(replica.device());
        {
          auto feed = replica.start(x | partition({.world = replica}) | read({.readers = 1}) |
                                    batch({.global = static_cast<std::int64_t>(global)}) | transfer(replica.device()));
          bool begun = false;
          for (std::uint64_t e = 0; e < epochs; ++e)
            for (auto& one : feed.epoch(e)) {
              if (!std::exchange(begun, true)) mine.clear(one.stream());
              mine.differentiate(one, one.stream());
              if (early) {
                replica.ready(one, penstock::buffer(mine.values + 3, 1));
                replica.all_reduce(one, penstock::buffer(mine.values + 2, 1));
              } else {
                replica.all_reduce(one, mine.gradient());
              }
              mine.update(one.stream(), replica.gate());
            }
        }
        cuda_double::finish();
        const std::scoped_lock lock(mutex);
        if (replica.rank() == 0) result.a = mine.values[0], result.b = mine.values[1];
        result.models.push_back({mine.values[0], mine.values[1]});
        result.updates.push_back(mine.updates);
      },
      {.lag = lag});
  return result;
}

TEST(nccl, observers_are_told_of_its_stream) {
  // Nothing happens on a stream from when it is told of.
  struct listener {
    std::map<std::string, cudaStream_t>& streams;
    void on_stream(const penstock::stream_event& event) {
      EXPECT_TRUE(streams.emplace(event.use, event.cuda).second) << event.use << " is told of twice";
      cuda_double::hold(event.cuda);
    }
  };
  const watchdog guard("streams");
  fresh({.events_are_timed = true});
  penstock::replicas(nccl_world(devices(1)), [&](auto& replica) {
    std::map<std::string, cudaStream_t> streams;
    auto feed =
        replica.start(line(16) | partition({.world = replica}) | read() | batch(4) | transfer(replica.device()));
    feed.observe(listener{streams});
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& one : feed.epoch(epoch)) {
        replica.all_reduce(one);
        if (epoch != 0 || one.step() != 0) continue;
        EXPECT_EQ(streams.size(), cuda_double::count_alive().streams);
        for (const char* const use : {"batches", "copies", "all_reduce"}) {
          EXPECT_EQ(cudaStreamQuery(streams[use]), cudaErrorNotReady) << use;
        }
        EXPECT_EQ(cudaStreamQuery(streams["barriers"]), cudaSuccess);
        for (const auto& [use, stream] : streams) cuda_double::resume(stream);
      }
  });
}

TEST(nccl, trains_as_one_rank_does) {
  const trained one = train(1, 61, 13, 3, 2, false);
  for (int ranks = 2; ranks <= 4; ++ranks)
    for (const bool early : {false, true})
      for (const std::uint32_t lag : {0u, 1u, 8u}) {
        fresh({.seed = cuda_double::seed_or(static_cast<std::uint64_t>(ranks)), .devices = 4});
        const trained more = train(ranks, 61, 13, 3, lag, early);
        EXPECT_NEAR(more.a, one.a, 1e-5);
        EXPECT_NEAR(more.b, one.b, 1e-5);
        EXPECT_EQ(more.summary.steps, 15u);
        for (const auto& each : more.models) EXPECT_EQ(each, more.models[0]);
        for (const auto updates : more.updates) EXPECT_EQ(updates, 15u);
        expect_nothing_left();
      }
}

}  // namespace
