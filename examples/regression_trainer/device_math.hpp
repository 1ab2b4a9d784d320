// SPDX-License-Identifier: Apache-2.0
// All that the network's kernels compute. Each is a function object of an index, or of row and column of a row-major
// matrix, so that a launch (see cuda/cuda_calls.cu) knows nothing of arithmetic, and a loop on the host does the same.
#pragma once

#include <cmath>
#include <cstddef>

#include <penstock/sample/config.hpp>

namespace trainer {

// ---- of every element of a matrix: `f(row, column)`

/// Adds a layer's biases to its values, and cuts off what is negative if asked to. What is no number stays none.
struct add_bias {
  float* values;
  const float* bias;
  std::size_t columns;
  bool rectify;

  PENSTOCK_HOST_DEVICE void operator()(std::size_t row, std::size_t column) const {
    float& value = values[row * columns + column];
    const float sum = value + bias[column];
    value = rectify && sum < 0 ? 0.0f : sum;
  }
};

// ---- sums over the rows of every column: `f.term(row, column)`, once each, and then `f.finish(column, sum)`

/// Lane `lane` of `lanes` sums up rows lane, lane + lanes, ... of a column. Then the upper half of the lanes is added
/// to the lower one, until one is left: the order is fixed, so that the same numbers give the same sum.
template <class Terms>
PENSTOCK_HOST_DEVICE typename Terms::sum lane_sum(const Terms& f, std::size_t rows, std::size_t column,
                                                  std::size_t lane, std::size_t lanes) {
  typename Terms::sum total{};
  for (std::size_t row = lane; row < rows; row += lanes) total += f.term(row, column);
  return total;
}

/// How columns are spread over blocks of threads: `tile` neighbours, so that threads read neighbouring floats, with
/// `lanes` threads for each. One column alone has more lanes.
struct sum_shape {
  unsigned tile, lanes;
};
inline constexpr sum_shape many_columns{32, 16}, one_column{1, 512};

/// The mean squared error of the outputs, its gradient with respect to them and to the last layer's only bias. A loss
/// that is no number sets `halted`, for good: from then on no update changes anything.
struct squared_error {
  struct sum {
    float squares, deltas;
    PENSTOCK_HOST_DEVICE sum& operator+=(const sum& other) {
      squares += other.squares;
      deltas += other.deltas;
      return *this;
    }
  };
  const float *outputs, *targets;
  std::size_t rows;
  float *deltas, *bias_gradient, *loss, *halted;

  PENSTOCK_HOST_DEVICE sum term(std::size_t row, std::size_t) const {
    const float error = outputs[row] - targets[row];
    deltas[row] = error * (2.0f / static_cast<float>(rows));
    return {error * error, deltas[row]};
  }
  PENSTOCK_HOST_DEVICE void finish(std::size_t, const sum& all) const {
    *bias_gradient = all.deltas;
    *loss = all.squares / static_cast<float>(rows);
    if (!(*loss - *loss == 0.0f)) *halted = 1.0f;  // neither infinite nor NaN gives 0
  }
};

/// Back through a ReLU, in place: the gradient with respect to its inputs is nothing where its value is 0. And the sums
/// of the columns, which are the gradients of the layer's biases.
struct rectified_gradient {
  using sum = float;
  const float* values;
  std::size_t columns;
  float *deltas, *bias_gradient;

  PENSTOCK_HOST_DEVICE float term(std::size_t row, std::size_t column) const {
    const std::size_t at = row * columns + column;
    if (!(values[at] > 0)) deltas[at] = 0;
    return deltas[at];
  }
  PENSTOCK_HOST_DEVICE void finish(std::size_t column, float all) const { bias_gradient[column] = all; }
};

// ---- of every parameter: `f(i)`

/// Halts, where the loss over all replicas is no number, those whose own is one, too. Of one element.
struct halt_with_others {
  const float* loss;
  float* halted;

  PENSTOCK_HOST_DEVICE void operator()(std::size_t) const {
    if (!(*loss - *loss == 0.0f)) *halted = 1.0f;
  }
};

/// One step of Adam; see `adam_factors`.
struct adam_update {
  const float *gradients, *halted;
  float *parameters, *first, *second;
  float scale, root, beta, beta2, epsilon;

  PENSTOCK_HOST_DEVICE void operator()(std::size_t i) const {
    if (*halted != 0) return;
    const float g = gradients[i];
    first[i] = beta * first[i] + (1 - beta) * g;
    second[i] = beta2 * second[i] + (1 - beta2) * (g * g);
    parameters[i] -= scale * first[i] / (root * std::sqrt(second[i]) + epsilon);
  }
};

/// One step of gradient descent with momentum.
struct momentum_update {
  const float *gradients, *halted;
  float *parameters, *first;
  float rate, momentum;

  PENSTOCK_HOST_DEVICE void operator()(std::size_t i) const {
    if (*halted != 0) return;
    first[i] = momentum * first[i] + gradients[i];
    parameters[i] -= rate * first[i];
  }
};

}  // namespace trainer
