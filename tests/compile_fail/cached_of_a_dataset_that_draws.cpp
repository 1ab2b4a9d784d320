// SPDX-License-Identifier: Apache-2.0
// expect: cached takes a dataset whose samples are the same in each epoch, upstream's read or read_range takes a
// context
#include <cstddef>
#include <cstdint>

#include <penstock/dataset/cached.hpp>
#include <penstock/penstock.hpp>

using schema_type = penstock::schema<penstock::field<float>>;

struct noise {
  std::size_t size() const { return 10; }
  schema_type schema() const { return schema_type{penstock::field<float>{"noise"}}; }
#ifdef PENSTOCK_REJECTED
  void read(std::uint64_t, const penstock::sample_view<schema_type>& to, penstock::read_context& context) const {
    std::get<0>(to)() = context.random.normal();
  }
#else
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    std::get<0>(to)() = static_cast<float>(index);
  }
#endif
};

int main() {
  auto pipeline = penstock::cached(noise{}, {.memory = 1'000'000}) | penstock::partition({.seed = 1}) |
                  penstock::read({.readers = 2}) | penstock::batch(4);
  static_cast<void>(pipeline);
}
