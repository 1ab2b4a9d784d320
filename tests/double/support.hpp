// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../known_failures/support.hpp"
#include "../laws/configurations.hpp"

namespace doubled {

using cuda_double::reads;
using cuda_double::touch;
using cuda_double::watched_device;
using cuda_double::writes;
using known_failures::comes_true;
using stream_view = penstock::cuda_stream_view;
using transfer_options = penstock::transfer_options<watched_device>;

/// In mid-test: what has been is right and has left nothing behind, and the double begins anew.
inline void fresh(const cuda_double::options& with) {
  for (const std::string& fault : cuda_double::take_faults()) ADD_FAILURE() << fault;
  EXPECT_EQ(cuda_double::alive(), "");
  cuda_double::reset(with);
}

/// `body(seed)` for seeds 1 to `seeds`, on doubles that hurry, dawdle, or do only what is waited for. Fewer under
/// sanitizers, which are slow.
template <class Body>
void for_each_delay(std::uint64_t seeds, Body&& body, bool legacy_is_named = false) {
  if (KNOWN_FAILURES_SANITIZED && seeds > 3) seeds = 3;
  for (const unsigned eagerness : {0U, 1U, 3U, 20U})
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const testing::ScopedTrace trace(__FILE__, __LINE__,
                                       "seed " + std::to_string(seed) + ", eagerness " + std::to_string(eagerness));
      fresh({.seed = cuda_double::seed_or(seed), .eagerness = eagerness, .legacy_is_named = legacy_is_named});
      body(seed);
      if (testing::Test::HasFailure()) return;
    }
}

/// The thread's current device, as the application would set it.
class on_device {
 public:
  explicit on_device(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  on_device(const on_device&) = delete;
  ~on_device() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

inline int current_device() {
  int result = -1;
  cudaGetDevice(&result);
  return result;
}

/// All the memory of a view, as a kernel or a host thread touches it.
template <class View>
touch reads_all(const View& view) {
  return reads(view.data(), view.size_bytes());
}
template <class View>
touch writes_all(const View& view) {
  return writes(view.data(), view.size_bytes());
}

/// What a launch on `stream` comes onto: stream 0 is the thread's own where per-thread default streams are compiled in.
inline cudaStream_t as_launched(cudaStream_t stream) {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
  return stream == nullptr ? cudaStreamPerThread : stream;
#else
  return stream;
#endif
}

/// Enqueues a kernel that looks at a batch of `laws::samples` when its turn comes; `right` counts rows that hold what
/// they should.
template <class Batch>
void look_at(Batch& batch, stream_view stream, std::atomic<std::uint64_t>& right) {
  using of = laws::samples<>;
  const auto [id, values] = batch.fields();
  const std::uint64_t first = batch.indices()[0];
  cuda_double::launch(as_launched(stream), {reads_all(id), reads_all(values)},
                      [id = id.data(), values = values.data(), rows = batch.size(), first, &right] {
                        for (std::size_t row = 0; row < rows; ++row)
                          right += id[row] == first + row && values[3 * row] == of::value(first + row, 0) &&
                                   values[3 * row + 2] == of::value(first + row, 2);
                      });
}

/// Waits until somebody asks again and again whether a copy or kernel has ended. `or_else`: the test has failed.
template <class OrElse>
bool somebody_waits(OrElse&& or_else) {
  const auto asked = cuda_double::calls("cudaEventQuery");
  return comes_true([&] { return cuda_double::calls("cudaEventQuery") >= asked + 3 || or_else(); });
}
inline bool somebody_waits() {
  return somebody_waits([] { return false; });
}

}  // namespace doubled
