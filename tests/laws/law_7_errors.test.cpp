// SPDX-License-Identifier: Apache-2.0
// Law 7: errors arrive in order, after the batches before them, and whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "configurations.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace {

using namespace laws;

template <class Device>
class law_7 : public testing::Test {};
TYPED_TEST_SUITE(law_7, devices, device_name);

/// No string constructor, a member that cannot be copied, nothing of std::exception.
struct bad_row {
  bad_row(std::uint64_t number, std::string name) : row(number), file(std::move(name)) {}
  std::uint64_t row;
  std::string file;
  std::shared_ptr<int> more = std::make_shared<int>(5);
};

// ERR-1
TYPED_TEST(law_7, ERR_1_batches_before_the_error_arrive_first_then_the_error_whole_then_a_fresh_epoch_works) {
  for_each_configuration([](const configuration& one) {
    std::atomic<bool> armed = true;
    constexpr std::uint64_t bad = 13;
    const samples data{24, [&](std::uint64_t index, penstock::read_context&) {
                         if (armed && index == bad) throw bad_row(index, "some.csv");
                       }};
    const auto wanted = planned(24, one, 0);
    std::uint64_t step = 0;
    while (std::find(wanted[step].indices.begin(), wanted[step].indices.end(), bad) == wanted[step].indices.end())
      ++step;

    auto feed = feed_of(data, TypeParam::make(), one);
    std::vector<delivered> before;
    try {
      for (auto& batch : feed.epoch(0)) before.push_back(take(batch));
      FAIL() << "no error";
    } catch (const penstock::error& caught) {
      ASSERT_EQ(caught.where().stage, "read");
      ASSERT_EQ(caught.where().epoch, 0U);
      ASSERT_EQ(caught.where().step, step);
      ASSERT_EQ(caught.where().sample, bad);
      try {
        caught.rethrow_cause();
        FAIL() << "no cause";
      } catch (const bad_row& original) {
        ASSERT_EQ(original.row, bad);
        ASSERT_EQ(original.file, "some.csv");
        ASSERT_EQ(*original.more, 5);
      }
    }
    ASSERT_EQ(before, std::vector(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(step)));
    // The state is where the last batch ended: what a checkpoint would go on from.
    ASSERT_EQ(feed.state().samples, step * 4);
    ASSERT_THROW((void)feed.next(), penstock::error);

    armed = false;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) ASSERT_EQ(epoch_of(feed, epoch), planned(24, one, epoch));
  });
}

TYPED_TEST(law_7, an_error_of_ours_keeps_its_place_and_gets_what_it_does_not_know) {
  const samples data{24, [](std::uint64_t index, penstock::read_context&) {
                       if (index == 6)
                         throw penstock::error("found \"x\", wanted a number", {.path = "t.csv", .position = "line 7"});
                     }};
  for (int readers : all_readers) {
    auto feed = feed_of(data, TypeParam::make(), {.readers = readers, .how = shuffle::none});
    ASSERT_EQ(feed.next().size(), 4U);
    try {
      (void)feed.next();
      FAIL();
    } catch (const penstock::error& caught) {
      EXPECT_STREQ(caught.what(), "read: epoch 0, step 1, sample 6, t.csv, line 7: found \"x\", wanted a number");
      EXPECT_THROW(caught.rethrow_cause(), penstock::error);
    }
  }
}

// ERR-5
TYPED_TEST(law_7, ERR_5_of_eight_readers_that_all_throw_the_first_rows_error_arrives_and_the_others_are_counted) {
  std::barrier together(8);
  const samples data{64, [&](std::uint64_t index, penstock::read_context& context) {
                       if (index >= 8 || context.epoch != 0) return;
                       together.arrive_and_wait();
                       throw std::runtime_error("row " + std::to_string(index));
                     }};
  auto feed = feed_of(data, TypeParam::make(), {.readers = 8, .depth = 1, .how = shuffle::none, .batch = 8});
  try {
    (void)feed.next();
    FAIL();
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().sample, 0U);
    EXPECT_EQ(caught.problem(), "row 0 (and 7 more in this batch)");
  }
}

