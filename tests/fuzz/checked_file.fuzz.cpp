// SPDX-License-Identifier: Apache-2.0
// Most bytes: 512
// A checkpoint's file, as all our programs write it: an error, or the bytes that were written. The first byte chooses
// what is made up: all, or what follows a right head, of which then a byte may be changed, anywhere.
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
  constexpr std::size_t head = penstock::detail::checked_head_size;
  if (size < 3) return 0;
  std::vector<std::uint8_t> file(data + 3, data + size);
  const bool has_head = data[0] != 0 && file.size() >= head;
  bool right = false;
  if (has_head) {
    const auto wanted = penstock::detail::checked_head(format, std::as_bytes(std::span(file)).subspan(head));
    std::memcpy(file.data(), wanted.data(), head);
    file[data[1] % file.size()] ^= data[2];
    right = data[2] == 0;
  }
  const fuzz::memory_file memory(file.data(), file.size());
  try {
    const auto bytes = penstock::read_checked(memory.path(), format);
    if ((has_head && !right) || file.size() != head + bytes.size()) std::abort();
    if (!bytes.empty() && std::memcmp(file.data() + head, bytes.data(), bytes.size()) != 0) std::abort();
  } catch (const penstock::error&) {
    if (right) std::abort();
  }
  return 0;
}
