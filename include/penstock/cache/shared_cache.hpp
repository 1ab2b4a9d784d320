// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <penstock/sample/usual_time.hpp>

namespace penstock {

/// What a cache has done since it was made.
struct cache_counts {
  std::uint64_t made = 0;     ///< values that were made: misses
  std::uint64_t found = 0;    ///< values that were there, or were just being made by another thread
  std::uint64_t dropped = 0;  ///< values that had to go for others
  std::size_t bytes = 0;      ///< held now
  std::size_t most = 0;       ///< held at most
};

/// Values by number, made once and shared by threads within a budget of bytes; the one that was not asked for longest
/// goes first.
///
/// Who asks for a value that another thread is making waits for that; where it takes much longer than values usually do
/// (8 times, and 50 ms at the least), it makes the value, too, and the first one counts: what hangs holds up one.
/// Whoever holds one keeps it alive, in the cache or not: held values that the cache has dropped are not in its budget,
/// and there are no more of them than threads that read. A value larger than the budget is handed out and not kept.
/// Safe for any number of threads.
template <class Value>
class shared_cache {
  using clock = std::chrono::steady_clock;

 public:
  /// `budget` in bytes; 0 keeps nothing, and shares only what is being made.
  explicit shared_cache(std::size_t budget) : budget_(budget) {}
  shared_cache(const shared_cache&) = delete;
  shared_cache& operator=(const shared_cache&) = delete;

  std::size_t budget() const noexcept { return budget_; }
  cache_counts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  /// The value of `key`: what is kept, or what `make()` gives, whose size `bytes_of(value)` tells. `make` is called
  /// without a lock, for each key by one thread at a time unless that takes long. What it throws leaves this call
  /// alone: others who wait try for themselves.
  template <class Make, class Bytes>
  std::shared_ptr<const Value> get(std::uint64_t key, Make&& make, Bytes&& bytes_of) {
    std::shared_ptr<making> mine;  // only where there is something to make: what is found allocates nothing
    std::unique_lock lock(mutex_);
    while (true) {
      const auto at = entries_.find(key);
      if (at == entries_.end()) {
        mine = std::make_shared<making>();
        entries_[key].under_way = mine;
        break;
      }
      if (at->second.value) {
        ++counts_.found;
        recent_.splice(recent_.begin(), recent_, at->second.place);
        return at->second.value;
      }
      // Being made. Its maker may fail, or drop it at once: then it is looked for anew.
      const std::shared_ptr<making> other = at->second.under_way;
      if (!made_.wait_until(lock, other->begun + patience(), [&] { return other->done; })) {
        if (clock::now() < other->begun + patience()) continue;  // one more makes it already
        mine = other;
        mine->begun = clock::now();
        ++mine->makers;
        break;
      }
      if (other->value) {
        ++counts_.found;
        return other->value;
      }
    }
    lock.unlock();
    const auto begun = clock::now();
    try {
      std::shared_ptr<const Value> value = std::make_shared<const Value>(make());
      const std::size_t bytes = bytes_of(*value);
      lock.lock();
      ++counts_.made;
      usual_ = clock::duration(detail::usual_after(usual_.count(), (clock::now() - begun).count()));
      if (mine->done) return value;  // another was quicker
      mine->value = value;
      if (bytes <= budget_)
        keep(key, value, bytes);
      else
        entries_.erase(key);
      mine->done = true;
      made_.notify_all();
      return value;
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      if (!mine->done && --mine->makers == 0) {
        entries_.erase(key);
        mine->done = true;
        made_.notify_all();
      }
      throw;
    }
  }

 private:
  struct making {
    clock::time_point begun = clock::now();  // by the last of its makers
    int makers = 1;
    bool done = false;
    std::shared_ptr<const Value> value;
  };
  struct entry {
    std::shared_ptr<const Value> value;  // or null while it is being made
    std::shared_ptr<making> under_way;
    std::size_t bytes = 0;
    std::list<std::uint64_t>::iterator place{};
  };

  clock::duration patience() const noexcept {
    if (usual_ == clock::duration::zero()) return std::chrono::seconds(1);  // nobody knows yet
    return std::max<clock::duration>(8 * usual_, std::chrono::milliseconds(50));
  }

  void keep(std::uint64_t key, const std::shared_ptr<const Value>& value, std::size_t bytes) {
    while (counts_.bytes > budget_ - bytes) {
      const auto oldest = entries_.find(recent_.back());
      counts_.bytes -= oldest->second.bytes;
      ++counts_.dropped;
      entries_.erase(oldest);
      recent_.pop_back();
    }
    recent_.push_front(key);  // the last that may throw
    entry& own = entries_[key];
    own.value = value;
    own.under_way = nullptr;
    own.bytes = bytes;
    own.place = recent_.begin();
    counts_.bytes += bytes;
    counts_.most = counts_.bytes > counts_.most ? counts_.bytes : counts_.most;
  }

  const std::size_t budget_;
  mutable std::mutex mutex_;
  std::condition_variable made_;
  std::unordered_map<std::uint64_t, entry> entries_;
  std::list<std::uint64_t> recent_;  // keys of what is kept, the last one asked for in front
  cache_counts counts_;
  clock::duration usual_{};
};

}  // namespace penstock
