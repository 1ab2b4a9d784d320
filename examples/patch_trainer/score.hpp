// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "photos.hpp"

namespace patch_trainer {

/// Peak signal-to-noise ratio in dB, where the peak is 1: 10 log10(1 / mean squared error). Values are taken as they
/// are, also beyond black and white.
inline double psnr(const picture& of, const picture& clean) {
  double squares = 0;
  for (std::size_t i = 0; i < clean.values.size(); ++i) {
    const double difference = double{of.values[i]} - clean.values[i];
    squares += difference * difference;
  }
  return -10 * std::log10(squares / static_cast<double>(clean.values.size()));
}

/// Convolved with a Gaussian of this deviation in pixels; edges are repeated.
inline picture blurred(const picture& from, double deviation) {
  const auto reach = static_cast<std::ptrdiff_t>(std::ceil(4 * deviation));
  std::vector<float> weights;
  double sum = 0;
  for (std::ptrdiff_t i = -reach; i <= reach; ++i) sum += std::exp(-0.5 * i * i / (deviation * deviation));
  for (std::ptrdiff_t i = -reach; i <= reach; ++i)
    weights.push_back(static_cast<float>(std::exp(-0.5 * i * i / (deviation * deviation)) / sum));
  const auto pass = [&](const std::vector<float>& in, std::vector<float>& out, std::size_t length, std::size_t step,
                        std::size_t lines, std::size_t line_step) {
    for (std::size_t l = 0; l < lines; ++l)
      for (std::size_t i = 0; i < length; ++i) {
        float value = 0;
        for (std::ptrdiff_t k = -reach; k <= reach; ++k) {
          const auto at = std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(i) + k, 0, length - 1);
          value += weights[k + reach] * in[l * line_step + at * step];
        }
        out[l * line_step + i * step] = value;
      }
  };
  picture result = from;
  std::vector<float> rows(from.height * from.width), plane(rows.size());
  for (std::size_t c = 0; c < from.channels; ++c) {
    const auto begin = result.values.begin() + c * plane.size();
    plane.assign(begin, begin + plane.size());
    pass(plane, rows, from.width, 1, from.height, from.width);
    pass(rows, plane, from.height, from.width, from.width, 1);
    std::copy(plane.begin(), plane.end(), begin);
  }
  return result;
}

/// The deviation whose blur is best on average for these pictures, to 0.05 pixels: a rival that knows the clean ones.
inline double best_blur(const std::vector<picture>& noisy, const std::vector<picture>& clean) {
  const auto figure = [&](double deviation) {
    double sum = 0;
    for (std::size_t i = 0; i < noisy.size(); ++i) sum += psnr(blurred(noisy[i], deviation), clean[i]);
    return sum;
  };
  double low = 0.3, high = 6;  // it has one best
  while (high - low > 0.05) {
    const double a = low + 0.382 * (high - low), b = low + 0.618 * (high - low);
    if (figure(a) < figure(b))
      low = a;
    else
      high = b;
  }
  return (low + high) / 2;
}

}  // namespace patch_trainer
