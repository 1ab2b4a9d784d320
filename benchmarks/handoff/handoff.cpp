// SPDX-License-Identifier: Apache-2.0
// What does it cost to hand an item from one thread to another? The channel's ring alone, without data, against queues
// of packages, in the forms that sleep when there is nothing to do. Both threads are pinned to CPUs of their own.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include <contest.hpp>
#include <penstock/channel/ring.hpp>

#if __has_include(<oneapi/tbb/concurrent_queue.h>)
#include <oneapi/tbb/concurrent_queue.h>
#define HANDOFF_TBB 1
#endif
#if __has_include(<readerwritercircularbuffer.h>)
#include <readerwritercircularbuffer.h>
#define HANDOFF_MOODYCAMEL 1
#endif
#if __has_include(<boost/lockfree/spsc_queue.hpp>)
#include <boost/lockfree/spsc_queue.hpp>
#define HANDOFF_BOOST 1
#endif

namespace {

using clock_type = std::chrono::steady_clock;

// A contestant has push() for the producer and pop() for the consumer; both block.

template <bool Sleeps>
class penstock_ring {
 public:
  explicit penstock_ring(std::uint32_t capacity) : ring_({.host = capacity}) {
    const std::uint32_t spins = Sleeps ? 400 : ~0u;
    ring_.readers().set_spins(spins);
    ring_.consumer.set_spins(spins);
    ring_.open(~std::uint64_t{0} >> 10);
  }
  void push() {
    penstock::ticket ticket;
    ring_.readers().wait(
        [&] { return ring_.try_take(0, ticket, [](std::uint32_t) { return true; }) == penstock::take_result::taken; });
    if (ring_.arrive(ticket)) ring_.publish(ticket, no_copy);
    ring_.leave(0);
  }
  void pop() {
    ring_.consumer.wait([&] { return ring_.is_ready(); });
    ring_.release(ring_.receive(), no_copy);
  }

 private:
  static constexpr auto no_copy = [](std::uint64_t, std::uint32_t, std::uint32_t) noexcept {};
  penstock::ring<> ring_;
};

class condition_variable_queue {
 public:
  explicit condition_variable_queue(std::uint32_t capacity) : capacity_(capacity) {}
  void push() {
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
  explicit tbb_bounded_queue(std::uint32_t capacity) { queue_.set_capacity(capacity); }
  void push() { queue_.push(1); }
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
void hand_over(benchmark::State& state, std::uint32_t capacity) {
  constexpr int items = 20'000;
  for (auto _ : state) {
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
    const std::chrono::duration<double> time = clock_type::now() - begin;
    producer.join();
    state.SetIterationTime(time.count() / items);
  }
}

template <class Contestant>
void alone(benchmark::State& state, std::uint32_t capacity) {
  constexpr int items = 20'000;
  for (auto _ : state) {
    Contestant between(capacity);
    const auto begin = clock_type::now();
    for (int i = 0; i < items; ++i) {
      between.push();
      between.pop();
    }
    const std::chrono::duration<double> time = clock_type::now() - begin;
    state.SetIterationTime(time.count() / items);
  }
}

void add(const char* name, void (*body)(benchmark::State&, std::uint32_t), std::uint32_t capacity) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { body(state, capacity); })
      ->UseManualTime()
      ->Iterations(1);
}

}  // namespace

int main(int argc, char** argv) {
  add("line_transfer", hand_over<line>, 1);
  add("penstock_c64", hand_over<penstock_ring<true>>, 64);
  add("penstock_c64_again", hand_over<penstock_ring<true>>, 64);
  add("penstock_polled_c64", hand_over<penstock_ring<false>>, 64);
  add("penstock_c2", hand_over<penstock_ring<true>>, 2);
  add("penstock_one_thread", alone<penstock_ring<true>>, 64);
  add("condition_variable_c64", hand_over<condition_variable_queue>, 64);
  add("condition_variable_c2", hand_over<condition_variable_queue>, 2);
#if HANDOFF_TBB
  add("tbb_c64", hand_over<tbb_bounded_queue>, 64);
  add("tbb_c2", hand_over<tbb_bounded_queue>, 2);
#endif
#if HANDOFF_MOODYCAMEL
  add("moodycamel_c64", hand_over<moodycamel_circular_buffer>, 64);
  add("moodycamel_c2", hand_over<moodycamel_circular_buffer>, 2);
#endif
#if HANDOFF_BOOST
  add("boost_polled_c64", hand_over<boost_polled>, 64);
#endif
  return contest::run(argc, argv, [](const contest::table& all) {
    const double c64 = all.median("penstock_c64");
    std::printf(
        "handoff: blocking_c64=%s slot_c2=%s polled_c64=%s blocking_over_polled=%s again=%s single_thread_ns=%.1f\n",
        contest::ratio(c64, all.best({"tbb_c64", "moodycamel_c64", "condition_variable_c64"})).c_str(),
        contest::ratio(all.median("penstock_c2"), all.best({"tbb_c2", "moodycamel_c2", "condition_variable_c2"}))
            .c_str(),
        contest::ratio(all.median("penstock_polled_c64"), all.median("boost_polled_c64")).c_str(),
        contest::ratio(c64, all.median("penstock_polled_c64")).c_str(),
        contest::ratio(all.median("penstock_c64_again"), c64).c_str(), all.median("penstock_one_thread"));
  });
}
