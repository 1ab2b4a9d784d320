// SPDX-License-Identifier: Apache-2.0
// packages: libtbb-dev libboost-dev libreaderwriterqueue-dev
// What does it cost to hand an item from one thread to another? The channel's ring alone, without data, against queues
// of packages, in the forms that sleep when there is nothing to do. Both threads are pinned to CPUs of their own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <contest.hpp>
#include <penstock/channel/ring.hpp>

#if __has_include(<oneapi/tbb/concurrent_queue.h>)
#include <oneapi/tbb/concurrent_queue.h>
#include <oneapi/tbb/version.h>
#define HANDOFF_TBB 1
#endif
#if __has_include(<readerwritercircularbuffer.h>)
#include <readerwritercircularbuffer.h>
#include <readerwriterqueue.h>
#define HANDOFF_MOODYCAMEL 1
#endif
#if __has_include(<boost/lockfree/spsc_queue.hpp>)
#include <boost/lockfree/spsc_queue.hpp>
#include <boost/version.hpp>
#define HANDOFF_BOOST 1
#endif

namespace {

using clock_type = std::chrono::steady_clock;

// A contestant has push() for the producer and pop() for the consumer; both block.

template <bool Sleeps>
class penstock_ring {
 public:
  explicit penstock_ring(std::uint32_t capacity, std::uint32_t producers = 1)
      : ring_({.host = capacity, .readers = producers}) {
    // Where threads outnumber CPUs nobody spins.
    const std::uint32_t spins = !Sleeps ? ~0u : producers < contest::cpus().size() ? 400 : 0;
    ring_.readers().set_spins(spins);
    ring_.consumer.set_spins(spins);
    ring_.open(~std::uint64_t{0} >> 10);
  }
  void push(std::uint32_t producer = 0) {
    penstock::ticket ticket;
    ring_.readers().wait([&] {
      return ring_.try_take(producer, ticket, [](std::uint32_t) { return true; }) == penstock::take_result::taken;
    });
    if (ring_.arrive(ticket)) ring_.publish(ticket, no_copy);
    ring_.leave(producer);
  }
  void pop() {
    ring_.consumer.wait([&] { return ring_.is_ready(); });
    ring_.take_back(ring_.receive(), no_copy);
  }

 private:
  static constexpr auto no_copy = [](std::uint64_t, std::uint32_t, std::uint32_t) noexcept {};
  penstock::ring<> ring_;
};

class condition_variable_queue {
 public:
  explicit condition_variable_queue(std::uint32_t capacity, std::uint32_t = 1) : capacity_(capacity) {}
  void push(std::uint32_t = 0) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return count_ < capacity_; });
    ++count_;
    items_.notify_one();
  }
  void pop() {
    std::unique_lock lock(mutex_);
    items_.wait(lock, [&] { return count_ > 0; });
    --count_;
    room_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable room_, items_;
  std::uint32_t count_ = 0;
  std::uint32_t capacity_;
};

#if HANDOFF_TBB
class tbb_bounded_queue {
 public:
  explicit tbb_bounded_queue(std::uint32_t capacity, std::uint32_t = 1) { queue_.set_capacity(capacity); }
  void push(std::uint32_t = 0) { queue_.push(1); }
  void pop() {
    int item = 0;
    queue_.pop(item);
  }

 private:
  tbb::concurrent_bounded_queue<int> queue_;
};
#endif

#if HANDOFF_MOODYCAMEL
class moodycamel_circular_buffer {
 public:
  explicit moodycamel_circular_buffer(std::uint32_t capacity) : queue_(capacity) {}
  void push() { queue_.wait_enqueue(1); }
  void pop() {
    int item = 0;
    queue_.wait_dequeue(item);
  }

 private:
  moodycamel::BlockingReaderWriterCircularBuffer<int> queue_;
};
#endif

#if HANDOFF_MOODYCAMEL
class moodycamel_polled {
 public:
  explicit moodycamel_polled(std::uint32_t capacity) : queue_(capacity) {}
  void push() {
    while (!queue_.try_enqueue(1)) penstock::std_atomics::pause();
  }
  void pop() {
    int item = 0;
    while (!queue_.try_dequeue(item)) penstock::std_atomics::pause();
  }

