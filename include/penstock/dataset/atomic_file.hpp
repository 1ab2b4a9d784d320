// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// A file that takes its name when it is complete: until `commit()` the bytes are in a temporary one beside it, and
/// another program, or this one after a crash, finds the old file or the new one, whole.
///
///     penstock::atomic_file file("model.bin");
///     file.write(std::as_bytes(std::span(weights)));
///     file.commit();
///
/// Without a `commit` the old file stays. A process that is killed leaves a file PATH.tmpPID.N, which may be deleted.
/// The functions throw `error` with path and the system's reason; then, too, the file at the path is as it was.
class atomic_file {
 public:
  explicit atomic_file(std::string path) : path_(std::move(path)) {
    // The system, not this process, knows which names are free: no random numbers, no shared counter.
    for (unsigned attempt = 0; number_ < 0; ++attempt) {
      temporary_ = detail::concat(path_, ".tmp", ::getpid(), ".", attempt);
      number_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (number_ < 0 && errno != EEXIST && errno != EINTR) detail::throw_file_error(path_, "create", errno);
    }
  }
  atomic_file(atomic_file&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, {})),
        number_(std::exchange(other.number_, -1)) {}
  atomic_file& operator=(atomic_file&&) = delete;
  ~atomic_file() {
    if (number_ >= 0) ::close(number_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  /// Adds bytes at the end.
  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ::ssize_t put = ::write(number_, bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) detail::throw_file_error(path_, "write", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }

  /// After this the file at the path is the new one, and on the disk. To be called once.
  void commit() {
    if (::fsync(number_) != 0) detail::throw_file_error(path_, "write", errno);
    if (::close(std::exchange(number_, -1)) != 0) detail::throw_file_error(path_, "write", errno);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) detail::throw_file_error(path_, "replace", errno);
    temporary_.clear();
    // The name is on the disk when its folder is. Not every file system can, and the new file is in place: no error.
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int number = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (number < 0) return;
    static_cast<void>(::fsync(number));
    ::close(number);
  }

 private:
  std::string path_;
  std::string temporary_;
  int number_ = -1;
};

/// Writes a whole file: the new one, or none and an `error`. See `atomic_file`.
inline void write_atomically(const std::string& path, std::span<const std::byte> bytes) {
  atomic_file file(path);
  file.write(bytes);
  file.commit();
}

namespace detail {

/// CRC-32C (Castagnoli 1993), reflected: polynomial 0x82F63B78.
inline std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  constexpr auto table = [] {
    std::array<std::uint32_t, 256> all{};
    for (std::uint32_t byte = 0; byte < all.size(); ++byte) {
      std::uint32_t rest = byte;
      for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ (0x82F63B78U & (0U - (rest & 1U)));
      all[byte] = rest;
    }
    return all;
  }();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ table[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xffU];
  return ~crc;
}

/// What precedes the bytes of a checked file: 8 characters, then the format, the checksum and the number of bytes,
/// little-endian on every machine.
inline constexpr std::size_t checked_head_size = 24;
inline std::array<std::byte, checked_head_size> checked_head(std::uint32_t format, std::span<const std::byte> bytes) {
  std::array<std::byte, checked_head_size> head{};
  constexpr char magic[] = {'P', 'S', 'C', 'H', 'E', 'C', 'K', '\n'};
  std::transform(std::begin(magic), std::end(magic), head.begin(), [](char c) { return static_cast<std::byte>(c); });
  const auto put = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) head[at + i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  };
  put(8, format, 4);
  put(12, crc32c(bytes), 4);
  put(16, bytes.size(), 8);
  return head;
}

}  // namespace detail

/// Writes bytes with a head that tells whether they come back whole: for checkpoints. Atomic, as `atomic_file`.
/// `format` is a number of the caller's choice, for what the bytes mean; `read_checked` takes no other.
inline void write_checked(const std::string& path, std::span<const std::byte> bytes, std::uint32_t format) {
  const auto head = detail::checked_head(format, bytes);
  atomic_file file(path);
  file.write(head);
  file.write(bytes);
  file.commit();
}

/// The bytes that `write_checked` wrote. Throws `error` with path and finding for a file that is cut off, longer,
/// damaged anywhere, of another format or another kind, before it allocates more than the file's own size.
inline std::vector<std::byte> read_checked(const std::string& path, std::uint32_t format) {
  const file_descriptor file(path);
  const auto refuse = [&](const auto&... finding) {
    throw error(detail::concat(finding...), detail::place_in_file(path));
  };
  std::array<std::byte, detail::checked_head_size> head{};
  if (file.size() < head.size()) refuse("the file is cut off after ", file.size(), " bytes, wanted a head of 24");
  file.read_at(0, head);
  const auto get = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(head[at + i]);
    return value;
  };
  const auto wanted = detail::checked_head(format, {});
  if (!std::equal(head.begin(), head.begin() + 8, wanted.begin()))
    refuse("the file is of another kind, wanted PSCHECK");
  if (get(8, 4) != format) refuse("the file has format ", get(8, 4), ", wanted ", format);
  if (get(16, 8) != file.size() - head.size())
    refuse("the file has ", file.size() - head.size(), " bytes after its head, wanted ", get(16, 8));
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()) - head.size());
  file.read_at(head.size(), bytes);
  const std::uint32_t checksum = detail::crc32c(bytes);
  if (get(12, 4) != checksum) refuse("the file is damaged: its checksum is ", checksum, ", wanted ", get(12, 4));
  return bytes;
}

}  // namespace penstock
