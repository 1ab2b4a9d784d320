// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define KNOWN_FAILURES_SANITIZED 1
#else
#define KNOWN_FAILURES_SANITIZED 0
#endif

namespace known_failures {

/// Ends the process when a test hangs: by a signal, as a thread would be counted among those that a test looks for. The
/// limit is no measure of speed.
class hang_limit {
 public:
  explicit hang_limit(unsigned seconds = 120) { ::alarm(seconds); }
  hang_limit(const hang_limit&) = delete;
  ~hang_limit() { ::alarm(0); }
};

/// Entries of a directory of /proc.
inline std::size_t entries_of(const char* path) {
  std::size_t count = 0;
  DIR* directory = ::opendir(path);
  if (directory == nullptr) return 0;
  while (const dirent* entry = ::readdir(directory)) count += entry->d_name[0] != '.';
  ::closedir(directory);
  return count;
}
inline std::size_t threads_alive() {
  // A sanitizer has a thread of its own from the first one on.
  static const bool begun = (std::thread([] {}).join(), true);
  return begun ? entries_of("/proc/self/task") : 0;
}
/// Without the one that counts.
inline std::size_t open_descriptors() { return entries_of("/proc/self/fd") - 1; }

/// True once `done()` is; false if it is not within a time that only a hang takes.
template <class Done>
bool comes_true(Done&& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}
/// A joined thread leaves /proc a moment after its join.
inline bool threads_come_back_to(std::size_t before) {
  return comes_true([&] { return threads_alive() <= before; });
}

struct nothing {
  void operator()(std::uint64_t) const noexcept {}
};

/// Sample i is the number i; `hook(i)` is called by the reader first.
template <class Hook = nothing>
struct numbers {
  std::uint64_t n = 0;
  Hook hook{};

  std::uint64_t size() const { return n; }
  auto schema() const { return penstock::schema{penstock::field<std::uint64_t>{"number"}}; }
  template <class To>
  void read(std::uint64_t index, const To& to) const {
    hook(index);
    *std::get<0>(to).data() = index;
  }
};
template <class Hook>
numbers(std::uint64_t, Hook) -> numbers<Hook>;

/// What a batch holds, by its data.
template <class Batch>
std::vector<std::uint64_t> numbers_of(const Batch& batch) {
  const auto data = batch.template host<0>();
  return {data.data(), data.data() + batch.size()};
}
template <class Range>
std::vector<std::vector<std::uint64_t>> all_of(Range&& range) {
  std::vector<std::vector<std::uint64_t>> result;
  for (auto& batch : range) result.push_back(numbers_of(batch));
  return result;
}
inline std::vector<std::uint64_t> joined(const std::vector<std::vector<std::uint64_t>>& batches) {
  std::vector<std::uint64_t> result;
  for (const auto& batch : batches) result.insert(result.end(), batch.begin(), batch.end());
  return result;
}
inline std::vector<std::uint64_t> first_numbers(std::uint64_t n) {
  std::vector<std::uint64_t> result(n);
  for (std::uint64_t i = 0; i < n; ++i) result[i] = i;
  return result;
}

/// Closed until it is opened, for good.
class latch {
 public:
  void open() {
    open_.store(true, std::memory_order_release);
    open_.notify_all();
  }
  void wait() const { open_.wait(false, std::memory_order_acquire); }
  bool is_open() const { return open_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> open_{false};
};

}  // namespace known_failures
