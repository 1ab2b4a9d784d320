// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <penstock/dataset/atomic_file.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// A file of samples of equal size, each at its own place with a checksum: those that are there are read, others are
/// added in any order, by any number of threads and processes. The file is as large as its last sample's place tells,
/// with holes where there is none yet.
///
/// Nothing in it is trusted: what is damaged, cut off or half written is absent, and a file that is not of this dataset
/// is replaced by an empty one. Failing to add is no error: the cache is only smaller than it might be.
class sample_file {
 public:
  /// `fingerprint` tells the dataset and `sample_bytes`, at least 1. Throws `error` if there is no file and none can be
  /// made.
  sample_file(std::string path, std::uint64_t fingerprint, std::size_t sample_bytes)
      : path_(std::move(path)), bytes_(sample_bytes) {
    const auto head = head_of(fingerprint, sample_bytes);
    open();
    if (number_ >= 0 && is_mine(head)) return;
    if (number_ >= 0) ::close(std::exchange(number_, -1));
    write_atomically(path_, head);
    open();
    if (number_ < 0) throw_file_error(path_, "open", errno);
  }
  sample_file(const sample_file&) = delete;
  sample_file& operator=(const sample_file&) = delete;
  ~sample_file() { ::close(number_); }

  /// The bytes of sample `index`, which go to `to`: false if they are not there, or not whole. Then `to` holds
  /// anything.
  bool read(std::uint64_t index, std::span<std::byte> to) const noexcept {
    std::array<std::byte, mark_size> mark;
    if (!transfer(place(index), mark, to, [](auto... all) { return ::preadv(all...); })) return false;
    return mark == mark_of(index, to);
  }
  /// Adds a sample. False if that failed, as it does for good once the disk is full.
  bool write(std::uint64_t index, std::span<const std::byte> bytes) noexcept {
    if (full_.load(std::memory_order_relaxed)) return false;
    auto mark = mark_of(index, bytes);
    const std::span<std::byte> from(const_cast<std::byte*>(bytes.data()), bytes.size());  // for the system's `iovec`
    if (transfer(place(index), mark, from, [](auto... all) { return ::pwritev(all...); })) return true;
    full_.store(true, std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr std::size_t head_size = 32, mark_size = 8;

  static void put(std::span<std::byte> to, std::uint64_t value) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
  }
  static std::array<std::byte, head_size> head_of(std::uint64_t fingerprint, std::size_t sample_bytes) {
    std::array<std::byte, head_size> head{};
    std::memcpy(head.data(), "PSSAMPL1", 8);
    put(std::span(head).subspan(8, 8), fingerprint);
    put(std::span(head).subspan(16, 8), sample_bytes);
    put(std::span(head).subspan(24, 8), crc32c(std::span(head).first(24)));
    return head;
  }
  /// What precedes a sample's bytes: never all zeros, as a hole is, and another for each place.
  static std::array<std::byte, mark_size> mark_of(std::uint64_t index, std::span<const std::byte> bytes) noexcept {
    std::array<std::byte, mark_size> mark{};
    put(std::span(mark).first(4), crc32c(bytes));
    put(std::span(mark).last(4), (index * 0x9E3779B97F4A7C15u >> 32) | 1);
    return mark;
  }
  ::off_t place(std::uint64_t index) const noexcept {
    return static_cast<::off_t>(head_size + index * (mark_size + bytes_));
  }

  void open() noexcept {
    do {
      number_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    } while (number_ < 0 && errno == EINTR);
  }
  bool is_mine(const std::array<std::byte, head_size>& wanted) const noexcept {
    std::array<std::byte, head_size> found{};
    return ::pread(number_, found.data(), found.size(), 0) == static_cast<::ssize_t>(found.size()) && found == wanted;
  }

  /// Moves a mark and a sample in one call of the system's, or in more where it does a part only.
  template <class Call>
  bool transfer(::off_t at, std::span<std::byte> mark, std::span<std::byte> bytes, Call call) const noexcept {
    std::size_t done = 0;
    const std::size_t all = mark.size() + bytes.size();
    while (done < all) {
      ::iovec parts[2] = {};
      int count = 0;
      if (done < mark.size()) parts[count++] = {mark.data() + done, mark.size() - done};
      const std::size_t of_bytes = done < mark.size() ? 0 : done - mark.size();
      parts[count++] = {bytes.data() + of_bytes, bytes.size() - of_bytes};
      const ::ssize_t moved = call(number_, parts, count, at + static_cast<::off_t>(done));
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) return false;
      done += static_cast<std::size_t>(moved);
    }
    return true;
  }

  std::string path_;
  std::size_t bytes_;
  int number_ = -1;
  std::atomic<bool> full_{false};
};

}  // namespace penstock::detail
