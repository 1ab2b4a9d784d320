// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/dataset/quarantine.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

#include "../support/temporary_directory.hpp"

namespace {

using penstock::bad_samples;
using penstock::quarantine;

/// Sample i is i, and has a label of -i; those of `bad` cannot be read.
struct numbers {
  std::uint64_t count;
  std::set<std::uint64_t> bad{};

  std::uint64_t size() const { return count; }
  auto schema() const {
    return penstock::schema{penstock::field<std::int64_t, 1>{"x", {2}}, penstock::field<std::int64_t>{"label"}};
  }
  void read(std::uint64_t index, const auto& to) const {
    auto [x, label] = to;
    x(0) = -1;  // a row that was begun must not show
    if (bad.contains(index))
      throw penstock::error("the file is cut", {.path = "photo" + std::to_string(index) + ".png", .position = "row 7"});
    x(0) = x(1) = static_cast<std::int64_t>(index);
    label() = -static_cast<std::int64_t>(index);
  }
};
/// The same, read a range at a time: one bad sample fails all of it.
struct numbers_in_bulk : numbers {
  void read(std::uint64_t, const auto&) const = delete;
  void read_range(
      std::span<const std::uint64_t> indices,
      const penstock::batch_view<penstock::schema<penstock::field<std::int64_t, 1>, penstock::field<std::int64_t>>>& to)
      const {
    for (std::size_t row = 0; row < indices.size(); ++row) numbers::read(indices[row], penstock::sample_at(to, row));
  }
};

struct batch_seen {
  std::vector<std::uint64_t> rows, faults, substitutes;
  bool operator==(const batch_seen&) const = default;
};

template <class Dataset>
auto feed_of(Dataset data, penstock::read_options options, penstock::batch_options batches = {.size = 16}) {
  return (std::move(data) | penstock::partition({.seed = 5}) | penstock::read(options) | penstock::batch(batches) |
          penstock::transfer(penstock::cpu_device{}))
      .start();
}

template <class Feed>
std::vector<batch_seen> all_of(Feed& feed, std::uint64_t epoch = 0) {
  std::vector<batch_seen> seen;
  for (auto& batch : feed.epoch(epoch)) {
    auto [x, label] = batch.fields();
    batch_seen one;
    one.rows.assign(batch.indices().begin(), batch.indices().end());
    for (std::size_t row = 0; row < batch.size(); ++row) {
      EXPECT_EQ(x(row, 0), static_cast<std::int64_t>(one.rows[row]));
      EXPECT_EQ(x(row, 1), x(row, 0));
      EXPECT_EQ(label(row), -x(row, 0));
    }
    for (const penstock::sample_fault& fault : batch.faults()) {
      one.faults.push_back(fault.sample);
      if (fault.substitute) one.substitutes.push_back(*fault.substitute);
      EXPECT_EQ(fault.where.step, batch.step());
    }
    seen.push_back(std::move(one));
  }
  return seen;
}

// IMG-4's policies, over all readers: the same batches, with the same rows.
TEST(bad_samples, what_is_left_out_is_left_out_alike_for_any_number_of_readers) {
  numbers data{103, {3, 4, 17, 50, 99}};
  std::vector<batch_seen> first;
  for (const int readers : {0, 1, 2, 3, 8}) {
    auto feed = feed_of(data, {.readers = readers, .bad = bad_samples::skip});
    auto seen = all_of(feed);
    if (first.empty()) first = seen;
    EXPECT_EQ(seen, first) << readers << " readers";
    ASSERT_EQ(feed.faults().size(), 5u);
    EXPECT_EQ(feed.faults()[0].where.text().substr(0, 14), "read: epoch 0,");
    std::set<std::uint64_t> delivered;
    std::size_t samples = 0;
    for (const auto& batch : seen) {
      delivered.insert(batch.rows.begin(), batch.rows.end());
      samples += batch.rows.size();
    }
    EXPECT_EQ(samples, 98u);
    EXPECT_EQ(delivered.size(), 98u);
    for (const std::uint64_t bad : data.bad) EXPECT_FALSE(delivered.contains(bad));
  }
}

// Law 8: the last valid row takes a skipped one's place.
TEST(bad_samples, the_last_sample_takes_the_free_row) {
  for (const std::set<std::uint64_t>& bad : std::vector<std::set<std::uint64_t>>{
           {0}, {7}, {0, 7}, {6, 7}, {0, 1, 2, 3, 4, 5, 6}, {1, 3, 5, 7}, {0, 2, 4, 6}, {0, 5, 6}}) {
    std::vector<std::uint64_t> wanted{0, 1, 2, 3, 4, 5, 6, 7};
    std::set<std::uint64_t> left = bad;
    for (std::size_t row = 0; row < wanted.size(); ++row) {
      while (!wanted.empty() && left.contains(wanted.back())) wanted.pop_back();
      if (row < wanted.size() && left.contains(wanted[row])) {
        wanted[row] = wanted.back();
        wanted.pop_back();
      }
    }
    for (const int readers : {0, 4}) {
      auto feed = (numbers{8, bad} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                   penstock::read({.readers = readers, .bad = bad_samples::skip}) | penstock::batch(8) |
                   penstock::transfer(penstock::cpu_device{}))
                      .start();
      const auto seen = all_of(feed);
      ASSERT_EQ(seen.size(), 1u);
      EXPECT_EQ(seen[0].rows, wanted);
    }
  }
}

TEST(bad_samples, another_of_the_epoch_is_read_in_its_place_alike_for_any_number_of_readers) {
  numbers data{103, {3, 4, 17, 50, 99}};
  std::vector<batch_seen> first;
  for (const int readers : {0, 1, 3, 8}) {
    auto feed = feed_of(data, {.readers = readers, .bad = bad_samples::substitute});
    auto seen = all_of(feed);
    if (first.empty()) first = seen;
    EXPECT_EQ(seen, first) << readers << " readers";
    std::size_t samples = 0, replaced = 0;
    for (const auto& batch : seen) {
      samples += batch.rows.size();
      replaced += batch.substitutes.size();
      for (const std::uint64_t row : batch.rows) EXPECT_FALSE(data.bad.contains(row));
    }
    EXPECT_EQ(samples, 103u);
    EXPECT_EQ(replaced, 5u);
    const auto again = all_of(feed, 1);
    EXPECT_NE(again, seen);
    EXPECT_EQ(feed.faults().size(), 5u);  // of this epoch
  }
}
// A plan of part of a dataset, such as a fold, is not left for what it does not have.
TEST(bad_samples, a_substitute_is_one_of_the_plans) {
  struct even_ones {
    std::uint64_t size() const { return 50; }
    void order(std::uint64_t, std::uint64_t, std::uint64_t first, std::span<std::uint64_t> out) const {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = 2 * (first + i);
    }
  };
  auto feed = (numbers{100, {2, 40, 96}} | penstock::partition(even_ones{}) |
               penstock::read({.readers = 2, .bad = bad_samples::substitute}) | penstock::batch(10) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  for (const auto& batch : all_of(feed))
    for (const std::uint64_t row : batch.rows) EXPECT_EQ(row % 2, 0u);
}

TEST(bad_samples, a_range_that_is_read_at_once_loses_its_bad_samples_alone) {
  numbers_in_bulk data{{60, {0, 31, 59}}};
  auto feed = feed_of(data, {.readers = 2, .bad = bad_samples::skip});
  std::size_t samples = 0;
  for (const auto& batch : all_of(feed)) samples += batch.rows.size();
  EXPECT_EQ(samples, 57u);
  EXPECT_EQ(feed.faults().size(), 3u);
}

TEST(bad_samples, what_a_transform_throws_counts_too_and_casts_work) {
  auto work = numbers{20, {1}} | penstock::partition({.seed = 5}) |
              penstock::read({.readers = 2, .bad = bad_samples::skip},
                             [](const auto& sample) {
                               if (std::get<1>(sample)() == -7) throw std::runtime_error("seven");
                             }) |
              penstock::batch(20, penstock::cast<float, float>) | penstock::transfer(penstock::cpu_device{});
  auto feed = work.start();
  const auto batch = feed.next();
  EXPECT_EQ(batch.size(), 18u);
  ASSERT_EQ(batch.faults().size(), 2u);
  std::vector<std::string> problems{batch.faults()[0].problem, batch.faults()[1].problem};
  std::ranges::sort(problems);
  EXPECT_EQ(problems, (std::vector<std::string>{"seven", "the file is cut"}));
}

TEST(bad_samples, one_more_than_permitted_is_the_error_of_its_batch_after_those_before) {
  for (const int readers : {0, 1, 4}) {
    auto feed = (numbers{64, {3, 20, 21, 40}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                 penstock::read({.readers = readers, .bad = bad_samples::skip, .most_bad = 3}) | penstock::batch(8) |
                 penstock::transfer(penstock::cpu_device{}))
                    .start();
    std::size_t batches = 0;
    try {
      for (auto& batch : feed.epoch(0)) batches += batch.size() != 0;
      FAIL() << "no error";
    } catch (const penstock::error& caught) {
      EXPECT_EQ(std::string(caught.what()),
                "read: epoch 0, step 5, sample 40, photo40.png, row 7: the file is cut (this epoch's sample number 4 "
                "that cannot be "
                "read; read_options::most_bad leaves out or replaces 3)");
      EXPECT_EQ(batches, 5u);
    }
    EXPECT_EQ(feed.state().samples, 40u);  // of the batch before
  }
}

TEST(bad_samples, a_share_of_an_epochs_samples_is_a_limit_too) {
  const auto feed_with = [](int readers, penstock::read_options options) {
    options.readers = readers;
    options.bad = bad_samples::skip;
    return (numbers{60, {3, 20, 21, 40}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
            penstock::read(options) | penstock::batch(8) | penstock::transfer(penstock::cpu_device{}))
        .start();
  };
  for (const int readers : {0, 1, 4}) {
    auto feed = feed_with(readers, {.most_bad_share = 0.05});
    std::size_t batches = 0;
    try {
      for (auto& batch : feed.epoch(0)) batches += batch.size() != 0;
      FAIL() << "no error";
    } catch (const penstock::error& caught) {
      EXPECT_EQ(std::string(caught.what()),
                "read: epoch 0, step 5, sample 40, photo40.png, row 7: the file is cut (this epoch's sample number 4 "
                "that cannot be read; read_options::most_bad_share of 0.050000 leaves out or replaces 3 of 60)");
      EXPECT_EQ(batches, 5u);
    }
  }
  auto all = feed_with(1, {.most_bad_share = 0.067});
  EXPECT_EQ(all_of(all).size(), 8u);
  EXPECT_EQ(all.faults().size(), 4u);
  auto count = feed_with(1, {.most_bad = 2, .most_bad_share = 0.5});  // both hold
  EXPECT_THROW(all_of(count), penstock::error);
  auto share = feed_with(1, {.most_bad = 100, .most_bad_share = 0.0});
  EXPECT_THROW(all_of(share), penstock::error);
  for (const double wrong : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(feed_with(1, {.most_bad_share = wrong}), std::invalid_argument);
}
TEST(bad_samples, a_quota_of_what_is_not_allowed_is_refused) {
  const auto refused = [](const penstock::read_options& options) {
    try {
      penstock::read(options).validate();
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({.most_bad = 3}),
            "penstock: read: most_bad is 3, wanted none, as bad is fail: the first sample that cannot be read ends the "
            "run");
  EXPECT_EQ(refused({.most_bad_share = 0.5}),
            "penstock: read: most_bad_share is 0.500000, wanted none, as bad is fail: the first sample that cannot be "
            "read ends the run");
  EXPECT_EQ(refused({.bad = bad_samples::substitute, .most_bad = 0}), "accepted");
}
// A share may be more than the 100 that hold where nothing is said, and 29 % of 100 are 29.
TEST(bad_samples, a_share_stands_in_for_the_usual_count_and_is_of_this_replicas_samples) {
  std::set<std::uint64_t> bad;
  for (std::uint64_t i = 0; i < 150; ++i) bad.insert(2 * i);  // half of each rank's
  auto feed =
      (numbers{300, bad} | penstock::partition() | penstock::read({.bad = bad_samples::skip, .most_bad_share = 0.5}) |
       penstock::batch(16) | penstock::transfer(penstock::cpu_device{}))
          .start();
  all_of(feed);
  EXPECT_EQ(feed.faults().size(), 150u);

  bad.clear();
  for (std::uint64_t i = 0; i < 30; ++i) bad.insert(i);
  const auto limited = [&](double share) {
    auto one = (numbers{200, bad} |
                penstock::partition({.shuffle = penstock::shuffle::none, .world = {.rank = 0, .size = 2}}) |
                penstock::read({.readers = 0, .bad = bad_samples::skip, .most_bad_share = share}) |
                penstock::batch({.global = 200}) | penstock::transfer(penstock::cpu_device{}))
                   .start();
    one.next();
  };
  EXPECT_NO_THROW(limited(0.30));
  try {
    limited(0.29);
    FAIL() << "no error";
  } catch (const penstock::error& caught) {
    EXPECT_NE(std::string(caught.what()).find("replaces 29 of 100)"), std::string::npos) << caught.what();
  }
}

TEST(bad_samples, a_batch_of_which_nothing_is_left_is_not_delivered) {
  std::set<std::uint64_t> bad;
  for (std::uint64_t i = 8; i < 16; ++i) bad.insert(i);
  for (std::uint64_t i = 24; i < 32; ++i) bad.insert(i);
  for (const int readers : {0, 2}) {
    auto feed = (numbers{32, bad} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                 penstock::read({.readers = readers, .bad = bad_samples::skip}) | penstock::batch(8) |
                 penstock::transfer(penstock::cpu_device{}))
                    .start();
    std::vector<std::uint64_t> steps;
    for (auto& batch : feed.epoch(0)) steps.push_back(batch.step());
    EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 2}));
    EXPECT_EQ(feed.state().epoch, 1u);
    EXPECT_EQ(feed.faults().size(), 16u);
  }
}

TEST(bad_samples, padding_comes_after_what_is_left) {
  auto feed =
      (numbers{16, {2, 3}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
       penstock::read({.bad = bad_samples::skip}) | penstock::batch({.size = 8, .last = penstock::last_batch::pad}) |
       penstock::transfer(penstock::cpu_device{}))
          .start();
  const auto batch = feed.next();
  EXPECT_EQ(batch.size(), 6u);
  EXPECT_EQ(batch.rows(), 8u);
  EXPECT_EQ(batch.get<1>()(6), 0);
  EXPECT_EQ(batch.get<1>()(5), -5);
  EXPECT_EQ(batch.get<1>()(2), -7);
}

// Rows are closed before the copy, and what is kept on the host of scalar fields follows.
TEST(bad_samples, a_device_gets_the_rows_that_are_left) {
  numbers data{40, {1, 6, 7, 20}};
  auto feed = (data | penstock::partition({.seed = 2}) | penstock::read({.readers = 2, .bad = bad_samples::skip}) |
               penstock::batch(8) | penstock::transfer(penstock::modelled_device()))
                  .start();
  std::size_t samples = 0, faults = 0;
  for (auto& batch : feed.epoch(0)) {
    const auto labels = batch.host<1>();
    for (std::size_t row = 0; row < batch.size(); ++row)
      EXPECT_EQ(labels(row), -static_cast<std::int64_t>(batch.indices()[row]));
    samples += batch.size();
    faults += batch.faults().size();
  }
  EXPECT_EQ(samples, 36u);
  EXPECT_EQ(faults, 4u);
}

// Law 8, over replicas: what is left weighs by its real count, and a rank of which nothing is left takes part.
TEST(bad_samples, replicas_stay_in_step) {
  std::set<std::uint64_t> bad{1};
  for (std::uint64_t i = 12; i < 20; ++i) bad.insert(i);  // all that rank 1 has of step 1, and more
  double mean[2] = {};
  std::uint64_t steps[2] = {};
  penstock::replicas(2, [&](auto& replica) {
    auto feed =
        replica.start(numbers{36, bad} | penstock::partition({.shuffle = penstock::shuffle::none, .world = replica}) |
                      penstock::read({.readers = 1, .bad = bad_samples::skip}) | penstock::batch({.global = 12}) |
                      penstock::transfer(replica.device()));
    for (auto& batch : feed.epoch(0)) {
      std::array<double, 1> sum{};
      for (const std::uint64_t index : batch.indices()) sum[0] += static_cast<double>(index);
      const auto step = replica.all_reduce(batch, penstock::buffer(sum, penstock::reduction::sum));
      if (!step) continue;
      mean[replica.rank()] += sum[0];
      ++steps[replica.rank()];
    }
  });
  double wanted = 0;
  for (std::uint64_t i = 0; i < 36; ++i) wanted += bad.contains(i) ? 0.0 : static_cast<double>(i);
  EXPECT_EQ(mean[0], wanted);
  EXPECT_EQ(mean[1], wanted);
  EXPECT_EQ(steps[0], 3u);
  EXPECT_EQ(steps[1], 3u);
}

TEST(bad_samples, observers_are_told_of_them_at_the_end_of_an_epoch) {
  std::vector<std::string> told;
  struct listener {
    std::vector<std::string>& to;
    void on_epoch(const penstock::epoch_event& event) {
      for (const auto& fault : event.faults) to.push_back(fault.where.path);
    }
  };
  const auto work = numbers{10, {9, 4}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                    penstock::read({.readers = 2, .bad = bad_samples::skip}) | penstock::batch(3) |
                    penstock::transfer(penstock::cpu_device{}) | penstock::compute([](auto&) {});
  penstock::run(work, {.epochs = 2}, listener{told});
  EXPECT_EQ(told, (std::vector<std::string>{"photo4.png", "photo9.png", "photo4.png", "photo9.png"}));
}

struct hungry : numbers {
  void read(std::uint64_t index, const auto&) const {
    if (index == 5) throw std::bad_alloc();
  }
};
TEST(bad_samples, no_memory_is_not_a_fault_of_the_sample) {
  auto feed = feed_of(hungry{{20}}, {.readers = 2, .bad = bad_samples::substitute});
  EXPECT_THROW(all_of(feed), std::exception);
}

TEST(bad_samples, where_nothing_can_be_read_substitutes_end) {
  std::set<std::uint64_t> all;
  for (std::uint64_t i = 0; i < 20; ++i) all.insert(i);
  auto feed = feed_of(numbers{20, all}, {.readers = 2, .bad = bad_samples::substitute});
  try {
    feed.next();
    FAIL() << "no error";
  } catch (const penstock::error& caught) {
    // What was wanted, not what was tried in its place.
    EXPECT_EQ(caught.problem().substr(0, 15), "the file is cut");
    ASSERT_TRUE(caught.where().sample.has_value());
    EXPECT_EQ(caught.where().path, "photo" + std::to_string(*caught.where().sample) + ".png");
  }
}

// A plan of another dataset is found out, whichever of its positions is asked.
TEST(bad_samples, a_substitute_that_the_dataset_does_not_have_is_refused) {
  struct wrong_later {
    std::uint64_t size() const { return 40; }
    void order(std::uint64_t, std::uint64_t, std::uint64_t first, std::span<std::uint64_t> out) const {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = first + i < 2 ? first + i : 1'000'000 + first + i;
    }
  };
  auto feed = (numbers{100, {0}} | penstock::partition(wrong_later{}) |
               penstock::read({.readers = 0, .bad = bad_samples::substitute}) | penstock::batch(2) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  try {
    feed.next();
    FAIL() << "no error";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.problem().substr(0, 26), "the plan gives sample 1000");
  }
}

TEST(bad_samples, a_long_row_of_batches_of_which_nothing_is_left_needs_no_stack) {
  std::set<std::uint64_t> bad;
  for (std::uint64_t i = 1; i < 20'000; ++i) bad.insert(i);
  auto feed = (numbers{20'001, bad} | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = 0, .bad = bad_samples::skip, .most_bad = 20'000}) | penstock::batch(1) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::vector<std::uint64_t> steps;
  for (auto& batch : feed.epoch(0)) steps.push_back(batch.step());
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 20'000}));
}

TEST(bad_samples, a_resume_begins_to_count_anew_and_a_batch_that_was_not_delivered_does_not_count) {
  struct thrower {
    bool& throws;
    void on_batch(const penstock::batch_event& event) {
      if (event.step == 1 && std::exchange(throws, false)) throw std::runtime_error("not now");
    }
  };
  bool throws = true;
  auto feed = (numbers{32, {1, 9, 20}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
               penstock::read({.readers = 0, .bad = bad_samples::skip}) | penstock::batch(8) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  feed.observe(thrower{throws});
  try {
    for (auto& batch : feed.epoch(0)) EXPECT_LE(batch.step(), 0u);
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(feed.faults().size(), 1u);
  const penstock::feed_state state = feed.state();
  EXPECT_EQ(state.samples, 8u);
  feed.resume(state);
  EXPECT_EQ(feed.faults().size(), 0u);
  for (auto& batch : feed.epoch(0)) EXPECT_GE(batch.size(), 7u);
  ASSERT_EQ(feed.faults().size(), 2u);
  EXPECT_EQ(feed.faults()[0].sample, 9u);
}

// ---- the list of bad samples

using folder = penstock_test::temporary_directory;
std::size_t files_in(const folder& of) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(of.path()), {}));
}
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
std::string head_of(const std::string& list) { return list.substr(0, list.find('\n') + 1); }

/// The same numbers, and how often those were tried that cannot be read.
struct watched_numbers : numbers {
  std::shared_ptr<std::atomic<int>> tried = std::make_shared<std::atomic<int>>(0);
  void read(std::uint64_t index, const auto& to) const {
    if (bad.contains(index)) ++*tried;
    numbers::read(index, to);
  }
};
struct watched_numbers_in_bulk : numbers_in_bulk {
  std::shared_ptr<std::atomic<int>> tried = std::make_shared<std::atomic<int>>(0);
  void read_range(
      std::span<const std::uint64_t> indices,
      const penstock::batch_view<penstock::schema<penstock::field<std::int64_t, 1>, penstock::field<std::int64_t>>>& to)
      const {
    for (const std::uint64_t index : indices) *tried += bad.contains(index) ? 1 : 0;
    numbers_in_bulk::read_range(indices, to);
  }
};

template <class Data>
class quarantined : public testing::Test {};
using watched_datasets = testing::Types<watched_numbers, watched_numbers_in_bulk>;
TYPED_TEST_SUITE(quarantined, watched_datasets);

TYPED_TEST(quarantined, listed_samples_are_not_tried_and_all_is_as_if_they_had_been) {
  for (const bad_samples how : {bad_samples::skip, bad_samples::substitute}) {
    const folder here;
    const std::string path = here / "bad.csv";
    const auto all_with = [&](int readers, const std::string& list, int& tried, std::vector<std::string>& told) {
      TypeParam data{{103, {3, 4, 17, 50, 99}}};
      auto feed = feed_of(data, {.readers = readers, .bad = how, .quarantine = quarantine(list)});
      auto seen = all_of(feed, 0);
      for (const auto& fault : feed.faults()) told.push_back(fault.where.text() + ": " + fault.problem);
      const auto more = all_of(feed, 1);
      seen.insert(seen.end(), more.begin(), more.end());
      tried = *data.tried;
      return seen;
    };
    int tried = 0;
    std::vector<std::string> wanted_faults;
    const auto wanted = all_with(2, "", tried, wanted_faults);
    EXPECT_GE(tried, 10);
    for (const int readers : {1, 0, 3}) {  // the first one writes the list
      std::vector<std::string> told;
      EXPECT_EQ(all_with(readers, path, tried, told), wanted) << readers << " readers";
      EXPECT_EQ(told, wanted_faults);
      if (readers == 1) {
        EXPECT_GE(tried, 10);
      } else {
        EXPECT_EQ(tried, 0);
      }
    }
    EXPECT_EQ(files_in(here), 1u);
    const std::string text = text_of(path);
    EXPECT_EQ(head_of(text).substr(0, 43), "# penstock-quarantine 1 samples 103 fields ");
    EXPECT_EQ(text.substr(head_of(text).size()),
              "sample,path,position,problem\n"
              "3,\"photo3.png\",\"row 7\",\"the file is cut\"\n"
              "4,\"photo4.png\",\"row 7\",\"the file is cut\"\n"
              "17,\"photo17.png\",\"row 7\",\"the file is cut\"\n"
              "50,\"photo50.png\",\"row 7\",\"the file is cut\"\n"
              "99,\"photo99.png\",\"row 7\",\"the file is cut\"\n");
  }
}

TEST(quarantine, listed_samples_count_against_the_quota) {
  const folder here;
  const auto count = [&](const std::string& list) {
    auto feed = feed_of(numbers{64, {3, 20, 21, 40}},
                        {.readers = 2, .bad = bad_samples::skip, .most_bad = 3, .quarantine = quarantine(list)});
    std::string problem;
    try {
      for (auto& batch : feed.epoch(0)) EXPECT_NE(batch.size(), 0u);
    } catch (const penstock::error& caught) {
      problem = caught.what();
    }
    return problem;
  };
  const std::string wanted = count("");
  EXPECT_NE(wanted, "");
  EXPECT_EQ(count(here / "bad.csv"), wanted);  // written although the feed ended with an error
  EXPECT_NE(text_of(here / "bad.csv"), "");
  EXPECT_EQ(count(here / "bad.csv"), wanted);
}

TEST(quarantine, is_written_at_an_epochs_end_and_at_the_feeds_and_only_when_there_is_something_new) {
  const folder here;
  const std::string path = here / "bad.csv";
  {
    auto feed = feed_of(numbers{32, {}}, {.bad = bad_samples::skip, .quarantine = quarantine(path)});
    all_of(feed);
  }
  EXPECT_EQ(files_in(here), 0u);
  const auto work = numbers{32, {1, 30}} | penstock::partition({.shuffle = penstock::shuffle::none}) |
                    penstock::read({.readers = 1, .bad = bad_samples::skip, .quarantine = quarantine(path)}) |
                    penstock::batch(8) | penstock::transfer(penstock::cpu_device{});
  const auto rows = [&] {
    const std::string text = text_of(path);
    return text.empty() ? 0 : std::ranges::count(text, '\n') - 2;
  };
  {
    auto feed = work.start();
    feed.next();
    EXPECT_EQ(rows(), 0);
  }
  EXPECT_EQ(rows(), 1);  // at the feed's end
  {
    auto feed = work.start();
    for (int epoch = 0; epoch < 2; ++epoch) {
      all_of(feed, static_cast<std::uint64_t>(epoch));
      if (epoch == 0) {
        EXPECT_EQ(rows(), 2);
        write(path, head_of(text_of(path)) + "sample,path,position,problem\n9,,,mine\n");
      }
    }
    EXPECT_EQ(rows(), 1);  // what is not new is not written
  }
  EXPECT_EQ(rows(), 1);
  // What another has put there meanwhile stays.
  auto other = work.start();
  write(path, head_of(text_of(path)) + "sample,path,position,problem\n9,,,mine\n11,,,theirs\n");
  all_of(other);
  EXPECT_EQ(rows(), 4);
}

TEST(quarantine, a_person_may_have_edited_it) {
  const folder here;
  const std::string path = here / "bad.csv";
  {
    auto feed = feed_of(numbers{20, {1}}, {.bad = bad_samples::skip, .quarantine = quarantine(path)});
    all_of(feed);
  }
  std::string head = head_of(text_of(path));
  head.pop_back();
  write(path, "\xEF\xBB\xBF" + head +
                  ",,,\r\nsample,path,position,problem\r\n\r\n7,a \"b\".png,,\"two\nlines, and a "
                  "\"\"\r\n\"\r\n2,x,y,z\r\n7,again,,\r\n5,,,last");
  auto feed = feed_of(numbers{20, {}}, {.bad = bad_samples::skip, .quarantine = quarantine(path)});
  all_of(feed);
  std::vector<std::string> told;
  for (const auto& fault : feed.faults())
    told.push_back(std::to_string(fault.sample) + "|" + fault.where.path + "|" + fault.where.position + "|" +
                   fault.problem);
  std::ranges::sort(told);
  EXPECT_EQ(told, (std::vector<std::string>{"2|x|y|z", "5|||last", "7|a \"b\".png||two\nlines, and a \"\r\n"}));
}

TEST(quarantine, another_datasets_list_and_a_damaged_one_are_refused_before_anything_starts) {
  const folder here;
  const std::string path = here / "bad.csv";
  const auto start = [&](std::uint64_t count) {
    auto feed = feed_of(numbers{count, {1}}, {.bad = bad_samples::skip, .quarantine = quarantine(path)});
    all_of(feed);
  };
  start(20);
  const std::string good = text_of(path);
  const std::string head = head_of(good), names = "sample,path,position,problem\n";
  const auto refused = [&](const std::string& text, const std::string& sentence) {
    write(path, text);
    try {
      start(20);
      ADD_FAILURE() << "no error, wanted: " << sentence;
    } catch (const penstock::error& caught) {
      EXPECT_EQ(std::string(caught.what()), path + ", " + sentence);
    }
    EXPECT_EQ(text_of(path), text);  // it stays as it was
  };
  const std::string first = "wanted \"# penstock-quarantine 1 samples N fields F\"";
  refused("", "line 1: the file is of another kind, wanted a list of samples that begins \"# penstock-quarantine\"");
  refused("a,b\n1,2\n",
          "line 1: the file is of another kind, wanted a list of samples that begins \"# penstock-quarantine\"");
  refused("# penstock-quarantine 2 samples 20 fields 1\n" + names, "line 1: found another head, " + first);
  refused("# penstock-quarantine 1 samples 99999999999999999999 fields 1\n" + names,
          "line 1: found another head, " + first);
  refused("# penstock-quarantine 1 samples 21 fields 1\n" + names,
          "line 1: the list is of a dataset of 21 samples, wanted one of 20");
  refused("# penstock-quarantine 1 samples 20 fields 1\n" + names,
          "line 1: the list is of a dataset with other fields");
  refused(head, "line 2: the list ends here, wanted sample,path,position,problem");
  refused(head + "sample,file,position,problem\n",
          "line 2: found other names of columns, wanted sample,path,position,problem");
  refused(good + "7,a,b\n", "line 4: found a row of 3 cells, wanted 4");
  refused(good + "\n20,a,b,c\n", "line 5: found the sample \"20\", wanted a number below 20");
  refused(good + "2,\"\n\n\",,\n-1,a,b,c\n", "line 7: found the sample \"-1\", wanted a number below 20");
  refused(good + "7,a,b,\"c\n", "line 4: a quote is opened here and never closed");
  refused(good + "7,\"a\"b,c,d\n", "line 4: found more after a closing quote, wanted a comma or the end of the line");
  refused(good.substr(0, good.size() - 3), "line 3: a quote is opened here and never closed");
}

TEST(quarantine, a_list_that_cannot_be_written_and_one_without_a_use_are_refused_at_the_start) {
  const folder here;
  EXPECT_THROW(feed_of(numbers{20}, {.bad = bad_samples::skip, .quarantine = quarantine(here / "none/bad.csv")}),
               penstock::error);
  EXPECT_THROW(feed_of(numbers{20}, {.quarantine = quarantine(here / "bad.csv")}), std::invalid_argument);
  // What goes wrong later is told at the epoch's end.
  std::filesystem::create_directory(here / "gone");
  auto feed = feed_of(numbers{20, {3}},
                      {.readers = 1, .bad = bad_samples::skip, .quarantine = quarantine(here / "gone/bad.csv")});
  std::filesystem::remove(here / "gone");
  EXPECT_THROW(all_of(feed), penstock::error);
}

TEST(quarantine, each_rank_keeps_its_own_list_and_takes_note_of_all) {
  const folder here;
  const std::string path = here / "bad.v1.csv";
  const numbers data{36, {1, 12, 30}};
  const auto run = [&](std::array<std::size_t, 2>& faults, const watched_numbers& from, std::uint64_t epoch) {
    penstock::replicas(2, [&](auto& replica) {
      auto feed =
          replica.start(from | penstock::partition({.seed = 4, .world = replica}) |
                        penstock::read({.readers = 1, .bad = bad_samples::skip, .quarantine = quarantine(path)}) |
                        penstock::batch({.global = 12}) | penstock::transfer(replica.device()));
      std::array<double, 1> none{};
      for (auto& batch : feed.epoch(epoch)) replica.all_reduce(batch, penstock::buffer(none, penstock::reduction::sum));
      faults[replica.rank()] = feed.faults().size();
    });
  };
  std::array<std::size_t, 2> faults{};
  run(faults, {data}, 0);
  EXPECT_EQ(faults[0] + faults[1], 3u);
  EXPECT_FALSE(std::filesystem::exists(path));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string text = text_of(here / ("bad.v1.rank" + std::to_string(rank) + ".csv"));
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(text, '\n')), faults[rank] == 0 ? 0 : faults[rank] + 2);
  }
  for (const std::uint64_t epoch : {1u, 2u, 3u, 4u}) {  // each time other samples are a rank's
    const watched_numbers again{data};
    run(faults, again, epoch);
    EXPECT_EQ(faults[0] + faults[1], 3u);
    EXPECT_EQ(*again.tried, 0);
  }
}

TEST(bad_samples, a_stream_is_refused) {
  const auto work = penstock::stream([](std::uint64_t) { return std::vector<std::tuple<int>>{{1}}; }) |
                    penstock::partition({.shuffle = penstock::shuffle::none}) |
                    penstock::read({.bad = bad_samples::skip}) | penstock::batch(2) |
                    penstock::transfer(penstock::cpu_device{});
  EXPECT_THROW(work.start(), std::invalid_argument);
}

}  // namespace
