// SPDX-License-Identifier: Apache-2.0
// What every implementation of the network agrees on, whatever it computes with: where parameters lie, how they are
// updated.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace trainer {

/// A fully connected layer: weights row-major, `in` by `out`, then `out` biases. Both are offsets into the parameters.
struct dense_layer {
  std::int64_t in, out, weight, bias;
};

/// Hidden layers of ReLU units and one linear output; the parameters of all of them in one vector.
struct network_layout {
  std::vector<dense_layer> layers;
  std::int64_t size = 0;  // floats, padding included

  network_layout(std::uint64_t features, std::uint64_t hidden, std::uint64_t width) {
    for (std::uint64_t i = 0; i <= hidden; ++i) {
      const std::int64_t in = i == 0 ? features : width, out = i == hidden ? 1 : width;
      // Every matrix starts on a cache line: speed, and the same order of summation wherever the memory lies.
      const std::int64_t bias = padded(size + in * out);
      layers.push_back({in, out, size, bias});
      size = padded(bias + out);
    }
  }

 private:
  static std::int64_t padded(std::int64_t floats) { return (floats + 15) / 16 * 16; }
};

/// Of step `t` of Adam (Kingma and Ba 2015, algorithm 1), from 1: what corrects the bias of the two moments.
struct adam_factors {
  float scale, root;
  adam_factors(double t, float rate, float beta, float beta2)
      : scale(rate / (1 - std::pow(double{beta}, t))), root(1 / std::sqrt(1 - std::pow(double{beta2}, t))) {}
};
inline constexpr float adam_beta2 = 0.999f, adam_epsilon = 1e-8f;

/// The learning rate at `progress` from 0 to 1: a short rise, then half a cosine down to nothing.
inline float cosine_rate(float peak, double progress) {
  constexpr double rise = 0.02;
  if (progress < rise) return peak * ((progress + 1e-3) / (rise + 1e-3));
  return peak * (0.5 + 0.5 * std::cos(std::numbers::pi * (progress - rise) / (1 - rise)));
}

}  // namespace trainer
