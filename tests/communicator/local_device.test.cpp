// SPDX-License-Identifier: Apache-2.0
// Replicas on devices with memory of their own, threads of one process: on a modelled device that all of them share.
#include <atomic>
#include <chrono>

#include <penstock/communicator/local_modelled.hpp>

#include "support.hpp"

namespace {

using namespace communicators;
using namespace std::chrono_literals;
using penstock::local_modelled_world;
using penstock::modelled_device;
using penstock::modelled_kernels;
using penstock::replica_error;

struct modelled {
  using device_type = modelled_device;
  template <class Body>
  static void launch(const device_type&, device_type::stream_view on, std::initializer_list<touch>, Body body) {
    on.launch(5us, std::move(body));
  }
};

modelled_device device_of_some_speed() {
  return modelled_device({.bandwidth = 1e9, .copy_latency = 2us, .event_latency = 1us, .notice = 1us});
}
local_modelled_world world_of(std::size_t n, const modelled_device& device = device_of_some_speed()) {
  return local_modelled_world(std::vector<modelled_device>(n, device),
                              modelled_kernels({.bandwidth = 1e9, .latency = 2us}));
}

static_assert(penstock::communicator<local_modelled_world::communicator_type>);
static_assert(penstock::replica_world<local_modelled_world>);

TEST(local_device, training_comes_to_what_one_rank_does) {
  for (const std::int64_t global : {13, 5, 4, 1}) {  // with short last steps, unequal batches and empty ones
    const line wanted = closed_form(global);
    for (const std::uint64_t n : worlds)
      for (const bool early : {false, true}) expect_near(train<modelled>(world_of(n), global, early), wanted);
  }
}

TEST(local_device, the_order_of_sums_is_fixed) {
  for (const std::uint64_t n : worlds) {
    const line first = train<modelled>(world_of(n), 5);
    for (int run = 0; run < 4; ++run) EXPECT_EQ(train<modelled>(world_of(n), 5, run % 2 == 1), first);
  }
}

// The host's communicator is the other witness: the same operations in the same order.
TEST(local_device, the_bits_are_those_of_replicas_on_the_host) {
  const rows data{13};
  for (const std::uint64_t n : worlds) {
    by_rank<line> ends(n);
    penstock::replicas(static_cast<int>(n), [&](auto& replica) {
      line model;
      std::array<float, 2> gradient{};
      auto feed = replica.start(work_of(data, replica, {.global = 5}));
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
        for (auto& batch : feed.epoch(epoch)) {
          model.gradient(batch, gradient);
          if (replica.all_reduce(batch, gradient)) model.update(gradient);
        }
      ends.tell(replica, model);
    });
    EXPECT_EQ(train<modelled>(world_of(n), 5), ends.same());
  }
}

TEST(local_device, values_of_any_size_and_type_are_reduced_whole) {
  for (const std::uint64_t n : worlds)
    for (const bool early : {false, true}) reduce_everything<modelled>(world_of(n), early);
}

TEST(local_device, a_world_may_be_used_again_and_outlives_what_it_made) {
  auto world = world_of(2);
  const line first = train<modelled>(world, 4);
  EXPECT_EQ(train<modelled>(world, 4), first);
}

TEST(local_device, parameters_are_broadcast_and_numbers_added) {
  for (const std::uint64_t n : worlds)
    penstock::replicas(world_of(n), [&](auto& replica) {
      const array<modelled, float> values(replica.device(), 100);
      const auto stream = replica.device().make_stream();
      values.fill(stream.view(), replica.rank() == n - 1 ? 3.5F : std::numeric_limits<float>::quiet_NaN());
      replica.broadcast(n - 1, stream.view(), values);
      for (float one : values.read(stream.view())) ASSERT_EQ(one, 3.5F);
      double number[1] = {static_cast<double>(replica.rank() + 1)};
      replica.sum(number);
      EXPECT_EQ(number[0], static_cast<double>(n * (n + 1) / 2));
      EXPECT_EQ(replica.gather(std::to_string(replica.rank())).size(), n);
    });
}

TEST(local_device, law_2_nothing_is_allocated_after_the_first_steps) {
  for (const std::uint64_t n : {2, 3}) {
    const modelled_device device = device_of_some_speed();
    std::mutex mutex;
    std::set<std::string> seen;
    auto world = world_of(n, device);
    const auto parts = [&] {
      const auto now = device.counts();
      return std::to_string(now.live_allocations) + " " + std::to_string(now.live_host_allocations) + " " +
             std::to_string(now.live_streams) + " " + std::to_string(now.live_events);
    };
    expect_none(on_ranks(world, [&](auto& one) {
      const array<modelled, float> values(one.device(), 5000);
      const auto stream = one.device().make_stream();
      values.fill(stream.view(), 1);
      const penstock::reduce_buffer buffers[] = {penstock::buffer(values)};
      for (std::uint64_t number = 0; number < 51; ++number) {
        post(one, number, 1, buffers, stream.view(), number % 3 != 2);
        if (number == 0 || number == 50) continue;  // others may not have begun, or have ended
        const std::scoped_lock lock(mutex);
        seen.insert(parts());
      }
      stream.view().synchronize();
    }));
    EXPECT_EQ(seen.size(), 1U);
  }
}

TEST(local_device, the_host_waits_for_no_device) {
  const modelled_device device({.copy_time = 1ms});
  auto world = local_modelled_world(std::vector<modelled_device>(2, device), modelled_kernels({.latency = 20ms}));
  std::atomic<std::size_t> waits = 0;
  expect_none(on_ranks(world, [&](auto& one) {
    const array<modelled, float> values(one.device(), 100);
    const auto stream = one.device().make_stream();
    values.fill(stream.view(), 1);
    const penstock::reduce_buffer buffers[] = {penstock::buffer(values)};
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t number = 0; number < 50; ++number) post(one, number, 1, buffers, stream.view());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);  // of two seconds of kernels
    one.all_gather("");
    waits += device.counts().host_waits;
    one.all_gather("");
    stream.view().synchronize();
  }));
  EXPECT_EQ(waits, 0U);
}

