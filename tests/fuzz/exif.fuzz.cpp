// SPDX-License-Identifier: Apache-2.0
// The EXIF parser: reads nothing beyond the block, and gives 1 to 8, whatever the bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include <penstock/dataset/image_exif.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A block of exactly this size, so that a byte too many is found.
  const std::unique_ptr<std::byte[]> block(new std::byte[size]);
  if (size != 0) std::memcpy(block.get(), data, size);
  const unsigned orientation = penstock::exif_orientation({block.get(), size});
  if (orientation < 1 || orientation > 8) std::abort();
  return 0;
}
