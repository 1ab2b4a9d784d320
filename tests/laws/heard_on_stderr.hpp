// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace laws {

/// What is written on standard error comes here.
class heard_on_stderr {
 public:
  heard_on_stderr() {
    EXPECT_EQ(::pipe(ends_), 0);
    EXPECT_GE(::dup2(ends_[1], STDERR_FILENO), 0);
  }
  heard_on_stderr(const heard_on_stderr&) = delete;
  ~heard_on_stderr() {
    restore();
    ::close(ends_[0]);
    ::close(before_);
  }
  /// Until a line has it; all lines are kept. False at the end, or if nothing comes for a time that no test takes.
  bool await(const std::string& part) {
    for (;;) {
      for (std::size_t end = 0; (end = rest_.find('\n')) != rest_.npos;) {
        lines_.push_back(rest_.substr(0, end));
        rest_.erase(0, end + 1);
        if (lines_.back().find(part) != std::string::npos) return true;
      }
      pollfd from{ends_[0], POLLIN, 0};
      char text[1000];
      if (::poll(&from, 1, 60'000) != 1) return false;
      const ssize_t size = ::read(ends_[0], text, sizeof text);
      if (size <= 0) return false;
      rest_.append(text, static_cast<std::size_t>(size));
    }
  }
  /// All lines, when nothing is written any more.
  const std::vector<std::string>& lines() {
    restore();
    EXPECT_FALSE(await("\n"));
    return lines_;
  }

 private:
  void restore() {
    ::dup2(before_, STDERR_FILENO);
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  int before_ = ::dup(STDERR_FILENO);
  int ends_[2] = {-1, -1};
  std::string rest_;
  std::vector<std::string> lines_;
};

}  // namespace laws
