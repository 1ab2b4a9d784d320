// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/device/cuda_error.hpp>
#include <penstock/device/cuda_stream.hpp>

namespace penstock {

/// A graph that can be launched. Move-only.
class cuda_graph {
 public:
  cuda_graph(cuda_graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  cuda_graph& operator=(cuda_graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~cuda_graph() {
    if (graph_ != nullptr) detail::cuda_log(cudaGraphExecDestroy(graph_), "cudaGraphExecDestroy");
  }

  /// What `body()` enqueues on `stream`, and on streams that it makes wait for that one and that one for them. Nothing
  /// of it is run. Other threads are not disturbed. Throws `penstock::error` if the body does what a graph cannot hold.
  template <class Body>
  static cuda_graph capture(cuda_stream_view stream, Body&& body) {
    const cudaError_t begun = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (begun != cudaSuccess) fail(begun, "cudaStreamBeginCapture");
    try {
      body();
    } catch (const cuda_error& caught) {
      end(stream);
      if (is_about_capture(caught.code())) fail(caught.code(), caught.call());
      throw;
    } catch (...) {
      // Libraries have errors of their own for what the capture did not allow.
      if (const cudaError_t ended = end(stream); is_about_capture(ended)) fail(ended, "cudaStreamEndCapture");
      throw;
    }
    cudaGraph_t captured = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
    if (ended != cudaSuccess) {
      end(stream);
      fail(ended, "cudaStreamEndCapture");
    }
    cudaGraphExec_t made = nullptr;
    const cudaError_t code = cudaGraphInstantiate(&made, captured, 0);
    const cudaError_t destroyed = cudaGraphDestroy(captured);
    detail::cuda_check(code, "cudaGraphInstantiate");
    cuda_graph result(made);
    detail::cuda_check(destroyed, "cudaGraphDestroy");
    return result;
  }

  void launch(cuda_stream_view stream) const { detail::cuda_check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch"); }

 private:
  explicit cuda_graph(cudaGraphExec_t graph) noexcept : graph_(graph) {}

  static bool is_about_capture(cudaError_t code) {
    return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
  }
  // Takes the stream out of a capture that came to nothing, if it still is in one, and leaves no error on the thread.
  static cudaError_t end(cudaStream_t stream) {
    cudaGraph_t captured = nullptr;
    const cudaError_t code = cudaStreamEndCapture(stream, &captured);
    if (captured != nullptr) detail::cuda_log(cudaGraphDestroy(captured), "cudaGraphDestroy");
    if (code != cudaSuccess && cudaPeekAtLastError() == code) cudaGetLastError();
    forget();
    return code;
  }
  static void forget() {
    if (is_about_capture(cudaPeekAtLastError())) cudaGetLastError();
  }
  [[noreturn]] static void fail(cudaError_t code, std::string_view call) {
    forget();
    if (!is_about_capture(code)) detail::cuda_check(code, call);
    const cuda_error cause(code, call);
    try {
      if (std::current_exception()) throw;  // what the body threw
      throw cause;
    } catch (...) {
      throw error(
          detail::concat("captured: the body did what a CUDA graph cannot hold (it only enqueues, on the batch's "
                         "stream, which is not the legacy one: it neither waits, nor asks, nor allocates): ",
                         cause.problem()),
          {}, std::current_exception());
    }
  }

  cudaGraphExec_t graph_ = nullptr;
};

/// A step that is captured into a CUDA graph, once for each buffer of a feed, and replayed from then on: one launch in
/// place of all that `body(batch)` enqueues. `compute(captured(body))`, or `step(batch)` in a loop of one's own.
///
/// The body only enqueues on `batch.stream()`. It is called when a buffer is seen for the first time, so what it does
/// on the host happens then alone, and pointers and numbers that it passes to kernels stay as they are: what changes
/// from step to step (its number, a learning rate) kernels read from `batch.header()`. Batches of another number of
/// rows than the first one, the last of an epoch say, are run uncaptured. Waits and events of the feed's are outside of
/// the graph, so no batch of the feed is let go during a capture. Graphs are made in the first steps, at most
/// `most_graphs`; copies of this have none. One thread at a time.
template <class Body>
class captured {
 public:
  static constexpr std::size_t most_graphs = 64;

  explicit captured(Body body) : body_(std::move(body)) {}
  captured(const captured& other) : body_(other.body_) {}
  captured(captured&&) noexcept = default;
  captured& operator=(captured other) noexcept {
    body_ = std::move(other.body_);
    graphs_ = std::move(other.graphs_);
    rows_ = other.rows_;
    return *this;
  }

  template <class Batch>
  void operator()(Batch& batch) {
    static_assert(std::is_void_v<std::invoke_result_t<Body&, Batch&>>,
                  "penstock: captured takes a function that returns nothing: it is not called again for later batches");
    static_assert(std::tuple_size_v<decltype(batch.fields())> < most_fields,
                  "penstock: captured takes batches of up to 16 fields");
    const cuda_stream_view stream = batch.stream();
    if (rows_ == 0) rows_ = batch.rows();
    if (batch.rows() != rows_) return body_(batch);
    // Where all fields lie: the same again only for the same buffer, or for one in its place.
    std::size_t number = 0;
    const void* where[most_fields] = {batch.header()};
    std::apply([&](const auto&... fields) { ((where[++number] = fields.data()), ...); }, batch.fields());
    for (const auto& known : graphs_)
      if (known.stream == stream && same(known.where, where)) return known.graph.launch(stream);
    entry made{{}, stream, cuda_graph::capture(stream, [&] { body_(batch); })};
    for (std::size_t i = 0; i < most_fields; ++i) made.where[i] = where[i];
    if (graphs_.size() == most_graphs) graphs_.erase(graphs_.begin());
    graphs_.push_back(std::move(made));
    graphs_.back().graph.launch(stream);
  }

  /// Graphs that were made and are kept.
  std::size_t graphs() const noexcept { return graphs_.size(); }

 private:
  static constexpr std::size_t most_fields = 17;
  struct entry {
    const void* where[most_fields];
    cuda_stream_view stream;
    cuda_graph graph;
  };
  static bool same(const void* const (&a)[most_fields], const void* const (&b)[most_fields]) noexcept {
    for (std::size_t i = 0; i < most_fields; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

  Body body_;
  std::vector<entry> graphs_;
  std::size_t rows_ = 0;
};

}  // namespace penstock
