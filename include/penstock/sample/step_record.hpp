// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

namespace penstock {

/// A stretch of time, since the feed began to record: nanoseconds of the device's clock where it is a modelled one,
/// else of `std::chrono::steady_clock`.
struct time_span {
  std::chrono::nanoseconds begin{0};
  std::chrono::nanoseconds end{0};

  std::chrono::nanoseconds length() const noexcept { return end - begin; }
  bool operator==(const time_span&) const = default;
};

/// One reader's part of a step.
struct read_span {
  time_span when{};
  std::uint32_t reader = 0;
  std::uint32_t samples = 0;
};

/// What happened to one batch, and when: for observers with a hook `on_step`, in step order, once all of it has
/// happened. On a device that is some steps later, and for the last steps of a run at its end.
///
/// Times on a device are its own: they come from events on its streams, mapped to the host's time. The span of the
/// computing is that of the batch's stream from the moment it may begin, behind the copy, to the batch's release; on a
/// host, the time between being given the batch and letting it go.
struct step_record {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  ///< of the epoch
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;             ///< of the batch's fields, in memory
  std::span<const read_span> reads{};  ///< those with samples, by range
  std::chrono::nanoseconds filled{0};  ///< the last range was in
  bool copied = false;                 ///< there is a copy, whose times are known
  time_span copy{};                    ///< to the device
  time_span asked{};                   ///< from the consumer's asking for the batch to its getting it
  time_span compute{};
  /// What the host spent in `all_reduce` and `ready`: with threads and MPI the exchange, and waiting for the other
  /// ranks, which is part of `compute`; with NCCL, which goes on behind the host, what it takes to enqueue it, which
  /// may come before.
  std::chrono::nanoseconds reduce{0};
  std::span<const time_span> reduces{};  ///< when that was; of more than 32 those that follow lengthen the last one
  std::uint32_t readers = 1;             ///< that there are
  std::uint64_t lost = 0;  ///< steps so far whose times could not be kept, as a batch was held for too long
};

/// A stage begins or ends its work on a step: for observers with a hook `on_stage`, called by the thread that does it,
/// by several at once, while it happens.
struct stage_event {
  enum class stage : std::uint8_t { read, transfer, compute };
  stage what{};
  bool begins = false;
  std::uint32_t reader = 0;  ///< of `read`
  std::uint64_t step = 0;    ///< counted over the feed's life
};

}  // namespace penstock
