// SPDX-License-Identifier: Apache-2.0
// The production device, by itself, on the double: handles, errors, what it leaves as it was.
#include <gtest/gtest.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include <penstock/channel/buffers.hpp>
#include <penstock/device/cuda.hpp>
#include <penstock/device/results.hpp>

#include "../cuda_double/watch.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace {

using namespace penstock;
using namespace std::chrono_literals;
using cuda_double::reads;
using cuda_double::writes;

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
template <class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return "nothing thrown";
}

static_assert(separate_device<cuda_device>);
static_assert(detail::reserves_host_memory<cuda_device>);

/// As `cuda::stream_ref` of libcu++.
struct stream_reference {
  stream_reference(cudaStream_t of) : stream(of) {}
  cudaStream_t get() const { return stream; }
  cudaStream_t stream;
};
cudaStream_t taken(stream_reference stream) { return stream.get(); }
cudaStream_t taken_plainly(cudaStream_t stream) { return stream; }

TEST(cuda, handles_convert_to_what_libraries_take_and_never_from_a_number) {
  static_assert(!std::convertible_to<int, cuda_stream_view> && !std::constructible_from<cuda_stream_view, int> &&
                !std::constructible_from<cuda_stream_view, std::nullptr_t> &&
                !std::default_initializable<cuda_stream_view>);
  static_assert(!std::constructible_from<cuda_event_view, int> &&
                !std::constructible_from<cuda_event_view, std::nullptr_t>);
  static_assert(!std::copyable<cuda_stream> && std::movable<cuda_stream> && !std::copyable<cuda_event> &&
                std::movable<cuda_event> && !std::copyable<cuda_memory> && std::movable<cuda_memory> &&
                !std::copyable<cuda_host_memory> && std::movable<cuda_host_memory>);
  const cuda_device device(0);
  const auto stream = device.make_stream();
  EXPECT_EQ(taken(stream.view()), stream.view().get());
  EXPECT_EQ(stream_reference(stream.view()).get(), stream.view().get());
  EXPECT_EQ(taken_plainly(stream.view()), stream.view().get());
  EXPECT_EQ(cuda_stream_view(stream.view().get()), stream.view());
  EXPECT_EQ(cuda_stream_view::legacy().get(), cudaStreamLegacy);
  EXPECT_EQ(cuda_stream_view::per_thread().get(), cudaStreamPerThread);
}

TEST(cuda, owners_move_and_end_what_they_own_once) {
  const cuda_device device(0);
  {
    auto stream = device.make_stream();
    auto other = std::move(stream);
    auto event = device.make_event();
    event = device.make_event();
    auto memory = device.allocate(100), more = device.allocate(200);
    memory = std::move(more);
    auto pinned = device.allocate_host(100);
    auto last = std::move(pinned);
    EXPECT_EQ(pinned.data(), nullptr);
    EXPECT_EQ(last.size(), 100U);
  }
  EXPECT_EQ(cuda_double::alive(), "");
  EXPECT_EQ(cuda_double::calls("cudaStreamDestroy"), cuda_double::calls("cudaStreamCreateWithPriority"));
  EXPECT_EQ(cuda_double::calls("cudaEventDestroy"), cuda_double::calls("cudaEventCreateWithFlags"));
}

TEST(cuda, options_are_refused_with_what_is_there) {
  EXPECT_THROW(cuda_device(2), std::invalid_argument);
  EXPECT_TRUE(says(message_of([] { cuda_device(-1); }),
                   "cuda_device: device is -1, wanted 0 to 1, the devices that are visible"));
  cuda_double::reset({.devices = 0});
  EXPECT_FALSE(cuda_device::is_available());
  EXPECT_EQ(cuda_device::count(), 0);
  EXPECT_TRUE(says(message_of([] { cuda_device(0); }), "device is 0, wanted a device, but there is none"));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  cuda_double::reset();
  cuda_double::fail("cudaGetDeviceCount", 1, cudaErrorInsufficientDriver);
  EXPECT_TRUE(says(message_of([] { cuda_device(0); }), "cudaGetDeviceCount: "));
  EXPECT_TRUE(cuda_device::is_available());
  EXPECT_EQ(cuda_device(1).describe(), "cuda 1 (double)");
}

TEST(cuda, the_current_device_is_left_as_it_was) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const cuda_device device(0);
  const auto stream = device.make_stream();
  auto event = device.make_event();
  const auto memory = device.allocate(64);
  const auto pinned = device.allocate_host(64);
  device.copy_to_device(memory.data(), pinned.data(), 64, stream.view());
  device.record(event, stream.view());
  EXPECT_EQ(device.wait(event, [] { return false; }, no_deadline), wait_result::complete);
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
  cuda_double::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  EXPECT_THROW((void)device.allocate(64), cuda_error);
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1) << "also where a call fails";
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(cuda, a_default_stream_is_that_of_the_feeds_device_whatever_is_current) {
  cuda_double::reset({.legacy_is_named = true});
  const cuda_device device(1);
  auto event = device.make_event();
  for (const auto stream : {cuda_stream_view::legacy(), cuda_stream_view::per_thread()}) {
    device.record(event, stream);  // an event of device 1 on a stream of device 0 would be refused
    device.wait(stream, event);
  }
  EXPECT_EQ(device.wait(event, [] { return false; }, no_deadline), wait_result::complete);
}

