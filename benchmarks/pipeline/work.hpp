// SPDX-License-Identifier: Apache-2.0
// Stages that do nothing: what is left is the schedule itself.
#pragma once

#include <cstdint>
#include <span>

#include <penstock/penstock.hpp>

namespace empty {

/// As many samples as wanted, of one number that nobody writes.
struct dataset {
  std::uint64_t samples;

  std::uint64_t size() const { return samples; }
  auto schema() const { return penstock::schema{penstock::field<float>{"value"}}; }
  template <class Batch>
  void read_range(std::span<const std::uint64_t>, const Batch&) const {}
};

using feed = penstock::any_feed<penstock::schema<penstock::field<float>>, penstock::cpu_device>;

/// The loop in another source file, which knows nothing of dataset and stages. Returns the batches.
std::uint64_t drain_elsewhere(feed& of, std::uint64_t epoch);

}  // namespace empty
