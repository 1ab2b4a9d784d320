// SPDX-License-Identifier: Apache-2.0
// Replicas on CUDA devices, threads of one process, on the double: two that share one device, several devices that
// reach each other or do not, in every order that CUDA allows.
#include <atomic>
#include <chrono>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <penstock/communicator/local_cuda.hpp>

#include "../communicator/support.hpp"
#include "support.hpp"
#include "watchdog.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace {

using namespace communicators;
using namespace std::chrono_literals;
using cuda_double::watched_device;

/// Kernels of the double.
struct double_kernels : penstock::detail::cuda_peer_copies {
  void sum(const penstock::cuda_device& device, const penstock::local_sum& what, penstock::cuda_stream_view on) const {
    const penstock::detail::cuda_scope scope(device.ordinal());
    const std::size_t bytes = what.count * penstock::size_of(what.type);
    std::vector<cuda_double::touch> touches;
    for (std::uint32_t r = 0; r < what.ranks; ++r) touches.push_back(cuda_double::reads(what.from[r], bytes));
    for (std::uint32_t t = 0; t < what.targets; ++t) touches.push_back(cuda_double::writes(what.to[t], bytes));
    cuda_double::launch(on, std::move(touches), [what] { penstock::detail::sum_on_host(what); });
  }
};
template <class Device>
using world_of = penstock::local_device_world<Device, double_kernels>;

template <class Device>
struct on_the_double {
  using device_type = Device;
  template <class Body>
  static void launch(const Device& device, penstock::cuda_stream_view on, std::initializer_list<touch> touches,
                     Body body) {
    const penstock::detail::cuda_scope scope(device.ordinal());
    std::vector<cuda_double::touch> all;
    for (const touch& one : touches) all.push_back({one.data, one.bytes, one.writes});
    cuda_double::launch(on, std::move(all), std::move(body));
  }
};
using doubled_cuda = on_the_double<watched_device>;

using ordinals = std::vector<int>;
template <class Device = watched_device>
world_of<Device> world_on(const ordinals& where) {
  std::vector<Device> devices;
  for (const int one : where) devices.emplace_back(one);
  return world_of<Device>(std::move(devices));
}
// Two on one device; two that are linked; three on two; a device that the others do not reach.
const ordinals machines[] = {{0}, {0, 0}, {0, 1}, {1, 0, 1}, {0, 1, 2}, {0, 3}, {3, 2, 1, 0}, {1, 1, 1, 1}};

/// `body(machine, seed)` on doubles with four devices.
template <class Body>
void for_each_machine(std::uint64_t seeds, Body&& body) {
  if (KNOWN_FAILURES_SANITIZED) seeds = 1;
  for (const ordinals& where : machines)
    for (const unsigned eagerness : {0U, 1U, 3U, 20U})
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        std::string text = "seed " + std::to_string(seed) + ", eagerness " + std::to_string(eagerness) + ", devices";
        for (const int one : where) text += ' ' + std::to_string(one);
        const testing::ScopedTrace trace(__FILE__, __LINE__, text);
        const watchdog watching(text);
        doubled::fresh({.seed = cuda_double::seed_or(seed), .devices = 4, .eagerness = eagerness});
        body(where);
        if (testing::Test::HasFailure()) return;
      }
}

TEST(local_device, training_comes_to_what_one_rank_does) {
  const line wanted = closed_form(5);
  std::map<std::size_t, line> first;
  for_each_machine(3, [&](const ordinals& where) {
    for (const bool early : {false, true}) {
      const line found = train<doubled_cuda>(world_on(where), 5, early);
      expect_near(found, wanted);
      // On whatever devices the ranks are.
      EXPECT_EQ(first.try_emplace(where.size(), found).first->second, found);
    }
  });
}

TEST(local_device, values_of_any_size_and_type_are_reduced_whole) {
  for (const ordinals& where : machines) {
    doubled::fresh({.seed = cuda_double::seed_or(1), .devices = 4});
    for (const bool early : {false, true}) reduce_everything<doubled_cuda>(world_on(where), early);
  }
}

/// What a test has enqueued itself is done when its memory is freed, however the test's body ends.
template <class Device>
struct drained {
  Device device;
  penstock::cuda_stream_view on;
  ~drained() {
    try {
      on.synchronize();
    } catch (const penstock::error&) {
    }
  }
};