TYPED_TEST(law_7, an_error_of_what_was_read_ahead_belongs_to_its_own_epoch) {
  for_each_schedule([](const configuration& one) {
    const samples data{24, [](std::uint64_t index, penstock::read_context& context) {
                         if (context.epoch == 1 && index % 3 == 0) throw std::runtime_error("not today");
                       }};
    auto feed = feed_of(data, TypeParam::make(), one);
    ASSERT_EQ(epoch_of(feed, 0), planned(24, one, 0));
    ASSERT_EQ(epoch_of(feed, 2), planned(24, one, 2)) << "nobody asked for epoch 1";
    ASSERT_EQ(epoch_of(feed, 0), planned(24, one, 0));
    ASSERT_THROW(epoch_of(feed, 1), penstock::error);
    ASSERT_EQ(epoch_of(feed, 2), planned(24, one, 2));
  });
}

TYPED_TEST(law_7, readers_that_cannot_be_opened_are_an_error_of_the_first_batch) {
  struct closed : samples<> {
    struct reader {
      void read(std::uint64_t, const penstock::sample_view<schema_type>&) {}
    };
    reader open() const { throw std::runtime_error("no such device"); }
  };
  for (int readers : all_readers) {
    auto feed = feed_of(closed{{23}}, TypeParam::make(), {.readers = readers});
    try {
      (void)feed.next();
      FAIL();
    } catch (const penstock::error& caught) {
      EXPECT_NE(std::string(caught.what()).find("no such device"), std::string::npos) << caught.what();
      EXPECT_EQ(caught.where().step, 0U);
    }
  }
}

// ERR-2
TEST(law_7, ERR_2_a_copy_that_cannot_be_enqueued_is_the_error_of_its_step) {
  const samples<> data{24};
  for_each_schedule([&](const configuration& one) {
    const auto device = modelled::make();
    auto feed = feed_of(data, device, one);
    device.fail_next_copy(3, "out of memory");
    std::vector<delivered> before;
    try {
      for (auto& batch : feed.epoch(0)) before.push_back(take(batch));
      FAIL();
    } catch (const penstock::error& caught) {
      ASSERT_EQ(caught.where().stage, "transfer");
      ASSERT_EQ(caught.where().step, 2U);
      ASSERT_NE(std::string(caught.what()).find("out of memory"), std::string::npos) << caught.what();
    }
    ASSERT_EQ(before.size(), 2U);
    ASSERT_EQ(epoch_of(feed, 0), planned(24, one, 0));
  });
}

/// Inline reading: what is enqueued when is the test's choice.
struct failing_record : testing::Test {
  samples<> data{24};
  modelled::device device = modelled::make();
#if defined(__SANITIZE_ADDRESS__)
  const __lsan::ScopedDisabler leaked_on_purpose{};  // memory under a copy whose end nobody can tell is not freed
#endif
  decltype(feed_of(data, device, {})) feed = feed_of(data, device, {.readers = 0, .depth = 2, .how = shuffle::none});

  void expect_the_device_is_gone(const std::string& stage) {
    try {
      (void)feed.next();
      FAIL();
    } catch (const penstock::error& caught) {
      EXPECT_NE(std::string(caught.what()).find("the device is gone"), std::string::npos) << caught.what();
      if (!stage.empty()) {
        EXPECT_EQ(caught.where().stage, stage);
      }
    }
  }
};
using law_7_record = failing_record;

TEST_F(law_7_record, a_copy_whose_end_cannot_be_told_ends_the_feed_for_good) {
  auto held = feed.next();
  device.fail_next_record(1, "the device is gone");  // the one that tells the slot's readers
  expect_the_device_is_gone("");
  EXPECT_THROW(feed.epoch(0), penstock::error);
  EXPECT_THROW(feed.epoch(1), penstock::error);
}

TEST_F(law_7_record, a_copy_whose_consumer_cannot_be_told_is_the_error_of_its_step) {
  auto held = feed.next();
  device.fail_next_record(2, "the device is gone");
  expect_the_device_is_gone("transfer");
  held.release();
  EXPECT_EQ(epoch_of(feed, 0), planned(24, {.how = shuffle::none}, 0));
}

TEST_F(law_7_record, a_release_that_fails_is_the_error_of_the_step_that_it_would_have_begun) {
  auto held = feed.next();
  device.fail_next_record(1, "the device is gone");
  held.release();
  EXPECT_EQ(feed.next().step(), 1U) << "its copy goes into the other buffer";
  expect_the_device_is_gone("transfer");
  EXPECT_EQ(epoch_of(feed, 0), planned(24, {.how = shuffle::none}, 0));
}

}  // namespace
