// SPDX-License-Identifier: Apache-2.0
// The sizes of a question, which the command line may change.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <machine.hpp>

namespace contest {

/// `--readers 2`, `--out=DIR` and the like, taken off the command line; what is left is Google Benchmark's.
class sizes {
 public:
  static constexpr const char* names[] = {"readers", "depth",     "batch", "row", "read-us",
                                          "copy-us", "kernel-us", "cpus",  "out", "timeline"};

  /// Throws `std::invalid_argument` for a flag without a value. `--cpus 0,1` is obeyed at once.
  void parse(int argc, char** argv) {
    rest_.assign(argv, argv + (argc > 0 ? 1 : 0));
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      const std::string* name = nullptr;
      std::string value;
      for (const std::string known : names) {
        const std::string flag = "--" + known;
        if (argument == flag) {
          if (++i == argc) throw std::invalid_argument(flag + " without a value");
          name = &given_.try_emplace(known).first->first;
          value = argv[i];
        } else if (argument.starts_with(flag + "=")) {
          name = &given_.try_emplace(known).first->first;
          value = argument.substr(flag.size() + 1);
        }
        if (name != nullptr) break;
      }
      if (name == nullptr)
        rest_.push_back(argv[i]);
      else
        given_[*name] = {value, false};
    }
    if (const std::string list = text("cpus", ""); !list.empty()) {
      std::vector<int> those;
      for (std::size_t at = 0; at <= list.size();) {
        const std::size_t comma = std::min(list.find(',', at), list.size());
        those.push_back(static_cast<int>(number_of("cpus", list.substr(at, comma - at))));
        at = comma + 1;
      }
      run_on(those);
    }
    (void)cpus();
  }

  /// The size as given, or `otherwise`. Throws `std::invalid_argument` for what is no number, or below `least`.
  double number(const std::string& name, double otherwise, double least = 0) {
    const std::string given = text(name, "");
    if (given.empty()) return otherwise;
    const double result = number_of(name, given);
    if (result < least)
      throw std::invalid_argument("--" + name + " is " + given + ", wanted " + std::to_string(least) + " or more");
    return result;
  }
  int integer(const std::string& name, int otherwise, int least = 1) {
    return static_cast<int>(number(name, otherwise, least));
  }
  bool given(const std::string& name) const { return given_.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise) {
    const auto found = given_.find(name);
    if (found == given_.end()) return otherwise;
    found->second.used = true;
    return found->second.value;
  }
  /// Those that were given and not asked for.
  std::vector<std::string> unused() const {
    std::vector<std::string> result;
    for (const auto& [name, value] : given_)
      if (!value.used) result.push_back("--" + name);
    return result;
  }
  std::vector<char*>& rest() { return rest_; }

 private:
  static double number_of(const std::string& name, const std::string& value) {
    char* end = nullptr;
    const double result = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0') throw std::invalid_argument("--" + name + " is " + value + ", wanted a number");
    return result;
  }

  struct one {
    std::string value;
    bool used = false;
  };
  std::map<std::string, one> given_;
  std::vector<char*> rest_;
};

}  // namespace contest