/// Some steps of three exchanges each, without a feed: two that are early, of which the second grows, and the step's
/// own.
template <class Device>
std::vector<std::string> exchange(world_of<Device>& world, std::uint64_t steps = 3, bool hot = false) {
  using traits = on_the_double<Device>;
  return on_ranks(world,
                  [&](auto& one) {
                    const auto stream = one.device().make_stream();
                    const auto on = stream.view();
                    const array<traits, float> small(one.device(), 40), large(one.device(), 300);
                    const array<traits, double> last(one.device(), 3);
                    const auto n = static_cast<double>(one.size()), rank = static_cast<double>(one.rank());
                    const drained<Device> own_work{one.device(), on};
                    std::uint64_t number = 0;
                    for (std::uint64_t step = 0; step < steps; ++step) {
                      if (hot && step == 1) {
                        one.all_gather("");
                        if (one.rank() == 0) cuda_double::hot_path(true);
                        one.all_gather("");
                      }
                      small.fill(on, static_cast<float>(rank));
                      const penstock::reduce_buffer first[] = {penstock::buffer(small, reduction::sum)};
                      post(one, number++, 1, first, on, true);
                      large.fill(on, static_cast<float>(rank + 1));
                      const penstock::reduce_buffer second[] = {penstock::buffer(large, reduction::maximum)};
                      post(one, number++, 1, second, on, true);
                      last.fill(on, rank);
                      const penstock::reduce_buffer third[] = {penstock::buffer(last)};
                      post(one, number++, 1, third, on);
                      // The update: it looks at all of them.
                      traits::launch(one.device(), on,
                                     {small.touches(false), large.touches(false), last.touches(false)},
                                     [n, s = small.data(), l = large.data(), m = last.data()] {
                                       for (std::size_t i = 0; i < 40; ++i)
                                         EXPECT_EQ(s[i], static_cast<float>(n * (n - 1) / 2));
                                       for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(l[i], static_cast<float>(n));
                                       for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(m[i], (n - 1) / 2, 1e-12);
                                     });
                    }
                    if (hot) {
                      one.all_gather("");
                      if (one.rank() == 0) cuda_double::hot_path(false);
                      one.all_gather("");
                    }
                    on.synchronize();
                  },
                  {.timeout = 30s});
}

TEST(local_device, exchanges_are_ordered_by_events_alone) {
  for_each_machine(5, [&](const ordinals& where) {
    auto world = world_on(where);
    expect_none(exchange(world));
    expect_none(exchange(world));  // once more: others are reached already
  });
}

TEST(local_device, law_2_nothing_is_made_or_freed_after_the_first_step) {
  for_each_machine(1, [&](const ordinals& where) {
    auto world = world_on(where);
    expect_none(exchange(world, 5, true));
  });
}

TEST(local_device, contexts_and_current_devices_are_as_they_were) {
  cuda_double::reset({.devices = 4});
  {
    auto world = world_on({1, 2, 1});
    expect_none(exchange(world));
  }
  EXPECT_FALSE(cuda_double::contexts().contains(3));
  EXPECT_EQ(doubled::current_device(), 0);
  EXPECT_EQ(cuda_double::default_streams_used(), 0U);
  EXPECT_EQ(cuda_double::calls("cudaDeviceEnablePeerAccess"), 3U);
}

// ---- it bites

