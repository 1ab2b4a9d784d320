// SPDX-License-Identifier: Apache-2.0
// Lifetimes and races of slots, streams and events, as they went wrong elsewhere, on the CUDA double.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/results.hpp>

#include "../laws/threads.hpp"
#include "support.hpp"

namespace {

using namespace doubled;
using known_failures::hang_limit;

/// Image i is filled with i, and its label is i. The readers' thread is to be on device `on`.
struct pictures {
  using schema_type = penstock::schema<penstock::field<std::uint64_t>, penstock::field<float, 1>>;
  static constexpr std::size_t pixels = 64;

  std::uint64_t n = 23;
  laws::signpost* reached = nullptr;
  int on = 0;
  std::atomic<int>* elsewhere = nullptr;

  std::uint64_t size() const { return n; }
  schema_type schema() const {
    return schema_type{penstock::field<std::uint64_t>{"label"}, penstock::field<float, 1>{"image", {pixels}}};
  }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    if (reached != nullptr) reached->reach();
    if (elsewhere != nullptr) *elsewhere += current_device() != on;
    const auto& [label, image] = to;
    label() = index;
    for (std::size_t i = 0; i < pixels; ++i) image[i] = static_cast<float>(index);
    cuda_double::host_access(writes(label.data(), sizeof(index)), "a reader");
    cuda_double::host_access(writes(image.data(), pixels * sizeof(float)), "a reader");
  }
};

struct shape {
  int readers = 1;
  int depth = 2;
};
auto start(const pictures& data, const watched_device& device, shape of, transfer_options to = {},
           penstock::read_options how = {}) {
  to.depth = of.depth;
  how.readers = of.readers;
  return (data | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read(std::move(how)) |
          penstock::batch(4) | penstock::transfer(device, std::move(to)))
      .start();
}
using feed_type = decltype(start(pictures{}, watched_device(0), {}));
using batch_type = feed_type::batch_type;

/// Enqueues a kernel that counts images that are whole and that the label belongs to.
void compare(batch_type& batch, stream_view stream, std::atomic<std::uint64_t>& right) {
  const auto [label, image] = batch.fields();
  std::vector<std::uint64_t> on_host(batch.host<0>().data(), batch.host<0>().data() + batch.size());
  EXPECT_TRUE(std::ranges::equal(on_host, batch.indices()));
  cuda_double::launch(stream, {reads_all(label), reads_all(image)},
                      [label = label.data(), image = image.data(), on_host = std::move(on_host), &right] {
                        for (std::size_t row = 0; row < on_host.size(); ++row) {
                          const float* const one = image + row * pictures::pixels;
                          right += label[row] == on_host[row] &&
                                   std::count(one, one + pictures::pixels, static_cast<float>(on_host[row])) ==
                                       static_cast<std::ptrdiff_t>(pictures::pixels);
                        }
                      });
}
void compare(batch_type& batch, std::atomic<std::uint64_t>& right) { compare(batch, batch.stream(), right); }

/// What `body` throws, as text; empty if it throws nothing.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
    return "";
  } catch (const penstock::error& caught) {
    return caught.what();
  }
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- GPU-1

TEST(known_failures_f, GPU_1_a_slot_goes_back_only_after_the_copy_out_of_it) {
  const hang_limit limit;
  for (const int readers : {1, 3}) {
    std::atomic<std::uint64_t> right = 0;
    laws::signpost reached;
    const pictures data{.reached = &reached};
    auto feed = start(data, watched_device(0), {.readers = readers}, {.host_depth = 1});
    cuda_double::hold_all();
    {
      auto batch = feed.next();
      compare(batch, right);
    }
    // The batch was let go at once, and nothing of it has happened on the device.
    EXPECT_TRUE(somebody_waits([&] { return reached.reached() > 4; }));
    EXPECT_EQ(reached.reached(), 4U);
    cuda_double::resume_all();
    while (auto batch = feed.next()) compare(batch, right);
    cuda_double::finish();
    EXPECT_EQ(right, 23U);
  }
}

/// Holds all back, ends what is to be ended, and goes on once that waits.
template <class End>
void end_while_held(End&& end) {
  const std::jthread later([] {
    EXPECT_TRUE(somebody_waits());
    cuda_double::resume_all();
  });
  end();
}

