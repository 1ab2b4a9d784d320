// SPDX-License-Identifier: Apache-2.0
// Hidden synchronisation and lost overlap, as they went wrong elsewhere, on the CUDA double.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <penstock/device/results.hpp>

#include "support.hpp"

namespace {

using namespace doubled;
using known_failures::hang_limit;

/// What is opened, and when it may be.
struct files {
  std::thread::id application = std::this_thread::get_id();
  std::atomic<int> opened = 0, by_application = 0;
  known_failures::latch may_open;
};

/// Samples of `length` equal numbers, from files that take as long to open as the test wants.
struct samples {
  using schema_type = penstock::schema<penstock::field<float, 1>>;

  std::uint64_t n = 80;
  std::size_t length = 8;
  files* from = nullptr;

  struct reader {
    std::size_t length;
    void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) {
      std::fill_n(std::get<0>(to).data(), length, static_cast<float>(index));
    }
  };
  std::uint64_t size() const { return n; }
  schema_type schema() const { return schema_type{penstock::field<float, 1>{"numbers", {length}}}; }
  reader open() const {
    if (from != nullptr) {
      ++from->opened;
      if (std::this_thread::get_id() == from->application)
        ++from->by_application;  // which would wait for itself
      else
        from->may_open.wait();
    }
    return {length};
  }
};

struct shape {
  int readers = 1;
  int depth = 3;
  std::int64_t batch = 4;
};
auto start(samples data, const watched_device& device, shape of, transfer_options to = {},
           std::shared_ptr<penstock::reader_pool> pool = nullptr) {
  to.depth = of.depth;
  return (std::move(data) | penstock::partition({.shuffle = penstock::shuffle::none}) |
          penstock::read({.readers = of.readers, .shared = std::move(pool)}) | penstock::batch(of.batch) |
          penstock::transfer(device, std::move(to)))
      .start();
}

/// Enqueues a kernel that counts the batch's samples that are whole.
template <class Batch>
void look_at_all(Batch& batch, std::atomic<std::uint64_t>& right) {
  const auto numbers = batch.template get<0>();
  cuda_double::launch(
      batch.stream(), {reads_all(numbers)},
      [data = numbers.data(), rows = batch.size(), length = numbers.extent(1), first = batch.indices()[0], &right] {
        for (std::size_t row = 0; row < rows; ++row) {
          const float* const one = data + row * length;
          right +=
              std::count(one, one + length, static_cast<float>(first + row)) == static_cast<std::ptrdiff_t>(length);
        }
      });
}

// ---- SYN-1

TEST(known_failures_g, SYN_1_copies_are_of_pinned_memory_and_enqueueing_them_waits_for_nothing) {
  const hang_limit limit;
  const watched_device device(0);
  for (const int readers : {0, 1, 4}) {
    std::atomic<std::uint64_t> right = 0;
    {
      auto feed = start({}, device, {readers});
      penstock::results<float, watched_device> losses(device, {.depth = 3});
      // Nothing at all happens on the device: whatever waits for it hangs.
      cuda_double::hold_all();
      auto first = feed.next(), second = feed.next(), third = feed.next();
      for (auto* batch : {&first, &second, &third}) {
        look_at_all(*batch, right);
        losses.enqueue(batch->get<0>().data(), batch->stream());
        batch->release();
      }
      EXPECT_EQ(right, 0U);
      cuda_double::resume_all();
    }
    EXPECT_EQ(right, 12U);
  }
  EXPECT_GE(cuda_double::calls("cudaMemcpyAsync"), 18U);
  EXPECT_EQ(cuda_double::pageable_copies(), 0U);
}

TEST(known_failures_g, SYN_1_a_copy_of_pageable_memory_does_not_pass_unseen) {
  const watched_device device(0);
  const auto stream = device.make_stream();
  const auto there = device.allocate(64);
  std::vector<std::byte> pageable(64);
  auto host = device.reserve_host(64);
  const auto found = [&](auto&& copy) {
    const auto before = cuda_double::pageable_copies();
    copy();
    const auto faults = cuda_double::take_faults();
    for (const auto& fault : faults) EXPECT_NE(fault.find("pageable"), std::string::npos) << fault;
    EXPECT_EQ(cuda_double::pageable_copies() - before, faults.size());
    return faults.size();
  };
  EXPECT_EQ(found([&] { device.copy_to_device(there.data(), pageable.data(), 64, stream.view()); }), 1U);
  EXPECT_EQ(found([&] { device.copy_to_host(pageable.data(), there.data(), 64, stream.view()); }), 1U);
  EXPECT_EQ(found([&] { device.copy_to_device(there.data(), host.data(), 64, stream.view()); }), 1U)
      << "mapped, and not yet pinned";
  host.pin();
  EXPECT_EQ(found([&] { device.copy_to_device(there.data(), host.data(), 64, stream.view()); }), 0U);
  stream.view().synchronize();
}

// ---- SYN-2

