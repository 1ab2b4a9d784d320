// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <thread>

namespace laws {

/// Threads of this process that the system knows.
inline std::size_t threads_now() {
  // Sanitizers have a thread of their own, begun with the first one.
  static const bool begun = (std::thread([] {}).join(), true);
  (void)begun;
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}
/// Threads once those that were joined are gone: the system forgets a thread a moment after its join.
inline std::size_t threads_left(std::size_t wanted) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads_now() > wanted && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return threads_now();
}

/// Where threads of a test wait for each other.
class signpost {
 public:
  void reach(std::size_t by = 1) {
    const std::scoped_lock lock(mutex_);
    reached_ += by;
    changed_.notify_all();
  }
  /// False if it was not reached `count` times within a time that no test takes.
  bool await(std::size_t count = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return reached_ >= count; });
  }
  std::size_t reached() {
    const std::scoped_lock lock(mutex_);
    return reached_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t reached_ = 0;
};

}  // namespace laws
