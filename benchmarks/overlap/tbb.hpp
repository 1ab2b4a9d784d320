// SPDX-License-Identifier: Apache-2.0
// oneTBB's parallel_pipeline, in two forms.
#pragma once

#if __has_include(<oneapi/tbb/parallel_pipeline.h>)
#define OVERLAP_TBB 1

#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/version.h>

#include <cstdint>

#include "contestants.hpp"

namespace overlap {

/// Runs `pipeline(batches)` once for a few, so that the worker threads are there, and then timed.
template <class Pipeline>
outcome timed_tbb(std::uint64_t batches, buffers& own, checksum& sum, std::uint64_t samples, Pipeline pipeline) {
  pipeline(0, 8);
  own.work.view().synchronize();
  sum.forget();
  const stopwatch watch;
  pipeline(8, batches);
  own.work.view().synchronize();
  const outcome result = watch.stop();
  sum.check(samples);
  return result;
}

/// Three serial filters, each of which ends when its work has ended, or (`waits` is false) enqueues it and goes on.
inline outcome tbb_pipeline(const stage_times& times, const sizes& of, nanoseconds notice, int tokens, bool waits) {
  buffers own(make_device(times, notice), of.bytes(), tokens);
  const dataset data(times, {of.batch, of.row, 1});
  checksum sum(of);
  hand_reader reader(data, of);
  using tbb::filter_mode;
  return timed_tbb(times.batches, own, sum, data.size(), [&](std::uint64_t first, std::uint64_t count) {
    std::uint64_t next = first;
    tbb::parallel_pipeline(
        static_cast<std::size_t>(tokens),
        tbb::make_filter<void, std::uint64_t>(filter_mode::serial_in_order, [&](tbb::flow_control& control) {
          if (next == first + count) return control.stop(), next;
          if (!waits) own.await_host(next);
          reader.read(next % times.batches, own.of(next).host.data());
          return next++;
        }) & tbb::make_filter<std::uint64_t, std::uint64_t>(filter_mode::serial_in_order, [&](std::uint64_t step) {
          own.enqueue_copy(step);
          if (waits) own.copies.view().synchronize();
          return step;
        }) & tbb::make_filter<std::uint64_t, void>(filter_mode::serial_in_order, [&](std::uint64_t step) {
          own.enqueue_kernel(step, times.kernel, sum);
          if (waits) own.work.view().synchronize();
        }));
  });
}

/// As it is written first.
inline outcome tbb_natural(const stage_times& times, const sizes& of, nanoseconds notice, int tokens) {
  return tbb_pipeline(times, of, notice, tokens, true);
}
/// As an expert writes it: only a buffer's reuse is waited for.
inline outcome tbb_ordered(const stage_times& times, const sizes& of, nanoseconds notice, int tokens) {
  return tbb_pipeline(times, of, notice, tokens, false);
}

}  // namespace overlap
#endif
