// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace penstock {

/// Numbers of CPUs, as the system counts them: `{0, 1}`. An empty one, where threads are placed by it, leaves them all
/// CPUs that the program may use.
///
/// A plain value, as large as the system's masks: a vector of numbers would take longer to compile than all the rest.
class cpu_set {
 public:
  static constexpr int most = 1024;

  constexpr cpu_set() = default;
  constexpr cpu_set(std::initializer_list<int> numbers) {
    for (const int one : numbers) add(one);
  }

  /// One that no set holds, below 0 or above 1023, is kept apart, and refused where the set is used.
  constexpr void add(int cpu) noexcept {
    if (cpu < 0 || cpu >= most) {
      has_stray_ = true;
      stray_ = cpu;
    } else {
      words_[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
    }
  }
  constexpr bool contains(int cpu) const noexcept {
    return cpu >= 0 && cpu < most && (words_[cpu / 64] >> (cpu % 64) & 1) != 0;
  }
  constexpr std::size_t size() const noexcept {
    std::size_t count = 0;
    for (int cpu = 0; cpu < most; ++cpu) count += contains(cpu) ? 1 : 0;
    return count;
  }
  constexpr bool empty() const noexcept { return *this == cpu_set{}; }
  /// The n-th, from the lowest. Needs `n < size()`.
  constexpr int operator[](std::size_t n) const noexcept {
    int cpu = 0;
    for (std::size_t before = 0;; ++cpu)
      if (contains(cpu) && before++ == n) return cpu;
  }
  constexpr bool within(const cpu_set& other) const noexcept {
    for (int cpu = 0; cpu < most; ++cpu)
      if (contains(cpu) && !other.contains(cpu)) return false;
    return !has_stray_;
  }
  /// One that `other` lacks. Needs a set that is not within it.
  constexpr int one_not_in(const cpu_set& other) const noexcept {
    if (has_stray_) return stray_;
    int cpu = 0;
    while (!contains(cpu) || other.contains(cpu)) ++cpu;
    return cpu;
  }
  constexpr bool operator==(const cpu_set&) const = default;

  /// "0-3,8", as the system writes it.
  std::string text() const {
    std::string out;
    const auto more = [&](int number) { out += (out.empty() ? "" : ",") + std::to_string(number); };
    for (int cpu = 0; cpu < most; ++cpu) {
      if (!contains(cpu)) continue;
      more(cpu);
      int last = cpu;
      while (contains(last + 1)) ++last;
      if (last > cpu) out += '-' + std::to_string(last);
      cpu = last;
    }
    if (has_stray_) more(stray_);
    return out;
  }

 private:
  std::uint64_t words_[most / 64] = {};
  int stray_ = 0;
  bool has_stray_ = false;
};

}  // namespace penstock
