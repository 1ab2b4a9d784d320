// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <penstock/communicator/reduce_buffer.hpp>

#include "device_math.hpp"
#include "mlp.hpp"
#include "options.hpp"

namespace trainer {

/// What the network below needs of a machine: memory, and work that is enqueued on one stream, in order.
///
/// Memory is zeroed and lives as long as the calls; `host_floats` is what background copies may reach. `sgemm` is that
/// of BLAS, its matrices column-major. `each`, `cells` and `sums` run the function objects of device_math.hpp. A mark
/// is a point in the stream that the host can ask for (`ready`) or wait for.
template <class Calls>
concept device_calls = requires(Calls& calls, float* to, const float* from, int n, std::size_t count) {
  { calls.device_floats(count) } -> std::same_as<float*>;
  { calls.host_floats(count) } -> std::same_as<float*>;
  calls.to_device(to, from, count);
  calls.to_host(to, from, count);
  calls.copy(to, from, count);
  calls.zero(to, count);
  calls.sgemm(true, false, n, n, n, from, n, from, n, to, n);
  calls.each(count, adam_update{});
  calls.each(count, momentum_update{});
  calls.each(count, halt_with_others{});
  calls.cells(count, count, add_bias{});
  calls.sums(count, count, squared_error{});
  calls.sums(count, count, rectified_gradient{});
  { calls.make_mark() } -> std::same_as<std::size_t>;
  calls.record(count);
  { calls.ready(count) } -> std::same_as<bool>;
  calls.wait(count);
};

/// The network of mlp.hpp on a device, with the same parameters at the same places.
///
/// `step` and `predict` only enqueue. What they come to is read later, in order: losses by `loss`, outputs by the
/// function that `predict` is given. The host waits in `load` and `fetch`, in `loss` when it is told to, and in
/// `predict` when all its buffers hold outputs that are still to come. All memory is the constructor's. One thread.
template <device_calls Calls>
class device_network {
 public:
  enum class which { now, kept };
  /// The device may fail, and then what it holds is lost.
  static constexpr bool can_be_lost = true;

  template <class... From>
  device_network(const network_layout& layout, const settings& s, From&&... from)
      : calls_(std::forward<From>(from)...),
        size_(layout.size),
        batch_(s.batch),
        adam_(s.adam),
        one_of_several_(s.replicas > 1),
        momentum_(s.momentum) {
    for (const dense_layer& one : layout.layers) {
      if (std::max({one.in, one.out, s.batch}) > 2147483647)
        throw penstock::error(
            penstock::detail::concat("a layer of ", one.in, " by ", one.out, " and batches of ", s.batch,
                                     " samples, wanted each below 2^31, which is what BLAS counts to"));
      const std::size_t values = s.batch * one.out;
      layers_.push_back({one, calls_.device_floats(values), calls_.device_floats(values)});
    }
    now_ = calls_.device_floats(3 * size_);
    kept_ = calls_.device_floats(3 * size_);
    gradients_ = calls_.device_floats(size_);  // padding stays 0
    halted_ = calls_.device_floats(1);
    staging_ = calls_.host_floats(3 * size_);
    losses_.resize(2 * s.depth + 2);  // the feed lets the host run ahead by slots and twins
    device_losses_ = calls_.device_floats(losses_.size());
    host_losses_ = calls_.host_floats(losses_.size());
    for (std::size_t& mark : losses_) mark = calls_.make_mark();
    for (auto& one : predictions_)
      one = {calls_.make_mark(), 0, calls_.host_floats(s.batch), std::vector<float>(s.batch)};
    copied_ = calls_.make_mark();
  }

  /// Enqueues everything once, for batches of these sizes, so that every kernel is loaded before the first step. The
  /// state is to be loaded after it.
  void prepare(std::initializer_list<std::uint64_t> sizes) {
    const float* const x = calls_.device_floats(batch_ * layers_.front().in);
    const float* const y = calls_.device_floats(batch_);
    for (const std::uint64_t rows : sizes)
      if (rows > 0 && rows <= static_cast<std::uint64_t>(batch_)) {
        enqueue_gradients(x, y, rows, 0);
        enqueue_update(0, 1, 0);
      }
    calls_.copy(kept_, now_, 3 * size_);
  }

  void load(which to, const network_state& from) {
    std::copy_n(from.parameters.data(), size_, staging_);
    std::copy_n(from.first.data(), size_, staging_ + size_);
    std::copy_n(from.second.data(), size_, staging_ + 2 * size_);
    calls_.to_device(at(to), staging_, 3 * size_);
    if (to == which::now) calls_.zero(halted_, 1);
    finish_copy();
  }
  /// Into a state of this network's sizes, but for its number of steps.
  void fetch(which from, network_state& to) {
    calls_.to_host(staging_, at(from), 3 * size_);
    finish_copy();
    std::copy_n(staging_, size_, to.parameters.data());
    std::copy_n(staging_ + size_, size_, to.first.data());
    std::copy_n(staging_ + 2 * size_, size_, to.second.data());
  }
  /// The state as it is behind the steps so far is to be kept.
  void keep() { calls_.copy(kept_, now_, 3 * size_); }