TEST(known_failures_g, SYN_2_nothing_is_done_on_a_default_stream) {
  for (const int readers : {0, 1, 4})
    for (const bool own : {false, true})
      for_each_delay(3, [&](std::uint64_t seed) {
        const watched_device device(0);
        std::atomic<std::uint64_t> right = 0;
        {
          const auto stream = device.make_stream(), other = device.make_stream();
          auto arrived = device.make_event();
          transfer_options to;
          if (own) to.consumer = stream.view();
          penstock::results<float, watched_device> losses(device, {.depth = 20});
          auto feed = start({}, device, {readers}, to);
          for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
            for (auto& batch : feed.epoch(epoch)) {
              look_at_all(batch, right);
              device.record(arrived, batch.stream());
              device.wait(other.view(), arrived);
              batch.used_on(other.view());
              if (epoch == 0) losses.enqueue(batch.get<0>().data(), other.view());
              if (epoch == 1 && batch.step() == seed) break;
            }
          while (losses.wait()) {
          }
        }
        cuda_double::finish();
        EXPECT_EQ(right, 80 + 4 * (seed + 1));
        // That the library's streams do not wait for the legacy one is seen to by the double.
        EXPECT_GE(cuda_double::calls("cudaStreamCreateWithPriority"), 4U);
        EXPECT_EQ(cuda_double::default_streams_used(), 0U);
      });
}

// ---- SYN-4

TEST(known_failures_g, SYN_4_nothing_is_allocated_or_freed_after_the_first_batch) {
  std::uint64_t random = 1, batches = 0;
  const auto draw = [&](std::uint64_t below) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % below;
  };
  while (batches < 200) {
    // Of 100 to 200 kB, the last one of each epoch shorter.
    const std::uint64_t capacity = 4 + draw(5);
    const samples data{.n = capacity * 8 + 1 + draw(capacity - 1), .length = 6250};
    std::atomic<std::uint64_t> right = 0, wanted = 0;
    {
      auto feed =
          start(data, watched_device(0),
                {static_cast<int>(draw(4)), static_cast<int>(2 + draw(3)), static_cast<std::int64_t>(capacity)});
      for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
        for (auto& batch : feed.epoch(epoch)) {
          cuda_double::hot_path(true);
          look_at_all(batch, right);
          wanted += batch.size();
          ++batches;
          if (epoch == 2 && draw(5) == 0) break;
        }
      cuda_double::hot_path(false);
    }
    cuda_double::finish();
    EXPECT_EQ(right, wanted);
  }
}

// ---- SYN-5

TEST(known_failures_g, SYN_5_there_is_one_stream_for_copies_and_one_for_work) {
  const watched_device device(0);
  const samples data{.n = 256};
  const auto made = [] { return cuda_double::calls("cudaStreamCreateWithPriority"); };
  for (const int readers : {0, 1, 8})
    for (const int depth : {1, 2, 6}) {
      const auto before = made();
      std::atomic<std::uint64_t> right = 0;
      {
        auto feed = start(data, device, {readers, depth});
        penstock::results<float, watched_device> losses(device);
        EXPECT_EQ(made() - before, 2U) << depth << " buffers, " << readers << " readers";
        for (auto& batch : feed.epoch(0)) {
          look_at_all(batch, right);
          losses.enqueue(batch.get<0>().data(), batch.stream());
        }
        feed.next();
        EXPECT_EQ(cuda_double::count_alive().streams, 2U);
        EXPECT_EQ(made() - before, 2U);
      }
      cuda_double::finish();
      EXPECT_EQ(right, data.n);
    }
}

TEST(known_failures_g, SYN_5_copies_do_not_wait_for_work_on_the_batches_before) {
  const hang_limit limit;
  std::atomic<std::uint64_t> right = 0;
  // Read when they are asked for: the batches behind the held kernel are not there yet.
  auto feed = start({}, watched_device(0), {0, 3});
  auto first = feed.next();
  const stream_view stream = first.stream();
  stream.synchronize();
  cuda_double::hold(stream);
  look_at_all(first, right);
  auto second = feed.next(), third = feed.next();
  cuda_double::finish();
  EXPECT_EQ(right, 0U);
  for (auto* batch : {&second, &third})
    EXPECT_EQ(batch->get<0>().data()[0], static_cast<float>(batch->indices()[0])) << "the copy has waited for work";
  cuda_double::resume(stream);
  cuda_double::finish();
  EXPECT_EQ(right, 4U);
}

// ---- SYN-7

TEST(known_failures_g, SYN_7_the_applications_thread_opens_no_file_and_waits_for_none) {
  const hang_limit limit(60);
  for (const int readers : {1, 4, 8})
    for (const bool shares : {false, true}) {
      files from;
      std::atomic<std::uint64_t> right = 0;
      {
        std::shared_ptr<penstock::reader_pool> pool;
        if (shares) pool = penstock::reader_pool::make(readers);
        const samples data{.n = 32, .from = &from};
        auto feed = start(data, watched_device(0), {readers, 2, 8}, {}, pool);
        auto epoch = feed.epoch(0);
        // It is here, although no file has been opened to the end.
        EXPECT_FALSE(from.may_open.is_open());
        from.may_open.open();
        for (auto& batch : epoch) look_at_all(batch, right);
      }
      cuda_double::finish();
      EXPECT_EQ(right, 32U);
      EXPECT_EQ(from.by_application, 0);
      EXPECT_GE(from.opened, 1);
      EXPECT_LE(from.opened, readers);
    }
}

}  // namespace
