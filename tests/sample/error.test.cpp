// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <penstock/sample/error.hpp>

namespace {

using penstock::error;
using penstock::provenance;

TEST(provenance, says_what_is_known_from_the_outside_inwards) {
  const provenance all{
      .stage = "read", .epoch = 1, .step = 3, .sample = 123, .path = "table.csv", .position = "line 124"};
  EXPECT_EQ(all.text(), "read: epoch 1, step 3, sample 123, table.csv, line 124");
  EXPECT_EQ((provenance{.epoch = 0, .path = "a.npy"}.text()), "epoch 0, a.npy");
  EXPECT_EQ((provenance{.stage = "batch"}.text()), "batch");
  EXPECT_EQ(provenance().text(), "");
}

TEST(provenance, is_completed_by_what_is_known_outside_and_keeps_its_own) {
  provenance inner{.sample = 0, .path = "table.csv", .position = "byte 128"};
  inner.complete_from({.stage = "read", .epoch = 2, .step = 5, .sample = 99, .path = "other", .position = "other"});
  EXPECT_EQ(inner.text(), "read: epoch 2, step 5, sample 0, table.csv, byte 128");
  inner.complete_from({.stage = "run", .epoch = 7, .step = 8});
  EXPECT_EQ(inner.text(), "read: epoch 2, step 5, sample 0, table.csv, byte 128");
}

TEST(error, is_one_sentence_with_the_place_first) {
  const error placed("found \"abc\", wanted a number", {.stage = "read", .sample = 4});
  EXPECT_STREQ(placed.what(), "read: sample 4: found \"abc\", wanted a number");
  EXPECT_EQ(placed.problem(), "found \"abc\", wanted a number");
  EXPECT_EQ(placed.where().sample, 4u);
  EXPECT_STREQ(error("no place").what(), "no place");
  EXPECT_NO_THROW(placed.rethrow_cause());
}

TEST(error, of_a_time_out_is_caught_as_an_error_and_as_what_it_is) {
  const auto wait = [] { throw penstock::timeout_error("waited 2 s", {.stage = "read", .step = 3}); };
  EXPECT_THROW(wait(), penstock::timeout_error);
  EXPECT_THROW(wait(), error);
  EXPECT_THROW(wait(), std::runtime_error);
}

/// Not a std::exception, not made from a string, not copyable.
struct bad_row {
  std::uint64_t row;
  std::unique_ptr<std::string> file;
};

TEST(error, ERR_1_carries_the_whole_original_exception_across_threads) {
  std::exception_ptr arrived;
  const std::string* thrown = nullptr;
  std::thread([&] {
    try {
      auto file = std::make_unique<std::string>("rows.csv");
      thrown = file.get();
      throw bad_row{123, std::move(file)};
    } catch (...) {
      const std::exception_ptr cause = std::current_exception();
      arrived =
          std::make_exception_ptr(error(penstock::detail::message_of(cause), {.stage = "read", .sample = 123}, cause));
    }
  }).join();
  try {
    std::rethrow_exception(arrived);
  } catch (const error& caught) {
    EXPECT_STREQ(caught.what(), "read: sample 123: an exception that is not a std::exception");
    try {
      caught.rethrow_cause();
      FAIL() << "nothing was thrown";
    } catch (const bad_row& original) {
      EXPECT_EQ(original.row, 123u);
      EXPECT_EQ(original.file.get(), thrown);  // the very object, not a copy
      EXPECT_EQ(*original.file, "rows.csv");
    }
  }
}

TEST(message_of, is_that_of_the_exception) {
  EXPECT_EQ(penstock::detail::message_of(std::make_exception_ptr(std::logic_error("because"))), "because");
  EXPECT_EQ(penstock::detail::message_of(std::make_exception_ptr(7)), "an exception that is not a std::exception");
  EXPECT_EQ(penstock::detail::message_of(nullptr), "no exception");
}

TEST(reject_option, says_stage_option_found_and_wanted) {
  try {
    penstock::detail::reject_option("batch", "size", penstock::detail::concat(0), "1 or more");
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& caught) {
    EXPECT_STREQ(caught.what(), "penstock: batch: size is 0, wanted 1 or more");
  }
}

TEST(concat, joins_texts_characters_and_numbers) {
  EXPECT_EQ(penstock::detail::concat("row ", 3, ',', std::string(" of "), std::uint64_t{18'446'744'073'709'551'615u}),
            "row 3, of 18446744073709551615");
}

}  // namespace
