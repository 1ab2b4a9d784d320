// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <ranges>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/penstock.hpp>

namespace {

using numbers = std::vector<int>;

numbers first_numbers(int n) {
  numbers result(static_cast<std::size_t>(n));
  std::iota(result.begin(), result.end(), 0);
  return result;
}
const numbers ten = first_numbers(10);

/// Writes down all that it is told.
struct recorder {
  std::vector<std::string>& to;
  void on_begin(const penstock::run_begin& event) {
    to.push_back("begin " + std::to_string(event.first_epoch) + "." + std::to_string(event.first_step) + " of " +
                 std::to_string(event.epochs.value_or(0)) + " epochs of " +
                 std::to_string(event.steps_per_epoch.value_or(0)));
  }
  void on_batch(const penstock::batch_event& event) {
    to.push_back("batch " + std::to_string(event.epoch) + "." + std::to_string(event.step) + " of " +
                 std::to_string(event.samples));
  }
  void on_epoch(const penstock::epoch_event& event) {
    to.push_back("epoch " + std::to_string(event.epoch) + ": " + std::to_string(event.steps) + " steps, " +
                 std::to_string(event.samples) + " samples");
  }
  void on_error(const penstock::error_event& event) { to.push_back("error " + std::string(event.message)); }
  void on_end(const penstock::run_end& event) { to.push_back("end " + std::string(event.reason)); }
};

class Run : public testing::TestWithParam<int> {
 protected:
  /// Batches of 4, 4 and 2.
  template <class Source>
  auto batches(Source&& source) const {
    return std::forward<Source>(source) | penstock::partition({.seed = 1}) | penstock::read({.readers = GetParam()}) |
           penstock::batch(4) | penstock::transfer(penstock::cpu_device{});
  }
  auto batches() const { return batches(ten); }
};
INSTANTIATE_TEST_SUITE_P(Readers, Run, testing::Values(0, 2), testing::PrintToStringParamName());

constexpr auto sum_of = [](auto& batch) {
  int sum = 0;
  for (int value : batch.template get<0>()) sum += value;
  return sum;
};
constexpr auto plus = [](int value, int item) { return value + item; };

TEST_P(Run, gives_one_value_an_epoch) {
  const auto result = penstock::run(batches() | penstock::compute(sum_of) | penstock::reduce(100, plus), {.epochs = 3});
  EXPECT_EQ(result.epochs, (numbers{145, 145, 145}));
  EXPECT_EQ(result.value(), 145);
  EXPECT_EQ(result.steps, 9U);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.state.epoch, 3U);
  EXPECT_EQ(result.state.samples, 0U);
}

TEST_P(Run, folds_in_place_and_in_step_order) {
  const auto append = [](std::vector<std::uint64_t>& steps, auto& batch) { steps.push_back(batch.step()); };
  const auto result = penstock::run(batches() | penstock::reduce(std::vector<std::uint64_t>{}, append), {.epochs = 2});
  EXPECT_EQ(result.epochs, (std::vector<std::vector<std::uint64_t>>{{0, 1, 2}, {0, 1, 2}}));
}

/// A fold that counts on the way and says the mean at the end, as one whose values are elsewhere until then.
struct mean {
  struct state {
    double sum = 0, count = 0;
  };
  std::vector<std::string>& told;
  template <class Batch>
  void operator()(state& to, Batch& batch) const {
    told.push_back("batch");
    for (int value : batch.template get<0>()) to.sum += value, to.count += 1;
  }
  double finish(const state& from) const {
    told.push_back("finish");
    return from.sum / from.count;
  }
};

TEST_P(Run, an_operation_finishes_each_epoch_s_value_once_after_its_last_batch) {
  std::vector<std::string> told;
  const auto work = batches() | penstock::reduce(mean::state{}, mean{told});
  const auto result = penstock::run(work, {.epochs = 2});
  EXPECT_EQ(result.epochs, (std::vector<double>{4.5, 4.5}));
  const std::vector<std::string> epoch{"batch", "batch", "batch", "finish"};
  ASSERT_EQ(told.size(), 8U);
  EXPECT_TRUE(std::equal(epoch.begin(), epoch.end(), told.begin()));
  EXPECT_TRUE(std::equal(epoch.begin(), epoch.end(), told.begin() + 4));
}

