// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../replicas/support.hpp"

/// Replicas whose values are in a device's memory, whatever device that is. A test says, by `Traits`, what its device
/// is, how kernels are launched there, and which world it has.
namespace communicators {

using penstock::reduction;
using replicated::by_rank;
using replicated::line;
using replicated::rows;
using replicated::settings;
using replicated::work_of;
using replicated::worlds;

/// What a kernel reads or writes.
struct touch {
  const void* data;
  std::size_t bytes;
  bool writes;
};

/// An array in a device's memory, which is filled, changed and read in the order of a stream.
template <class Traits, class T>
class array {
  using device_type = typename Traits::device_type;
  using stream_view = typename device_type::stream_view;

 public:
  array(const device_type& device, std::size_t size, std::size_t offset = 0)
      : device_(device),
        memory_(device.allocate((size + offset) * sizeof(T))),
        host_(device.allocate_host(size * sizeof(T))),
        size_(size),
        offset_(offset) {}
  array(const array&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_.data()) + offset_; }
  std::size_t size() const { return size_; }
  const device_type& device() const { return device_; }
  touch touches(bool writes = true) const { return {data(), size_ * sizeof(T), writes}; }
  /// A kernel; `body` changes the values.
  template <class Body>
  void change(stream_view on, Body body) const {
    Traits::launch(device_, on, {touches()}, [body, to = data(), n = size_] { body(std::span(to, n)); });
  }
  void fill(stream_view on, T value) const {
    change(on, [value](std::span<T> all) { std::fill(all.begin(), all.end(), value); });
  }
  /// Waits.
  std::vector<T> read(stream_view on) const {
    std::vector<T> result(size_);
    if (size_ == 0) return result;
    device_.copy_to_host(host_.data(), data(), size_ * sizeof(T), on);
    on.synchronize();
    std::memcpy(result.data(), host_.data(), size_ * sizeof(T));
    return result;
  }

 private:
  device_type device_;
  typename device_type::memory memory_;
  decltype(std::declval<const device_type&>().allocate_host(1)) host_;
  std::size_t size_, offset_;
};

/// A line whose parameters are on the device, and stay there.
template <class Traits>
class device_line {
 public:
  template <class Device>
  explicit device_line(const Device& device) : w(device, 2), gradient(device, 2) {
    const auto stream = device.make_stream();
    w.change(stream.view(), [](std::span<float> all) { all[0] = line{}.w[0], all[1] = line{}.w[1]; });
    gradient.fill(stream.view(), 0);
    stream.view().synchronize();
  }
  /// The mean over the batch's own samples; NaN where it has none.
  template <class Batch>
  void backward(const Batch& batch) {
    const auto [x, y, id] = batch.fields();
    Traits::launch(
        w.device(), batch.stream(),
        {w.touches(false), gradient.touches(), {x.data(), x.size_bytes(), false}, {y.data(), y.size_bytes(), false}},
        [x = x.data(), y = y.data(), n = batch.size(), w = w.data(), to = gradient.data()] {
          double sum[2] = {};
          for (std::size_t i = 0; i < n; ++i) {
            const double error = double{w[0]} * double{x[i]} + double{w[1]} - double{y[i]};
            sum[0] += error * double{x[i]};
            sum[1] += error;
          }
          for (std::size_t i = 0; i < 2; ++i) to[i] = static_cast<float>(sum[i] / static_cast<double>(n));
        });
  }
  template <class Batch>
  void update(const Batch& batch) {
    Traits::launch(w.device(), batch.stream(), {gradient.touches(false), w.touches()},
                   [w = w.data(), g = gradient.data()] {
                     for (std::size_t i = 0; i < 2; ++i) w[i] -= 0.1F * g[i];
                   });
  }
  /// The parameters, behind all that is enqueued on `on`.
  template <class Stream>
  line now(Stream on) const {
    const auto values = w.read(on);
    return {{values[0], values[1]}};
  }

  array<Traits, float> w, gradient;
};

/// 13 rows over `epochs` epochs on a world; what all ranks came to.
template <class Traits, class World>
line train(World&& world, std::int64_t global, bool early = false, std::uint64_t epochs = 2,
           const std::function<void(std::uint64_t rank, std::uint64_t step)>& in_step = {}) {
  const rows data{13};
  by_rank<line> ends(world.size());
  penstock::replicas(world, [&](auto& replica) {
    device_line<Traits> model(replica.device());
    auto feed = replica.start(work_of(data, replica, {.global = global}));
    const auto stream = replica.device().make_stream();
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
      for (auto& batch : feed.epoch(epoch)) {
        if (in_step) in_step(replica.rank(), batch.step());
        model.backward(batch);
        const penstock::reduce_buffer first{model.gradient.data(), 1}, second{model.gradient.data() + 1, 1};
        penstock::step_result result;
        if (early) {
          replica.ready(batch, second);
          result = replica.all_reduce(batch, first);
        } else {
          result = replica.all_reduce(batch, model.gradient);
        }
        if (result) model.update(batch);
        batch.stream().synchronize();
        ends.tell(replica, model.now(batch.stream()));
      }
  });
  return ends.same();
}
/// The same in double precision, as the formula says.
inline line closed_form(std::int64_t global, std::uint64_t epochs = 2) {
  double w[2] = {double{line{}.w[0]}, double{line{}.w[1]}};
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    std::vector<std::uint64_t> order(13);
    penstock::default_plan(13).order(settings{}.seed, epoch, 0, order);
    for (std::size_t first = 0; first < 13; first += static_cast<std::size_t>(global)) {
      double sum[2] = {};
      const std::size_t last = std::min<std::size_t>(13, first + static_cast<std::size_t>(global));
      for (std::size_t i = first; i < last; ++i) {
        const double x = rows::x_of(order[i]), error = w[0] * x + w[1] - double{rows::y_of(order[i])};
        sum[0] += error * x, sum[1] += error;
      }
      for (std::size_t i = 0; i < 2; ++i) w[i] -= 0.1 * sum[i] / static_cast<double>(last - first);
    }
  }
  return {{static_cast<float>(w[0]), static_cast<float>(w[1])}};
}
inline void expect_near(const line& found, const line& wanted) {
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(found.w[i], wanted.w[i], 1e-6 * (1 + std::abs(wanted.w[i])));
}

