// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace penstock::detail {

/// Whether a person's terminal reads the stream: not so for files, pipes and streams in memory.
inline bool is_terminal(std::FILE* stream) {
  const int descriptor = ::fileno(stream);
  return descriptor >= 0 && ::isatty(descriptor) == 1;
}

/// Characters per line, `otherwise` where the terminal does not tell.
inline std::size_t terminal_width(std::FILE* stream, std::size_t otherwise) {
  ::winsize size{};
  const int descriptor = ::fileno(stream);
  if (descriptor < 0 || ::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return otherwise;
  return size.ws_col;
}

}  // namespace penstock::detail