TEST(cuda, a_failed_call_is_an_exception_that_names_it_and_leaves_no_error_behind) {
  const cuda_device device(0);
  cuda_double::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  try {
    (void)device.allocate(1000);
    FAIL();
  } catch (const cuda_error& caught) {
    EXPECT_EQ(caught.code(), cudaErrorMemoryAllocation);
    EXPECT_FALSE(caught.is_sticky());
    EXPECT_TRUE(says(caught.what(), "cudaMalloc of 1000 bytes: cudaErrorMemoryAllocation (2): ")) << caught.what();
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(cuda, an_error_of_the_applications_own_is_neither_swallowed_nor_overwritten_by_ours) {
  const cuda_device device(0);
  cuda_double::leave_error(cudaErrorInvalidConfiguration);
  const std::string message = message_of([] { cuda_device(0); });
  EXPECT_TRUE(says(message, "was pending when a cuda_device was made")) << message;
  EXPECT_TRUE(says(message, "cudaErrorInvalidConfiguration")) << message;
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  const auto stream = device.make_stream();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration) << "a call that succeeds does not clear it";
}

TEST(cuda, a_not_ready_of_ours_is_cleared) {
  cuda_double::reset({.eagerness = 0});
  const cuda_device device(0);
  const auto stream = device.make_stream();
  auto event = device.make_event();
  EXPECT_TRUE(device.ready(event)) << "never recorded";
  cuda_double::hold(stream.view());
  device.record(event, stream.view());
  EXPECT_FALSE(device.ready(event));
  EXPECT_FALSE(stream.view().is_done());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  cuda_double::resume(stream.view());
}

TEST(cuda, waits_end_by_completion_interruption_and_deadline) {
  const cuda_device device(0);
  const auto stream = device.make_stream();
  auto event = device.make_event();
  cuda_double::hold(stream.view());
  device.record(event, stream.view());
  const auto never = [] { return false; };
  EXPECT_EQ(device.wait(event, never, std::chrono::steady_clock::now() + 1ms), wait_result::timed_out);
  int asked = 0;
  EXPECT_EQ(device.wait(event, [&] { return ++asked == 3; }, no_deadline), wait_result::interrupted);
  EXPECT_EQ(stream.view().synchronize([&] { return ++asked == 6; }, no_deadline), wait_result::interrupted);
  // Let go by another thread, while this one waits.
  std::jthread other([&] { cuda_double::resume(stream.view()); });
  EXPECT_EQ(device.wait(event, never, no_deadline), wait_result::complete);
}

TEST(cuda, a_dead_device_is_an_error_of_every_call_and_of_no_destructor_more_than_a_line) {
  const cuda_device device(0);
  testing::internal::CaptureStderr();
  {
    const auto stream = device.make_stream();
    cuda_double::launch(stream.view(), {}, [] { cuda_double::fault(cudaErrorIllegalAddress); });
    try {
      stream.view().synchronize();
      FAIL();
    } catch (const cuda_error& caught) {
      EXPECT_TRUE(caught.is_sticky());
      EXPECT_TRUE(says(caught.what(), "a kernel or copy that was enqueued before may be the cause")) << caught.what();
    }
  }
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(logged, "penstock: cudaStreamDestroy: cudaErrorIllegalAddress (700)")) << logged;
  cuda_double::reset();
}

