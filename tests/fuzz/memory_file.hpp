// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace fuzz {

/// A file that lies in memory alone, with a path to open it by.
class memory_file {
 public:
  memory_file(const std::uint8_t* data, std::size_t size) : number_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (number_ < 0) std::abort();
    while (size > 0) {
      const ::ssize_t put = ::write(number_, data, size);
      if (put <= 0) std::abort();
      data += put;
      size -= static_cast<std::size_t>(put);
    }
  }
  memory_file(const memory_file&) = delete;
  memory_file& operator=(const memory_file&) = delete;
  ~memory_file() { ::close(number_); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(number_); }

 private:
  int number_;
};

}  // namespace fuzz