/// `body(communicator)` on a thread for each rank, without a replica; what they throw, by rank.
template <class World, class Body>
std::vector<std::string> on_ranks(World& world, Body&& body, const penstock::replica_options& options = {}) {
  world.begin(options, 0);
  std::vector<std::string> thrown(world.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t n = 0; n < world.size(); ++n)
      threads.emplace_back([&, n] {
        try {
          auto one = world.join(n);
          body(one);
        } catch (const std::exception& caught) {
          thrown[n] = caught.what();
          world.abort(n, {}, caught.what());
        }
      });
  }
  return thrown;
}
inline void expect_none(const std::vector<std::string>& thrown) {
  for (const auto& one : thrown) EXPECT_EQ(one, "");
}

/// An exchange as `lockstep` makes them.
template <class Communicator>
void post(Communicator& one, std::uint64_t number, double weight, std::span<const penstock::reduce_buffer> buffers,
          typename Communicator::stream_view on, bool early = false) {
  penstock::control_words words;
  words.sums[penstock::control_words::weight] = weight;
  std::uint64_t count = 0;
  for (const auto& each : buffers) count += each.count;
  words.describe(number + 1, count);
  one.post({.number = number, .step = number, .words = words, .buffers = buffers, .early = early, .stream = on});
}

/// All element types, reductions, and sizes below, at and beyond what the ranks share evenly, at any alignment; ranks
/// of which one weighs nothing, and holds what must not spread.
template <class Traits, class World>
void reduce_everything(World&& world, bool early) {
  const std::uint64_t n = world.size();
  const std::uint64_t idle = n > 2 ? 1 : n;  // the rank without a weight
  expect_none(on_ranks(world, [&](auto& one) {
    const auto stream = one.device().make_stream();
    const auto on = stream.view();
    std::uint64_t number = 0;
    const std::uint64_t rank = one.rank();
    const auto check = [&]<class T>(T) {
      for (const std::size_t size : {1, 3, 33, 1000, 0})
        for (const std::size_t offset : {0, 1}) {
          const array<Traits, T> sum(one.device(), size, offset), most(one.device(), size, offset),
              mean(one.device(), size), of_sums(one.device(), size);
          const bool is_idle = rank == idle;
          for (const auto* each : {&sum, &most, &mean, &of_sums})
            each->change(on, [rank, is_idle](std::span<T> all) {
              const T bad = std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN()
                                                                  : std::numeric_limits<T>::max();
              for (std::size_t i = 0; i < all.size(); ++i) all[i] = is_idle ? bad : static_cast<T>(i + rank);
            });
          const double weight = is_idle ? 0 : static_cast<double>(rank + 1);
          const std::array<penstock::reduce_buffer, 4> buffers{
              penstock::buffer(sum, reduction::sum), penstock::buffer(most, reduction::maximum), penstock::buffer(mean),
              penstock::buffer(of_sums, penstock::mean_of_sums)};
          const auto used = std::span(buffers).first(std::floating_point<T> ? 4 : 2);
          if (early) {
            for (std::size_t b = 0; b < used.size(); ++b) post(one, number++, weight, used.subspan(b, 1), on, true);
            post(one, number++, weight, {}, on);
          } else {
            post(one, number++, weight, used, on);
          }
          const auto found = sum.read(on), greatest = most.read(on), means = mean.read(on), all = of_sums.read(on);
          double total = 0;
          std::uint64_t last = 0, ranks = 0, offsets = 0;
          for (std::uint64_t r = 0; r < n; ++r)
            if (r != idle) total += static_cast<double>(r + 1), last = r, ++ranks, offsets += r;
          for (std::size_t i = 0; i < size; ++i) {
            ASSERT_EQ(found[i], static_cast<T>(ranks * i + offsets));
            ASSERT_EQ(greatest[i], static_cast<T>(i + last));
            if constexpr (std::floating_point<T>) {
              double wanted = 0;
              for (std::uint64_t r = 0; r < n; ++r)
                if (r != idle) wanted += static_cast<double>((r + 1) * (i + r)) / total;
              ASSERT_NEAR(means[i], wanted, 1e-6 * (1 + wanted));
              const double wanted_of_sums = static_cast<double>(ranks * i + offsets) / total;
              ASSERT_NEAR(all[i], wanted_of_sums, 1e-6 * (1 + wanted_of_sums));
            }
          }
        }
    };
    check(float{}), check(double{}), check(std::int32_t{}), check(std::int64_t{}), check(std::uint32_t{});
    check(std::uint64_t{});
  }));
}

}  // namespace communicators
