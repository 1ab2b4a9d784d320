// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <exception>
#include <string>

/// Of programs that check without GoogleTest.
inline int failures = 0;

/// Runs one check, which gives what is wrong, or nothing.
template <class Check>
void check(const char* name, Check&& body) {
  std::string wrong;
  try {
    wrong = body();
  } catch (const std::exception& caught) {
    wrong = caught.what();
  }
  std::printf("%-6s %s%s%s\n", wrong.empty() ? "ok" : "FAILED", name, wrong.empty() ? "" : ": ", wrong.c_str());
  std::fflush(stdout);
  failures += !wrong.empty();
}
