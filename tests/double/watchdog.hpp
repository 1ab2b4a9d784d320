// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

/// A run that does not end is named, and ends the test.
class watchdog {
 public:
  explicit watchdog(const std::string& what) {
    std::snprintf(text, sizeof text, "\nno end of: %s\n", what.c_str());
    std::signal(SIGALRM, [](int) {
      if (::write(STDOUT_FILENO, text, std::string_view(text).size()) < 0) std::_Exit(2);
      std::abort();
    });
    ::alarm(60);
  }
  watchdog(const watchdog&) = delete;
  ~watchdog() { ::alarm(0); }

 private:
  static inline char text[256];
};
