// SPDX-License-Identifier: Apache-2.0
// Most bytes: 512
// A checkpoint's file, as all our programs write it: an error, or the bytes that were written. The first byte chooses
// whether the head is made up, too, or right but for its last bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include <penstock/dataset/atomic_file.hpp>

#include "memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint32_t format = 1;
  if (size == 0) return 0;
  std::vector<std::uint8_t> file(data + 1, data + size);
  const std::size_t head = penstock::detail::checked_head_size;
  if (data[0] != 0 && file.size() >= head) {
    const auto right = penstock::detail::checked_head(format, std::as_bytes(std::span(file)).subspan(head));
    std::memcpy(file.data(), right.data(), data[0] < head ? data[0] : head);
  }
  const fuzz::memory_file memory(file.data(), file.size());
  try {
    const auto bytes = penstock::read_checked(memory.path(), format);
    const auto right = penstock::detail::checked_head(format, bytes);
    if (file.size() != head + bytes.size() || std::memcmp(file.data(), right.data(), head) != 0 ||
        (!bytes.empty() && std::memcmp(file.data() + head, bytes.data(), bytes.size()) != 0))
      std::abort();
  } catch (const penstock::error& caught) {
    if (data[0] >= head && file.size() >= head) std::abort();  // it was right
  }
  return 0;
}
