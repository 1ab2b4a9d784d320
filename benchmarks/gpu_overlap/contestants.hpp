// SPDX-License-Identifier: Apache-2.0
// Ours and its rivals. Each runs all steps of one kind; memory is allocated, touched and pinned, and the threads of
// ours are started, once for all runs of a kind: only steps are timed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <turn_counter.hpp>

#include "stages.hpp"

namespace gpu_overlap {

inline int default_depth() { return penstock::transfer_options<penstock::cuda_device>{}.depth; }

/// The buffers, streams and events of all that is written by hand.
class by_hand {
 public:
  by_hand(const penstock::cuda_device& device, const step_kind& kind, int depth)
      : kind_(kind), copies_(device.make_stream()), work_(device.make_stream()), sum_(device) {
    for (int i = 0; i < depth; ++i)
      all_.push_back(
          {device.allocate_host(kind.bytes), device.allocate(kind.bytes), device.make_event(), device.make_event()});
  }

  /// A reader thread that reads and enqueues the copy, a loop that enqueues the kernels, two streams.
  outcome two_streams(std::uint64_t warm, std::uint64_t steps) { return with_a_reader<true>(warm, steps); }
  /// The same on one stream: copies and kernels take turns, reading goes on meanwhile.
  outcome one_stream(std::uint64_t warm, std::uint64_t steps) { return with_a_reader<false>(warm, steps); }
  /// A step is read, copied, computed and waited for, one after the other.
  outcome nothing_overlaps(std::uint64_t warm, std::uint64_t steps) {
    const dataset data(kind_, steps);
    const cudaStream_t stream = work_.view();
    sum_.forget(stream);
    stopwatch watch(warm, steps);
    watch.start();
    for (std::uint64_t step = 0; step < steps; ++step) {
      read(data, step);
      cuda_check(
          cudaMemcpyAsync(of(0).device.data(), of(step).host.data(), kind_.bytes, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
      launch(of(0).device.data(), stream);
      watch.step(step, stream);
      cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    const outcome result = watch.stop();
    sum_.check(data.size());
    return result;
  }
  /// Copies alone, as fast as the driver takes them: the best rate that there is.
  outcome copies_alone(std::uint64_t warm, std::uint64_t steps) {
    const cudaStream_t stream = copies_.view();
    stopwatch watch(warm, steps);
    watch.start();
    for (std::uint64_t step = 0; step < steps; ++step) {
      copy(step, stream);
      watch.step(step, stream);
    }
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return watch.stop();
  }

  /// One thread that does all of it, of which `step(enqueue)` is called for each step: `enqueue()` is what it does. For
  /// what the host's side costs.
  template <class Step>
  void in_one_thread(std::uint64_t steps, Step step) {
    const dataset data(kind_, steps);
    for (std::uint64_t k = 0; k < steps; ++k) {
      step([&](auto body) {
        await(of(k).copied);
        read(data, k);
        wait(copies_.view(), of(k).released);
        enqueue_copy(k, copies_.view());
        wait(work_.view(), of(k).copied);
        body(cudaStream_t{work_.view()});
        record(of(k).released, work_.view());
      });
    }
    cuda_check(cudaStreamSynchronize(work_.view()), "cudaStreamSynchronize");
  }

  nanoseconds copy_alone(int rounds) {
    return engine_alone([this](int i) { copy(static_cast<std::uint64_t>(i), copies_.view()); }, rounds, copies_.view());
  }
  nanoseconds kernel_alone(int rounds) {
    return engine_alone([this](int) { launch(of(0).device.data(), work_.view()); }, rounds, work_.view());
  }

 private:
  struct buffer {
    penstock::cuda_host_memory host;
    penstock::cuda_memory device;
    penstock::cuda_event copied, released;
  };

  template <bool TwoStreams>
  outcome with_a_reader(std::uint64_t warm, std::uint64_t steps) {
    const dataset data(kind_, steps);
    sum_.forget(work_.view());
    contest::turn_counter go, filled, launched;
    const auto depth = static_cast<std::uint32_t>(all_.size());
    const auto last = static_cast<std::uint32_t>(steps);
    std::thread reading([&] {
      go.wait_beyond(0);
      for (std::uint32_t step = 0; step < last; ++step) {
        // An event means something only once it was recorded: the slot's last copy by the loop where that enqueues
        // copies, the twin's last release in any case.
        const bool again = step >= depth;
        if (again && !TwoStreams) launched.wait_beyond(step - depth);
        await(of(step).copied);
        read(data, step);
        if constexpr (TwoStreams) {
          if (again) launched.wait_beyond(step - depth);
          enqueue_copy(step, copies_.view());
        }
        filled.set(step + 1);
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the thread has begun and waits
    stopwatch watch(warm, steps);
    watch.start();
    go.set(1);
    for (std::uint32_t step = 0; step < last; ++step) {
      filled.wait_beyond(step);
      if constexpr (TwoStreams)
        wait(work_.view(), of(step).copied);
      else
        enqueue_copy(step, work_.view());
      launch(of(step).device.data(), work_.view());
      record(of(step).released, work_.view());
      watch.step(step, work_.view());
      launched.set(step + 1);
    }
    cuda_check(cudaStreamSynchronize(work_.view()), "cudaStreamSynchronize");
    const outcome result = watch.stop();
    reading.join();
    sum_.check(data.size());
    return result;
  }

  buffer& of(std::uint64_t step) { return all_[step % all_.size()]; }
  void read(const dataset& data, std::uint64_t step) {
    std::uint64_t indices[step_kind::rows];
    for (std::size_t i = 0; i < step_kind::rows; ++i) indices[i] = step * step_kind::rows + i;
    data.read_range(indices,
                    {penstock::tensor_view<std::uint64_t, 2>(reinterpret_cast<std::uint64_t*>(of(step).host.data()),
                                                             {step_kind::rows, kind_.words_a_row()})});
  }
  void copy(std::uint64_t step, cudaStream_t stream) {
    const buffer& slot = of(step);
    cuda_check(cudaMemcpyAsync(slot.device.data(), slot.host.data(), kind_.bytes, cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
  }
  void enqueue_copy(std::uint64_t step, cudaStream_t stream) {
    wait(stream, of(step).released);
    copy(step, stream);
    record(of(step).copied, stream);
  }
  void launch(const void* batch, cudaStream_t stream) {
    launch_step(static_cast<const std::uint64_t*>(batch), step_kind::rows, kind_.words_a_row(), kind_.kernel,
                sum_.data(), stream);
  }
  static void record(penstock::cuda_event& event, cudaStream_t stream) {
    cuda_check(cudaEventRecord(event.view(), stream), "cudaEventRecord");
  }
  static void wait(cudaStream_t stream, const penstock::cuda_event& event) {
    cuda_check(cudaStreamWaitEvent(stream, event.view(), cudaEventWaitDefault), "cudaStreamWaitEvent");
  }
  // Awake all the time: nobody notices sooner.
  static void await(const penstock::cuda_event& event) {
    for (cudaError_t state; (state = cudaEventQuery(event.view())) != cudaSuccess;) {
      if (state != cudaErrorNotReady) cuda_check(state, "cudaEventQuery");
      penstock::std_atomics::pause();
    }
  }

  step_kind kind_;
  penstock::cuda_stream copies_, work_;
  std::vector<buffer> all_;
  checksum sum_;
};

/// The loop of one's own.
class ours {
 public:
  using feed_type = penstock::feed<dataset::schema_type, penstock::cuda_device>;

  ours(const penstock::cuda_device& device, const step_kind& kind, std::uint64_t steps, int depth, int readers)
      : kind_(kind),
        steps_(steps),
        sum_(device),
        reset_(device.make_stream()),
        feed_((dataset(kind, steps) | penstock::partition({.seed = 7}) |
               penstock::read({.readers = readers, .next_epoch = false}) | penstock::batch(step_kind::rows) |
               penstock::transfer(device, {.depth = depth}))
                  .start()) {
    // Until there is a batch memory may still be touched and pinned.
    for ([[maybe_unused]] auto& batch : feed_.epoch(epoch_++)) break;
  }

  outcome run(std::uint64_t warm) {
    sum_.forget(reset_.view());
    stopwatch watch(warm, steps_);
    std::optional<penstock::cuda_stream_view> stream;
    watch.start();
    std::uint64_t step = 0;
    for (auto& batch : feed_.epoch(epoch_++)) {
      stream = batch.stream();
      launch_step(batch.get<0>().data(), step_kind::rows, kind_.words_a_row(), kind_.kernel, sum_.data(), *stream);
      watch.step(step++, *stream);
    }
    cuda_check(cudaStreamSynchronize(*stream), "cudaStreamSynchronize");
    const outcome result = watch.stop();
    sum_.check(steps_ * step_kind::rows);
    return result;
  }
  /// `step(batch)` is the body of the loop.
  template <class Step>
  void loop(Step step) {
    for (auto& batch : feed_.epoch(epoch_++)) step(batch);
  }

 private:
  step_kind kind_;
  std::uint64_t steps_;
  checksum sum_;
  penstock::cuda_stream reset_;
  feed_type feed_;
  std::uint64_t epoch_ = 0;
};

}  // namespace gpu_overlap
