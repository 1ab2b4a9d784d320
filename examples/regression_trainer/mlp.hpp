// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/sample/philox.hpp>

#include "network.hpp"

namespace trainer {

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A network's parameters, and what the optimiser remembers of the gradient and of its square.
struct network_state {
  Eigen::VectorXf parameters, first, second;
  std::uint64_t steps = 0;
  void each(auto& io) { io(parameters, first, second, steps); }
};

inline bool fits(const network_layout& layout, const network_state& state) {
  return state.parameters.size() == layout.size && state.first.size() == layout.size &&
         state.second.size() == layout.size;
}

/// A multilayer perceptron for regression: hidden layers of ReLU units and one linear output.
///
/// Batches are row-major, samples by features, and are read where they lie. All buffers are made here, for batches of
/// up to `batch` samples. The same parameters and the same batches give the same bits.
class mlp {
 public:
  mlp(const network_layout& layout, std::int64_t batch) : gradients_(Eigen::VectorXf::Zero(layout.size)) {
    for (const dense_layer& one : layout.layers)
      layers_.push_back({one, matrix(batch, one.out), matrix(batch, one.out)});
  }

  /// Random weights (He et al. 2015, equation 10; the output layer sees no ReLU), biases of 0.
  static network_state initial(const network_layout& layout, std::uint64_t seed) {
    const Eigen::VectorXf zero = Eigen::VectorXf::Zero(layout.size);
    network_state result{zero, zero, zero};
    for (std::size_t i = 0; i < layout.layers.size(); ++i) {
      penstock::philox random(seed, 0, i, penstock::random_domain::user);
      const float deviation = std::sqrt((i + 1 < layout.layers.size() ? 2.0f : 1.0f) / layout.layers[i].in);
      for (float& w : weight(result.parameters, layout.layers[i]).reshaped()) w = deviation * random.normal();
    }
    return result;
  }

  /// The outputs for `rows` samples at `x`, valid until the next call.
  auto predict(const Eigen::VectorXf& parameters, const float* x, Eigen::Index rows) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      auto out = layers_[i].values.topRows(rows);
      if (i == 0)
        out.noalias() = inputs(x, rows) * weight(parameters, layers_[0]);
      else
        out.noalias() = layers_[i - 1].values.topRows(rows) * weight(parameters, layers_[i]);
      if (i + 1 < layers_.size())
        out = (out.rowwise() + bias(parameters, layers_[i])).cwiseMax(0.0f);
      else
        out.rowwise() += bias(parameters, layers_[i]);
    }
    return layers_.back().values.topRows(rows).col(0);
  }

  /// Puts the gradients of the mean squared error over a batch into `gradients()`. Returns the mean squared error.
  float differentiate(const Eigen::VectorXf& parameters, const float* x, const float* y, Eigen::Index rows) {
    auto error = layers_.back().deltas.topRows(rows);
    error = predict(parameters, x, rows) - Eigen::Map<const Eigen::VectorXf>(y, rows);
    const float loss = error.squaredNorm() / rows;
    error *= 2.0f / rows;
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const auto delta = layers_[i].deltas.topRows(rows);
      bias(gradients_, layers_[i]) = delta.colwise().sum();
      if (i == 0) {
        weight(gradients_, layers_[0]).noalias() = inputs(x, rows).transpose() * delta;
        break;
      }
      const auto input = layers_[i - 1].values.topRows(rows);
      auto below = layers_[i - 1].deltas.topRows(rows);
      weight(gradients_, layers_[i]).noalias() = input.transpose() * delta;
      below.noalias() = delta * weight(parameters, layers_[i]).transpose();
      below = (input.array() > 0.0f).select(below, 0.0f);
    }
    return loss;
  }
  Eigen::VectorXf& gradients() { return gradients_; }

 private:
  struct layer : dense_layer {
    matrix values, deltas;
  };
  template <class Vector, class Part>
  using part = Eigen::Map<std::conditional_t<std::is_const_v<Vector>, const Part, Part>, Eigen::AlignedMax>;
  template <class Vector>
  static part<Vector, matrix> weight(Vector& all, const dense_layer& at) {
    return {all.data() + at.weight, at.in, at.out};
  }
  template <class Vector>
  static part<Vector, Eigen::RowVectorXf> bias(Vector& all, const dense_layer& at) {
    return {all.data() + at.bias, at.out};
  }
  Eigen::Map<const matrix> inputs(const float* x, Eigen::Index rows) const { return {x, rows, layers_[0].in}; }

  std::vector<layer> layers_;
  Eigen::VectorXf gradients_;
};

/// One step of Adam (Kingma and Ba 2015, algorithm 1).
inline void adam_step(network_state& to, const Eigen::VectorXf& gradients, float rate, float beta) {
  constexpr float beta2 = adam_beta2;
  const auto [scale, root] = adam_factors(static_cast<double>(++to.steps), rate, beta, beta2);
  to.first = beta * to.first + (1 - beta) * gradients;
  to.second = beta2 * to.second + (1 - beta2) * gradients.cwiseAbs2();
  to.parameters.array() -= scale * to.first.array() / (root * to.second.array().sqrt() + adam_epsilon);
}

/// One step of gradient descent with momentum.
inline void sgd_step(network_state& to, const Eigen::VectorXf& gradients, float rate, float momentum) {
  ++to.steps;
  to.first = momentum * to.first + gradients;
  to.parameters -= rate * to.first;
}

}  // namespace trainer
