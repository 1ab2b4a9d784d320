// SPDX-License-Identifier: Apache-2.0
// What was measured, and how it is told: samples by contestant and quantity, medians and spread, the closing line.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace contest {

/// All samples of a question. Disturbed ones are kept apart: shown, and counted in a median only where there are no
/// others.
class table {
 public:
  /// Contestants are listed in the order in which they were entered.
  void enter(const std::string& contestant) { contestants_.push_back(contestant); }
  void add(const std::string& contestant, const std::string& quantity, double value, bool disturbed) {
    if (std::find(quantities_.begin(), quantities_.end(), quantity) == quantities_.end())
      quantities_.push_back(quantity);
    auto& of = samples_[{quantity, contestant}];
    (disturbed ? of.disturbed : of.good).push_back(value);
  }
  bool empty() const { return samples_.empty(); }

  /// Nothing if it did not run.
  std::optional<double> median(const std::string& contestant, const std::string& quantity = {}) const {
    const auto found = samples_.find({quantity.empty() ? quantities_.at(0) : quantity, contestant});
    if (found == samples_.end()) return {};
    return found->second.middle();
  }
  /// The one of least (or greatest) median of those that ran, by the first quantity or the one named.
  std::string least(const std::vector<std::string>& of, const std::string& quantity = {}) const {
    return extreme(of, quantity, 1);
  }
  std::string greatest(const std::vector<std::string>& of, const std::string& quantity = {}) const {
    return extreme(of, quantity, -1);
  }

  void print(std::FILE* to) const {
    for (const std::string& quantity : quantities_) {
      std::fprintf(to, "\n%-34s %12s %12s %12s %6s %10s\n", quantity.c_str(), "median", "lowest", "highest", "runs",
                   "disturbed");
      for (const std::string& contestant : contestants_) {
        const auto found = samples_.find({quantity, contestant});
        if (found == samples_.end()) continue;
        const one& all = found->second;
        const auto& shown = all.good.empty() ? all.disturbed : all.good;
        const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
        std::fprintf(
            to, "%-34s %12s %12s %12s %6zu %10s\n", contestant.c_str(), text(all.middle()).c_str(), text(*low).c_str(),
            text(*high).c_str(), all.good.size() + all.disturbed.size(),
            all.disturbed.empty() ? "" : (all.good.empty() ? "all" : std::to_string(all.disturbed.size())).c_str());
      }
    }
  }

  /// Every sample, also those that a median leaves out: contestant, quantity, value, disturbed.
  void write(std::FILE* to) const {
    std::fprintf(to, "contestant,quantity,value,disturbed\n");
    for (const auto& [of, all] : samples_) {
      for (const double value : all.good)
        std::fprintf(to, "%s,%s,%.9g,0\n", of.second.c_str(), of.first.c_str(), value);
      for (const double value : all.disturbed)
        std::fprintf(to, "%s,%s,%.9g,1\n", of.second.c_str(), of.first.c_str(), value);
    }
  }

  /// Five significant digits.
  static std::string text(double value) {
    char out[40];
    const int before = value == 0 ? 1 : static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
    std::snprintf(out, sizeof(out), "%.*f", before >= 5 ? 0 : std::min(5 - before, 6), value);
    return out;
  }

 private:
  struct one {
    std::vector<double> good, disturbed;
    double middle() const {
      auto all = good.empty() ? disturbed : good;
      const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
      std::nth_element(all.begin(), all.begin() + half, all.end());
      const double upper = all[static_cast<std::size_t>(half)];
      if (all.size() % 2 == 1) return upper;
      return (upper + *std::max_element(all.begin(), all.begin() + half)) / 2;
    }
  };
  std::string extreme(const std::vector<std::string>& of, const std::string& quantity, double sign) const {
    std::string result;
    double best = 0;
    for (const std::string& name : of) {
      const auto value = median(name, quantity);
      if (value && (result.empty() || sign * *value < best)) result = name, best = sign * *value;
    }
    return result;
  }

  std::map<std::pair<std::string, std::string>, one> samples_;
  std::vector<std::string> contestants_, quantities_;
};

/// The closing line: `question: name=value name=value ...`. A ratio nearer to 1 than a contestant is to itself is a
/// tie.
class line {
 public:
  explicit line(const table& of) : of_(of) {}

  /// `ours` over `theirs`, contestants of the table; "none" where one of them did not run.
  void ratio(const std::string& name, const std::string& ours, const std::string& theirs,
             const std::string& quantity = {}) {
    const auto a = of_.median(ours, quantity), b = of_.median(theirs, quantity);
    if (!a || !b || *b == 0) return add(name, "none");
    ratios_.emplace_back(name, *a / *b);
    number(name, *a / *b);
  }
  /// The same for one contestant that was entered twice: what the ratios' noise is.
  void again(const std::string& once, const std::string& twice, const std::string& quantity = {}) {
    const auto a = of_.median(twice, quantity), b = of_.median(once, quantity);
    if (!a || !b || *b == 0) return add("again", "none");
    noise_ = std::abs(*a / *b - 1);
    number("again", *a / *b);
  }
  void value(const std::string& name, const std::string& contestant, const std::string& quantity = {}) {
    const auto found = of_.median(contestant, quantity);
    found ? number(name, *found) : add(name, "none");
  }
  void number(const std::string& name, double value) {
    char out[40];
    std::snprintf(out, sizeof(out), "%.3f", value);
    add(name, out);
  }
  void add(const std::string& name, const std::string& text) { text_ += " " + name + "=" + text; }

  void print(std::FILE* to, const std::string& question) const {
    std::string ties;
    for (const auto& [name, ratio] : ratios_)
      if (std::abs(ratio - 1) < noise_) ties += " " + name;
    std::fprintf(to, "\n");
    if (noise_ > 0)
      std::fprintf(to, "noise: one contestant, entered twice, differs from itself by %.1f %%; ties:%s\n", 100 * noise_,
                   ties.empty() ? " none" : ties.c_str());
    std::fprintf(to, "%s:%s\n", question.c_str(), text_.c_str());
  }

 private:
  const table& of_;
  std::vector<std::pair<std::string, double>> ratios_;
  double noise_ = 0;
  std::string text_;
};

}  // namespace contest