 private:
  moodycamel::ReaderWriterQueue<int> queue_;
};
#endif

/// By hand, for exactly one producer and one consumer: each has its index, and a copy of the other's.
class polled_by_hand {
 public:
  explicit polled_by_hand(std::uint32_t capacity) : items_(capacity), capacity_(capacity) {}
  void push() {
    while (filled_ - freed_seen_ == capacity_) {
      freed_seen_ = freed_shared_.load(std::memory_order_acquire);
      if (filled_ - freed_seen_ == capacity_) penstock::std_atomics::pause();
    }
    items_[in_] = 1;
    in_ = in_ + 1 == capacity_ ? 0 : in_ + 1;
    filled_shared_.store(++filled_, std::memory_order_release);
  }
  void pop() {
    while (filled_seen_ == freed_) {
      filled_seen_ = filled_shared_.load(std::memory_order_acquire);
      if (filled_seen_ == freed_) penstock::std_atomics::pause();
    }
    benchmark::DoNotOptimize(items_[out_]);
    out_ = out_ + 1 == capacity_ ? 0 : out_ + 1;
    freed_shared_.store(++freed_, std::memory_order_release);
  }

 private:
  std::vector<int> items_;
  std::uint64_t capacity_;
  alignas(penstock::cache_line) std::atomic<std::uint64_t> filled_shared_{0};
  alignas(penstock::cache_line) std::atomic<std::uint64_t> freed_shared_{0};
  alignas(penstock::cache_line) std::uint64_t filled_ = 0, freed_seen_ = 0, in_ = 0;   // the producer's
  alignas(penstock::cache_line) std::uint64_t freed_ = 0, filled_seen_ = 0, out_ = 0;  // the consumer's
};

#if HANDOFF_BOOST
class boost_polled {
 public:
  explicit boost_polled(std::uint32_t capacity) : queue_(capacity) {}
  void push() {
    while (!queue_.push(1)) penstock::std_atomics::pause();
  }
  void pop() {
    int item = 0;
    while (!queue_.pop(item)) penstock::std_atomics::pause();
  }

 private:
  boost::lockfree::spsc_queue<int> queue_;
};
#endif

// The cost of moving one cache line there and back, halved: what no hand-over can beat at capacity 1.
struct line {
  explicit line(std::uint32_t) {}
  void push() {
    while (turn_.load(std::memory_order_acquire) != 0) penstock::std_atomics::pause();
    turn_.store(1, std::memory_order_release);
  }
  void pop() {
    while (turn_.load(std::memory_order_acquire) != 1) penstock::std_atomics::pause();
    turn_.store(0, std::memory_order_release);
  }
  std::atomic<int> turn_{0};
};

template <class Contestant>
contest::figures hand_over(std::uint32_t capacity, int items) {
  Contestant between(capacity);
  std::atomic<bool> go{false};
  std::thread producer([&] {
    contest::pin(1);
    while (!go.load(std::memory_order_acquire)) penstock::std_atomics::pause();
    for (int i = 0; i < items; ++i) between.push();
  });
  contest::pin(0);
  const auto begin = clock_type::now();
  go.store(true, std::memory_order_release);
  for (int i = 0; i < items; ++i) between.pop();
  const std::chrono::duration<double, std::nano> time = clock_type::now() - begin;
  producer.join();
  return {time.count() / items};
}

/// Several producers share the work; one consumer.
template <class Contestant>
contest::figures hand_over_from(std::uint32_t producers, std::uint32_t capacity, int items) {
  Contestant between(capacity, producers);
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (std::uint32_t p = 0; p < producers; ++p)
    threads.emplace_back([&, p] {
      contest::pin(p + 1);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      const int own = items / static_cast<int>(producers);
      for (int i = 0; i < own; ++i) between.push(p);
    });
  contest::pin(0);
  const auto begin = clock_type::now();
  go.store(true, std::memory_order_release);
  const int all = items / static_cast<int>(producers) * static_cast<int>(producers);
  for (int i = 0; i < all; ++i) between.pop();
  const std::chrono::duration<double, std::nano> time = clock_type::now() - begin;
  for (auto& thread : threads) thread.join();
  return {time.count() / all};
}

