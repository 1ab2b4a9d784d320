// SPDX-License-Identifier: Apache-2.0
// Runs the compiler in a folder of its own, and says what it took.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../tests/support/temporary_directory.hpp"

extern char** environ;

namespace compile_time {

struct outcome {
  bool accepted = false;
  double cpu_seconds = 0;  // user and system, of the process and those that it started
  std::string output;      // errors and the rest

  double lines() const { return static_cast<double>(std::count(output.begin(), output.end(), '\n')); }
};

/// $CXX, which may have arguments, or g++. Sources and objects are in a temporary folder that goes with it.
class compiler {
 public:
  explicit compiler(const std::filesystem::path& include) {
    const char* given = std::getenv("CXX");
    std::istringstream words(given == nullptr || *given == '\0' ? "g++" : given);
    for (std::string word; words >> word;) base_.push_back(word);
    base_.insert(base_.end(), {"-std=c++20", "-I" + include.string()});
    setenv("LC_ALL", "C", 1);
  }

  /// Compiles `source`, kept in `name`.cpp.
  outcome operator()(const std::string& name, const std::string& source, const std::vector<std::string>& how) const {
    const auto file = folder_ / (name + ".cpp");
    std::ofstream(file) << source;
    auto words = base_;
    words.insert(words.end(), how.begin(), how.end());
    if (std::find(how.begin(), how.end(), "-c") != how.end())
      words.insert(words.end(), {"-o", folder_ / (name + ".o")});
    words.push_back(file);
    return run(words);
  }
  /// What a macro of a header stands for, without blanks; nothing if there is no such header.
  std::string macro(const std::string& header, const std::string& text) const {
    const outcome found = (*this)("macro", "#include <" + header + ">\n" + text + "\n", {"-E", "-P"});
    if (!found.accepted) return {};
    std::string last;
    std::istringstream output(found.output);
    for (std::string line; std::getline(output, line);)
      if (!line.empty()) last = line;
    std::erase(last, ' ');
    return last;
  }
  std::string version() const {
    const std::string text = run({base_.front(), "--version"}).output;
    return text.substr(0, text.find('\n'));
  }
  std::string command(const std::vector<std::string>& how) const {
    std::string result;
    for (const auto* words : {&base_, &how})
      for (const std::string& word : *words) result += (result.empty() ? "" : " ") + word;
    return result;
  }

 private:
  outcome run(const std::vector<std::string>& words) const {
    const std::string log = folder_ / "output";
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t child = 0;
    const int refused = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (refused != 0) throw std::runtime_error(words.front() + " does not start: " + std::strerror(refused));

    int status = 0;
    rusage used{};
    while (wait4(child, &status, 0, &used) < 0)
      if (errno != EINTR) throw std::runtime_error(words.front() + " was lost: " + std::strerror(errno));
    outcome result;
    result.accepted = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const auto seconds = [](timeval time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    result.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
    std::ifstream text(log);
    result.output.assign(std::istreambuf_iterator<char>(text), {});
    return result;
  }

  std::vector<std::string> base_;
  penstock_test::temporary_directory folder_;
};

}  // namespace compile_time
