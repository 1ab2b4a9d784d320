// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "soak_weather.hpp"

namespace soak {

/// A stream of sequences in buckets, with loops left, stopped and resumed: batches are those of a feed that reads them
/// one after the other.
class bucketed {
  auto start(penstock::read_options reading, int depth) const {
    const auto sequences = [n = n_, seed = seed_](std::uint64_t epoch) {
      return std::views::iota(std::uint64_t{0}, n) | std::views::transform([=](std::uint64_t i) {
               const std::size_t length = penstock::philox(seed, epoch, i).below(std::size_t{24}) + 1;
               return std::tuple(std::vector<std::uint32_t>(length, static_cast<std::uint32_t>(i)), i);
             });
    };
    return (penstock::stream(sequences) |
            penstock::partition(
                {.seed = seed_,
                 .shuffle = window_ == 0 ? penstock::shuffle::none : penstock::shuffle::window(window_)}) |
            penstock::read(reading) |
            penstock::batch({.size = size_}, penstock::bucket_by_length({.bounds = {4, 9, 24}, .tokens = tokens_})) |
            penstock::transfer(penstock::cpu_device{}, {.depth = depth}))
        .start();
  }

 public:
  bucketed(std::uint64_t seed, std::uint64_t round, tally& counts)
      : round_(round), counts_(counts), random_(seed, 0, round, penstock::random_domain::user) {
    n_ = 1 + random_.below(std::uint64_t{120});
    seed_ = random_();
    window_ = random_.below(2) == 0 ? 0 : 1 + random_.below(std::uint64_t{20});
    size_ = 1 + random_.below(std::int64_t{8});
    tokens_ = random_.below(2) == 0 ? 0 : 24 + random_.below(std::size_t{100});
  }

  void play() {
    {
      auto feed = start({.readers = 0}, 1);
      for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
        for (auto& batch : feed.epoch(epoch)) wanted_.push_back(look_at(batch));
    }
    std::optional<penstock::feed_state> state;
    at_ = 0;
    while (at_ < wanted_.size()) {
      const bool several = random_.below(3) != 0;
      penstock::read_options reading{.readers = static_cast<int>(random_.below(5))};
      if (several && random_.below(4) == 0) reading.readers = penstock::automatic;
      auto feed = start(reading, random_.below(5) == 0 ? penstock::automatic : 1 + static_cast<int>(random_.below(4)));
      ++counts_.feeds;
      if (state) feed.resume(*state);
      for (int loops = 0; loops < 4 && at_ < wanted_.size(); ++loops) {
        const std::uint64_t most = 1 + random_.below(std::uint64_t{20});
        const bool stops = random_.below(8) == 0;
        std::uint64_t done = 0;
        if (loops > 0 && random_.below(2) == 0) feed.resume(feed.state());
        for (auto& batch : feed.epoch(wanted_[at_].epoch)) {
          check(at_ < wanted_.size(), "a batch after the last one");
          check(look_at(batch) == wanted_[at_], "batch ", at_, " is another one");
          ++at_;
          ++counts_.buckets;
          if (++done < most) continue;
          if (!stops) break;
          feed.stop();
        }
        counts_.left += done == most && !stops ? 1 : 0;
        counts_.stops += feed.stopped() ? 1 : 0;
        // A loop that was left goes on by a resume alone.
        feed.resume(feed.state());
        if (feed.stopped()) break;
      }
      state = feed.state();
      ++counts_.resumed;
    }
  }
  std::string describe() const {
    return penstock::detail::concat("round ", round_, ": buckets of ", n_, " sequences, window ", window_, ", batch ",
                                    size_, ", ", tokens_, " tokens, batch ", at_);
  }

 private:
  static constexpr std::uint64_t epochs = 2;
  struct seen {
    std::uint64_t epoch = 0, step = 0;
    std::uint32_t bound = 0;
    std::vector<std::uint64_t> indices;
    std::vector<unsigned char> bytes;
    bool operator==(const seen& other) const {
      return epoch == other.epoch && bound == other.bound && indices == other.indices && bytes == other.bytes;
    }
  };

  template <class Batch>
  static seen look_at(const Batch& batch) {
    seen out{batch.epoch(), batch.step(), batch.info().bound, {batch.indices().begin(), batch.indices().end()}, {}};
    const auto add = [&](const auto& view) {
      const auto* const first = reinterpret_cast<const unsigned char*>(view.data());
      out.bytes.insert(out.bytes.end(), first, first + view.size_bytes());
    };
    std::apply([&](const auto&... views) { (add(views), ...); }, batch.fields());
    return out;
  }

  std::uint64_t round_;
  tally& counts_;
  penstock::philox random_;
  std::uint64_t n_ = 0, seed_ = 0, window_ = 0;
  std::int64_t size_ = 1;
  std::size_t tokens_ = 0;
  std::vector<seen> wanted_;
  std::size_t at_ = 0;
};

}  // namespace soak
