// SPDX-License-Identifier: Apache-2.0
// Most bytes: 1024
// NPY files: whatever the bytes, an error, or an array that gives the same numbers mapped and by reads at positions.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <penstock/dataset/npy.hpp>

#include "memory_file.hpp"

namespace {

using penstock::npy_access;

/// A sample's bytes, or nothing where a number cannot be converted.
template <class T, std::size_t Rank>
std::optional<std::vector<unsigned char>> sample_of(const penstock::npy_array<T, Rank>& array, std::size_t index) {
  const auto field = std::get<0>(array.schema().fields);
  std::vector<unsigned char> bytes(field.elements() * sizeof(T));
  const std::unique_ptr<T[]> block(new T[field.elements()]());
  try {
    array.prefetch(index);
    array.read(index, {penstock::tensor_view<T, Rank>(block.get(), field.shape)});
  } catch (const penstock::error&) {
    return std::nullopt;
  }
  if (!bytes.empty()) std::memcpy(bytes.data(), block.get(), bytes.size());
  return bytes;
}

template <class T, std::size_t Rank>
void read_both(const std::string& path) {
  try {
    const penstock::npy_array<T, Rank> mapped(path, {.convert = true});
    const penstock::npy_array<T, Rank> positioned(path, {.convert = true, .access = npy_access::positioned});
    // There may be as many samples of nothing as a number can say.
    const std::size_t samples = std::min(mapped.size(), std::size_t{1024});
    for (std::size_t i = 0; i < samples; ++i)
      if (sample_of(mapped, i) != sample_of(positioned, i)) std::abort();
  } catch (const penstock::error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::memory_file file(data, size);
  try {
    const penstock::npy_header header = penstock::npy_info(file.path());
    if (header.shape_text().empty()) std::abort();
  } catch (const penstock::error&) {
    return 0;
  }
  read_both<float, 0>(file.path());
  read_both<float, 1>(file.path());
  read_both<std::int16_t, 1>(file.path());
  read_both<double, 2>(file.path());
  read_both<bool, 1>(file.path());
  read_both<std::complex<float>, 1>(file.path());
  return 0;
}