template <class Contestant>
contest::figures alone(std::uint32_t capacity, int items) {
  Contestant between(capacity);
  contest::pin(0);
  const auto begin = clock_type::now();
  for (int i = 0; i < items; ++i) {
    between.push();
    between.pop();
  }
  const std::chrono::duration<double, std::nano> time = clock_type::now() - begin;
  return {time.count() / items};
}

}  // namespace

int main(int argc, char** argv) {
  contest::question ask("handoff", "ns per item", argc, argv);
  const auto many = static_cast<std::uint32_t>(ask.sizes.integer("depth", 64, 2));
  const auto add = [&](const char* name, contest::figures (*body)(std::uint32_t, int), std::uint32_t capacity,
                       int items) { ask.add(name, [=] { return body(capacity, items); }); };
  const int quick = 400'000, slow = 20'000;
  add("line_transfer", hand_over<line>, 1, slow);
  add("penstock_c64", hand_over<penstock_ring<true>>, many, quick);
  add("penstock_c64_again", hand_over<penstock_ring<true>>, many, quick);
  add("penstock_polled_c64", hand_over<penstock_ring<false>>, many, quick);
  add("penstock_c2", hand_over<penstock_ring<true>>, 2, quick);
  add("penstock_one_thread", alone<penstock_ring<true>>, many, quick);
  add("condition_variable_c64", hand_over<condition_variable_queue>, many, slow);
  add("condition_variable_c2", hand_over<condition_variable_queue>, 2, slow);
  add("hand_polled_c64", hand_over<polled_by_hand>, many, quick);
  // Readers up to as many as there are CPUs; then they and the consumer are one more.
  const auto most = static_cast<std::uint32_t>(
      ask.sizes.integer("readers", static_cast<int>(std::min<std::size_t>(contest::cpus().size(), 8))));
  for (std::uint32_t producers = 2; producers <= most; producers += producers < 4 ? 1 : 2) {
    const std::string from = "_from" + std::to_string(producers);
    ask.add("penstock_c64" + from, [=] { return hand_over_from<penstock_ring<true>>(producers, many, slow); });
    ask.add("condition_variable_c64" + from,
            [=] { return hand_over_from<condition_variable_queue>(producers, many, slow); });
#if HANDOFF_TBB
    ask.add("tbb_c64" + from, [=] { return hand_over_from<tbb_bounded_queue>(producers, many, slow); });
#endif
  }
#if HANDOFF_TBB
  ask.rival("oneTBB", TBB_VERSION_STRING);
  add("tbb_c64", hand_over<tbb_bounded_queue>, many, quick);
  add("tbb_c2", hand_over<tbb_bounded_queue>, 2, slow);
#else
  ask.left_out("oneTBB", "no libtbb-dev");
#endif
#if HANDOFF_MOODYCAMEL
  ask.rival("moodycamel", "blocking circular buffer");
  add("moodycamel_c64", hand_over<moodycamel_circular_buffer>, many, quick);
  add("moodycamel_c2", hand_over<moodycamel_circular_buffer>, 2, slow);
  add("moodycamel_polled_c64", hand_over<moodycamel_polled>, many, quick);
#else
  ask.left_out("moodycamel", "no libreaderwriterqueue-dev");
#endif
#if HANDOFF_BOOST
  ask.rival("boost", BOOST_LIB_VERSION);
  add("boost_polled_c64", hand_over<boost_polled>, many, quick);
  add("boost_one_thread", alone<boost_polled>, many, quick);
#else
  ask.left_out("boost", "no libboost-dev");
#endif
  return ask.run([&](contest::line& line) {
    const auto& all = ask.results();
    line.ratio("blocking_c64", "penstock_c64", all.least({"tbb_c64", "moodycamel_c64", "condition_variable_c64"}));
    line.ratio("slot_c2", "penstock_c2", all.least({"tbb_c2", "moodycamel_c2", "condition_variable_c2"}));
    line.ratio("polled_c64", "penstock_polled_c64", all.least({"boost_polled_c64", "moodycamel_polled_c64"}));
    line.ratio("blocking_over_polled", "penstock_c64", "penstock_polled_c64");
    line.value("single_thread_ns", "penstock_one_thread");
    line.again("penstock_c64", "penstock_c64_again");
  });
}
