// SPDX-License-Identifier: Apache-2.0
// expect: for a stream the dataset is its first sample, as element.0.
#include <string>
#include <tuple>
#include <vector>

#include <penstock/penstock.hpp>

auto rows() {
  return penstock::stream([] { return std::vector<std::vector<float>>(10); });
}

struct sum_of {
  template <class Dataset>
  auto schema(const Dataset& dataset) const {
    return penstock::schema(penstock::field<float>{"sum of " + std::to_string(dataset.element(0).size()), {}});
  }
#ifdef PENSTOCK_REJECTED
  void operator()(int) const {}
#else
  template <class To>
  void operator()(const std::vector<float>& row, const To& to) const {
    for (float one : row) std::get<0>(to)() += one;
  }
#endif
};

int main() {
  auto work = rows() | penstock::partition() | penstock::read() | penstock::batch(2, sum_of{});
  static_cast<void>(work);
}
