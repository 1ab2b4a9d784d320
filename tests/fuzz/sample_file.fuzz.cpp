// SPDX-License-Identifier: Apache-2.0
// Most bytes: 512
// A cache's file of samples: what was made up gives no sample but by a checksum that is right, and takes new ones; what
// was added is there, and nothing else is harmed.
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <penstock/dataset/sample_file.hpp>

#include "memory_file.hpp"

namespace {

constexpr std::size_t sample_bytes = 12, head = 32, place = 8 + sample_bytes;
constexpr std::uint64_t fingerprint = 5;

/// What the file holds of a sample, by its own account: a checksum of its bytes.
bool is_right(std::span<const std::uint8_t> file, std::uint64_t index) {
  const std::size_t at = head + static_cast<std::size_t>(index) * place;
  if (file.size() < at + place) return false;
  const std::uint32_t sum = penstock::detail::crc32c(std::as_bytes(file.subspan(at + 8, sample_bytes)));
  for (std::size_t i = 0; i < 4; ++i)
    if (file[at + i] != (sum >> (8 * i) & 0xff)) return false;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using penstock::detail::sample_file;
  // A head that is good, if the first byte says so: few are by chance.
  if (size == 0) return 0;
  std::vector<std::uint8_t> bytes(data + 1, data + size);
  if (data[0] % 2 != 0 && bytes.size() >= head) {
    static const std::array<std::uint8_t, head> good = [] {
      std::array<std::uint8_t, head> out{};
      const std::string path = "/tmp/penstock-fuzz-" + std::to_string(::getpid());
      {
        const sample_file empty(path, fingerprint, sample_bytes);
      }
      const penstock::file_descriptor file(path);
      file.read_at(0, std::as_writable_bytes(std::span(out)));
      ::unlink(path.c_str());
      return out;
    }();
    std::memcpy(bytes.data(), good.data(), head);
  }
  // A sample that is good but for its place, if the first byte says so.
  if (data[0] % 4 >= 2 && bytes.size() >= head + place) {
    const auto sample = std::span(bytes).subspan(head + 8, sample_bytes);
    const std::uint32_t sum = penstock::detail::crc32c(std::as_bytes(sample));
    for (std::size_t i = 0; i < 4; ++i) bytes[head + i] = static_cast<std::uint8_t>(sum >> (8 * i) & 0xff);
  }
  const fuzz::memory_file memory(bytes.data(), bytes.size());
  try {
    sample_file file(memory.path(), fingerprint, sample_bytes);
    std::array<std::byte, sample_bytes> sample{};
    for (std::uint64_t index = 0; index < 40; ++index)
      if (file.read(index, sample) && !is_right(bytes, index)) std::abort();
    std::array<std::byte, sample_bytes> wanted{};
    wanted.fill(std::byte{0x5a});
    if (!file.write(3, wanted) || !file.read(3, sample) || sample != wanted) std::abort();
    if (file.read(2, sample) && !is_right(bytes, 2)) std::abort();
    if (file.read(4, sample) && !is_right(bytes, 4)) std::abort();
  } catch (const penstock::error&) {  // a foreign one is replaced, which this path does not allow
  }
  return 0;
}
