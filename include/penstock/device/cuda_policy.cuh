// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thrust/system/cuda/execution_policy.h>
#include <cstddef>

#include <penstock/device/cuda_scratch.hpp>
#include <penstock/device/cuda_stream.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

namespace detail {

/// For algorithms that need no memory.
struct no_scratch {
  using value_type = char;
  char* allocate(std::ptrdiff_t bytes) const {
    throw error(concat("on(stream): this algorithm needs ", bytes,
                       " bytes of temporary memory: on(stream, scratch), with a cuda_scratch"));
  }
  void deallocate(char*, std::size_t) const noexcept {}
};

}  // namespace detail

/// Thrust's execution policy for a stream, `thrust::transform(penstock::on(batch.stream(), scratch), ...)`: temporaries
/// come from `scratch`, and no algorithm waits, unless it returns a value to the host that it has to compute (`reduce`,
/// `count`, `find`, ...; see `cuda_reducer` and `device_fold` for some that need not). The stream's device is current.
inline auto on(cuda_stream_view stream, cuda_scratch& scratch) {
  return thrust::cuda::par_nosync(scratch).on(stream.get());
}
/// The same for algorithms without temporaries: `transform`, `for_each`, `fill`, `copy`, ... Others throw.
inline auto on(cuda_stream_view stream) { return thrust::cuda::par_nosync(detail::no_scratch{}).on(stream.get()); }

}  // namespace penstock
