// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>

#include <penstock/sample/error.hpp>

namespace penstock {

/// A rank that others wait for, and where it was when it met them last, as far as that is known.
struct missing_rank {
  std::uint64_t rank = 0;
  std::optional<std::uint64_t> epoch{};
  std::optional<std::uint64_t> step{};
  bool never_came = false;
};

/// The consumer has waited for a batch for longer than `read_options::warn_after`, or a replica for the others for
/// longer than `replica_options::warn_after`, and goes on waiting.
struct late_event {
  std::string_view message{};           ///< a sentence: who is at what, and since when
  provenance where{};                   ///< the sample that is read, with its path and reader; or the step of the wait
  std::chrono::nanoseconds waited{0};   ///< by the consumer, or the replica
  std::chrono::nanoseconds reading{0};  ///< how long that sample's read has taken, at the least
  std::optional<std::uint64_t> rank{};  ///< the replica that waits for others; none where a batch is waited for
  std::span<const missing_rank> missing{};  ///< whom it waits for; empty where that is not known
};

namespace detail {

/// For those whom nobody hears.
inline void say_late(std::string_view message) noexcept {
  std::fprintf(stderr, "penstock: %.*s\n", static_cast<int>(message.size()), message.data());
}

}  // namespace detail
}  // namespace penstock
