// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/observer.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

struct begin_only {
  int* calls;
  void on_begin(const penstock::run_begin&) { ++*calls; }
};
struct batch_only {
  int* calls;
  void on_batch(const penstock::batch_event&) { ++*calls; }
};
struct metric_only {
  int* calls;
  void on_metric(const penstock::metric_event&) const { ++*calls; }
};
struct epoch_only {
  int* calls;
  void on_epoch(penstock::epoch_event) { ++*calls; }
};
struct error_only {
  int* calls;
  void on_error(const penstock::error_event&) { ++*calls; }
};
struct stream_only {
  int* calls;
  void on_stream(const penstock::stream_event&) { ++*calls; }
};
struct end_only {
  int* calls;
  void on_end(const penstock::run_end&) { ++*calls; }
};

void notify_all(const penstock::observer_list& list) {
  list.notify(penstock::run_begin{});
  list.notify(penstock::batch_event{});
  list.notify(penstock::metric_event{});
  list.notify(penstock::epoch_event{});
  list.notify(penstock::error_event{});
  list.notify(penstock::stream_event{});
  list.notify(penstock::run_end{});
}

template <class Observer>
class observer_with_one_hook : public testing::Test {};
using single_hooks = testing::Types<begin_only, batch_only, metric_only, epoch_only, error_only, stream_only, end_only>;
TYPED_TEST_SUITE(observer_with_one_hook, single_hooks);

TYPED_TEST(observer_with_one_hook, is_told_of_its_event_alone) {
  static_assert(penstock::observer<TypeParam>);
  int calls = 0;
  penstock::observer_list list;
  list.add(TypeParam{&calls});
  notify_all(list);
  EXPECT_EQ(calls, 1);
}

TEST(observer, needs_a_hook_or_to_be_called_with_a_batch) {
  struct none {};
  struct changes {
    void on_batch(penstock::batch_event&);
  };
  static_assert(!penstock::observer<int>);
  static_assert(!penstock::observer<none>);
  static_assert(!penstock::observer<changes>);
  static_assert(!penstock::observer<void (*)(int)>);
  static_assert(!penstock::observer<const begin_only&>, "its hook is not const");
  static_assert(penstock::observer<const metric_only&>);
  static_assert(penstock::observer<void (*)(const penstock::batch_event&)>);
  static_assert(penstock::observer<std::function<void(const penstock::batch_event&)>>);
}

std::uint64_t& counted() {
  thread_local std::uint64_t samples = 0;
  return samples;
}
void count_batch(const penstock::batch_event& event) { counted() += event.samples; }

TEST(observer_list, takes_lambdas_and_functions) {
  counted() = 0;
  std::uint64_t samples = 0;
  penstock::observer_list list;
  list.add(count_batch);
  list.add(&count_batch);
  list.add([&](const penstock::batch_event& event) { samples += event.samples; });
  list.notify(penstock::batch_event{.samples = 3});
  notify_all(list);
  EXPECT_EQ(samples, 3U);
  EXPECT_EQ(counted(), 6U);
}

struct counter {
  int batches = 0;
  void on_batch(const penstock::batch_event&) { ++batches; }
};

TEST(observer_list, refers_to_an_lvalue) {
  counter mine;
  penstock::observer_list list;
  list.add(mine);
  list.notify(penstock::batch_event{});
  list.notify(penstock::batch_event{});
  EXPECT_EQ(mine.batches, 2);
}

TEST(observer_list, owns_an_rvalue_that_may_be_move_only) {
  struct move_only {
    std::shared_ptr<int> alive;
    std::unique_ptr<int> no_copies;
    void on_batch(const penstock::batch_event&) { ++*alive; }
  };
  const auto alive = std::make_shared<int>(0);
  {
    penstock::observer_list list;
    list.add(move_only{alive, nullptr});
    EXPECT_EQ(alive.use_count(), 2);
    penstock::observer_list moved = std::move(list);
    moved.notify(penstock::batch_event{});
  }
  EXPECT_EQ(*alive, 1);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(observer_list, calls_in_the_order_of_adding) {
  std::string order;
  penstock::observer_list list;
  EXPECT_TRUE(list.empty());
  for (const char each : {'a', 'b', 'c'}) list.add([&order, each](const penstock::batch_event&) { order += each; });
  EXPECT_FALSE(list.empty());
  list.notify(penstock::batch_event{});
  EXPECT_EQ(order, "abc");
}

struct thrower {
  void on_batch(const penstock::batch_event&) { throw std::runtime_error("batch"); }
  void on_error(const penstock::error_event&) { throw std::runtime_error("error"); }
  void on_end(const penstock::run_end&) { throw std::runtime_error("end"); }
};

struct recorder {
  std::string heard;
  void on_batch(const penstock::batch_event&) { heard += "batch "; }
  void on_error(const penstock::error_event& event) { heard.append(event.message) += ' '; }
  void on_end(const penstock::run_end& event) { heard.append(event.reason) += ' '; }
};

TEST(observer_list, lets_an_observers_exception_out) {
  recorder later;
  penstock::observer_list list;
  list.add(thrower{});
  list.add(later);
  EXPECT_THROW(list.notify(penstock::batch_event{}), std::runtime_error);
  EXPECT_EQ(later.heard, "");
}

TEST(observer_list, tells_all_of_an_error_and_hides_none_behind_an_observers) {
  recorder later;
  penstock::observer_list list;
  list.add(thrower{});
  list.add(later);
  EXPECT_NO_THROW(list.notify(penstock::error_event{.message = "bad file"}));
  EXPECT_NO_THROW(list.notify(penstock::run_end{"error"}));
  EXPECT_EQ(later.heard, "bad file error ");
}

TEST(observer_list, tells_all_of_the_end_then_throws) {
  recorder later;
  penstock::observer_list list;
  list.add(thrower{});
  list.add(later);
  EXPECT_THROW(list.notify(penstock::run_end{"done"}), std::runtime_error);
  EXPECT_EQ(later.heard, "done ");
}

}  // namespace