TEST(known_failures_f, GPU_1_memory_is_not_freed_under_a_copy_or_a_kernel) {
  const hang_limit limit;
  const watched_device device(0);
  const pictures data{.n = 4};
  for (const bool feeds : {false, true}) {
    std::atomic<std::uint64_t> right = 0;
    std::optional feed(start(data, device, {}));
    feed->set_last_epoch(0);  // so that no reader waits for a copy
    std::optional<penstock::results<float, watched_device>> losses(device);
    cuda_double::hold_all();
    {
      auto batch = feed->next();
      compare(batch, right);
      losses->enqueue(batch.get<1>().data(), batch.stream());
    }
    end_while_held([&] { feeds ? feed.reset() : losses.reset(); });
    feed.reset();
    cuda_double::finish();
    EXPECT_EQ(right, 4U);
  }
}

// ---- GPU-2

TEST(known_failures_f, GPU_2_labels_are_those_of_the_images_in_every_step) {
  const pictures data;
  for (const int readers : {0, 1, 3})
    for (const int depth : {1, 2})
      for_each_delay(20, [&](std::uint64_t) {
        std::atomic<std::uint64_t> right = 0;
        {
          auto feed = start(data, watched_device(0), {readers, depth});
          for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
            for (auto& batch : feed.epoch(epoch)) compare(batch, right);
        }
        cuda_double::finish();
        EXPECT_EQ(right, 3 * data.n);
      });
}

// ---- GPU-4

TEST(known_failures_f, GPU_4_events_are_of_the_device_that_they_are_recorded_on) {
  const pictures data;
  for_each_delay(4, [&](std::uint64_t seed) {
    std::atomic<std::uint64_t> right = 0;
    {
      // Made and consumed side by side, by a thread that is on device 0.
      auto first = start(data, watched_device(0), {static_cast<int>(seed) - 1});
      auto second = start(data, watched_device(1), {static_cast<int>(seed) - 1});
      for (;;) {
        auto one = first.next(), other = second.next();
        if (!one) break;
        compare(one, right);
        const on_device current(1);
        compare(other, right);
      }
    }
    cuda_double::finish();
    EXPECT_EQ(right, 2 * data.n);
  });
}

TEST(known_failures_f, GPU_4_a_stream_of_another_device_is_an_error) {
  const pictures data;
  const auto foreign = watched_device(1).make_stream();
  auto feed = start(data, watched_device(0), {}, {.consumer = foreign.view()});
  const std::string found = error_of([&] {
    for ([[maybe_unused]] auto& batch : feed.epoch(0)) {
    }
  });
  EXPECT_TRUE(says(found, "cudaEventRecord: cudaErrorInvalidResourceHandle")) << found;
  const auto faults = cuda_double::take_faults();
  EXPECT_FALSE(faults.empty());
  for (const auto& fault : faults) EXPECT_TRUE(says(fault, "an event of device 0 on a stream of device 1")) << fault;
  feed = start(data, watched_device(0), {});
  cuda_double::take_faults();  // of batches that were let go since, if any
}

TEST(known_failures_f, GPU_4_what_a_failed_record_should_fence_stays_out_of_use) {
  const pictures data;
  std::size_t broken = 0, goes_on = 0;
  for (const int readers : {0, 2})
    for (std::uint64_t n = 1; n <= 16; ++n)
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        fresh({.seed = seed, .eagerness = 1});
        const testing::ScopedTrace trace(__FILE__, __LINE__, "record " + std::to_string(n));
        std::atomic<std::uint64_t> right = 0;
        std::uint64_t launched = 0;
        {
          auto feed = start(data, watched_device(0), {readers, 2});
          cuda_double::fail("cudaEventRecord", n, cudaErrorInvalidResourceHandle);
          const auto train = [&](std::uint64_t epoch) {
            for (auto& batch : feed.epoch(epoch)) {
              compare(batch, right);
              launched += batch.size();
            }
          };
          const std::string found = error_of([&] { train(0), train(1); });
          EXPECT_TRUE(says(found, "cudaEventRecord: cudaErrorInvalidResourceHandle")) << found;
          const std::string then = error_of([&] { train(2); });
          ++(then.empty() ? goes_on : broken);
          EXPECT_TRUE(then.empty() || says(then, "cudaEventRecord")) << then;
        }
        cuda_double::finish();
        EXPECT_EQ(right, launched);
      }
  EXPECT_GT(broken, 0U) << "no record was that of a copy out of a slot";
  EXPECT_GT(goes_on, 0U);
}

// ---- GPU-5

