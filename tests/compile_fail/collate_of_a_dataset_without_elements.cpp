// SPDX-License-Identifier: Apache-2.0
// expect: batch takes a collate with schema.dataset. and operator.*, for a dataset with element.index.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/penstock.hpp>

using schema_type = penstock::schema<penstock::field<float>>;

struct squares {
  std::size_t size() const { return 10; }
  schema_type schema() const { return schema_type{penstock::field<float>{"square"}}; }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    std::get<0>(to)() = static_cast<float>(index * index);
  }
};
const std::vector<std::vector<float>> sequences(10);

int main() {
#ifdef PENSTOCK_REJECTED
  auto work =
      squares{} | penstock::partition() | penstock::read() | penstock::batch(2, penstock::pad_to({.length = 3}));
#else
  auto work =
      sequences | penstock::partition() | penstock::read() | penstock::batch(2, penstock::pad_to({.length = 3}));
#endif
  static_cast<void>(work);
}
