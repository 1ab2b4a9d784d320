// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

namespace laws {

/// What is written on standard error comes here.
class heard_on_stderr {
 public:
  heard_on_stderr() {
    std::fflush(stderr);
    EXPECT_EQ(::pipe(ends_), 0);
    EXPECT_GE(::dup2(ends_[1], STDERR_FILENO), 0);
    from_ = ::fdopen(ends_[0], "r");
  }
  heard_on_stderr(const heard_on_stderr&) = delete;
  ~heard_on_stderr() {
    restore();
    std::fclose(from_);
    ::close(before_);
  }
  /// Until a line has it; all lines are kept.
  void await(const std::string& part) {
    for (char line[1000]; std::fgets(line, sizeof line, from_) != nullptr;) {
      lines_.push_back(line);
      if (lines_.back().find(part) != std::string::npos) return;
    }
  }
  /// All lines, when nothing is written any more.
  const std::vector<std::string>& lines() {
    restore();
    await("\n\n");
    return lines_;
  }

 private:
  void restore() {
    std::fflush(stderr);
    ::dup2(before_, STDERR_FILENO);
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  int before_ = ::dup(STDERR_FILENO);
  int ends_[2] = {-1, -1};
  std::FILE* from_ = nullptr;
  std::vector<std::string> lines_;
};

}  // namespace laws
