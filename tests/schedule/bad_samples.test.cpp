// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

namespace {

using penstock::bad_samples;

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

TEST(bad_samples, a_stream_is_refused) {
  const auto work = penstock::stream([](std::uint64_t) { return std::vector<std::tuple<int>>{{1}}; }) |
                    penstock::partition({.shuffle = penstock::shuffle::none}) |
                    penstock::read({.bad = bad_samples::skip}) | penstock::batch(2) |
                    penstock::transfer(penstock::cpu_device{});
  EXPECT_THROW(work.start(), std::invalid_argument);
}

}  // namespace
