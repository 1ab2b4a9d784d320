// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include <penstock/sample/config.hpp>

#include "explorer.hpp"

namespace penstock::checker {

inline void tell(const std::string& name, const explorer::outcome& found) {
  std::printf("%-62s %9llu states %9llu steps, depth %3llu, %6.2f s%s\n", name.c_str(),
              static_cast<unsigned long long>(found.states), static_cast<unsigned long long>(found.steps),
              static_cast<unsigned long long>(found.deepest), found.seconds, found.complete ? "" : ", stopped");
  std::fflush(stdout);
}

/// Set PENSTOCK_CHECK_ALL=1 for the configurations that take minutes and gigabytes.
inline bool check_all() {
  const char* const wanted = std::getenv("PENSTOCK_CHECK_ALL");
  return wanted != nullptr && *wanted != '\0' && *wanted != '0';
}

/// Skips all where a sanitizer watches the stacks, which the explorer copies about.
class no_sanitizer : public testing::Environment {
 public:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the explorer moves stacks, which sanitizers do not follow";
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  static constexpr bool sanitized = true;
#else
  static constexpr bool sanitized = PENSTOCK_THREAD_SANITIZER != 0;
#endif
#else
  static constexpr bool sanitized = PENSTOCK_THREAD_SANITIZER != 0;
#endif
};
inline testing::Environment* const no_sanitizer_added = testing::AddGlobalTestEnvironment(new no_sanitizer);

}  // namespace penstock::checker