/// One wait of a stream is left out.
struct forgetful : watched_device {
  using watched_device::wait;
  using watched_device::watched_device;
  void wait(stream_view waiting, const event& recorded) const {
    if (waits++ != forgotten) watched_device::wait(waiting, recorded);
  }
  static inline std::atomic<int> waits{0}, forgotten{-1};
};
/// What the double finds in one exchange whose result is looked at, followed by one more.
std::string found_in(const ordinals& where) {
  using traits = on_the_double<forgetful>;
  auto world = world_on<forgetful>(where);
  forgetful::waits = 0;
  for (const std::string& one : on_ranks(world, [&](auto& one) {
         const auto stream = one.device().make_stream();
         const array<traits, float> values(one.device(), 100);
         const penstock::reduce_buffer buffers[] = {penstock::buffer(values, reduction::sum)};
         for (std::uint64_t number = 0; number < 2; ++number) {
           values.fill(stream.view(), 1);
           post(one, number, 1, buffers, stream.view());
         }
         values.read(stream.view());
         one.all_gather("");
       }))
    EXPECT_EQ(one, "");
  std::string result;
  for (const auto& fault : cuda_double::take_faults()) result += fault + '\n';
  return result;
}
TEST(local_device, a_wait_that_is_left_out_is_found) {
  for (const ordinals& where : {ordinals{0, 0}, ordinals{0, 1}, ordinals{0, 1, 1}}) {
    forgetful::forgotten = -1;
    cuda_double::reset({.devices = 4});
    EXPECT_EQ(found_in(where), "");
    const int all = forgetful::waits;
    EXPECT_EQ(all, static_cast<int>(2 * where.size() * (2 + 2 * (where.size() - 1))));
    for (int n = 0; n < all; ++n) {
      forgetful::forgotten = n;
      cuda_double::reset({.seed = static_cast<std::uint64_t>(n), .devices = 4});
      EXPECT_NE(found_in(where).find("with nothing that orders it after"), std::string::npos) << "wait " << n;
      cuda_double::finish();
    }
  }
  forgetful::forgotten = -1;
}

// ---- each call fails

const std::set<std::string> queries{"cudaEventQuery", "cudaStreamQuery", "cudaGetDevice", "cudaGetDeviceCount",
                                    "cudaPointerGetAttributes"};

TEST(local_device, each_call_that_fails_is_told_of_on_all_ranks_and_nothing_is_lost) {
  for (const bool lost : {false, true})
    for (const ordinals& where : {ordinals{0, 0}, ordinals{1, 0, 1}, ordinals{0, 3}}) {
      cuda_double::reset({.devices = 4});
      {
        auto world = world_on(where);
        expect_none(exchange(world));
      }
      std::map<std::string, std::uint64_t> calls;
      for (const std::string& function : cuda_double::functions_called())
        if (!queries.contains(function)) calls[function] = cuda_double::calls(function);
      const std::uint64_t stride = KNOWN_FAILURES_SANITIZED ? 7 : 1;
      std::uint64_t runs = 0;
      for (const auto& [function, number] : calls)
        for (std::uint64_t n = 1; n <= number; n += n < 4 ? 1 : stride) {
          const std::string what = function + " #" + std::to_string(n) + " of " + std::to_string(number);
          const testing::ScopedTrace trace(__FILE__, __LINE__, what + (lost ? ", the device is lost" : ""));
          const watchdog watching(what);
          cuda_double::reset(
              {.seed = cuda_double::seed_or(++runs), .devices = 4, .eagerness = static_cast<unsigned>(runs % 9)});
#if defined(__SANITIZE_ADDRESS__)
          const __lsan::ScopedDisabler leaked_on_purpose{};
#endif
          cuda_double::fail(function, n, lost ? cudaErrorIllegalAddress : cudaErrorMemoryAllocation);
          testing::internal::CaptureStderr();
          std::vector<std::string> told;
          std::string made;
          try {
            auto world = world_on(where);
            told = exchange(world);
          } catch (const penstock::error& caught) {
            made = caught.what();
          }
          const std::string log = testing::internal::GetCapturedStderr();
          std::size_t with_cause = 0, with_any = 0;
          for (const std::string& one : told) with_any += !one.empty();
          for (const std::string& one : told) with_cause += one.find(function) != std::string::npos;
          if (lost) {
            EXPECT_TRUE(!made.empty() || !log.empty() || with_cause > 0);
          } else {
            // By a rank, unless all were through: then by a destructor, or what that does is done once more.
            EXPECT_TRUE(made.find(function) != std::string::npos || log.find(function) != std::string::npos ||
                        with_cause > 0 || (function == "cudaEventRecord" && with_any == 0));
            // Those who were still exchanging are all told.
            EXPECT_TRUE(with_any == with_cause);
            EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
          }
          for (const std::string& fault : cuda_double::take_faults()) ADD_FAILURE() << fault;
          if (testing::Test::HasFailure()) return;
        }
      EXPECT_GT(runs, KNOWN_FAILURES_SANITIZED ? 30U : 100U);
      cuda_double::reset();
      EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    }
}

}  // namespace
