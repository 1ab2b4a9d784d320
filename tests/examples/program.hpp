// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "../support/temporary_directory.hpp"

namespace program_test {

using penstock_test::temporary_directory;

inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write(const std::string& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

/// Waits for files that take their name in a folder. To be made before that can happen.
class folder_watch {
 public:
  explicit folder_watch(const std::string& folder) {
    std::filesystem::create_directories(folder);
    if (::inotify_add_watch(number_, folder.c_str(), IN_MOVED_TO) < 0)
      throw std::runtime_error("cannot watch " + folder);
  }
  folder_watch(const folder_watch&) = delete;
  ~folder_watch() { ::close(number_); }
  void wait_for(std::string_view name) const {
    alignas(inotify_event) char events[sizeof(inotify_event) + NAME_MAX + 1];
    for (std::string_view found; found != name;) {
      const auto size = ::read(number_, events, sizeof(events));
      if (size <= 0) throw std::runtime_error("cannot read what happens in a folder");
      for (const char* at = events; at < events + size && found != name;) {
        const auto* event = reinterpret_cast<const inotify_event*>(at);
        found = event->name;
        at += sizeof(inotify_event) + event->len;
      }
    }
  }

 private:
  int number_ = ::inotify_init1(IN_CLOEXEC);
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

/// "name=12.5" in a line, as a number.
inline double value(const std::string& line, const std::string& name) {
  const auto at = line.find(" " + name + "=");
  if (at == line.npos) throw std::runtime_error("no " + name + " in: " + line);
  return std::stod(line.substr(at + name.size() + 2));
}

/// A running program, whose output and errors come through one pipe.
class program {
 public:
  explicit program(std::vector<std::string> arguments) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    id_ = ::fork();
    if (id_ == 0) {
      ::signal(SIGINT, SIG_DFL);  // a test that was started in the background ignores it
      ::dup2(ends[1], 1);
      ::dup2(ends[1], 2);
      ::close(ends[0]);
      ::close(ends[1]);
      std::vector<char*> words;
      for (std::string& word : arguments) words.push_back(word.data());
      words.push_back(nullptr);
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    if (id_ < 0) throw std::runtime_error("cannot fork");
    output_ = ::fdopen(ends[0], "r");
  }
  program(const program&) = delete;
  ~program() {
    if (id_ > 0) {
      ::kill(id_, SIGKILL);
      finish();
    }
    std::fclose(output_);
  }

  /// Waits until the program wrote a line that begins so. False if it ended before.
  bool writes(std::string_view begin) {
    for (std::size_t start = text_.size(); read_line(); start = text_.size())
      if (std::string_view(text_).substr(start).starts_with(begin)) return true;
    return false;
  }
  void send(int signal) const {
    if (id_ > 0) ::kill(id_, signal);  // -1 would be everybody
  }
  /// Waits for the end. The exit status, or the signal that ended it plus 1000.
  int finish() {
    while (read_line()) {
    }
    int status = 0;
    ::waitpid(id_, &status, 0);
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  const std::string& text() const { return text_; }

 private:
  bool read_line() {
    for (int c = 0; (c = std::fgetc(output_)) != EOF;) {
      text_ += static_cast<char>(c);
      if (c == '\n') return true;
    }
    return false;
  }

  ::pid_t id_ = -1;
  std::FILE* output_ = nullptr;
  std::string text_;
};

}  // namespace program_test
