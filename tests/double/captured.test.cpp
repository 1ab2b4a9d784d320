// SPDX-License-Identifier: Apache-2.0
// Steps that are captured into graphs, once for each buffer, and replayed.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/cuda_graph.hpp>
#include <penstock/schedule/run.hpp>

#include "../laws/configurations.hpp"

namespace {

using namespace laws;
using cuda_double::reads;
using cuda_double::watched_device;

/// What the kernels of a run have seen, when they ran.
struct seen {
  std::vector<std::uint64_t> ids, steps;
  std::vector<float> rates;
  std::uint64_t bodies = 0;
};

/// A kernel that notes the batch's ids and its header's step and first scalar.
template <class Batch>
void look(Batch& batch, seen& what) {
  ++what.bodies;
  const auto [id, values] = batch.fields();
  const auto* const header = batch.header();
  cuda_double::launch(batch.stream(), {reads(id.data(), id.size_bytes()), reads(header, sizeof(*header))},
                      [ids = id.data(), rows = batch.rows(), header, &what] {
                        for (std::size_t row = 0; row < rows; ++row) what.ids.push_back(ids[row]);
                        what.steps.push_back(header->epoch * 100 + header->step);
                        what.rates.push_back(header->scalars[0]);
                      });
}

template <class Step>
auto feed_with_rates(const samples<>& data, const watched_device& device, int depth, Step) {
  return (data | penstock::partition({.shuffle = shuffle::none}) | penstock::read({.readers = 2}) | penstock::batch(4) |
          penstock::transfer(device, {.depth = depth,
                                      .scalars =
                                          [](const penstock::batch_info& at, std::span<float> to) {
                                            to[0] = 1.0F / static_cast<float>(1 + at.epoch * 6 + at.step);
                                          }}))
      .start();
}

std::string error_of(auto&& body) {
  try {
    body();
  } catch (const penstock::error& caught) {
    return caught.what();
  }
  return "nothing thrown";
}

TEST(captured, a_step_is_captured_once_for_each_buffer_and_replays_see_each_steps_own_data_and_scalars) {
  for (int depth : {1, 2, 3}) {
    const samples<> data{23};
    const watched_device device(0);
    const std::uint64_t launched = cuda_double::calls("cudaGraphLaunch");
    seen what;
    penstock::captured step([&what](auto& batch) { look(batch, what); });
    {
      auto feed = feed_with_rates(data, device, depth, 0);
      for (std::uint64_t epoch = 0; epoch < 5; ++epoch)
        for (auto& batch : feed.epoch(epoch)) step(batch);
      feed.next().stream().synchronize();
    }
    // 5 full batches an epoch of 6; the short ones are run as they are.
    EXPECT_EQ(step.graphs(), static_cast<std::size_t>(depth));
    EXPECT_EQ(what.bodies, static_cast<std::uint64_t>(depth) + 5);
    EXPECT_EQ(cuda_double::calls("cudaGraphLaunch") - launched, 25U);
    ASSERT_EQ(what.steps.size(), 30U);
    ASSERT_EQ(what.ids.size(), 115U);
    for (std::uint64_t i = 0; i < 30; ++i) {
      EXPECT_EQ(what.steps[i], i / 6 * 100 + i % 6);
      EXPECT_EQ(what.rates[i], 1.0F / static_cast<float>(1 + i));
    }
    for (std::uint64_t i = 0; i < 115; ++i) EXPECT_EQ(what.ids[i], i % 23);
  }
}

TEST(captured, is_a_compute_of_a_pipeline_and_copies_have_no_graphs) {
  const samples<> data{23};
  const watched_device device(0);
  seen what;
  penstock::captured step([&what](auto& batch) { look(batch, what); });
  const auto work = pipeline_of(data, device, {.readers = 2, .depth = 2, .how = shuffle::none}, penstock::read()) |
                    penstock::compute(step) | penstock::reduce(0, [](int batches, auto&) { return batches + 1; });
  for (int run = 0; run < 2; ++run) {
    const auto done = penstock::run(work, {.epochs = 2});
    EXPECT_EQ(done.epochs, (std::vector<int>{6, 6}));
  }
  EXPECT_EQ(step.graphs(), 0U);
  EXPECT_EQ(cuda_double::count_alive().graphs, 0U);
  EXPECT_EQ(what.ids.size(), 92U);
}

TEST(captured, what_cannot_be_captured_is_an_error_that_says_so_and_the_stream_works_on) {
  const samples<> data{23};
  const watched_device device(0);
  auto feed = feed_with_rates(data, device, 2, 0);
  auto batch = feed.next();
  const std::string rule = "captured: the body did what a CUDA graph cannot hold";
  const auto expect_refused = [&](auto body) {
    penstock::captured step(std::move(body));
    const std::string message = error_of([&] { step(batch); });
    EXPECT_NE(message.find(rule), std::string::npos) << message;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  };
  expect_refused([](auto& on) { on.stream().synchronize(); });
  expect_refused([&](auto&) { (void)device.allocate(64); });
  expect_refused([&](auto&) {
    // Swallowed by the body: the capture's end finds it.
    try {
      (void)device.allocate(64);
    } catch (const penstock::error&) {
    }
  });
  penstock::captured throws([](auto&) { throw std::runtime_error("of the body's own"); });
  EXPECT_THROW(throws(batch), std::runtime_error);
  seen what;
  look(batch, what);
  batch.stream().synchronize();
  EXPECT_EQ(what.ids, (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

TEST(captured, a_capture_of_the_applications_own_is_not_voided_by_readers_that_ask_meanwhile) {
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    cuda_double::reset({.eagerness = 0});
    const samples<> data{23};
    const watched_device device(0);
    const auto own = device.make_stream();
    auto feed = (data | penstock::partition({.shuffle = shuffle::none}) | penstock::read({.readers = 2}) |
                 penstock::batch(4) | penstock::transfer(device, {.depth = 2, .host_depth = 1}))
                    .start();
    cuda_double::hold_all();
    auto first = feed.next();
    ASSERT_EQ(cudaStreamBeginCapture(own.view(), mode), cudaSuccess);
    // The readers ask whether the first copy is done, which it is not.
    const std::uint64_t asked = cuda_double::calls("cudaEventQuery");
    while (cuda_double::calls("cudaEventQuery") < asked + 3) std::this_thread::yield();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(own.view(), &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    cuda_double::resume_all();
    EXPECT_EQ(take(first).indices, (std::vector<std::uint64_t>{0, 1, 2, 3}));
    auto second = feed.next();
    EXPECT_EQ(take(second).indices, (std::vector<std::uint64_t>{4, 5, 6, 7}));
    cuda_double::take_faults();  // a capture in the global mode is the application's own
  }
}

TEST(captured, a_batch_that_is_let_go_in_a_capture_is_an_error_and_no_copy_is_captured) {
  const samples<> data{23};
  const watched_device device(0);
  auto feed = feed_with_rates(data, device, 2, 0);
  auto first = feed.next(), second = feed.next();
  seen what;
  penstock::captured step([&](auto& batch) {
    look(batch, what);
    first.release();
  });
  step(second);
  second.release();
  EXPECT_NE(error_of([&] {
              for (int i = 0; i < 3; ++i) feed.next().release();
            }).find("let go while its stream is captured"),
            std::string::npos);
  EXPECT_EQ(epoch_of(feed, 1), planned(23, {.how = shuffle::none}, 1)) << "begun anew it is as good as new";
  EXPECT_EQ(what.ids, (std::vector<std::uint64_t>{4, 5, 6, 7}));
}

TEST(captured, a_librarys_own_exception_about_a_void_capture_is_explained_too) {
  const samples<> data{23};
  const watched_device device(0);
  auto feed = feed_with_rates(data, device, 2, 0);
  auto batch = feed.next();
  penstock::captured step([&](auto& on) {
    if (cudaStreamQuery(on.stream()) != cudaSuccess) throw std::runtime_error("the library's");
  });
  try {
    step(batch);
    FAIL();
  } catch (const penstock::error& caught) {
    EXPECT_NE(std::string(caught.what()).find("what a CUDA graph cannot hold"), std::string::npos) << caught.what();
    EXPECT_THROW(caught.rethrow_cause(), std::runtime_error);
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(captured, the_legacy_stream_is_refused) {
  cuda_double::reset({.legacy_is_named = true});
  const samples<> data{23};
  const watched_device device(0);
  auto feed =
      (data | penstock::partition({.shuffle = shuffle::none}) | penstock::read({.readers = 2}) | penstock::batch(4) |
       penstock::transfer(device, {.depth = 2, .consumer = penstock::cuda_stream_view::legacy()}))
          .start();
  auto batch = feed.next();
  penstock::captured step([](auto&) {});
  EXPECT_NE(error_of([&] { step(batch); }).find("which is not the legacy one"), std::string::npos);
}

TEST(captured, failing_calls_leave_nothing_behind) {
  for (const char* call :
       {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"}) {
    const samples<> data{23};
    const watched_device device(0);
    seen what;
    auto feed = feed_with_rates(data, device, 2, 0);
    penstock::captured step([&what](auto& batch) { look(batch, what); });
    auto batch = feed.next();
    cuda_double::fail(call, 1, cudaErrorInvalidValue);
    EXPECT_NE(error_of([&] { step(batch); }).find(call), std::string::npos);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

}  // namespace
