// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/replicas.hpp>

#include "../known_failures/support.hpp"

/// Replicas that are threads of this process, and data that tell which samples a step was of.
namespace scenes {

using known_failures::comes_true;
using known_failures::hang_limit;
using known_failures::latch;
using known_failures::numbers;
using known_failures::numbers_of;
using known_failures::threads_alive;
using known_failures::threads_come_back_to;

using world = penstock::local_world<>;
using rank = penstock::replica_of<world>;
using dataset = numbers<std::function<void(std::uint64_t)>>;

inline dataset count_to(std::uint64_t n) { return {n, known_failures::nothing{}}; }

struct plan {
  std::int64_t global = 8;
  int readers = 1;
  penstock::shuffle how = penstock::shuffle::full;
  std::uint64_t seed = 7;
  std::shared_ptr<penstock::reader_pool> pool{};
};

/// What feeds a rank. The dataset outlives it.
inline auto batches_of(const rank& of, const dataset& data, const plan& how = {}) {
  return data | penstock::partition({.seed = how.seed, .shuffle = how.how, .world = of}) |
         penstock::read({.readers = how.readers, .shared = how.pool}) | penstock::batch({.global = how.global}) |
         penstock::transfer(of.device());
}

/// One step of one rank, whose update was made.
struct update {
  std::uint64_t epoch = 0, step = 0;
  bool operator==(const update&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const update& one) { return out << one.epoch << "." << one.step; }

/// The error that `call` throws, as it came; none if it does not.
template <class Error = penstock::replica_error, class Call>
std::optional<Error> error_of(Call&& call) {
  try {
    call();
  } catch (const Error& caught) {
    return caught;
  }
  return {};
}
inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A run of this process works after whatever was before.
inline bool still_works(int ranks) {
  const dataset data = count_to(12);
  const auto summary = penstock::replicas(ranks, [&](rank& one) {
    auto feed = one.start(batches_of(one, data, {.global = 4}));
    double value[1];
    for (auto& batch : feed.epoch(0)) {
      value[0] = static_cast<double>(one.rank());
      one.all_reduce(batch, penstock::buffer(std::span(value), penstock::reduction::sum));
    }
  });
  return summary.steps == 3 && !summary.stopped;
}

}  // namespace scenes
