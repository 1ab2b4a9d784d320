// SPDX-License-Identifier: Apache-2.0
// packages: libtbb-dev
// What does the schedule itself cost, per batch? Stages that do nothing, with one reader or none, against oneTBB's
// parallel_pipeline with as many tokens, and against a ring written by hand for one producer and one consumer.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <contest.hpp>

#include "work.hpp"

#if __has_include(<oneapi/tbb/parallel_pipeline.h>)
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/version.h>
#define PIPELINE_TBB 1
#endif

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

// Counted, whoever asks for it. Not inlined: g++ would take new and free in one function for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using clock_type = std::chrono::steady_clock;

/// Times `body()`, which has to do with as many batches; tells what else it took.
template <class Body>
contest::figures timed(std::uint64_t batches, Body body) {
  const auto count = static_cast<double>(batches);
  const auto used = contest::usage::now();
  const std::uint64_t allocated = allocations.load();
  const auto begin = clock_type::now();
  const std::uint64_t done = body();
  const std::chrono::duration<double, std::nano> time = clock_type::now() - begin;
  if (done != batches) throw std::runtime_error(std::to_string(done) + " batches, wanted " + std::to_string(batches));
  const auto more = contest::usage::now() - used;
  return {time.count() / count,
          {{"allocations per batch", static_cast<double>(allocations.load() - allocated) / count},
           {"switches per batch", static_cast<double>(more.voluntary + more.involuntary) / count},
           {"cores", more.cpu_seconds / (time.count() * 1e-9)}}};
}

/// One epoch to warm up, one to be timed.
template <class Drain>
contest::figures ours(std::uint64_t batches, int readers, int depth, Drain drain) {
  empty::feed feed = (empty::dataset{batches} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                      penstock::read({.readers = readers}) | penstock::batch(1) |
                      penstock::transfer(penstock::cpu_device{}, {.depth = depth}))
                         .start();
  for (auto& batch : feed.steps(batches)) (void)batch;
  return timed(batches, [&] { return drain(feed); });
}
std::uint64_t drain_here(empty::feed& of) {
  std::uint64_t batches = 0;
  for (auto& batch : of.epoch(1)) batches += batch.size();
  return batches;
}

#if PIPELINE_TBB
contest::figures tbb_pipeline(std::uint64_t batches, std::size_t threads, std::size_t tokens) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  const auto run = [&](std::uint64_t count) {
    std::uint64_t begun = 0, done = 0;
    tbb::parallel_pipeline(
        tokens, tbb::make_filter<void, int>(tbb::filter_mode::serial_in_order, [&](tbb::flow_control& control) {
                  if (begun == count) return control.stop(), 0;
                  ++begun;
                  return 1;
                }) & tbb::make_filter<int, int>(tbb::filter_mode::serial_in_order, [](int item) {
                  return item;
                }) & tbb::make_filter<int, void>(tbb::filter_mode::serial_in_order, [&](int item) {
                  done += static_cast<std::uint64_t>(item);
                }));
    return done;
  };
  run(1000);
  return timed(batches, [&] { return run(batches); });
}
#endif

/// What an expert writes for exactly one producer and one consumer that both poll: no end, no error, no stop.
contest::figures by_hand(std::uint64_t batches, std::uint64_t slots) {
  struct alignas(penstock::cache_line) index {
    std::atomic<std::uint64_t> value{0};
  };
  index filled, freed;
  std::atomic<bool> go{false};
  std::thread reader([&] {
    contest::pin(1);
    while (!go.load(std::memory_order_acquire)) penstock::std_atomics::pause();
    std::uint64_t known = 0;
    for (std::uint64_t step = 0; step < batches; ++step) {
      while (step - known == slots) {
        known = freed.value.load(std::memory_order_acquire);
        if (step - known == slots) penstock::std_atomics::pause();
      }
      filled.value.store(step + 1, std::memory_order_release);
    }
  });
  contest::pin(0);
  auto result = timed(batches, [&] {
    go.store(true, std::memory_order_release);
    std::uint64_t known = 0;
    for (std::uint64_t step = 0; step < batches; ++step) {
      while (known == step) {
        known = filled.value.load(std::memory_order_acquire);
        if (known == step) penstock::std_atomics::pause();
      }
      freed.value.store(step + 1, std::memory_order_release);
    }
    return batches;
  });
  reader.join();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  contest::question ask("pipeline", "ns per batch", argc, argv);
  const int readers = ask.sizes.integer("readers", 1);
  const std::uint64_t many = 2'000'000, some = 500'000;
  const auto inline_here = [=] { return ours(many, 0, 2, drain_here); };
  ask.add("penstock_inline", inline_here);
  ask.add("penstock_inline_again", inline_here);
  ask.add("penstock_inline_elsewhere",
          [=] { return ours(many, 0, 2, [](empty::feed& feed) { return empty::drain_elsewhere(feed, 1); }); });
  for (const int slots : {2, 4, 16}) {
    const std::string of = std::to_string(slots);
    ask.add("penstock_t" + of, [=] { return ours(some, readers, slots, drain_here); });
    ask.add("hand_t" + of, [=] { return by_hand(some, static_cast<std::uint64_t>(slots)); });
  }
#if PIPELINE_TBB
  ask.rival("oneTBB", TBB_VERSION_STRING);
  ask.add("tbb_one_thread", [=] { return tbb_pipeline(some, 1, 1); });
  for (const std::size_t tokens : {2u, 4u, 16u})
    ask.add("tbb_t" + std::to_string(tokens), [=] { return tbb_pipeline(some, contest::cpus().size(), tokens); });
#else
  ask.left_out("oneTBB", "no libtbb-dev");
#endif
  return ask.run([&](contest::line& line) {
    const auto& all = ask.results();
    const auto greatest = [&](const char* quantity) {
      double result = 0;
      for (const char* one : {"penstock_inline", "penstock_t2", "penstock_t4", "penstock_t16"})
        if (const auto value = all.median(one, quantity)) result = std::max(result, *value);
      return result;
    };
    line.value("inline_ns", "penstock_inline");
    line.ratio("inline", "penstock_inline", "tbb_one_thread");
    line.ratio("t2", "penstock_t2", "tbb_t2");
    line.ratio("t4", "penstock_t4", "tbb_t4");
    line.ratio("t16", "penstock_t16", "tbb_t16");
    line.number("allocations", greatest("allocations per batch"));
    line.number("switches", greatest("switches per batch"));
    const auto here = all.median("penstock_inline"), elsewhere = all.median("penstock_inline_elsewhere");
    if (here && elsewhere) line.number("erased_ns", *elsewhere - *here);
    line.again("penstock_inline", "penstock_inline_again");
  });
}
