// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// A stand-in for the CUDA runtime, for tests without a GPU: the functions that penstock's headers call, over streams
/// that run nothing by themselves. Each call lets some of what is enqueued happen, in an order that CUDA allows and a
/// seed decides; so tests neither sleep nor depend on time. What hardware would punish silently is a fault here.
namespace cuda_double {

struct options {
  std::uint64_t seed = 1;
  int devices = 2;
  /// How much happens at each call: up to that many steps of operations. 0: only where a query waits for it.
  unsigned eagerness = 3;
  /// Events with timing are no fault.
  bool events_are_timed = false;
  /// The application has named the legacy stream, so that work on it is no fault.
  bool legacy_is_named = false;
};

/// A new process: no memory, streams, events, errors, and nothing seen. Threads that live keep their current device.
void reset(const options& with = {});

/// What a kernel, a copy or a host thread touches.
struct touch {
  const void* data;
  std::size_t bytes;
  bool writes;
};
inline touch reads(const void* data, std::size_t bytes) { return {data, bytes, false}; }
inline touch writes(const void* data, std::size_t bytes) { return {data, bytes, true}; }

/// A test's kernel. `body` is run when its turn comes; it may call nothing of CUDA.
void launch(cudaStream_t stream, std::vector<touch> touches, std::function<void()> body = {});
/// By the calling thread.
void host_access(const touch& of, const char* what);

/// Holds back what is enqueued on a stream; `resume` lets go.
void hold(cudaStream_t stream);
void resume(cudaStream_t stream);
/// The same for all streams, those that are not yet made included.
void hold_all();
void resume_all();
/// Lets everything happen that can.
void finish();

/// The n-th call of a function from now (1: the next) returns `code` and does nothing. A sticky code stays.
void fail(std::string_view function, std::uint64_t n, cudaError_t code);
/// From here on every call returns it: a kernel has gone wrong. To be called from a kernel's body, too.
void fault(cudaError_t code);
/// An error that a call of the application's own has left on this thread.
void leave_error(cudaError_t code);

std::uint64_t calls(std::string_view function);
/// Functions that were called at least once, those that only ask aside.
std::vector<std::string> functions_called();
/// Devices on which a context was made.
std::set<int> contexts();
/// Default streams, legacy and per-thread ones, that something was done on.
std::size_t default_streams_used();
/// Copies of memory that is not pinned.
std::uint64_t pageable_copies();

/// Allocations, frees and things made or destroyed are faults while this is on.
void hot_path(bool on);

/// What was found wrong since the last call; a line each.
std::vector<std::string> take_faults();
/// What is alive: memory, pinned memory, streams, events, graphs. Empty if nothing is.
std::string alive();
struct alive_counts {
  std::size_t memory = 0, pinned = 0, streams = 0, events = 0, graphs = 0;
};
alive_counts count_alive();
/// This test leaves things behind for good, and is right to.
void expect_some_alive();
bool some_may_be_alive();

}  // namespace cuda_double
