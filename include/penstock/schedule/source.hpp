// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>

#include <penstock/channel/gate.hpp>
#include <penstock/dataset/dataset.hpp>
#include <penstock/sample/fault.hpp>
#include <penstock/sample/fingerprint.hpp>
#include <penstock/sample/schema.hpp>
#include <penstock/stage/plan.hpp>

namespace penstock::detail {

/// Notes samples that could not be read.
class fault_notes {
 public:
  virtual void note(sample_fault fault) = 0;

 protected:
  ~fault_notes() = default;
};

/// What is asked of a source: part of one step, to be written to rows of its slot.
template <class Schema>
struct fill_request {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // of the feed's life: ranges of a stream are drawn in the order (step, range)
  std::uint32_t range = 0;
  std::uint64_t first = 0;           // position in the epoch's order
  std::span<std::uint64_t> indices;  // as many as rows are wanted; filled in by the source
  batch_view<Schema> to;
  read_progress progress{};
  fault_notes* faults = nullptr;  // who notes samples that could not be read, where the run goes on without them
  std::uint32_t first_row = 0;    // of the batch
  gate<>* readers = nullptr;      // where those wait whose turn a stream passes on
};

struct fill_result {
  std::size_t rows = 0;      // really read
  bool end = false;          // a stream has nothing more
  bool interrupted = false;  // the range was given up
  std::uint64_t drawn = 0;   // streams: where all replicas stand after the step
  std::uint32_t bound = 0;   // of the rows' lengths, if it is known
};

/// One reader's own state in a source.
struct reader_state {
  virtual ~reader_state() = default;
  std::stop_token stop;  // renewed by the engine, while no reader is at work
};

/// The reading side of a feed, erased: called once for each range of samples. Stored schema, plan, transform and
/// dataset are behind it, so that a feed's type knows only what its batches look like.
template <class Schema>
class source {
 public:
  source() = default;
  source(const source&) = delete;
  source& operator=(const source&) = delete;
  virtual ~source() = default;

  /// Called by each reader before its first `fill`.
  virtual std::unique_ptr<reader_state> open() = 0;
  /// Whether what is read can be told to stop.
  virtual bool takes_stop() const { return false; }
  /// Called by several readers at once, for different ranges. `progress` notes the sample that is read.
  virtual fill_result fill(reader_state& state, const fill_request<Schema>& request) = 0;
  /// Called while no reader is at work: from step `base` on the feed is in `epoch`, at `position`.
  virtual void begin(std::uint64_t base, std::uint64_t epoch, std::uint64_t position, const std::stop_token& stop) {
    (void)base, (void)epoch, (void)position, (void)stop;
  }

  /// Positions of an epoch; meaningless for streams.
  virtual std::uint64_t positions() const { return 0; }
  virtual bool is_stream() const { return false; }
  /// Whether samples that cannot be read are left out, so that steps may have fewer than the plan says.
  virtual bool leaves_out() const { return false; }
  /// Streams: whether `step` is the one to be drawn next.
  virtual bool has_turn(std::uint64_t step) const noexcept {
    (void)step;
    return true;
  }
  /// The file of a sample, for messages; empty if that is not known. From any thread.
  virtual provenance where(std::uint64_t sample) const noexcept {
    (void)sample;
    return {};
  }
  /// Tells a dataset and its order from another.
  virtual std::uint64_t fingerprint() const { return 0; }
};

}  // namespace penstock::detail
