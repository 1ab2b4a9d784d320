// SPDX-License-Identifier: Apache-2.0
// expect: read takes a transform of samples, but this one can be called neither with .sample, random. nor with .sample.
#include <tuple>
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

#ifdef PENSTOCK_REJECTED
constexpr auto twice = [](float x) { return 2 * x; };
#else
constexpr auto twice = [](const auto& sample) { std::get<0>(sample)() *= 2; };
#endif

int main() {
  auto work = samples | penstock::partition() | penstock::read({}, twice) | penstock::batch(2);
  static_cast<void>(work);
}
