// SPDX-License-Identifier: Apache-2.0
// Pairs of photographs in memory, as they were decoded, and patches of them: what all contestants load.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <contest.hpp>

namespace torch_loader {

inline constexpr std::size_t images = 48, edge = 512, patch = 40;

/// Two images of bytes for each number, aligned pixel by pixel.
struct photographs {
  photographs() : input(images * edge * edge), response(input.size()) {
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<std::uint8_t>(i * 2654435761U >> 13 | 1);
      response[i] = static_cast<std::uint8_t>(input[i] / 2 + 1);
    }
  }
  /// Where a patch of image `index % images` begins.
  static std::size_t offset(std::uint64_t index, std::size_t top, std::size_t left) {
    return (index % images * edge + top) * edge + left;
  }
  std::vector<std::uint8_t> input, response;
};

/// What a measurement goes over.
struct work {
  std::uint64_t patches = 0;  ///< of an epoch
  int batch = 64, depth = 3;
  int epochs = 2;      ///< measured, after one that is not
  bool train = false;  ///< with a step of training in each turn
};

/// Calls `epoch(number)`, which returns the patches that came.
template <class Epoch>
contest::figures measured(const work& of, Epoch epoch) {
  const auto one = [&](int number) {
    const std::uint64_t came = epoch(number);
    if (came != of.patches)
      throw std::runtime_error(std::to_string(came) + " patches came, wanted " + std::to_string(of.patches));
  };
  one(0);
  const auto begin = std::chrono::steady_clock::now();
  for (int number = 1; number <= of.epochs; ++number) one(number);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  return {static_cast<double>(of.patches) * of.epochs / time.count()};
}

/// Nothing without LibTorch.
bool has_libtorch();
void add(contest::question& ask, const std::string& name, const photographs& all, const work& of, int most_readers);

}  // namespace torch_loader