TEST_P(Run, a_finish_that_returns_nothing_changes_the_value_in_place) {
  struct doubled_sum {
    int operator()(int value, int item) const { return value + item; }
    void finish(int& value) const { value *= 2; }
  };
  const auto work = batches() | penstock::compute(sum_of) | penstock::reduce(1, doubled_sum{});
  EXPECT_EQ(penstock::run(work, {.epochs = 2}).epochs, (numbers{92, 92}));
}

TEST_P(Run, an_epoch_that_is_left_is_not_finished) {
  std::stop_source stop;
  std::vector<std::string> told;
  const auto stopping = [&](auto& batch) {
    if (batch.step() == 1) stop.request_stop();
  };
  const auto result =
      penstock::run(batches() | penstock::compute(stopping) | penstock::reduce(mean::state{}, mean{told}),
                    {.stop = stop.get_token()});
  EXPECT_TRUE(result.epochs.empty());
  EXPECT_EQ(told, (std::vector<std::string>{"batch", "batch"}));
}

TEST_P(Run, what_finish_throws_leaves_the_run_and_observers_are_told) {
  struct failing {
    void operator()(int& value, int item) const { value += item; }
    int finish(int) const { throw std::domain_error("the device is lost"); }
  };
  std::vector<std::string> told;
  const auto work = batches() | penstock::compute(sum_of) | penstock::reduce(0, failing{});
  EXPECT_THROW(penstock::run(work, {.epochs = 2}, recorder{told}), std::domain_error);
  EXPECT_EQ(told.back(), "end error");
}

TEST_P(Run, hands_results_from_compute_to_compute) {
  std::vector<std::size_t> seen;
  auto work = batches() | penstock::compute([](auto& batch) { return batch.size(); }) |
              penstock::compute([&](std::size_t size, auto& batch) {
                EXPECT_EQ(size, batch.size());
                seen.push_back(size);
                return size * 10;
              }) |
              penstock::compute([](std::size_t ten_times) { EXPECT_EQ(ten_times % 10, 0U); }) |
              penstock::compute([&](auto& batch) { EXPECT_EQ(batch.size(), seen.back()); });
  const auto result = penstock::run(work);
  EXPECT_EQ(seen, (std::vector<std::size_t>{4, 4, 2}));
  EXPECT_EQ(result.steps, 3U);
}

TEST_P(Run, tells_observers_in_order) {
  std::vector<std::string> told;
  penstock::run(batches(), {.epochs = 2}, recorder{told});
  EXPECT_EQ(told,
            (std::vector<std::string>{"begin 0.0 of 2 epochs of 3", "batch 0.0 of 4", "batch 0.1 of 4",
                                      "batch 0.2 of 2", "epoch 0: 3 steps, 10 samples", "batch 1.0 of 4",
                                      "batch 1.1 of 4", "batch 1.2 of 2", "epoch 1: 3 steps, 10 samples", "end done"}));
}

TEST_P(Run, an_observer_hears_its_batch_before_compute_does) {
  std::size_t told = 0;
  std::size_t done = 0;
  const auto listener = [&](const penstock::batch_event&) { EXPECT_EQ(++told, done + 1); };
  penstock::run(batches() | penstock::compute([&](auto&) { EXPECT_EQ(++done, told); }), {.epochs = 2}, listener);
  EXPECT_EQ(done, 6U);
}

TEST_P(Run, a_stop_ends_it_at_the_next_batch_and_leaves_the_partial_epoch_out) {
  std::stop_source stop;
  std::vector<std::string> told;
  const auto work = batches() | penstock::compute([&](auto& batch) {
                      if (batch.epoch() == 1 && batch.step() == 1) stop.request_stop();
                      return 1;
                    }) |
                    penstock::reduce(0, plus);
  const auto result = penstock::run(work, {.epochs = 5, .stop = stop.get_token()}, recorder{told});
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.epochs, numbers{3});
  EXPECT_EQ(result.steps, 5U);
  EXPECT_EQ(result.state.epoch, 1U);
  EXPECT_EQ(result.state.samples, 8U);
  EXPECT_EQ(told.back(), "end stopped");
  EXPECT_EQ(told[told.size() - 2], "epoch 1: 2 steps, 8 samples");
}

