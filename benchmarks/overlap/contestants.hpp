// SPDX-License-Identifier: Apache-2.0
// Ours, and what an expert writes by hand on the same device. Each contestant runs all batches and returns the time
// that took and the CPU time that it took, from the first read to the host's notice of the last kernel's end.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <machine.hpp>
#include <penstock/penstock.hpp>
#include <turn_counter.hpp>

#include "stages.hpp"

namespace overlap {

struct outcome {
  nanoseconds wall{};
  double cpu_seconds = 0;
};

/// From its making to `stop()`.
class stopwatch {
 public:
  outcome stop() const {
    const nanoseconds wall = clock_type::now() - begin_;
    return {wall, (contest::usage::now() - used_).cpu_seconds};
  }
  clock_type::time_point begin() const { return begin_; }

 private:
  contest::usage used_ = contest::usage::now();
  clock_type::time_point begin_ = clock_type::now();
};

/// The depth that a user gets who does not ask.
inline int default_depth() { return penstock::transfer(penstock::modelled_device()).options.depth; }

/// The loop of one's own. `depth` 0: the library's default. With observers, which are told of each step's times.
template <class... Observers>
outcome ours(const stage_times& times, const sizes& of, nanoseconds notice, int depth, Observers&&... observers) {
  const auto device = make_device(times, notice);
  checksum sum(of);
  const dataset data(times, of);
  penstock::transfer_options<penstock::modelled_device> options;
  if (depth != 0) options.depth = depth;
  auto feed = (data | penstock::partition({.seed = 7}) | penstock::read({.readers = of.readers}) |
               penstock::batch(of.batch) | penstock::transfer(device, options))
                  .start();
  (feed.observe(std::forward<Observers>(observers)), ...);
  const stopwatch watch;
  penstock::modelled_stream_view stream;
  for (auto& batch : feed.epoch(0)) {
    stream = batch.stream();
    stream.launch(times.kernel, sum.kernel(batch.template get<0>().data()));
  }
  stream.synchronize();
  const outcome result = watch.stop();
  sum.check(data.size());
  return result;
}

/// The README's first program: two readers, batches of 256, the transfer's defaults, nothing started beforehand.
inline outcome first_program(const stage_times& times, const sizes& of, nanoseconds notice) {
  const auto device = make_device(times, notice);
  const sizes own{256, of.row, 2};
  checksum sum(own);
  const stopwatch watch;
  auto feed = dataset(times, own)                 // a dataset
              | penstock::partition({.seed = 7})  // shuffled anew in each epoch
              | penstock::read({.readers = 2})    // reader threads, in place
              | penstock::batch(256)              // 256 samples at a time
              | penstock::transfer(device);       // read ahead, double-buffered
  penstock::modelled_stream_view stream;
  for (auto& batch : feed.epoch(0)) {
    stream = batch.stream();
    stream.launch(times.kernel, sum.kernel(batch.template get<0>().data()));
  }
  stream.synchronize();
  const outcome result = watch.stop();
  sum.check(times.batches * own.batch);
  return result;
}

/// The buffers, streams and events of all that is written by hand.
struct buffers {
  struct one {
    penstock::modelled_memory host, device;
    penstock::modelled_event copied, released;
  };
  penstock::modelled_device device;
  penstock::modelled_stream copies = device.make_stream(), work = device.make_stream();
  std::vector<one> all;
  std::size_t bytes;

  buffers(penstock::modelled_device on, std::size_t bytes_of_batch, int depth) : device(on), bytes(bytes_of_batch) {
    for (int i = 0; i < depth; ++i)
      all.push_back({device.allocate_host(bytes), device.allocate(bytes), device.make_event(), device.make_event()});
  }
  one& of(std::uint64_t step) { return all[step % all.size()]; }

  void await_host(std::uint64_t step) const {
    device.wait(all[step % all.size()].copied, [] { return false; }, clock_type::time_point::max());
  }
  void enqueue_copy(std::uint64_t step) {
    one& slot = of(step);
    device.wait(copies.view(), slot.released);
    device.copy_to_device(slot.device.data(), slot.host.data(), bytes, copies.view());
    device.record(slot.copied, copies.view());
  }
  void enqueue_kernel(std::uint64_t step, nanoseconds length, checksum& sum) {
    one& slot = of(step);
    device.wait(work.view(), slot.copied);
    work.view().launch(length, sum.kernel(slot.device.data()));
    device.record(slot.released, work.view());
  }
};

/// A batch's samples, read by hand: in order, since shuffling is not what is measured.
class hand_reader {
 public:
  hand_reader(const dataset& data, const sizes& of) : data_(data), of_(of), indices_(of.batch) {}
  void read(std::uint64_t step, std::byte* to) {
    for (std::size_t i = 0; i < of_.batch; ++i) indices_[i] = step * of_.batch + i;
    data_.read_range(indices_, {penstock::tensor_view<std::uint64_t, 2>(reinterpret_cast<std::uint64_t*>(to),
                                                                       {of_.batch, of_.row / 8})});
  }

 private:
  const dataset& data_;
  sizes of_;
  std::vector<std::uint64_t> indices_;
};

/// By hand, with a reader thread that reads and enqueues the copy, and a loop that enqueues the kernels.
inline outcome hand(const stage_times& times, const sizes& of, nanoseconds notice, int depth) {
  buffers own(make_device(times, notice), of.bytes(), depth);
  const dataset data(times, {of.batch, of.row, 1});
  checksum sum(of);
  contest::turn_counter go, copied, launched;
  const auto steps = static_cast<std::uint32_t>(times.batches);
  const auto turns = static_cast<std::uint32_t>(depth);
  std::thread reading([&] {
    hand_reader reader(data, of);
    go.wait_beyond(0);
    for (std::uint32_t step = 0; step < steps; ++step) {
      own.await_host(step);
      reader.read(step, own.of(step).host.data());
      if (step >= turns) launched.wait_beyond(step - turns);
      own.enqueue_copy(step);
      copied.set(step + 1);
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the thread has begun and waits
  const stopwatch watch;
  go.set(1);
  for (std::uint32_t step = 0; step < steps; ++step) {
    copied.wait_beyond(step);
    own.enqueue_kernel(step, times.kernel, sum);
    launched.set(step + 1);
  }
  own.work.view().synchronize();
  const outcome result = watch.stop();
  reading.join();
  sum.check(data.size());
  return result;
}

/// By hand in one thread: where the host has nothing to do but read, the loop can enqueue all of it itself.
inline outcome hand_fused(const stage_times& times, const sizes& of, nanoseconds notice, int depth) {
  buffers own(make_device(times, notice), of.bytes(), depth);
  const dataset data(times, {of.batch, of.row, 1});
  checksum sum(of);
  hand_reader reader(data, of);
  const stopwatch watch;
  for (std::uint64_t step = 0; step < times.batches; ++step) {
    own.await_host(step);
    reader.read(step, own.of(step).host.data());
    own.enqueue_copy(step);
    own.enqueue_kernel(step, times.kernel, sum);
  }
  own.work.view().synchronize();
  const outcome result = watch.stop();
  sum.check(data.size());
  return result;
}

}  // namespace overlap
