// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace planner {

using std::chrono::nanoseconds;

/// What is to be predicted: how long each stage takes for one batch of one replica, and what there is to overlap them
/// with.
struct plan {
  nanoseconds read{};     ///< by one reader alone
  nanoseconds copy{};     ///< to the device
  nanoseconds compute{};  ///< on the device
  nanoseconds reduce{};   ///< of all replicas, once the last of them has computed; on the stream of compute, behind it
  nanoseconds event_latency = std::chrono::microseconds(3);
  nanoseconds notice = std::chrono::microseconds(30);
  int readers = 1;  ///< of each replica; 0 reads on the consumer's thread
  int depth = 3;
  int host_depth = 0;  ///< 0: as depth
  int replicas = 1;
  int batch = 256;
  int steps = 1000;
  double spread = 0;  ///< reads and computations take this share more or less, each drawn for itself

  int slots() const { return host_depth == 0 ? depth : host_depth; }
  nanoseconds read_of_all() const { return read / std::max(readers, 1); }
  nanoseconds longest_on_device() const { return std::max(copy, compute + reduce); }
  nanoseconds longest() const { return std::max(read_of_all(), longest_on_device()); }
};

/// How long `amount` takes at `rate` a second. Throws `std::invalid_argument` over a quarter of an hour.
inline nanoseconds time_of(double amount, double rate) {
  const double seconds = amount / rate;
  if (!(seconds <= 900))
    throw std::invalid_argument("a stage takes " + std::to_string(seconds) + " s a batch, wanted 900 s or less");
  return nanoseconds(std::llround(seconds * 1e9));
}

/// A ring of n replicas sends and receives each byte 2 (n - 1) / n times.
inline double ring_traffic(double bytes, int replicas) { return bytes * 2 * (replicas - 1) / replicas; }

/// What `steps` take by pencil: the first batch passes all stages, then the slowest of these sets the pace: a stage, or
/// the round of a buffer through two of them, shared among the buffers. Nothing where there is no such form: where
/// stages vary, readers do not share a batch evenly, or the notice is late just now and then.
inline std::optional<nanoseconds> closed_form(const plan& of) {
  const int readers = std::max(of.readers, 1);
  if (of.spread > 0 || (readers & (readers - 1)) != 0 || of.batch % readers != 0) return {};
  const nanoseconds work = of.compute + of.reduce;
  const nanoseconds twins = (of.copy + work + 2 * of.event_latency) / of.depth;
  const nanoseconds slots = (of.read_of_all() + of.copy + of.notice) / of.slots();
  nanoseconds pace = std::max(of.longest(), twins);
  if (slots > pace) {
    if (of.slots() > 1 || of.copy == nanoseconds(0)) return {};
    pace = slots;
  }
  return of.read_of_all() + of.copy + of.event_latency + work + (of.steps - 1) * pace;
}

}  // namespace planner