TEST_P(Run, a_stop_in_an_epoch_s_last_batch_keeps_the_epoch_s_value) {
  for (const std::uint64_t epochs : {1U, 2U}) {
    std::stop_source stop;
    const auto work = batches() | penstock::compute([&](auto& batch) {
                        if (batch.step() == 2) stop.request_stop();
                        return sum_of(batch);
                      }) |
                      penstock::reduce(0, plus);
    const auto result = penstock::run(work, {.epochs = epochs, .stop = stop.get_token()});
    EXPECT_EQ(result.epochs, numbers{45});
    EXPECT_EQ(result.state.epoch, 1U);
    EXPECT_EQ(result.state.samples, 0U);
    EXPECT_EQ(result.stopped, epochs == 2) << "all of one epoch was done, not of two";
  }
}

TEST_P(Run, a_stop_before_it_begins_reads_nothing) {
  std::stop_source stop;
  stop.request_stop();
  std::size_t done = 0;
  const auto result = penstock::run(batches() | penstock::compute([&](auto&) { ++done; }), {.stop = stop.get_token()});
  EXPECT_EQ(done, 0U);
  EXPECT_TRUE(result.stopped);
}

TEST_P(Run, resumes_with_the_very_next_sample) {
  const auto recorded = [](numbers& to) {
    return [&to](auto& batch) {
      for (int value : batch.template get<0>()) to.push_back(value);
    };
  };
  numbers whole;
  penstock::run(batches() | penstock::compute(recorded(whole)), {.epochs = 3});

  numbers parts;
  std::stop_source stop;
  const auto stopping = [&](auto& batch) {
    if (batch.epoch() == 1 && batch.step() == 0) stop.request_stop();
  };
  const auto first = penstock::run(batches() | penstock::compute(recorded(parts)) | penstock::compute(stopping),
                                   {.epochs = 3, .stop = stop.get_token()});
  EXPECT_EQ(parts.size(), 14U);

  std::vector<std::string> told;
  const auto second = penstock::run(
      batches() | penstock::compute(recorded(parts)) | penstock::reduce(0, [](int n, auto&) { return n + 1; }),
      {.epochs = 3, .resume = first.state}, recorder{told});
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(second.epochs, (numbers{2, 3})) << "what of epoch 1 was left, and epoch 2";
  EXPECT_EQ(told.front(), "begin 1.1 of 3 epochs of 3");
}

TEST_P(Run, nothing_is_left_of_a_run_that_was_done) {
  const auto done = penstock::run(batches(), {.epochs = 2});
  EXPECT_EQ(penstock::run(batches(), {.epochs = 2, .resume = done.state}).steps, 0U);
  EXPECT_EQ(penstock::run(batches(), {.epochs = 3, .resume = done.state}).steps, 3U);
}

TEST_P(Run, what_compute_throws_leaves_as_it_is_and_observers_are_told) {
  struct diverged {};
  std::vector<std::string> told;
  const auto work = batches() | penstock::compute([](auto& batch) {
                      if (batch.step() == 1) throw diverged{};
                    });
  EXPECT_THROW(penstock::run(work, {.epochs = 2}, recorder{told}), diverged);
  EXPECT_EQ(told.back(), "end error");
}

TEST_P(Run, what_reading_throws_leaves_with_its_place_and_observers_are_told) {
  const auto torn = ten | std::views::transform([](int value) {
                      if (value == 7) throw std::runtime_error("sample 7 is torn");
                      return value;
                    });
  std::vector<std::string> told;
  try {
    penstock::run(batches(torn), {.epochs = 2}, recorder{told});
    FAIL() << "it ran through";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().sample, 7U);
    EXPECT_EQ(caught.where().epoch, 0U);
    ASSERT_GE(told.size(), 3U);
    EXPECT_EQ(told.end()[-1], "end error");
    EXPECT_NE(std::find(told.begin(), told.end(), "error " + std::string(caught.what())), told.end());
  }
}

TEST_P(Run, an_observer_that_throws_ends_it) {
  const auto quota = [](const penstock::batch_event& event) {
    if (event.step == 1) throw std::domain_error("disk full");
  };
  std::size_t done = 0;
  EXPECT_THROW(penstock::run(batches() | penstock::compute([&](auto&) { ++done; }), {.epochs = 2}, quota),
               std::domain_error);
  EXPECT_EQ(done, 1U);
}

TEST_P(Run, a_pipeline_can_be_run_again) {
  const auto work = batches() | penstock::compute(sum_of) | penstock::reduce(0, plus);
  EXPECT_EQ(penstock::run(work).value(), 45);
  EXPECT_EQ(penstock::run(work).value(), 45);
}

}  // namespace
