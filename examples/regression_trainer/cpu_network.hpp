// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <initializer_list>
#include <optional>

#include <penstock/communicator/reduce_buffer.hpp>

#include "batches.hpp"
#include "data.hpp"
#include "mlp.hpp"

namespace trainer {

/// The network on the CPU, as the training wants it: every call does its work before it returns.
class cpu_network {
 public:
  enum class which { now, kept };
  static constexpr bool can_be_lost = false;

  cpu_network(const network_layout& layout, const settings& s, penstock::cpu_device = {})
      : net_(layout, s.batch), adam_(s.adam), momentum_(s.momentum) {}

  static auto batches(const table& data, const settings& s, penstock::shuffle order, const standardise& inputs,
                      penstock::world world = {}) {
    return trainer::batches(data, s, order, inputs, world, penstock::cpu_device{});
  }

  void prepare(std::initializer_list<std::uint64_t>) {}
  void load(which to, const network_state& from) { (to == which::now ? now_ : kept_) = from; }
  void fetch(which from, network_state& to) const {
    const network_state& state = from == which::now ? now_ : kept_;
    to.parameters = state.parameters;
    to.first = state.first;
    to.second = state.second;
  }
  void keep() { kept_ = now_; }

  std::size_t most_in_flight() const { return 1; }
  /// Of the mean squared error over a batch.
  void differentiate(const auto& batch) {
    if (batch.size() == 0) return;
    const auto [x, y] = batch.fields();
    loss_ = net_.differentiate(now_.parameters, x.data(), y.data(), batch.size());
  }
  /// What is to be the mean over all replicas' samples before the update.
  auto means() { return std::array{penstock::buffer(net_.gradients()), penstock::buffer(&loss_, 1)}; }
  void update(float rate, std::uint64_t t) {
    if (!std::isfinite(loss_)) return;  // model and state are those before this batch
    now_.steps = t - 1;
    (adam_ ? adam_step : sgd_step)(now_, net_.gradients(), rate, momentum_);
  }
  std::optional<float> loss(bool) const { return loss_; }

  void begin_predictions() {}
  void predict(const auto& batch, auto&& use) {
    if (batch.size() == 0) return;
    const auto [x, y] = batch.fields();
    use(net_.predict(now_.parameters, x.data(), batch.size()).data(), y.data(), batch.size());
  }
  void finish_predictions(auto&&) {}

 private:
  mlp net_;
  bool adam_;
  float momentum_;
  network_state now_, kept_;
  float loss_ = 0;
};

}  // namespace trainer