  /// Steps whose losses have not been read, at most.
  std::size_t most_in_flight() const { return losses_.size(); }
  /// Of the mean squared error over a batch.
  void differentiate(const auto& batch) {
    if (batch.size() == 0) return;
    const auto [x, y] = batch.fields();
    enqueue_gradients(x.data(), y.data(), batch.size(), begun_ % losses_.size());
  }
  /// What is to be the mean over all replicas' samples before the update: gradients and loss.
  auto means() {
    return std::array{penstock::buffer(gradients_, size_),
                      penstock::buffer(device_losses_ + begun_ % losses_.size(), 1)};
  }
  /// The optimiser's `t`-th step, from 1. If the loss of a step is no number, neither it nor any later one changes the
  /// state.
  void update(float rate, std::uint64_t t) {
    const std::size_t slot = begun_ % losses_.size();
    enqueue_update(rate, t, slot);
    calls_.to_host(host_losses_ + slot, device_losses_ + slot, 1);
    calls_.record(losses_[slot]);
    ++begun_;
  }
  /// The mean squared error of the first step whose loss has not been read; nothing if it is still to come.
  std::optional<float> loss(bool wait) {
    const std::size_t slot = read_ % losses_.size();
    if (wait)
      calls_.wait(losses_[slot]);
    else if (!calls_.ready(losses_[slot]))
      return {};
    ++read_;
    return host_losses_[slot];
  }

  /// Forgets predictions that were not read.
  void begin_predictions() { asked_ = given_ = 0; }
  /// `use(outputs, targets, samples)` is called for what is complete, in order.
  void predict(const auto& batch, auto&& use) {
    if (batch.size() == 0) return;
    if (asked_ - given_ == most_predictions) give(use);
    const auto [x, y] = batch.fields();
    const std::size_t rows = batch.size();
    prediction& to = predictions_[asked_ % most_predictions];
    forward(x.data(), rows);
    calls_.to_host(to.outputs, layers_.back().values, rows);
    calls_.record(to.mark);
    std::copy_n(batch.template host<1>().data(), rows, to.targets.begin());
    to.rows = rows;
    ++asked_;
    while (given_ < asked_ && calls_.ready(predictions_[given_ % most_predictions].mark)) give(use);
  }
  void finish_predictions(auto&& use) {
    while (given_ < asked_) give(use);
  }

 protected:
  Calls& calls() { return calls_; }

 private:
  static constexpr std::size_t most_predictions = 8;
  struct layer : dense_layer {
    float *values, *deltas;  // row-major, samples by `out`
  };
  struct prediction {
    std::size_t mark, rows;
    float* outputs;
    std::vector<float> targets;
  };

  float* at(which one) const { return one == which::now ? now_ : kept_; }
  void finish_copy() {
    calls_.record(copied_);
    calls_.wait(copied_);
  }
  void give(auto& use) {
    const prediction& one = predictions_[given_ % most_predictions];
    calls_.wait(one.mark);
    use(one.outputs, one.targets.data(), one.rows);
    ++given_;
  }

  // A row-major matrix A of r rows and c columns, its rows next to each other, is to BLAS the column-major A^T: c rows,
  // r columns, leading dimension c. So each product is stated transposed, (A B)^T = B^T A^T, of what lies in memory; x'
  // is the loss's gradient with respect to x:
  //
  // - values = input weight: values^T (out, rows) = weight^T (out, in) * input^T (in, rows), both as they lie;
  // - weight' = input^T deltas: weight'^T (out, in) = deltas^T (out, rows) as it lies * input (rows, in) transposed;
  // - input' = deltas weight^T: input'^T (in, rows) = weight (in, out) transposed * deltas^T (out, rows) as it lies.
  //
  // Leading dimensions: `out` of weight, values and deltas, `in` of input and its gradient.
  void forward(const float* x, std::size_t rows) {
    const float* input = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const layer& here = layers_[i];
      const int in = here.in, out = here.out, n = rows;
      calls_.sgemm(false, false, out, n, in, now_ + here.weight, out, input, in, here.values, out);
      calls_.cells(rows, out, add_bias{here.values, now_ + here.bias, std::size_t(out), i + 1 < layers_.size()});
      input = here.values;
    }
  }
  void enqueue_gradients(const float* x, const float* y, std::size_t rows, std::size_t slot) {
    forward(x, rows);
    const layer& last = layers_.back();
    calls_.sums(
        rows, 1,
        squared_error{last.values, y, rows, last.deltas, gradients_ + last.bias, device_losses_ + slot, halted_});
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const layer& here = layers_[i];
      const int in = here.in, out = here.out, n = rows;
      const float* const input = i == 0 ? x : layers_[i - 1].values;
      calls_.sgemm(false, true, out, in, n, here.deltas, out, input, in, gradients_ + here.weight, out);
      if (i == 0) break;
      const layer& below = layers_[i - 1];
      calls_.sgemm(true, false, in, n, out, now_ + here.weight, out, here.deltas, out, below.deltas, in);
      calls_.sums(rows, in, rectified_gradient{below.values, std::size_t(in), below.deltas, gradients_ + below.bias});
    }
  }
  void enqueue_update(float rate, std::uint64_t t, std::size_t slot) {
    if (one_of_several_) calls_.each(1, halt_with_others{device_losses_ + slot, halted_});
    float *const first = now_ + size_, *const second = first + size_;
    if (adam_) {
      const auto [scale, root] = adam_factors(static_cast<double>(t), rate, momentum_, adam_beta2);
      calls_.each(size_, adam_update{gradients_, halted_, now_, first, second, scale, root, momentum_, adam_beta2,
                                     adam_epsilon});
    } else {
      calls_.each(size_, momentum_update{gradients_, halted_, now_, first, rate, momentum_});
    }
  }

  Calls calls_;
  std::int64_t size_, batch_;
  bool adam_, one_of_several_;
  float momentum_;
  std::vector<layer> layers_;
  // On the device: parameters and both moments, one behind the other.
  float *now_, *kept_, *gradients_, *halted_, *device_losses_;
  float *staging_, *host_losses_;
  std::vector<std::size_t> losses_;  // their marks
  std::size_t copied_ = 0;
  std::uint64_t begun_ = 0, read_ = 0;
  prediction predictions_[most_predictions];
  std::uint64_t asked_ = 0, given_ = 0;
};

}  // namespace trainer
