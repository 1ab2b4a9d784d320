// SPDX-License-Identifier: Apache-2.0
// What a header of ours brings along, read from the files, so that it cannot be out of date.
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

namespace compile_time {

class reachable {
 public:
  /// The header `name` in the folder `root`, and all that it includes from there.
  reachable(const std::filesystem::path& root, const std::string& name) : root_(root) { visit(name); }

  double own_lines() const { return lines_; }
  /// A source that includes the same headers of the system, those of other systems left out.
  std::string system_includes() const {
    std::string result;
    for (const std::string& header : system_)
      result += "#if __has_include(<" + header + ">)\n#include <" + header + ">\n#endif\n";
    return result;
  }

 private:
  void visit(const std::string& name) {
    if (!own_.insert(name).second) return;
    std::ifstream file(root_ / name);
    if (!file) throw std::runtime_error("there is no " + (root_ / name).string());
    for (std::string line; std::getline(file, line); ++lines_) {
      const auto sign = line.find_first_not_of(' ');
      if (sign == line.npos || line[sign] != '#') continue;
      const auto word = line.find_first_not_of(' ', sign + 1);
      if (word == line.npos || line.compare(word, 7, "include") != 0) continue;
      const auto begin = line.find('<', word), end = line.find('>', word);
      if (begin == line.npos || end == line.npos) continue;
      const std::string header = line.substr(begin + 1, end - begin - 1);
      if (std::filesystem::exists(root_ / header))
        visit(header);
      else
        system_.insert(header);
    }
  }

  std::filesystem::path root_;
  std::set<std::string> own_, system_;
  double lines_ = 0;
};

}  // namespace compile_time
