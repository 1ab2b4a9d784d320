// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <type_traits>
#include <vector>

#include <penstock/sample/philox.hpp>

namespace trainer {

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A network's parameters, and what the optimiser remembers of the gradient and of its square.
struct network_state {
  Eigen::VectorXf parameters, first, second;
  std::uint64_t steps = 0;
  void each(auto& io) { io(parameters, first, second, steps); }
};

/// A multilayer perceptron for regression: hidden layers of ReLU units and one linear output.
///
/// Batches are row-major, samples by features, and are read where they lie. All buffers are made here, for batches of
/// up to `batch` samples. The same parameters and the same batches give the same bits.
class mlp {
 public:
  mlp(std::uint64_t features, std::uint64_t hidden, std::uint64_t width, std::int64_t batch) {
    for (std::uint64_t i = 0; i <= hidden; ++i) {
      const Eigen::Index in = i == 0 ? features : width, out = i == hidden ? 1 : width;
      // Every matrix starts on a cache line: speed, and the same order of summation wherever the memory lies.
      const Eigen::Index bias = padded(size_ + in * out);
      layers_.push_back({in, out, size_, bias, matrix(batch, out), matrix(batch, out)});
      size_ = padded(bias + out);
    }
    gradients_.setZero(size_);
  }

  /// Random weights (He et al. 2015, equation 10; the output layer sees no ReLU), biases of 0.
  network_state initial(std::uint64_t seed) const {
    const Eigen::VectorXf zero = Eigen::VectorXf::Zero(size_);
    network_state result{zero, zero, zero};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      penstock::philox random(seed, 0, i, penstock::random_domain::user);
      const float deviation = std::sqrt((i + 1 < layers_.size() ? 2.0f : 1.0f) / layers_[i].in);
      for (float& w : weight(result.parameters, layers_[i]).reshaped()) w = deviation * random.normal();
    }
    return result;
  }
  bool fits(const network_state& state) const {
    return state.parameters.size() == size_ && state.first.size() == size_ && state.second.size() == size_;
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
  const Eigen::VectorXf& gradients() const { return gradients_; }

 private:
  struct layer {
    Eigen::Index in, out, weight, bias;  // the last two are offsets into the parameters
    matrix values, deltas;
  };
  static Eigen::Index padded(Eigen::Index floats) { return (floats + 15) / 16 * 16; }
  template <class Vector, class Part>
  using part = Eigen::Map<std::conditional_t<std::is_const_v<Vector>, const Part, Part>, Eigen::AlignedMax>;
  template <class Vector>
  static part<Vector, matrix> weight(Vector& all, const layer& at) {
    return {all.data() + at.weight, at.in, at.out};
  }
  template <class Vector>
  static part<Vector, Eigen::RowVectorXf> bias(Vector& all, const layer& at) {
    return {all.data() + at.bias, at.out};
  }
  Eigen::Map<const matrix> inputs(const float* x, Eigen::Index rows) const { return {x, rows, layers_[0].in}; }

  Eigen::Index size_ = 0;
  std::vector<layer> layers_;
  Eigen::VectorXf gradients_;
};

/// One step of Adam (Kingma and Ba 2015, algorithm 1).
inline void adam_step(network_state& to, const Eigen::VectorXf& gradients, float rate, float beta,
                      float beta2 = 0.999f) {
  const double t = static_cast<double>(++to.steps);
  const float scale = rate / (1 - std::pow(double{beta}, t)), root = 1 / std::sqrt(1 - std::pow(double{beta2}, t));
  to.first = beta * to.first + (1 - beta) * gradients;
  to.second = beta2 * to.second + (1 - beta2) * gradients.cwiseAbs2();
  to.parameters.array() -= scale * to.first.array() / (root * to.second.array().sqrt() + 1e-8f);
}

/// One step of gradient descent with momentum.
inline void sgd_step(network_state& to, const Eigen::VectorXf& gradients, float rate, float momentum) {
  ++to.steps;
  to.first = momentum * to.first + gradients;
  to.parameters -= rate * to.first;
}

/// The learning rate at `progress` from 0 to 1: a short rise, then half a cosine down to nothing.
inline float cosine_rate(float peak, double progress) {
  constexpr double rise = 0.02;
  if (progress < rise) return peak * ((progress + 1e-3) / (rise + 1e-3));
  return peak * (0.5 + 0.5 * std::cos(std::numbers::pi * (progress - rise) / (1 - rise)));
}

}  // namespace trainer
