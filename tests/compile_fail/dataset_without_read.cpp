// SPDX-License-Identifier: Apache-2.0
// expect: partition takes a dataset, upstream is a type with size.. and schema.. but without read
#include <cstddef>
#include <cstdint>

#include <penstock/penstock.hpp>

using schema_type = penstock::schema<penstock::field<float>>;

struct squares {
  std::size_t size() const { return 10; }
  schema_type schema() const { return schema_type{penstock::field<float>{"square"}}; }
#ifdef PENSTOCK_REJECTED
  float load(std::uint64_t index) const { return static_cast<float>(index * index); }
#else
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    std::get<0>(to)() = static_cast<float>(index * index);
  }
#endif
};

int main() {
  auto work = squares{} | penstock::partition();
  static_cast<void>(work);
}
