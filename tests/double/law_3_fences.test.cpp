// SPDX-License-Identifier: Apache-2.0
// Law 3 on the CUDA double, whose copies and kernels are put off and reordered as CUDA may: nothing is read before it
// has arrived, nothing overwritten before it was used, and the host does not block where a stream can wait.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "../laws/threads.hpp"
#include "support.hpp"

namespace {

using namespace laws;
using namespace doubled;

/// Told of each sample that is read.
struct notice {
  signpost* to = nullptr;
  void operator()(std::uint64_t, penstock::read_context&) const {
    if (to != nullptr) to->reach();
  }
};
using data_type = samples<notice>;
constexpr std::uint64_t n = 23;

auto start(const data_type& data, const watched_device& device, const configuration& one, transfer_options to = {}) {
  to.depth = one.depth;
  return (data | penstock::partition({.shuffle = shuffle::none}) | penstock::read({.readers = one.readers}) |
          penstock::batch({.global = one.batch, .last = one.last}) | penstock::transfer(device, std::move(to)))
      .start();
}

TEST(law_3, kernels_see_their_batch_however_copies_and_kernels_are_delayed) {
  const data_type data{n};
  for_each_schedule([&](const configuration& one) {
    for_each_delay(12, [&](std::uint64_t seed) {
      // As many slots as twins, fewer, and more.
      const int host_depths[] = {0, 1, one.depth + 2};
      std::atomic<std::uint64_t> right = 0;
      std::uint64_t wanted = 0;
      {
        auto feed = start(data, watched_device(0), one, {.host_depth = host_depths[seed % 3]});
        for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
          for (auto& batch : feed.epoch(epoch)) {
            look_at(batch, batch.stream(), right);
            wanted += batch.size();
            // Left early: the next epoch comes behind what is under way of this one.
            if (epoch % 2 == 1 && batch.step() == seed % 4) break;
          }
        // Let go of unfinished: the feed's end waits for what is enqueued on its memory.
      }
      cuda_double::finish();
      EXPECT_EQ(right, wanted);
    });
  });
}

TEST(law_3, work_on_further_streams_is_waited_for_when_it_was_named) {
  const data_type data{n};
  for_each_schedule([&](const configuration& one) {
    for_each_delay(2, [&](std::uint64_t seed) {
      const watched_device device(0);
      std::atomic<std::uint64_t> right = 0;
      const std::size_t number = one.depth == 2 ? 4 : 1 + seed % 2;
      {
        std::vector<penstock::cuda_stream> others;
        for (std::size_t i = 0; i < number; ++i) others.push_back(device.make_stream());
        auto arrived = device.make_event();
        auto feed = start(data, device, one);
        for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
          for (auto& batch : feed.epoch(epoch)) {
            device.record(arrived, batch.stream());
            for (const auto& other : others) {
              device.wait(other.view(), arrived);
              batch.used_on(other.view());
              look_at(batch, other.view(), right);
            }
          }
      }
      cuda_double::finish();
      EXPECT_EQ(right, 2 * n * number);
    });
  });
}

/// Whose stream batches are consumed on.
enum class whose { ours, named, zero, legacy, per_thread };

TEST(law_3, the_consumers_stream_may_be_any) {
  const data_type data{n};
  for (const whose one : {whose::ours, whose::named, whose::zero, whose::legacy, whose::per_thread})
    for (const int ordinal : {0, 1}) {
      const testing::ScopedTrace trace(
          __FILE__, __LINE__,
          "stream " + std::to_string(static_cast<int>(one)) + ", device " + std::to_string(ordinal));
      const bool is_legacy = one == whose::zero || one == whose::legacy;
      const on_device current(ordinal);
      for_each_delay(
          4,
          [&](std::uint64_t seed) {
            const watched_device device(ordinal);
            std::atomic<std::uint64_t> right = 0;
            {
              const auto own = device.make_stream();
              const cudaStream_t zero = nullptr;
              transfer_options to;
              if (one == whose::named) to.consumer = own.view();
              if (one == whose::zero) to.consumer = zero;
              if (one == whose::legacy) to.consumer = stream_view::legacy();
              if (one == whose::per_thread) to.consumer = stream_view::per_thread();
              auto feed = start(data, device, {.readers = static_cast<int>(seed) - 1, .depth = 2}, to);
              for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
                for (auto& batch : feed.epoch(epoch)) {
                  if (to.consumer) {
                    EXPECT_EQ(batch.stream(), *to.consumer);
                  }
                  look_at(batch, batch.stream(), right);
                }
            }
            EXPECT_EQ(cuda_double::default_streams_used(), is_legacy || one == whose::per_thread ? 1U : 0U);
            cuda_double::finish();
            EXPECT_EQ(right, 2 * n);
          },
          is_legacy);
    }
}

TEST(law_3, a_slot_is_not_written_before_its_copy_has_ended) {
  const known_failures::hang_limit limit;
  signpost reached;
  const data_type data{24, {&reached}};
  auto feed = start(data, watched_device(0), {.readers = 1, .depth = 3}, {.host_depth = 1});
  cuda_double::hold_all();
  auto first = feed.next();
  // The copy of the first batch is under way, and the reader waits for it.
  EXPECT_TRUE(somebody_waits([&] { return reached.reached() > 4; }));
  EXPECT_EQ(reached.reached(), 4U);
  cuda_double::resume_all();
  auto second = feed.next();
  EXPECT_EQ(take(first).indices, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(take(second).indices, (std::vector<std::uint64_t>{4, 5, 6, 7}));
}

TEST(law_3, a_twin_is_not_written_before_the_work_on_it_has_ended) {
  const data_type data{n};
  const known_failures::hang_limit limit;
  for (const int depth : {1, 2}) {
    std::atomic<std::uint64_t> right = 0;
    // Slots for all copies that have to wait.
    auto feed = start(data, watched_device(0), {.readers = 1, .depth = depth}, {.host_depth = 4});
    auto batch = feed.next();
    const stream_view stream = batch.stream();
    stream.synchronize();
    cuda_double::hold(stream);
    std::uint64_t wanted = 0;
    for (int i = 0; i < 4; ++i) {
      look_at(batch, stream, right);
      wanted += batch.size();
      batch.release();
      batch = feed.next();
      cuda_double::finish();  // whatever does not come behind the kernels
    }
    EXPECT_EQ(right, 0U);
    cuda_double::resume(stream);
    stream.synchronize();
    EXPECT_EQ(right, wanted);
  }
}

TEST(law_3, the_consumer_does_not_block_while_a_copy_is_under_way) {
  const known_failures::hang_limit limit;
  const data_type data{24};
  auto feed = start(data, watched_device(0), {.readers = 2, .depth = 3});
  // Nothing that is received here has arrived, and the kernels only wait behind it.
  cuda_double::hold_all();
  auto first = feed.next(), second = feed.next(), third = feed.next();
  std::atomic<std::uint64_t> right = 0;
  for (auto* batch : {&first, &second, &third}) look_at(*batch, batch->stream(), right);
  EXPECT_EQ(right, 0U);
  EXPECT_EQ(third.host<0>()[3], 11U) << "scalar fields are on the host at once";
  const auto stream = third.stream();
  first.release(), second.release(), third.release();
  cuda_double::resume_all();
  stream.synchronize();
  EXPECT_EQ(right, 12U);
}

TEST(law_3, a_copy_goes_on_beside_the_work_on_the_batch_before) {
  const data_type data{24};
  for (const int depth : {2, 3, 5}) {
    std::atomic<std::uint64_t> right = 0;
    // Read when it is asked for: what is copied behind the held kernel is not there yet.
    auto feed = start(data, watched_device(0), {.readers = 0, .depth = depth});
    auto first = feed.next();
    const stream_view stream = first.stream();
    stream.synchronize();
    cuda_double::hold(stream);
    look_at(first, stream, right);
    auto second = feed.next();
    cuda_double::finish();
    // No kernel's read: what has come is there while the kernel of the batch before is not done.
    const auto [id, values] = second.fields();
    EXPECT_EQ(id.data()[3], 7U) << "depth " << depth;
    EXPECT_EQ(values.data()[11], samples<>::value(7, 2));
    EXPECT_EQ(right, 0U);
    cuda_double::resume(stream);
  }
}

TEST(law_3, the_header_of_the_step_arrives_with_its_batch) {
  const data_type data{n};
  const auto scalars = [](const penstock::batch_info& at, std::span<float> to) {
    cuda_double::host_access(writes(to.data(), to.size_bytes()), "the scalars' function");
    to[0] = 0.5F * static_cast<float>(at.step);
    if (at.step % 2 == 0) to[15] = static_cast<float>(at.epoch) + 1;
  };
  for_each_schedule([&](configuration one) {
    for (const last_batch last : {last_batch::keep, last_batch::pad}) {
      one.last = last;
      for_each_delay(2, [&](std::uint64_t) {
        std::atomic<std::uint64_t> right = 0, wanted = 0;
        {
          auto feed = start(data, watched_device(0), one, {.scalars = scalars});
          for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
            for (auto& batch : feed.epoch(epoch)) {
              const penstock::step_header* const at = batch.header();
              ++wanted;
              cuda_double::launch(
                  batch.stream(), {reads(at, sizeof(*at))}, [at, info = batch.info(), rows = batch.rows(), &right] {
                    const bool even = info.step % 2 == 0;
                    right += at->epoch == info.epoch && at->step == info.step && at->first == 4 * info.step &&
                             at->count == info.count && at->rows == rows &&
                             at->scalars[0] == 0.5F * static_cast<float>(info.step) && at->scalars[1] == 0 &&
                             at->scalars[15] == (even ? static_cast<float>(info.epoch) + 1 : 0);
                  });
              EXPECT_EQ(batch.size(), batch.step() == 5 ? 3U : 4U);
              EXPECT_EQ(batch.rows(), last == last_batch::pad ? 4U : batch.size());
            }
        }
        cuda_double::finish();
        EXPECT_EQ(right, wanted);
        EXPECT_EQ(wanted, 12U);
      });
    }
  });
}

}  // namespace
