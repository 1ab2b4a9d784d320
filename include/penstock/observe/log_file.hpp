// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// What a log could not write: kept for whoever asks, told once on stderr, never thrown, as a run is worth more than
/// its log.
class log_failure {
 public:
  void note(const std::string& path, std::string_view attempt, int number) {
    if (!text_.empty()) return;
    text_ = concat(path, ": cannot ", attempt, ": ", std::generic_category().message(number));
    std::fprintf(stderr, "penstock: %s; the run goes on\n", text_.c_str());
  }
  /// Empty while all went well.
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// Writes all bytes at an offset; 0, or errno.
inline int write_all(int number, std::string_view text, std::uint64_t offset) {
  while (!text.empty()) {
    const ::ssize_t put = ::pwrite(number, text.data(), text.size(), static_cast<::off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return 0;
}

/// A new file in a file's place, or the old one as it was: 0, or errno. Other programs see one of them whole. It is in
/// the system's hands, not on the disk, when this returns: for what is written anew every few seconds.
inline int replace_file(const std::string& path, std::string_view text) {
  const std::string temporary = concat(path, ".tmp", ::getpid());
  const int number = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (number < 0) return errno;
  int problem = write_all(number, text, 0);
  if (::close(number) != 0 && problem == 0) problem = errno;
  if (problem == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) problem = errno;
  if (problem != 0) ::unlink(temporary.c_str());
  return problem;
}

/// A file that grows by whole records. They gather in memory until `flush`. What could not be written stays there and
/// is tried again, from where the last whole record ended, so that a disk that was full for a while costs nothing; a
/// log that has `most_pending` bytes waiting gives up.
class log_file {
 public:
  static constexpr std::size_t most_pending = std::size_t{16} << 20;

  /// Opens or makes the file and leaves what is in it. Throws `error` with path and reason.
  explicit log_file(std::string path, int flags = 0) : path_(std::move(path)) {
    do {
      number_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0666);
    } while (number_ < 0 && errno == EINTR);
    if (number_ < 0) throw_file_error(path_, "write", errno);
    struct stat status{};
    if (::fstat(number_, &status) == 0 && S_ISREG(status.st_mode)) {
      size_ = static_cast<std::uint64_t>(status.st_size);
      return;
    }
    ::close(number_);
    throw error("it is not a regular file, wanted one to write a log to", place_in_file(path_));
  }
  log_file(log_file&& other) noexcept
      : path_(std::move(other.path_)),
        number_(std::exchange(other.number_, -1)),
        size_(other.size_),
        pending_(std::move(other.pending_)),
        gave_up_(other.gave_up_),
        failure_(std::move(other.failure_)) {
    other.pending_.clear();
  }
  log_file& operator=(log_file&&) = delete;
  ~log_file() {
    if (number_ < 0) return;
    try {
      flush();
    } catch (...) {  // no memory for a message
    }
    ::close(number_);
  }

  const std::string& path() const noexcept { return path_; }
  /// Empty, or what went wrong first.
  const std::string& failure() const noexcept { return failure_.text(); }
  bool is_empty() const noexcept { return size_ == 0 && pending_.empty(); }

  bool is_flushed() const noexcept { return pending_.empty(); }

  void append(std::string_view record) {
    if (gave_up_) return;
    if (pending_.size() + record.size() > most_pending) {
      flush();
      gave_up_ = !pending_.empty();
      if (gave_up_) std::string().swap(pending_);
      if (gave_up_) return;
    }
    pending_ += record;
  }

  void flush() {
    if (pending_.empty()) return;
    const int problem = write_all(number_, pending_, size_);
    if (problem != 0) {
      // Half a record may be there: cut off if possible, else overwritten by the next attempt.
      static_cast<void>(::ftruncate(number_, static_cast<::off_t>(size_)) == 0);
      return failure_.note(path_, "write", problem);
    }
    size_ += pending_.size();
    pending_.clear();
  }

  /// All that is in the file; nothing may be pending. False if it cannot be read.
  bool read(std::string& text) {
    text.resize(size_);
    std::size_t done = 0;
    while (done < text.size()) {
      const ::ssize_t got = ::pread(number_, text.data() + done, text.size() - done, static_cast<::off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) failure_.note(path_, "read", errno);
      if (got <= 0) return false;
      done += static_cast<std::size_t>(got);
    }
    return true;
  }

  /// Keeps the first bytes alone; what is pending is dropped.
  void truncate(std::uint64_t size) {
    pending_.clear();
    if (::ftruncate(number_, static_cast<::off_t>(size)) != 0) return failure_.note(path_, "cut", errno);
    size_ = size;
  }

  /// Puts a new file in its place, atomically; what is pending goes to the new one. False if that failed: then the old
  /// one stays.
  bool replace(std::string_view text) {
    int problem = replace_file(path_, text);
    const int number = problem == 0 ? ::open(path_.c_str(), O_RDWR | O_CLOEXEC) : -1;
    if (problem == 0 && number < 0) problem = errno;
    if (problem != 0) {
      failure_.note(path_, "replace", problem);
      return false;
    }
    ::close(std::exchange(number_, number));
    size_ = text.size();
    return true;
  }

 private:
  std::string path_;
  int number_ = -1;
  std::uint64_t size_ = 0;  // of whole records in the file
  std::string pending_;
  bool gave_up_ = false;
  log_failure failure_;
};

}  // namespace penstock::detail
