// SPDX-License-Identifier: Apache-2.0
// Most bytes: 512
// IDX files: whatever the bytes, an error, or an array all of whose samples can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <penstock/dataset/idx.hpp>

#include "memory_file.hpp"

namespace {

template <class T, std::size_t Rank>
void read_all(const std::string& path) {
  try {
    const penstock::idx_array<T, Rank> array(path);
    const auto field = std::get<0>(array.schema().fields);
    const std::size_t elements = field.elements();
    // Samples of nothing may be as many as a number can say, and samples that are none as large.
    if (elements == 0 || array.size() == 0) return;
    const std::unique_ptr<T[]> block(new T[elements]);
    for (std::size_t i = 0; i < array.size(); ++i) {
      array.prefetch(i);
      array.read(i, {penstock::tensor_view<T, Rank>(block.get(), field.shape)});
    }
  } catch (const penstock::error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The header from a block of exactly this size, so that a byte too many is found.
  const std::unique_ptr<std::byte[]> block(new std::byte[size]);
  if (size != 0) std::memcpy(block.get(), data, size);
  try {
    penstock::detail::read_idx_header("fuzz", {block.get(), size});
  } catch (const penstock::error&) {
    return 0;
  }
  const fuzz::memory_file file(data, size);
  read_all<std::uint8_t, 0>(file.path());
  read_all<std::uint8_t, 2>(file.path());
  read_all<std::int8_t, 1>(file.path());
  read_all<std::int16_t, 1>(file.path());
  read_all<std::int32_t, 0>(file.path());
  read_all<float, 1>(file.path());
  read_all<double, 3>(file.path());
  return 0;
}
