// SPDX-License-Identifier: Apache-2.0
// Errors that cross threads: out of memory, in the copy to a device and elsewhere.
#include <gtest/gtest.h>

#include <memory>
#include <new>

#include <penstock/device/modelled.hpp>

#include "support.hpp"

#if defined(__SANITIZE_ADDRESS__)
// Memory under a copy whose end cannot be told is kept for good.
extern "C" const char* __lsan_default_suppressions() { return "leak:channel"; }
#endif

namespace {

using namespace known_failures;

class out_of_memory_at : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(known_failures, out_of_memory_at, testing::Values(0, 1, 4));

// A device of which one call fails.
class failing_device : public penstock::modelled_device {
 public:
  struct plan {
    std::atomic<int> copies{-1}, records{-1}, waits{-1};  // calls that still succeed; below 0: all
  };
  explicit failing_device(std::shared_ptr<plan> fails) : fails_(std::move(fails)) {}

  void copy_to_device(void* to, const void* from, std::size_t bytes, stream_view on) const {
    count(fails_->copies);
    modelled_device::copy_to_device(to, from, bytes, on);
  }
  void record(event& recorded, stream_view on) const {
    count(fails_->records);
    modelled_device::record(recorded, on);
  }
  using modelled_device::wait;
  void wait(stream_view waiting, const event& recorded) const {
    count(fails_->waits);
    modelled_device::wait(waiting, recorded);
  }
  bool operator==(const failing_device&) const = default;

 private:
  static void count(std::atomic<int>& left) {
    if (left.load() >= 0 && left.fetch_sub(1) == 0) throw std::bad_alloc();
  }
  std::shared_ptr<plan> fails_;
};

// Of 50 batches.
template <class Feed>
std::size_t batches_before_bad_alloc(Feed& feed, bool may_be_all = false) {
  std::size_t delivered = 0;
  try {
    while (auto batch = feed.next()) {
      EXPECT_EQ(batch.step(), delivered);
      ++delivered;
    }
    if (!may_be_all) ADD_FAILURE() << "nothing was thrown";
    EXPECT_EQ(delivered, 50u);
  } catch (const penstock::error& caught) {
    EXPECT_THROW(caught.rethrow_cause(), std::bad_alloc) << caught.what();
  } catch (const std::bad_alloc&) {
    // As the device threw it, where no step is to blame.
  }
  return delivered;
}
// Ten later calls all come back: by an exception or without a batch.
template <class Feed>
void expect_no_more(Feed& feed) {
  for (int call = 0; call < 10; ++call) {
    try {
      EXPECT_FALSE(feed.next());
    } catch (const std::exception&) {
    }
  }
}

TEST_P(out_of_memory_at, ERR_2_out_of_memory_in_the_copy_of_batch_5_reaches_the_consumer) {
  const hang_limit limit;
  const auto fails = std::make_shared<failing_device::plan>();
  fails->copies = 5;
  const std::size_t threads = threads_alive();
  {
    auto feed = (numbers<>{500} | penstock::partition() | penstock::read({.readers = GetParam()}) |
                 penstock::batch(10) | penstock::transfer(failing_device(fails)))
                    .start();
    try {
      std::size_t delivered = 0;
      while (auto batch = feed.next()) EXPECT_EQ(batch.step(), delivered++);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const penstock::error& caught) {
      EXPECT_EQ(caught.where().stage, "transfer");
      EXPECT_EQ(caught.where().step, 5u);
      EXPECT_THROW(caught.rethrow_cause(), std::bad_alloc);
    }
    expect_no_more(feed);
  }
  EXPECT_TRUE(threads_come_back_to(threads));
}

TEST_P(out_of_memory_at, ERR_2_whatever_call_of_the_device_fails_the_consumer_is_told) {
  const hang_limit limit;
  for (std::atomic<int> failing_device::plan::* call :
       {&failing_device::plan::copies, &failing_device::plan::records, &failing_device::plan::waits}) {
    for (int good = 0; good < 20; ++good) {
      const auto fails = std::make_shared<failing_device::plan>();
      (*fails).*call = good;
      auto feed = (numbers<>{500} | penstock::partition() | penstock::read({.readers = GetParam()}) |
                   penstock::batch(10) | penstock::transfer(failing_device(fails), {.depth = 2}))
                      .start();
      // What cannot be recorded behind a batch that was let go is told to the step that would have its buffer next.
      const bool late = call == &failing_device::plan::records;
      EXPECT_LE(batches_before_bad_alloc(feed, late), late ? 50u : 20u);
      expect_no_more(feed);
    }
  }
}

struct out_of_memory {
  void operator()(std::uint64_t index) const {
    if (index == 55) throw std::bad_alloc();
  }
};

TEST_P(out_of_memory_at, ERR_2_out_of_memory_in_a_reader_reaches_the_consumer) {
  const hang_limit limit;
  auto feed =
      (numbers{500, out_of_memory{}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
       penstock::read({.readers = GetParam()}) | penstock::batch(10) | penstock::transfer(penstock::cpu_device{}))
          .start();
  EXPECT_EQ(batches_before_bad_alloc(feed), 5u);
  expect_no_more(feed);
}

}  // namespace
