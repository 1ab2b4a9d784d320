// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include <penstock/penstock.hpp>

#include "data.hpp"

namespace trainer {

/// The trainer's pipeline, to any device: this replica's share of every step.
template <class Device>
auto batches(table data, const settings& s, penstock::shuffle order, const standardise& inputs, penstock::world world,
             Device device, penstock::transfer_options<Device> how = {}) {
  penstock::read_options read{.readers = s.readers};
  if (s.readers > 0) read.timeout = std::chrono::nanoseconds(static_cast<std::int64_t>(s.timeout * 1e9));
  how.depth = s.depth;
  return std::move(data) | penstock::partition({.seed = s.seed, .shuffle = order, .world = world}) |
         penstock::read(read, inputs) | penstock::batch({.global = s.batch}) |
         penstock::transfer(std::move(device), std::move(how));
}

}  // namespace trainer
