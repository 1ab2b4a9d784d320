// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <penstock/sample/error.hpp>

namespace penstock {

namespace detail {

/// The place in a file that an error is about.
inline provenance place_in_file(std::string path, std::string position = {}) {
  provenance where;
  where.path = std::move(path);
  where.position = std::move(position);
  return where;
}

/// "data.csv: cannot open: No such file or directory". `number` is the value of errno.
[[noreturn]] inline void throw_file_error(const std::string& path, std::string_view attempt, int number) {
  throw error(concat("cannot ", attempt, ": ", std::generic_category().message(number)), place_in_file(path));
}

}  // namespace detail

/// A regular file, open for reading at any position, by any number of threads at once. Closed on destruction.
class file_descriptor {
 public:
  /// Throws `error` with the path and the system's reason.
  explicit file_descriptor(std::string path) : path_(std::move(path)) {
    do {
      number_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a named pipe is refused, not waited for
    } while (number_ < 0 && errno == EINTR);
    if (number_ < 0) detail::throw_file_error(path_, "open", errno);
    try {
      examine();
    } catch (...) {
      ::close(number_);
      throw;
    }
  }
  file_descriptor(file_descriptor&& other) noexcept
      : path_(std::move(other.path_)),
        number_(std::exchange(other.number_, -1)),
        size_(std::exchange(other.size_, 0)) {}
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(number_, other.number_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~file_descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  const std::string& path() const noexcept { return path_; }
  /// The system's number of the open file.
  int native_handle() const noexcept { return number_; }
  /// Bytes in the file when it was opened.
  std::uint64_t size() const noexcept { return size_; }

  /// Fills all of `to` with the bytes from `offset` on, however many system calls that takes.
  /// Throws `error` with the path and the byte when reading fails or the file ends before `to` is full.
  void read_at(std::uint64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
      const ::ssize_t got = ::pread(number_, to.data(), to.size(), static_cast<::off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        const std::string reason = std::generic_category().message(errno);
        throw error(detail::concat("cannot read: ", reason), byte_place(offset));
      }
      if (got == 0) {
        throw error(detail::concat("the file ends here, wanted ", to.size(), " more bytes"), byte_place(offset));
      }
      to = to.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

  /// Asks the system to load these bytes soon. A hint: never fails, does not wait.
  void will_need(std::uint64_t offset, std::size_t count) const noexcept {
    static_cast<void>(
        ::posix_fadvise(number_, static_cast<::off_t>(offset), static_cast<::off_t>(count), POSIX_FADV_WILLNEED));
  }
  /// False if the system has to load this byte before it can be read; true, too, where the system does not tell.
  bool is_cached([[maybe_unused]] std::uint64_t offset) const noexcept {
#if defined(RWF_NOWAIT)
    std::byte one{};
    const ::iovec to{&one, 1};
    return ::preadv2(number_, &to, 1, static_cast<::off_t>(offset), RWF_NOWAIT) >= 0 || errno != EAGAIN;
#else
    return true;
#endif
  }

 private:
  provenance byte_place(std::uint64_t offset) const {
    return detail::place_in_file(path_, detail::concat("byte ", offset));
  }

  void examine() {
    struct ::stat facts{};
    if (::fstat(number_, &facts) != 0) detail::throw_file_error(path_, "examine", errno);
    if (S_ISDIR(facts.st_mode)) detail::throw_file_error(path_, "read", EISDIR);
    if (!S_ISREG(facts.st_mode)) {
      throw error("not a regular file, wanted one that can be read anywhere", detail::place_in_file(path_));
    }
    size_ = static_cast<std::uint64_t>(facts.st_size);
  }

  std::string path_;
  int number_ = -1;
  std::uint64_t size_ = 0;
};

/// The bytes of a whole file, mapped read-only: the system loads pages as they are touched and drops them as it
/// needs memory. Safe to read from any number of threads.
///
/// The bytes stay at their address when the object moves. The file must not be cut short while it is mapped:
/// touching what is gone ends the process (SIGBUS).
class mapped_file {
 public:
  /// Throws `error` with the path and the system's reason. An empty file gives an empty span.
  explicit mapped_file(std::string path) : mapped_file(file_descriptor(std::move(path))) {}
  explicit mapped_file(const file_descriptor& file) : path_(file.path()), size_(static_cast<std::size_t>(file.size())) {
    if (size_ == 0) return;
    void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.native_handle(), 0);
    if (address == MAP_FAILED) detail::throw_file_error(path_, "map", errno);
    data_ = static_cast<const std::byte*>(address);
  }
  mapped_file(mapped_file&& other) noexcept
      : path_(std::move(other.path_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  mapped_file& operator=(mapped_file&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~mapped_file() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  }

  const std::string& path() const noexcept { return path_; }
  std::size_t size() const noexcept { return size_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

  /// Asks the system to load the pages of these bytes soon. A hint: never fails, does not wait.
  void will_need(std::size_t offset, std::size_t count) const noexcept {
    if (offset >= size_) return;
    const std::size_t first = page_of(offset);
    const std::size_t last = count < size_ - offset ? offset + count : size_;
    static_cast<void>(::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_WILLNEED));
  }
  /// Has the system load what is touched and not its neighbours, of which it may read megabytes: for rows in random
  /// order.
  void is_read_at_random() const noexcept {
    if (size_ != 0) static_cast<void>(::madvise(const_cast<std::byte*>(data_), size_, MADV_RANDOM));
  }
  /// False if the system has to load the page of this byte before it can be read; true, too, where it does not tell.
  bool is_cached([[maybe_unused]] std::size_t offset) const noexcept {
#if defined(__linux__)
    if (offset >= size_) return true;
    unsigned char page = 1;
    return ::mincore(const_cast<std::byte*>(data_) + page_of(offset), 1, &page) != 0 || (page & 1) != 0;
#else
    return true;
#endif
  }

 private:
  static std::size_t page_of(std::size_t offset) noexcept {
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return offset / page * page;
  }

  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace penstock
