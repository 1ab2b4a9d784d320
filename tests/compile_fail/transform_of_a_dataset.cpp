// SPDX-License-Identifier: Apache-2.0
// expect: read takes a transform of samples, but this one can be called neither with .sample, random. nor with .sample.
#include <cstddef>
#include <cstdint>
#include <tuple>

#include <penstock/penstock.hpp>

using schema_type = penstock::schema<penstock::field<float>>;

struct squares {
  std::size_t size() const { return 10; }
  schema_type schema() const { return schema_type{penstock::field<float>{"square"}}; }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    std::get<0>(to)() = static_cast<float>(index * index);
  }
};

#ifdef PENSTOCK_REJECTED
void twice(const penstock::sample_view<schema_type>& sample, std::uint64_t index) {
  std::get<0>(sample)() *= static_cast<float>(index);
}
#else
void twice(const penstock::sample_view<schema_type>& sample) { std::get<0>(sample)() *= 2; }
#endif

int main() {
  auto work = squares{} | penstock::partition() | penstock::read({}, twice);
  static_cast<void>(work);
}