TEST(cuda, pinned_memory_has_a_budget_and_a_refusal_says_how_much_was_wanted) {
  cuda_options options;
  options.pinned_budget = 10'000;
  const cuda_device device(options), copy = device;
  const auto first = device.allocate_host(6'000);
  EXPECT_TRUE(first.is_pinned());
  EXPECT_TRUE(says(message_of([&] { (void)copy.reserve_host(4'001); }),
                   "4001 bytes more than the 6000 in use are over the budget of 10000 bytes"));
  auto second = copy.reserve_host(4'000);
  EXPECT_FALSE(second.is_pinned());
  second.touch(0, 2);
  second.touch(1, 2);
  cuda_double::fail("cudaHostRegister", 1, cudaErrorMemoryAllocation);
  const std::string message = message_of([&] { second.pin(); });
  EXPECT_TRUE(says(message, "cudaHostRegister of 4000 bytes, beside 6000 that are wanted elsewhere")) << message;
  second.pin();
  EXPECT_TRUE(second.is_pinned());
  second = {};
  EXPECT_NO_THROW((void)device.reserve_host(4'000)) << "it was given back";
  EXPECT_NO_THROW((void)cuda_device(0).reserve_host(1 << 20)) << "another device value, another budget";
}

TEST(cuda, what_was_let_go_is_poisoned_where_that_is_asked_for) {
  cuda_options options;
  options.find_mistakes = false;
  const cuda_device plain(options);
  const auto stream = plain.make_stream();
  const auto memory = plain.allocate(8);
  plain.poison(memory.data(), 8, stream.view());
  EXPECT_EQ(cuda_double::calls("cudaMemsetAsync"), 0U);
  options.find_mistakes = true;
  cuda_device(options).poison(memory.data(), 8, stream.view());
  stream.view().synchronize();
  EXPECT_EQ(memory.data()[7], std::byte{0xFF});
}

TEST(cuda, pageable_memory_is_told_of_once_where_mistakes_are_to_be_found) {
  cuda_options options;
  options.find_mistakes = true;
  const cuda_device device(options);
  const auto stream = device.make_stream();
  const auto memory = device.allocate(8);
  const auto pinned = device.allocate_host(8);
  double pageable = 0;
  testing::internal::CaptureStderr();
  device.copy_to_device(memory.data(), pinned.data(), 8, stream.view());
  device.copy_to_device(memory.data(), &pageable, 8, stream.view());
  device.copy_to_host(&pageable, memory.data(), 8, stream.view());
  stream.view().synchronize();
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(told, "a copy's host memory is pageable")) << told;
  EXPECT_EQ(told.find("pageable"), told.rfind("pageable"));
  EXPECT_EQ(cuda_double::take_faults().size(), 2U) << "the double tells of each";
}

TEST(cuda, results_come_back_in_order_whole_and_only_when_they_are_there) {
  cuda_double::reset({.eagerness = 0});
  const cuda_device device(0);
  const auto stream = device.make_stream();
  const auto memory = device.allocate(3 * sizeof(float));
  auto* const loss = reinterpret_cast<float*>(memory.data());
  results<float, cuda_device> losses(device, {.size = 3, .depth = 4});
  EXPECT_FALSE(losses.next());
  EXPECT_FALSE(losses.wait());
  cuda_double::hold(stream.view());
  for (std::uint64_t step = 0; step < 4; ++step) {
    cuda_double::launch(stream.view(), {writes(loss, 12)}, [loss, step] {
      for (std::uint64_t i = 0; i < 3; ++i) loss[i] = static_cast<float>(10 * step + i);
    });
    losses.enqueue(loss, stream.view(), step);
  }
  EXPECT_FALSE(losses.next()) << "nothing has come back yet";
  EXPECT_TRUE(says(message_of([&] { losses.enqueue(loss, stream.view()); }), "all 4 are under way or unread"));
  EXPECT_EQ(losses.pending(), 4U);
  cuda_double::resume(stream.view());
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto one = losses.wait();
    ASSERT_TRUE(one);
    EXPECT_EQ(one->step, step);
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(one->values[i], static_cast<float>(10 * step + i));
    cuda_double::host_access(reads(one->values.data(), 12), "the monitor");
  }
  EXPECT_EQ(losses.pending(), 0U);
}

TEST(cuda, results_that_nobody_reads_are_not_freed_under_their_copy) {
  const cuda_device device(0);
  const auto stream = device.make_stream();
  const auto memory = device.allocate(sizeof(float));
  {
    results<float, cuda_device> losses(device);
    losses.enqueue(reinterpret_cast<const float*>(memory.data()), stream.view());
    // Its copy done, the record fails: the error is the caller's, and the copy has ended.
    cuda_double::fail("cudaEventRecord", 1, cudaErrorInvalidValue);
    EXPECT_THROW(losses.enqueue(reinterpret_cast<const float*>(memory.data()), stream.view()), cuda_error);
    EXPECT_EQ(losses.pending(), 1U);
  }
  stream.view().synchronize();
}

TEST(cuda, results_whose_end_nobody_can_tell_keep_their_memory_and_hang_nothing) {
#if defined(__SANITIZE_ADDRESS__)
  const __lsan::ScopedDisabler leaked_on_purpose{};
#endif
  for (const bool refused : {true, false}) {
    cuda_double::reset();
    cuda_double::expect_some_alive();
    const cuda_device device(0);
    const auto stream = device.make_stream();
    const auto memory = device.allocate(sizeof(float));
    testing::internal::CaptureStderr();
    {
      results<float, cuda_device> losses(device, {.timeout = 1ms});
      cuda_double::hold(stream.view());
      losses.enqueue(reinterpret_cast<const float*>(memory.data()), stream.view());
      if (refused) cuda_double::fail("cudaEventQuery", 1, cudaErrorInvalidValue);
    }
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(says(told, "nobody can tell whether results still come back")) << told;
    EXPECT_EQ(cuda_double::alive(), "1 blocks of memory, 1 pinned blocks, 1 streams");
    cuda_double::resume(stream.view());
    stream.view().synchronize();
  }
}

TEST(cuda, results_refuse_bad_options) {
  const cuda_device device(0);
  EXPECT_THROW((results<float, cuda_device>(device, {.size = 0})), std::invalid_argument);
  EXPECT_THROW((results<float, cuda_device>(device, {.depth = 0})), std::invalid_argument);
}

}  // namespace