TEST(known_failures_f, GPU_5_the_parameters_of_a_step_are_not_those_of_the_next) {
  const pictures data;
  constexpr std::size_t number = penstock::step_header::most_scalars;
  const auto table = [](const penstock::batch_info& at, std::span<float> to) {
    cuda_double::host_access(writes(to.data(), to.size_bytes()), "who prepares a step");
    for (std::size_t i = 0; i < number; ++i) to[i] = static_cast<float>(100 * at.step + i);
  };
  for (const int depth : {1, 3})
    for (const bool hold : {false, true})
      for_each_delay(5, [&](std::uint64_t) {
        std::atomic<std::uint64_t> right = 0;
        {
          auto feed = start(data, watched_device(0), {1, depth}, {.host_depth = 6, .scalars = table});
          std::optional<stream_view> stream;
          while (auto batch = feed.next()) {
            stream = batch.stream();
            // Of all steps no kernel has run when the last one is prepared.
            if (hold) cuda_double::hold(*stream);
            const penstock::step_header* const header = batch.header();
            cuda_double::launch(*stream, {reads(header, sizeof(*header))}, [header, step = batch.step(), &right] {
              bool same = header->step == step;
              for (std::size_t i = 0; i < number; ++i)
                same = same && header->scalars[i] == static_cast<float>(100 * step + i);
              right += same;
            });
          }
          cuda_double::resume(*stream);
        }
        cuda_double::finish();
        EXPECT_EQ(right, 6U);
      });
}

// ---- GPU-7

TEST(known_failures_f, GPU_7_no_thread_of_a_loader_for_device_1_touches_device_0) {
  const on_device current(1);
  std::atomic<int> elsewhere = 0;
  const pictures data{.on = 1, .elsewhere = &elsewhere};
  for (const int readers : {0, 1, 3})
    for (const bool shares : {false, true}) {
      fresh({});
      cudaSetDevice(1);
      std::atomic<std::uint64_t> right = 0;
      {
        const watched_device device(1);
        penstock::results<float, watched_device> losses(device);
        penstock::read_options how;
        if (shares) how.shared = penstock::reader_pool::make(2);
        auto feed = start(data, device, {readers, 2}, {}, how);
        for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
          for (auto& batch : feed.epoch(epoch)) {
            compare(batch, right);
            losses.enqueue(batch.get<1>().data(), batch.stream());
            losses.wait();
            if (epoch == 1 && batch.step() == 2) break;
          }
      }
      EXPECT_EQ(cuda_double::contexts(), std::set<int>{1}) << readers << " readers";
      EXPECT_EQ(elsewhere, 0);
      EXPECT_EQ(current_device(), 1);
      cuda_double::finish();
      EXPECT_EQ(right, data.n + 12);
    }
}

TEST(known_failures_f, GPU_7_the_current_device_of_the_applications_thread_is_as_before) {
  std::atomic<int> elsewhere = 0;
  const pictures data{.on = 1, .elsewhere = &elsewhere};
  for (const bool per_thread : {false, true}) {
    fresh({});
    const watched_device device(1);
    transfer_options to;
    if (per_thread) to.consumer = stream_view::per_thread();
    std::atomic<std::uint64_t> right = 0;
    {
      penstock::results<float, watched_device> losses(device);
      EXPECT_EQ(current_device(), 0);
      auto feed = start(data, device, {}, to);
      EXPECT_EQ(current_device(), 0);
      while (auto batch = feed.next()) {
        EXPECT_EQ(current_device(), 0);
        {
          const on_device current(1);  // a launch needs it
          compare(batch, right);
        }
        losses.enqueue(batch.get<1>().data(), batch.stream());
        losses.next();
        EXPECT_EQ(current_device(), 0);
        batch.release();
        EXPECT_EQ(current_device(), 0);
        if (losses.pending() > 3) losses.wait();
      }
    }
    EXPECT_EQ(current_device(), 0);
    EXPECT_EQ(elsewhere, 0);
    cuda_double::finish();
    EXPECT_EQ(right, data.n);
  }
}

// ---- GPU-8

/// `body` reports an error of the application's own as such, clears nothing, and may be called again.
template <class Body>
void expect_reported(const char* doing, Body&& body) {
  for (int again = 0; again < 2; ++again) {
    const std::string found = error_of(body);
    EXPECT_TRUE(says(found, "an error of the application's own was pending when")) << found;
    EXPECT_TRUE(says(found, doing) && says(found, "cudaErrorInvalidConfiguration")) << found;
    EXPECT_FALSE(says(found, "Async")) << found;
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  }
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}
template <class Body>
void expect_pending(const char* doing, Body&& body) {
  cuda_double::leave_error(cudaErrorInvalidConfiguration);
  expect_reported(doing, body);
}

