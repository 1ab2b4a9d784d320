// SPDX-License-Identifier: Apache-2.0
// The regression trainer and its rival, run as programs of their own.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "../../tests/support/temporary_directory.hpp"

namespace train {

inline std::string quoted(const std::filesystem::path& path) {
  std::string result = "'";
  for (char one : path.string()) result += one == '\'' ? std::string("'\\''") : std::string(1, one);
  return result + "'";
}

/// What a command of the shell prints, errors too. Throws with that if it fails.
inline std::string output_of(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot be started: " + command);
  std::string text;
  char part[4096];
  while (const std::size_t count = std::fread(part, 1, sizeof(part), pipe)) text.append(part, count);
  const int status = pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error(command + " says: " + text);
  return text;
}

/// The number after the last ` name=`.
inline double number_in(const std::string& text, const std::string& name) {
  const auto at = text.rfind(" " + name + "=");
  if (at == text.npos) throw std::runtime_error("wanted " + name + "=NUMBER, found: " + text);
  return std::strtod(text.c_str() + at + name.size() + 2, nullptr);
}

}  // namespace train
