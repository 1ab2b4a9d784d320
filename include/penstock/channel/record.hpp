// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <penstock/channel/atomics.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/fault.hpp>

namespace penstock {

/// What a batch is, its data aside.
struct batch_info {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;   ///< of the epoch, from 0
  std::uint64_t first = 0;  ///< position in the epoch's order of this batch's first sample
  std::uint64_t next = 0;   ///< position after the step's last sample, over all replicas
  std::uint64_t total = 0;  ///< real samples of the step, over all replicas; 0 where that is unknown, as for streams
  std::uint32_t count = 0;  ///< real samples
  std::uint32_t rows = 0;   ///< real samples and padding
  bool end = false;         ///< streams: there is nothing after this batch
  std::uint64_t drawn = 0;  ///< streams: samples of the epoch up to and with this step, over all replicas
  std::uint32_t bound = 0;  ///< by `bucket_by_length`: no sample of the step has a longer row, on any replica; else 0
};

namespace detail {

/// Why a step has no data. Of several failures in one step that of the lowest row counts.
struct step_failure {
  std::exception_ptr cause;
  provenance where;
  std::uint32_t row = 0;
  std::uint32_t number = 0;  // of failures in the step

  explicit operator bool() const noexcept { return number != 0; }
  void clear() noexcept {
    if (number != 0) *this = {};
  }
  void add(std::exception_ptr new_cause, provenance new_where, std::uint32_t new_row) {
    if (number == 0 || new_row < row) {
      cause = std::move(new_cause);
      where = std::move(new_where);
      row = new_row;
    }
    ++number;
  }
};

/// What travels with a buffer from the readers to the consumer; `info` in a line of its own.
struct alignas(64) batch_record {
  batch_info info;
  alignas(64) std::vector<std::uint64_t> indices;  // of the samples, row by row
  std::vector<std::uint32_t> range_rows;           // real rows that each range brought
  step_failure failure;
  std::vector<sample_fault> faults;  // samples that were left out or replaced, by row
  std::uint64_t turn = 0;            // the step, counted over the feed's life

  /// Before it is used again.
  void clear() noexcept {
    failure.clear();
    if (!faults.empty()) faults.clear();
  }
};

}  // namespace detail
}  // namespace penstock
