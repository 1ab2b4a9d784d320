// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <string_view>
#include <system_error>
#include <thread>

#include <penstock/device/cuda_error.hpp>
#include <penstock/device/device.hpp>

namespace penstock::detail {

/// Whether `query()` says not-ready to another thread than this one.
template <class Query>
bool cuda_not_ready_elsewhere(Query& query) {
  int device = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code != cudaSuccess) return false;
  try {
    std::thread([&] {
      code = cudaSetDevice(device);
      if (code == cudaSuccess) code = query();
    }).join();
  } catch (const std::system_error&) {
    return false;
  }
  return code == cudaErrorNotReady;
}

/// What a query says: whether all is done. A not-ready leaves no trace in the thread's last error. Where that is one of
/// the application's own, a not-ready would take its place, and nobody could put it back: such a thread asks through
/// another one first, `anywhere` (that is, unless it asks of a default stream).
template <class Query>
bool cuda_done(Query&& query, std::string_view call, bool anywhere = true) {
  const cudaError_t pending = cudaPeekAtLastError();
  if (anywhere && pending != cudaSuccess && pending != cudaErrorNotReady) [[unlikely]]
    if (cuda_not_ready_elsewhere(query)) return false;
  const cudaError_t code = query();
  if (code == cudaErrorNotReady) {
    if (cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();
    return false;
  }
  // At the process's end nothing is under way any more.
  if (code != cudaErrorCudartUnloading) cuda_check(code, call);
  return true;
}

/// Blocks the calling thread until `done()`, `interrupted()` or the deadline: awake for a moment, then asleep by ever
/// longer pauses, so that what is noticed late is a small part of what was waited for.
template <class Done, interrupt Interrupt>
wait_result cuda_wait(Done&& done, const Interrupt& interrupted, std::chrono::steady_clock::time_point deadline) {
  using clock = std::chrono::steady_clock;
  constexpr auto awake = std::chrono::microseconds(20);
  constexpr auto longest = std::chrono::microseconds(200);
  if (done()) return wait_result::complete;
  const auto begin = clock::now();
  for (;;) {
    if (interrupted()) return wait_result::interrupted;
    const auto now = clock::now();
    if (now >= deadline) return wait_result::timed_out;
    if (const auto waited = now - begin; waited > awake) {
      auto pause = waited / 16 < longest ? waited / 16 : longest;
      if (deadline - now < pause) pause = deadline - now;
      std::this_thread::sleep_for(pause);
    }
    if (done()) return wait_result::complete;
  }
}

}  // namespace penstock::detail
