// SPDX-License-Identifier: Apache-2.0
// Trainings by our loop and by hand. Each runs `epochs` of `steps` batches and returns the time of one batch.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>

#include "work.hpp"

namespace train {

struct sizes {
  std::size_t batch = 64;
  int readers = 1, depth = 0;  // 0: the library's default
  std::uint64_t steps = 100, epochs = 3;
  std::uint64_t samples() const { return steps * batch; }
  double batches() const { return static_cast<double>(steps * epochs); }
};

template <class Device>
auto make_feed(const dataset& data, const Device& device, const sizes& of, int readers, bool next_epoch = true) {
  penstock::transfer_options<Device> options;
  if (of.depth != 0) options.depth = of.depth;
  return (data | penstock::partition({.seed = 7}) | penstock::read({.readers = readers, .next_epoch = next_epoch}) |
          penstock::batch(static_cast<std::int64_t>(of.batch)) | penstock::transfer(device, options))
      .start();
}

/// Kernels take the device's time and none of the host's.
inline double dispatched(const dataset& data, const penstock::modelled_device& device, nanoseconds kernel,
                         const sizes& of) {
  auto feed = make_feed(data, device, of, of.readers);
  const auto begin = clock_type::now();
  penstock::modelled_stream_view stream;
  for (std::uint64_t epoch = 0; epoch < of.epochs; ++epoch)
    for (auto& batch : feed.epoch(epoch)) {
      stream = batch.stream();
      stream.launch(kernel);
    }
  stream.synchronize();
  return microseconds(clock_type::now() - begin) / of.batches();
}

/// The loop that most programs begin with: read, copy, compute, wait. The same order of the same samples.
inline double plain(const dataset& data, const penstock::modelled_device& device, nanoseconds kernel, const sizes& of) {
  const std::size_t bytes = of.batch * dataset::row * sizeof(float);
  const auto host = device.allocate_host(bytes), twin = device.allocate(bytes);
  const auto own = device.make_stream();
  const auto stream = own.view();
  const penstock::batch_view<dataset::schema_type> to{
      penstock::tensor_view<float, 2>(reinterpret_cast<float*>(host.data()), {of.batch, dataset::row})};
  const penstock::default_plan order(of.samples());
  std::vector<std::uint64_t> indices(of.batch);
  const auto begin = clock_type::now();
  for (std::uint64_t epoch = 0; epoch < of.epochs; ++epoch)
    for (std::uint64_t step = 0; step < of.steps; ++step) {
      order.order(7, epoch, step * of.batch, indices);
      data.read_range(indices, to);
      device.copy_to_device(twin.data(), host.data(), bytes, stream);
      stream.launch(kernel);
      stream.synchronize();
    }
  return microseconds(clock_type::now() - begin) / of.batches();
}

/// Reading with nothing beside it: what no schedule with one reader can beat where it takes longer than the step.
inline double reading_alone(const dataset& data, const sizes& of) {
  std::vector<float> memory(of.batch * dataset::row);
  const std::vector<std::uint64_t> indices(of.batch);
  const auto begin = clock_type::now();
  for (std::uint64_t i = 0; i < of.steps * of.epochs; ++i)
    data.read_range(indices, {penstock::tensor_view<float, 2>(memory.data(), {of.batch, dataset::row})});
  return microseconds(clock_type::now() - begin) / of.batches();
}

/// The step is this thread's own work, on the batch where it was read.
inline double on_cpu(const dataset& data, int passes, int readers, const sizes& of) {
  auto feed = make_feed(data, penstock::cpu_device{}, of, readers);
  const auto begin = clock_type::now();
  for (std::uint64_t epoch = 0; epoch < of.epochs; ++epoch)
    for (auto& batch : feed.epoch(epoch)) {
      const auto [x] = batch.fields();
      grind({x.data(), batch.size() * dataset::row}, passes);
    }
  return microseconds(clock_type::now() - begin) / of.batches();
}
/// What two threads of this machine attain where nothing is handed over: one reads all, the other takes all steps.
inline double side_by_side(const dataset& data, int passes, const sizes& of) {
  const auto all = static_cast<std::uint64_t>(of.batches());
  const auto begin = clock_type::now();
  std::thread reader([&] {
    fine_timers();
    std::vector<float> memory(of.batch * dataset::row);
    const std::vector<std::uint64_t> indices(of.batch);
    for (std::uint64_t i = 0; i < all; ++i)
      data.read_range(indices, {penstock::tensor_view<float, 2>(memory.data(), {of.batch, dataset::row})});
  });
  std::vector<float> memory(of.batch * dataset::row, 1.0f);
  for (std::uint64_t i = 0; i < all; ++i) grind(memory, passes);
  reader.join();
  return microseconds(clock_type::now() - begin) / of.batches();
}

struct border_waits {
  double batch = 0;                  // the time of one
  std::vector<double> first, later;  // waits in us: for an epoch's first batch, and for others
};
/// A step that takes less than reading, so that every batch is waited for: what an epoch's first one is waited for
/// longer is the border's price. It counts all that the loop does from the end of a step to the next batch.
inline border_waits borders(const dataset& data, nanoseconds step, const sizes& of, bool next_epoch) {
  auto feed = make_feed(data, penstock::cpu_device{}, of, of.readers, next_epoch);
  border_waits result;
  result.first.reserve(of.epochs);
  result.later.reserve(of.epochs * of.steps);
  const auto begin = clock_type::now();
  auto asked = begin;
  for (std::uint64_t epoch = 0; epoch < of.epochs; ++epoch)
    for (auto& batch : feed.epoch(epoch)) {
      const auto received = clock_type::now();
      // The first two of an epoch are the border's, and the very first is the start's.
      if (batch.step() > 1) result.later.push_back(microseconds(received - asked));
      if (batch.step() == 0 && epoch > 0) result.first.push_back(microseconds(received - asked));
      std::this_thread::sleep_until(received + step);
      asked = clock_type::now();
    }
  result.batch = microseconds(asked - begin) / of.batches();
  return result;
}

}  // namespace train