TEST(known_failures_f, GPU_8_an_error_of_the_applications_own_is_reported_on_entry_and_stays) {
  const pictures data;
  const char* const asked = "the next batch was asked for";
  expect_pending("a cuda_device was made", [] { watched_device(0); });
  for (const int readers : {0, 2}) {
    auto feed = start(data, watched_device(0), {readers, 2});
    expect_pending(asked, [&] { feed.next(); });
    expect_pending(asked, [&] { feed.epoch(0); });
    EXPECT_EQ(feed.next().indices()[0], 0U);
    expect_pending(asked, [&] { feed.next(); });
    EXPECT_EQ(feed.next().indices()[0], 4U);
    // In a loop: at the comparison that follows the launch, the last one, too.
    for (const std::uint64_t last : {2, 5}) {
      std::uint64_t steps = 0;
      expect_reported(asked, [&] {
        for (auto& batch : feed.steps(4)) {
          ++steps;
          if (batch.step() == last) cuda_double::leave_error(cudaErrorInvalidConfiguration);
        }
      });
      EXPECT_EQ(steps, last == 2 ? 1U : 3U);
    }
    EXPECT_EQ((*feed.epoch(1).begin()).step(), 0U);
  }
}

TEST(known_failures_f, GPU_8_what_ends_or_only_asks_does_not_swallow_an_error) {
  const hang_limit limit;
  const watched_device device(0);
  const pictures data{.n = 4};
  for (const bool feeds : {false, true}) {
    std::optional feed(start(data, device, {}));
    feed->set_last_epoch(0);
    std::optional<penstock::results<float, watched_device>> losses(device);
    cuda_double::hold_all();
    auto batch = feed->next();
    losses->enqueue(batch.get<1>().data(), batch.stream());
    const stream_view stream = batch.stream();
    cuda_double::leave_error(cudaErrorInvalidConfiguration);
    EXPECT_FALSE(losses->next());
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration) << "results::next";
    cuda_double::leave_error(cudaErrorInvalidConfiguration);
    EXPECT_FALSE(stream.is_done());
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration) << "cuda_stream_view::is_done";
    cuda_double::leave_error(cudaErrorInvalidConfiguration);
    batch.release();
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration) << "a batch was let go";
    end_while_held([&] { feeds ? feed.reset() : losses.reset(); });
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration) << (feeds ? "a feed ended" : "results ended");
    cudaGetLastError();
  }
}

TEST(known_failures_f, GPU_8_errors_of_ours_are_told_once_and_leave_no_trace) {
  const pictures data;
  for (const char* const call : {"cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent"}) {
    fresh({});
    auto feed = start(data, watched_device(0), {.readers = 0});
    cuda_double::fail(call, 2, cudaErrorInvalidValue);
    const std::string found = error_of([&] {
      for ([[maybe_unused]] auto& batch : feed.epoch(0)) EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << call;
    });
    EXPECT_TRUE(says(found, call) && says(found, "cudaErrorInvalidValue")) << found;
    EXPECT_FALSE(says(found, "application")) << found;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
}

// ---- GPU-10

TEST(known_failures_f, GPU_10_results_are_read_when_they_have_come_back_and_never_in_part) {
  constexpr std::size_t size = 16;
  const auto check = [&](const auto& loss, std::uint64_t step) {
    cuda_double::host_access(reads(loss.values.data(), loss.values.size_bytes()), "the progress monitor");
    EXPECT_EQ(loss.step, step);
    EXPECT_EQ(loss.values.size(), size);
    for (const float value : loss.values) EXPECT_EQ(value, static_cast<float>(step) + 1);
  };
  for_each_delay(20, [&](std::uint64_t seed) {
    const watched_device device(0);
    const auto stream = device.make_stream();
    const auto memory = device.allocate(size * sizeof(float));
    auto* const loss = reinterpret_cast<float*>(memory.data());
    penstock::results<float, watched_device> losses(device, {.size = size, .depth = 3});
    const auto step = [&](std::uint64_t number) {
      cuda_double::launch(stream.view(), {writes(loss, size * sizeof(float))},
                          [=] { std::fill(loss, loss + size, static_cast<float>(number) + 1); });
      losses.enqueue(loss, stream.view(), number);
    };
    // Behind work that takes its time there is nothing, however often it is asked for.
    cuda_double::hold(stream.view());
    step(0);
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(losses.next());
    EXPECT_FALSE(losses.wait([] { return true; }, penstock::no_deadline));
    EXPECT_FALSE(losses.wait([] { return false; }, std::chrono::steady_clock::now()));
    cuda_double::resume(stream.view());
    std::uint64_t read = 0;
    for (std::uint64_t number = 1; number < 20; ++number) {
      if (losses.pending() == 3) check(*losses.wait(), read++);
      step(number);
      if (number % (1 + seed % 3) == 0)
        while (const auto one = losses.next()) check(*one, read++);
    }
    while (const auto one = losses.wait()) check(*one, read++);
    EXPECT_EQ(read, 20U);
  });
}

}  // namespace
