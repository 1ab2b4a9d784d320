// SPDX-License-Identifier: Apache-2.0
// expect: split takes a dataset that is read concurrently, upstream is a serial one
#include <cstddef>
#include <cstdint>

#include <penstock/penstock.hpp>

using schema_type = penstock::schema<penstock::field<float>>;

struct squares {
#ifdef PENSTOCK_REJECTED
  static constexpr bool serial = true;
#endif
  std::size_t size() const { return 10; }
  schema_type schema() const { return schema_type{penstock::field<float>{"square"}}; }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    std::get<0>(to)() = static_cast<float>(index * index);
  }
};

int main() {
  const auto [train, validation, test] = penstock::split(squares{}, {.test = 0.2});
  static_cast<void>(train);
  static_cast<void>(validation);
  static_cast<void>(test);
}