/// Time that goes on to what is waited for, at once.
struct jumping_clock : penstock::modelled_clock {
  std::atomic<std::int64_t> at{1};
  time_point now() const override { return time_point(std::chrono::nanoseconds(at.load())); }
  void sleep_until(time_point target, std::chrono::steady_clock::time_point) override {
    const std::int64_t wanted = std::chrono::duration_cast<std::chrono::nanoseconds>(target.time_since_epoch()).count();
    for (std::int64_t seen = at.load(); seen < wanted && !at.compare_exchange_weak(seen, wanted);) {
    }
  }
};
TEST(local_device, early_values_are_exchanged_while_the_rest_is_computed) {
  const auto clock = std::make_shared<jumping_clock>();
  const modelled_device device({.clock = clock});
  auto world = local_modelled_world(std::vector<modelled_device>(2, device), modelled_kernels({.latency = 10us}));
  expect_none(on_ranks(world, [&](auto& one) {
    const array<modelled, float> values(one.device(), 1000);
    const auto stream = one.device().make_stream();
    auto before = one.device().make_event(), after = one.device().make_event();
    const penstock::reduce_buffer buffers[] = {penstock::buffer(values)};
    values.fill(stream.view(), 1);
    post(one, 0, 1, buffers, stream.view(), true);
    one.device().record(before, stream.view());
    one.all_gather("");
    // An early exchange holds up nothing on the step's stream; the last one of the step is behind both kernels.
    EXPECT_LE(one.device().completion(before) - modelled_device::time_point(1ns), 10us);
    post(one, 1, 1, {}, stream.view());
    one.device().record(after, stream.view());
    EXPECT_GE(one.device().completion(after) - one.device().completion(before), 20us);
    stream.view().synchronize();
  }));
}

// ---- what goes wrong

template <class Body>
std::string ends_in(std::uint64_t n, Body&& body, const penstock::replica_options& options = {.timeout = 30s}) {
  const std::size_t threads = laws::threads_now();
  const modelled_device device = device_of_some_speed();
  std::string text = "nothing";
  try {
    penstock::replicas(world_of(n, device), body, options);
  } catch (const replica_error& caught) {
    text = caught.what();
  }
  EXPECT_EQ(laws::threads_left(threads), threads);
  EXPECT_EQ(device.counts().freed_in_use, 0U);
  EXPECT_EQ(device.counts().live_allocations, 0U);
  EXPECT_EQ(device.counts().live_events, 0U);
  EXPECT_EQ(device.counts().live_streams, 0U);
  return text;
}
void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
}
const rows data{13};

TEST(local_device, REP_2_values_of_different_sizes_are_refused_on_all_ranks) {
  for (const std::uint64_t n : {2, 3, 4}) {
    std::atomic<std::uint64_t> told = 0;
    expect_part(ends_in(n,
                        [&](auto& replica) {
                          const array<modelled, float> small(replica.device(), 1000), large(replica.device(), 1024);
                          auto feed = replica.start(work_of(data, replica));
                          for (auto& batch : feed.epoch(0)) try {
                              if (replica.rank() == 1 && batch.step() == 1)
                                replica.all_reduce(batch, small);
                              else
                                replica.all_reduce(batch, large);
                              batch.stream().synchronize();
                            } catch (const replica_error& caught) {
                              expect_part(caught.what(), "epoch 0, step 1: ranks bring values of different sizes");
                              ++told;
                              throw;
                            }
                        }),
                "rank 0 brings 1024, rank 1 1000 elements");
    EXPECT_EQ(told, n);
  }
}

