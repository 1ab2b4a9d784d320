// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda_double.hpp"
#include "order.hpp"

/// Behind the double's functions: what is enqueued, what is alive, what has failed. All under one lock.
namespace cuda_double {

/// The completion of an operation, and what it knows of.
struct mark {
  bool done = false;
  std::uint64_t at = 0;  // when it was: a count of all that has happened
  vector_clock known;
};
using mark_pointer = std::shared_ptr<mark>;

struct operation {
  std::vector<mark_pointer> after;  // of other streams
  std::function<void()> begin, end;
  std::vector<touch> touches;
  mark_pointer mark;
  bool begun = false;
};

/// What can be captured into a graph and launched again.
struct node {
  const char* what;
  std::vector<touch> touches;
  std::function<void()> begin, end;
};
struct graph {
  std::vector<node> nodes;
  int device = 0;
};

struct stream {
  std::size_t actor = 0;
  int device = 0;
  bool blocking = false;
  bool held = false;
  std::deque<operation> queue;
  mark_pointer last;
  vector_clock known;
  // While captured: what into, by which thread, whether by the call itself, and what went wrong.
  graph* capture = nullptr;
  const void* captured_by = nullptr;
  bool capture_origin = false;
  bool capture_invalid = false;
  bool capture_is_global = false;  // forbids to other threads, too, what is unsafe
};

struct event {
  int device = 0;
  bool timed = false;
  mark_pointer recorded;
  graph* captured = nullptr;
};

struct block {
  std::size_t bytes = 0;
  int device = 0;
  bool pinned = false;
  std::vector<unsigned char> storage;  // of a device's
};

/// A host thread, as the double knows it.
struct host {
  std::size_t actor = 0;
  std::uint64_t life = 0;  // of the machine
  vector_clock known;
  int device = 0;
  bool device_is_set = false;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  std::map<int, stream*> own_streams;  // the per-thread default ones
  ~host();
};

struct machine {
  options with;
  std::uint64_t life = 1;
  std::uint64_t random = 0;
  order accesses;
  std::set<stream*> streams;  // the default ones included
  std::map<int, stream*> legacy;
  std::set<event*> events;
  std::set<graph*> graphs, executables;
  std::map<std::uintptr_t, block> blocks;
  std::vector<block> freed;  // poisoned, and kept for those who still look
  std::map<std::string, std::uint64_t, std::less<>> calls;
  std::map<std::string, std::pair<std::uint64_t, cudaError_t>, std::less<>> armed;
  cudaError_t dead = cudaSuccess;
  std::set<int> contexts;
  std::set<std::pair<int, int>> peers;  // who may reach whom
  std::uint64_t pageable = 0, operations = 0, happened = 0;
  bool all_held = false, hot = false, leaves_some = false;
  bool (*part_is_missing)() = nullptr;  // of a collective: the NCCL double's
  std::vector<std::string> faults;

  std::uint64_t draw(std::uint64_t below);
  void wrong(std::string text);

  // ---- what happens
  void step(std::uint64_t steps);
  bool step_once();
  void finish();

  // ---- what is enqueued
  cudaError_t enqueue(stream& on, const char* what, std::vector<touch> touches, std::function<void()> begin,
                      std::function<void()> end);
  operation& push(stream& on, const host& by);
  void note(const char* what, const stream& on, std::uint64_t number, const std::vector<touch>& touches);

  // ---- what is known
  stream* find(cudaStream_t handle, bool per_thread, host& by);
  stream& make_stream(int device, bool blocking, std::string name);
  void destroy(stream* old);
  const block* holds(const void* data, std::size_t bytes, std::uintptr_t* begin = nullptr) const;
  /// Whether an operation to come touches the memory; it then does nothing.
  bool cancel(const void* data, std::size_t bytes);
};

machine& all();
host& here();

}  // namespace cuda_double