TEST(local_device, a_rank_that_throws_ends_the_run_for_all) {
  for (const std::uint64_t n : {2, 3})
    for (const std::uint64_t who : {std::uint64_t{0}, n - 1}) {
      const std::string text = ends_in(n, [&](auto& replica) {
        device_line<modelled> model(replica.device());
        auto feed = replica.start(work_of(data, replica));
        for (auto& batch : feed.epoch(0)) {
          if (replica.rank() == who && batch.step() == 2) throw std::runtime_error("disk full");
          model.backward(batch);
          if (replica.all_reduce(batch, model.gradient)) model.update(batch);
          batch.stream().synchronize();
        }
      });
      expect_part(text, "epoch 0, step 2");
      expect_part(text, "rank " + std::to_string(who) + " failed: disk full");
    }
}

TEST(local_device, a_rank_that_leaves_or_stops_ends_the_epoch_or_the_run_for_all) {
  for (const std::uint64_t n : {2, 3})
    for (const bool stops : {false, true})
      for (const bool after_early : {false, true}) {
        by_rank<std::uint64_t> steps(n);
        const std::string text = ends_in(n, [&](auto& replica) {
          device_line<modelled> model(replica.device());
          auto feed = replica.start(work_of(data, replica));
          for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
            for (auto& batch : feed.epoch(epoch)) {
              model.backward(batch);
              if (after_early) replica.ready(batch, penstock::reduce_buffer{model.gradient.data() + 1, 1});
              if (replica.rank() == 1 && epoch == 0 && batch.step() == 2) {
                if (!stops) break;
                replica.stop();
              }
              const bool counts =
                  after_early ? replica.all_reduce(batch, penstock::reduce_buffer{model.gradient.data(), 1}).counts
                              : replica.all_reduce(batch, model.gradient).counts;
              if (counts) model.update(batch);
              batch.stream().synchronize();
            }
          steps.tell(replica, replica.steps());
        });
        EXPECT_EQ(text, "nothing");
        EXPECT_EQ(steps.same(), stops ? 2U : 2U + 4U);
      }
}

/// Hears who waits for rank 1 at step 2.
struct listener {
  std::vector<std::uint64_t>* waiting;
  void on_late(const penstock::late_event& event) {
    if (event.where.step == 2U && event.missing[0].rank == 1) waiting->push_back(*event.rank);
  }
};

TEST(local_device, law_6_a_rank_that_does_not_come_in_time_is_warned_of_and_named) {
  laws::signpost go_on;
  std::vector<std::uint64_t> waiting;
  const std::string text = ends_in(2,
                                   [&](auto& replica) {
                                     device_line<modelled> model(replica.device());
                                     auto feed = replica.start(work_of(data, replica));
                                     if (replica.rank() == 0) feed.observe(listener{&waiting});
                                     try {
                                       for (auto& batch : feed.epoch(0)) {
                                         if (replica.rank() == 1 && batch.step() == 2) go_on.await();
                                         replica.all_reduce(batch, model.gradient);
                                         batch.stream().synchronize();
                                       }
                                     } catch (const replica_error&) {
                                       go_on.reach();
                                       throw;
                                     }
                                   },
                                   {.timeout = 200ms, .warn_after = 1ms});
  expect_part(text, "rank 1 did not come within 200 ms");
  EXPECT_GE(waiting.size(), 1U);
}

// What fails between the two meetings of an exchange is told to all there, and everybody has done with everybody's
// memory.
TEST(local_device, law_7_a_device_that_fails_in_the_midst_of_an_exchange_is_told_to_all) {
  for (std::size_t nth = 1; nth <= 60; ++nth) {
    const modelled_device device = device_of_some_speed();
    auto world = world_of(3, device);
    const auto thrown = on_ranks(world, [&](auto& one) {
      const array<modelled, float> values(one.device(), 100);
      const auto stream = one.device().make_stream();
      values.fill(stream.view(), 1);
      const penstock::reduce_buffer buffers[] = {penstock::buffer(values)};
      one.all_gather("");
      if (one.rank() == 1) one.device().fail_next_record(nth, "no more events");
      try {
        for (std::uint64_t number = 0; number < 5; ++number) post(one, number, 1, buffers, stream.view());
        stream.view().synchronize();
      } catch (...) {
        stream.view().synchronize();
        throw;
      }
    });
    for (const auto& one : thrown) {
      if (nth <= 40) expect_part(one, "no more events");
    }
    EXPECT_EQ(device.counts().freed_in_use, 0U);
  }
}

TEST(local_device, bad_worlds_are_refused) {
  EXPECT_THROW(world_of(0), std::invalid_argument);
  EXPECT_THROW(world_of(65), std::invalid_argument);
  EXPECT_THROW(local_modelled_world({modelled_device(), modelled_device()}), std::invalid_argument);
  EXPECT_THROW(modelled_kernels({.bandwidth = -1}), std::invalid_argument);
}

}  // namespace
