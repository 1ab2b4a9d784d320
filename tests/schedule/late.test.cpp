// SPDX-License-Identifier: Apache-2.0
// Reads that take long: who tells of them, who reads again, and whom readers help.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/dataset/any_dataset.hpp>
#include <penstock/dataset/split.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/observe/ledger.hpp>
#include <penstock/penstock.hpp>

namespace {
std::atomic<int> pretended_cpus{0};  // that there seem to be; 0: those that there are
}
/// In place of the C library's.
extern "C" int sched_getaffinity(pid_t thread, std::size_t size, cpu_set_t* to) noexcept {
  CPU_ZERO_S(size, to);
  const long written = syscall(SYS_sched_getaffinity, thread, size, to);
  for (int cpu = 0; written >= 0 && cpu < pretended_cpus; ++cpu) CPU_SET(cpu, to);
  return written < 0 ? -1 : 0;
}

namespace {

using namespace std::chrono_literals;
using penstock::shuffle;

using numbers_schema = penstock::schema<penstock::field<std::int64_t, 1>>;

/// Opened by the test; all that go through it wait.
struct stuck_at {
  std::uint64_t sample;
  std::shared_ptr<std::latch> entered = std::make_shared<std::latch>(1);
  std::shared_ptr<std::latch> go_on = std::make_shared<std::latch>(1);
};

/// Sample i is i. The first that comes to one of `stuck`, in epoch 0, waits there.
struct numbers {
  std::uint64_t count;
  std::vector<stuck_at> stuck{};
  std::shared_ptr<std::array<std::atomic<int>, 256>> reads = std::make_shared<std::array<std::atomic<int>, 256>>();

  std::uint64_t size() const { return count; }
  numbers_schema schema() const { return numbers_schema{penstock::field<std::int64_t, 1>{"x", {3}}}; }
  penstock::provenance where(std::uint64_t index) const {
    penstock::provenance result;
    result.path = "photo" + std::to_string(index) + ".png";
    return result;
  }
  void read(std::uint64_t index, const penstock::sample_view<numbers_schema>& to,
            penstock::read_context& context) const {
    auto [x] = to;
    x(0) = -1;
    const int before = (*reads)[index].fetch_add(1);
    for (const stuck_at& one : stuck)
      if (one.sample == index && context.epoch == 0 && before == 0) {
        one.entered->count_down();
        one.go_on->wait();
      }
    x(0) = x(1) = static_cast<std::int64_t>(index);
    x(2) = static_cast<std::int64_t>(context.random());
  }
};

bool says(const std::string& message, const std::string& part) { return message.find(part) != std::string::npos; }

template <class Dataset>
auto feed_of(Dataset data, penstock::read_options options) {
  return (std::move(data) | penstock::partition({.shuffle = shuffle::none}) | penstock::read(options) |
          penstock::batch(4) | penstock::transfer(penstock::cpu_device{}, {.depth = 2}))
      .start();
}
template <class Feed>
std::vector<std::array<std::int64_t, 3>> all_of(Feed& feed, std::uint64_t epoch = 0) {
  std::vector<std::array<std::int64_t, 3>> rows;
  for (auto& batch : feed.epoch(epoch)) {
    auto [x] = batch.fields();
    for (std::size_t row = 0; row < batch.size(); ++row) rows.push_back({x(row, 0), x(row, 1), x(row, 2)});
  }
  return rows;
}

struct heard_late {
  std::string message, path;
  std::optional<std::uint64_t> epoch, step, sample;
  std::optional<std::uint32_t> reader;
  std::chrono::nanoseconds waited, reading;
};
/// Opens the latch at the `count`-th warning about its sample; others, on a slow machine, do not count.
struct listener {
  std::vector<heard_late>* heard;
  std::latch* opens;
  std::size_t count;
  std::uint64_t sample;
  void on_late(const penstock::late_event& event) {
    if (event.where.sample != sample) return;
    heard->push_back({std::string(event.message), event.where.path, event.where.epoch, event.where.step,
                      event.where.sample, event.where.reader, event.waited, event.reading});
    if (heard->size() == count) opens->count_down();
  }
};

TEST(late, whoever_waits_is_told_of_stage_reader_step_sample_path_and_time_again_and_again) {
  for (int readers : {1, 3}) {
    const stuck_at here{9};
    auto feed = feed_of(numbers{23, {here}}, {.readers = readers, .timeout = 10min, .warn_after = 4ms});
    std::vector<heard_late> heard;
    feed.observe(listener{&heard, here.go_on.get(), 3, 9});
    EXPECT_EQ(all_of(feed).size(), 23U);  // three warnings let it go on
    ASSERT_GE(heard.size(), 3U);
    for (const heard_late& one : heard) {
      EXPECT_EQ(one.epoch, 0U);
      EXPECT_EQ(one.step, 2U);
      EXPECT_EQ(one.path, "photo9.png");
      ASSERT_TRUE(one.reader);
      EXPECT_LT(*one.reader, static_cast<std::uint32_t>(readers));
      EXPECT_TRUE(says(one.message, "read: epoch 0, step 2, sample 9, photo9.png: no batch has come for"))
          << one.message;
      EXPECT_TRUE(says(one.message, "reads sample 9 of step 2")) << one.message;
      EXPECT_GE(one.waited, 4ms);
    }
    EXPECT_GE(heard[2].waited, 16ms);  // 4, 8, 16
    EXPECT_GE(heard[2].reading, 1ms);
    EXPECT_LE(heard[2].reading, heard[2].waited);
    EXPECT_TRUE(says(heard[2].message, " or more")) << heard[2].message;
  }
}

TEST(late, without_a_listener_it_is_a_line_on_standard_error_and_then_the_time_out_says_path_and_time) {
  const stuck_at stuck{9};
  testing::internal::CaptureStderr();
  {
    auto feed =
        feed_of(numbers{23, {stuck}}, {.readers = 2, .timeout = 100ms, .first_timeout = 1min, .warn_after = 2ms});
    std::uint64_t batches = 0;
    feed.observe([&](const penstock::batch_event&) { ++batches; });  // hears nothing of it
    try {
      all_of(feed);
      FAIL() << "no time-out";
    } catch (const penstock::timeout_error& caught) {
      EXPECT_EQ(caught.where().path, "photo9.png");
      EXPECT_EQ(caught.where().sample, 9U);
      EXPECT_TRUE(says(caught.what(), "reads sample 9 of step 2, for ")) << caught.what();
    }
    EXPECT_EQ(batches, 2U);
    // To begin anew takes the same reader, which the error names.
    try {
      all_of(feed);
      FAIL() << "no time-out";
    } catch (const penstock::timeout_error& caught) {
      EXPECT_EQ(caught.where().path, "photo9.png");
      EXPECT_EQ(caught.where().step, 2U);
    }
    stuck.go_on->count_down();
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(lines, "penstock: read: epoch 0, step 2, sample 9, photo9.png: no batch has come for ")) << lines;
  EXPECT_TRUE(says(lines, "to begin anew, the feed waits for a reader for ")) << lines;
}

TEST(late, of_several_ranks_the_warning_says_whose_it_is) {
  const stuck_at stuck{10};
  auto feed = (numbers{23, {stuck}} | penstock::partition({.shuffle = shuffle::none, .world = {.rank = 1, .size = 2}}) |
               penstock::read({.readers = 1, .timeout = 1min, .warn_after = 2ms}) | penstock::batch(2) |
               penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::vector<heard_late> heard;
  feed.observe(listener{&heard, stuck.go_on.get(), 1, 10});
  for (auto& batch : feed.epoch(0)) (void)batch;
  if (stuck.entered->try_wait()) {
    ASSERT_FALSE(heard.empty());
    EXPECT_TRUE(says(heard[0].message, "rank 1: no batch has come")) << heard[0].message;
  } else {
    FAIL() << "sample 10 is another rank's";
  }
}

TEST(late, what_a_listener_throws_reaches_the_loop) {
  const stuck_at stuck{0};
  auto feed = feed_of(numbers{23, {stuck}}, {.readers = 1, .timeout = 1min, .warn_after = 1ms});
  struct thrower {
    std::latch* opens;
    void on_late(const penstock::late_event&) {
      opens->count_down();
      throw std::runtime_error("I have had enough");
    }
  };
  feed.observe(thrower{stuck.go_on.get()});
  EXPECT_THROW(all_of(feed), std::runtime_error);
}

TEST(late, the_path_goes_through_what_wraps_a_dataset_and_into_errors_of_any_kind) {
  struct broken : numbers {
    void read(std::uint64_t index, const penstock::sample_view<numbers_schema>& to,
              penstock::read_context& context) const {
      if (index == 9) throw std::runtime_error("no format of ours");
      numbers::read(index, to, context);
    }
  };
  const broken data{{23}};
  const auto path_of = [](auto from, penstock::read_options options) {
    auto feed = feed_of(std::move(from), options);
    try {
      all_of(feed);
    } catch (const penstock::error& caught) {
      return caught.where().path;
    }
    return feed.faults().empty() ? std::string("none") : feed.faults()[0].where.path;
  };
  EXPECT_EQ(path_of(data, {.readers = 2}), "photo9.png");
  EXPECT_EQ(path_of(penstock::any_dataset<numbers_schema>(data), {.readers = 2}), "photo9.png");
  EXPECT_EQ(path_of(data, {.readers = 2, .bad = penstock::bad_samples::skip}), "photo9.png");
  EXPECT_EQ(path_of(data, {.readers = 2, .bad = penstock::bad_samples::substitute}), "photo9.png");
  auto parts = penstock::split(data, {.validation = 0});
  EXPECT_EQ(path_of(parts.train, {.readers = 2}), "photo9.png");
}

TEST(late, warn_after_is_checked_before_anything_starts) {
  const numbers data{23};
  const auto refused = [&](penstock::read_options options) {
    try {
      feed_of(data, options);
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({.readers = 1, .warn_after = 0ns}), "accepted");
  EXPECT_TRUE(says(refused({.readers = 1, .warn_after = -1ns}), "warn_after is -1 ns, wanted more than 0"));
  EXPECT_TRUE(
      says(refused({.readers = 1, .timeout = 1s, .warn_after = 1s}), "wanted less than timeout, 1000000000 ns"));
  EXPECT_TRUE(says(refused({.readers = 0, .warn_after = 1s}), "as readers is 0"));
}

penstock::read_options rereading(int readers, penstock::bad_samples bad = penstock::bad_samples::fail) {
  return {.readers = readers,
          .timeout = 1min,
          .late = penstock::late_reads::reread,
          .late_factor = 2,
          .late_floor = 1ms,
          .bad = bad};
}

TEST(reread, a_reader_that_does_not_come_back_holds_no_batch_and_no_epoch) {
  auto plain = feed_of(numbers{23}, {.readers = 1});
  const auto wanted = all_of(plain), wanted_next = all_of(plain, 1);
  for (int readers : {2, 3, 8, penstock::automatic}) {
    const stuck_at stuck{5};
    const numbers data{23, {stuck}};
    auto feed = feed_of(data, rereading(readers));
    EXPECT_EQ(all_of(feed), wanted) << readers;
    stuck.entered->wait();  // it is there, and stays
    EXPECT_EQ(all_of(feed, 1), wanted_next) << readers;
    EXPECT_GE((*data.reads)[5].load(), 2);
    EXPECT_GE(feed.rereads().won, 1U);
    EXPECT_GE(feed.rereads().issued, feed.rereads().won);
    stuck.go_on->count_down();
  }
}

TEST(reread, of_readers_that_the_feed_chooses_those_that_rest_come_where_all_that_work_are_stuck) {
  auto plain = feed_of(numbers{131}, {.readers = 1});
  const auto wanted = all_of(plain), wanted_next = all_of(plain, 1);
  pretended_cpus = 8;
  const std::vector<stuck_at> stuck{{1}, {5}, {6}, {70}};  // each of which takes a reader; it begins with two
  auto feed = feed_of(numbers{131, stuck}, rereading(penstock::automatic));
  pretended_cpus = 0;
  ASSERT_EQ(feed.tuning().most_readers, 8U);
  EXPECT_EQ(feed.tuning().readers, 2U);
  EXPECT_EQ(all_of(feed), wanted);
  EXPECT_EQ(all_of(feed, 1), wanted_next);
  for (const stuck_at& one : stuck) {
    one.entered->wait();
    one.go_on->count_down();
  }
  EXPECT_GE(feed.rereads().won, stuck.size());
}

/// Lets each of `stuck` go once the batch that it is in has come.
template <class Feed>
std::vector<std::array<std::int64_t, 3>> all_with_comers_back(Feed& feed, const std::vector<stuck_at>& stuck) {
  std::vector<std::array<std::int64_t, 3>> rows;
  for (auto& batch : feed.epoch(0)) {
    for (const stuck_at& one : stuck)
      if (one.sample / 4 == batch.step()) {
        one.entered->wait();
        one.go_on->count_down();  // while its row is looked at here, and while its slot is filled anew
      }
    auto [x] = batch.fields();
    for (std::size_t row = 0; row < batch.size(); ++row) {
      EXPECT_EQ(batch.indices()[row], static_cast<std::uint64_t>(x(row, 0)));
      rows.push_back({x(row, 0), x(row, 1), x(row, 2)});
    }
  }
  return rows;
}

TEST(reread, those_who_come_back_late_touch_nothing) {
  auto plain = feed_of(numbers{131}, {.readers = 1});
  const auto wanted = all_of(plain);
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::vector<stuck_at> stuck;
    for (std::uint64_t step = 0; step < 32; ++step)
      if (penstock::philox(seed, 0, step).below(std::uint64_t{3}) != 0)
        stuck.push_back({4 * step + penstock::philox(seed, 1, step).below(std::uint64_t{4})});
    const numbers data{131, stuck};
    auto feed = feed_of(data, rereading(4 + static_cast<int>(seed % 3)));
    EXPECT_EQ(all_with_comers_back(feed, stuck), wanted) << "seed " << seed;
    EXPECT_GE(feed.rereads().won, stuck.size());
  }
}

TEST(reread, on_a_device_with_memory_and_with_a_ledger_it_is_the_same) {
  auto plain = feed_of(numbers{131}, {.readers = 1});
  const auto wanted = all_of(plain);
  std::vector<stuck_at> stuck;
  for (std::uint64_t step = 0; step < 32; step += 2) stuck.push_back({4 * step + step % 4});
  penstock::modelled_device device({.bandwidth = 1e9});
  auto feed = (numbers{131, stuck} | penstock::partition({.shuffle = shuffle::none}) |
               penstock::read(rereading(6), [](const auto& sample) { std::get<0>(sample)(1) += 0; }) |
               penstock::batch(4) | penstock::transfer(device, {.depth = 2}))
                  .start();
  penstock::ledger ledger;
  feed.observe(ledger);
  std::vector<std::uint64_t> order;
  for (auto& batch : feed.epoch(0)) {
    for (const stuck_at& one : stuck)
      if (one.sample / 4 == batch.step()) one.go_on->count_down();
    order.insert(order.end(), batch.indices().begin(), batch.indices().end());
  }
  ASSERT_EQ(order.size(), 131U);
  for (std::uint64_t i = 0; i < 131; ++i) EXPECT_EQ(order[i], i);
}

struct serial_numbers : numbers {
  static constexpr bool serial = true;
};

/// Sample 9 cannot be read, whoever tries; the first who does waits before.
struct bad_numbers : numbers {
  bool only_first = false;
  void read(std::uint64_t index, const penstock::sample_view<numbers_schema>& to,
            penstock::read_context& context) const {
    const bool first = (*reads)[index] == 0;
    numbers::read(index, to, context);
    if (index == 9 && (first || !only_first)) throw penstock::error("the file is cut", {.position = "row 7"});
  }
};

template <class Feed>
std::string told_by(Feed& feed) {
  std::string told;
  try {
    for (const auto& row : all_of(feed)) told += std::to_string(row[0]) + ' ';
  } catch (const penstock::error& caught) {
    told += caught.what();
  }
  for (const penstock::sample_fault& one : feed.faults())
    told += one.where.text() + one.problem + std::to_string(one.row) + std::to_string(one.substitute.value_or(99));
  return told;
}

TEST(reread, a_sample_that_fails_late_and_early_is_one_fault) {
  using penstock::bad_samples;
  for (const bad_samples bad : {bad_samples::fail, bad_samples::skip, bad_samples::substitute}) {
    auto plain = feed_of(bad_numbers{{23}}, {.readers = 1, .bad = bad});
    const std::string wanted = told_by(plain);
    EXPECT_TRUE(says(wanted, "photo9.png, row 7")) << wanted;
    const stuck_at stuck{9};
    auto feed = feed_of(bad_numbers{{23, {stuck}}}, rereading(3, bad));
    EXPECT_EQ(told_by(feed), wanted);  // while the first reader is still at it
    stuck.entered->wait();
    stuck.go_on->count_down();
  }
}

TEST(reread, a_good_second_read_saves_a_sample_whose_first_fails_late) {
  const stuck_at stuck{9};
  auto plain = feed_of(numbers{23}, {.readers = 1});
  auto feed = feed_of(bad_numbers{{23, {stuck}}, true}, rereading(3));
  EXPECT_EQ(all_of(feed), all_of(plain));
  stuck.go_on->count_down();
  EXPECT_TRUE(feed.faults().empty());
}

TEST(reread, a_fault_that_comes_too_late_is_nobodys) {
  const stuck_at stuck{9};
  auto feed = feed_of(bad_numbers{{23, {stuck}}}, rereading(3, penstock::bad_samples::skip));
  (void)feed.next();
  (void)feed.next();
  const auto held = feed.next();  // and with it the slot that the first reader began to read for
  ASSERT_EQ(held.faults().size(), 1U);
  stuck.entered->wait();
  stuck.go_on->count_down();
  EXPECT_EQ(all_of(feed).size(), 22U);  // to begin anew waits for it
  EXPECT_EQ(held.faults().size(), 1U);
  EXPECT_EQ(held.size(), 3U);
}

TEST(reread, to_begin_anew_voids_what_was_begun_and_waits_for_who_is_late) {
  auto plain = feed_of(numbers{131}, {.readers = 1});
  const auto wanted = all_of(plain);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const stuck_at stuck{8 + penstock::philox(seed, 0, 0).below(std::uint64_t{8})};
    auto feed = feed_of(numbers{131, {stuck}}, rereading(3));
    std::thread opener;
    for (auto& batch : feed.epoch(0)) {
      if (batch.step() != 2 + seed % 3) continue;
      opener = std::thread([&] {
        stuck.entered->wait();
        stuck.go_on->count_down();
      });
      break;
    }
    EXPECT_EQ(all_of(feed), wanted) << seed;
    opener.join();
  }
}

TEST(reread, what_cannot_be_read_twice_is_refused) {
  const auto refused = [](const auto& data, penstock::read_options options) {
    try {
      auto feed = feed_of(data, options);
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return std::string("accepted");
  };
  const numbers data{23};
  EXPECT_EQ(refused(data, rereading(2)), "accepted");
  EXPECT_EQ(refused(data, rereading(1)),
            "penstock: read: late is late_reads::reread, wanted late_reads::wait, as readers is 1: another one is to "
            "read the sample, too");
  auto options = rereading(2);
  options.shared = penstock::reader_pool::make(2);
  EXPECT_TRUE(says(refused(data, options), "a shared pool's"));
  options = rereading(2);
  options.late_factor = 1;
  EXPECT_TRUE(says(refused(data, options), "late_factor is 1.000000, wanted more than 1"));
  options = rereading(2);
  options.late_floor = -1ns;
  EXPECT_TRUE(says(refused(data, options), "late_floor is -1 ns, wanted 0 or more"));
  EXPECT_TRUE(says(refused(serial_numbers{{23}}, rereading(2)), "the dataset is serial"));
  // What is only of reads that are issued again.
  EXPECT_EQ(
      refused(data, {.readers = 2, .late_factor = 8}),
      "penstock: read: late_factor is 8.000000, wanted none, as late is late_reads::wait: no read is issued again");
  EXPECT_EQ(
      refused(data, {.readers = 2, .late_floor = 1ms}),
      "penstock: read: late_floor is 1000000 ns, wanted none, as late is late_reads::wait: no read is issued again");
}

// Times are made up.
TEST(row_claims, a_row_is_late_by_the_usual_and_a_third_reader_comes_if_both_are) {
  using penstock::detail::row_claims;
  const std::chrono::steady_clock::time_point t0{1h};
  row_claims claims(2, 4, 3, {.factor = 4, .floor = 10ms});
  claims.begin(0, 7, 1, 2, t0);
  EXPECT_FALSE(claims.find_late(1, t0 + 40ms));  // nobody knows what is usual
  EXPECT_TRUE(claims.find_late(1, t0 + 41ms));
  for (int i = 0; i < 200; ++i) claims.took(5ms);
  for (int i = 0; i < 3; ++i) claims.took(10s);  // a few slow ones do not matter
  EXPECT_FALSE(claims.find_late(1, t0 + 19ms));
  EXPECT_FALSE(claims.find_late(0, t0 + 1h));  // one's own
  const auto late = claims.find_late(1, t0 + 30ms);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->step, 7U);
  EXPECT_EQ(late->slot, 1U);
  EXPECT_EQ(late->range, 2U);
  EXPECT_EQ(late->row, 0U);
  EXPECT_TRUE(claims.join(1, *late, t0 + 30ms));
  EXPECT_FALSE(claims.join(2, *late, t0 + 30ms));  // another was quicker
  EXPECT_FALSE(claims.find_late(2, t0 + 45ms));
  EXPECT_TRUE(claims.find_late(2, t0 + 70ms));
  for (int i = 0; i < 400; ++i) claims.took(1ms);
  EXPECT_FALSE(claims.find_late(2, t0 + 40ms));  // the floor
  EXPECT_TRUE(claims.find_late(2, t0 + 41ms));
}
TEST(row_claims, the_first_one_gets_a_row_and_what_has_passed_is_never_taken_for_now) {
  using penstock::detail::row_claims;
  const std::chrono::steady_clock::time_point t0{1h};
  row_claims claims(1, 1, 2, {.factor = 2, .floor = 1ms});
  claims.begin(0, 7, 0, 0, t0);
  const auto late = claims.find_late(1, t0 + 1h);
  ASSERT_TRUE(late);
  EXPECT_TRUE(claims.join(1, *late, t0 + 1h));
  EXPECT_TRUE(claims.claim(7, 0, 0, 0));
  EXPECT_FALSE(claims.claim(7, 0, 0, 0));
  EXPECT_FALSE(claims.find_late(0, t0 + 2h));  // claimed, and being put in its place
  claims.next(7, 0, 0, 0, t0 + 1h);
  EXPECT_FALSE(claims.claim(7, 0, 0, 0));
  EXPECT_FALSE(claims.join(0, *late, t0 + 2h));
  EXPECT_TRUE(claims.claim(7, 0, 0, 1));
  claims.begin(1, 8, 0, 0, t0 + 2h);
  EXPECT_FALSE(claims.claim(7, 0, 0, 0));
  EXPECT_FALSE(claims.claim(7, 0, 0, 1));
  const auto seen = claims.find_late(0, t0 + 4h);
  ASSERT_TRUE(seen);
  claims.forget();  // a restart
  EXPECT_FALSE(claims.join(0, *seen, t0 + 4h));
  EXPECT_FALSE(claims.claim(8, 0, 0, 0));
}

TEST(row_claims, each_row_has_its_time_and_who_has_left_has_none) {
  using penstock::detail::row_claims;
  const std::chrono::steady_clock::time_point t0{1h};
  row_claims claims(1, 1, 2, {.factor = 2, .floor = 1ms});
  claims.begin(0, 7, 0, 0, t0);
  EXPECT_TRUE(claims.claim(7, 0, 0, 0));
  claims.next(7, 0, 0, 0, t0 + 1h);
  EXPECT_FALSE(claims.find_late(1, t0 + 1h + 2ms));
  EXPECT_TRUE(claims.find_late(1, t0 + 1h + 3ms));
  claims.leave(0);
  EXPECT_FALSE(claims.find_late(1, t0 + 2h));
}

TEST(row_claims, whoever_has_joined_is_one_more_until_somebody_has_lost) {
  using penstock::detail::row_claims;
  const std::chrono::steady_clock::time_point t0{1h};
  row_claims claims(1, 1, 3, {.factor = 2, .floor = 1ms});
  claims.begin(0, 7, 0, 0, t0);
  EXPECT_EQ(claims.surplus(), 0U);
  for (const std::uint32_t reader : {1U, 2U}) {
    const auto now = t0 + reader * 1h;
    EXPECT_TRUE(claims.join(reader, *claims.find_late(reader, now), now));
    EXPECT_EQ(claims.surplus(), reader);
  }
  EXPECT_TRUE(claims.claim(7, 0, 0, 0));
  claims.next(7, 0, 0, 0, t0 + 2h);
  EXPECT_EQ(claims.surplus(), 2U);
  EXPECT_FALSE(claims.claim(7, 0, 0, 0));
  EXPECT_EQ(claims.surplus(), 1U);
  claims.forget();
  EXPECT_EQ(claims.surplus(), 0U);
}

/// Samples of nothing; `during` is called once, within a read.
struct nothing_source : penstock::detail::source<numbers_schema> {
  std::function<void()> during;
  std::unique_ptr<penstock::detail::reader_state> open() override {
    return std::make_unique<penstock::detail::reader_state>();
  }
  penstock::detail::fill_result fill(penstock::detail::reader_state&,
                                     const penstock::detail::fill_request<numbers_schema>& request) override {
    if (!request.progress.begin(1)) return {.interrupted = true};
    if (during) std::exchange(during, nullptr)();
    return {.rows = 1};
  }
};

TEST(reread, what_was_begun_before_a_restart_is_forgotten) {
  using engine_type = penstock::detail::engine<numbers_schema, penstock::cpu_device>;
  using penstock::take_result;
  constexpr std::uint64_t unbounded = std::uint64_t{1} << 38;
  const auto from = std::make_shared<nothing_source>();
  engine_type engine(std::make_shared<penstock::channel<numbers_schema, penstock::cpu_device>>(
                         penstock::cpu_device{}, penstock::batch_layout<numbers_schema>(numbers{4}.schema(), 2),
                         penstock::ring_shape{.host = 1, .readers = 2}, std::nullopt, nullptr),
                     from, penstock::detail::epoch_map({.positions = 4, .batch = 2}, {}), false);
  engine.read_again({.factor = 1e15, .floor = 0ns});
  engine.count_busy();
  auto& turns = engine.to().turns;
  for (std::uint32_t reader : {0U, 1U}) engine.prepare(reader);
  engine.begin(0, 0);
  turns.open(unbounded);
  ASSERT_EQ(engine.try_take(0), take_result::taken);
  from->during = [&] {
    while (engine.try_take(1) != take_result::taken) {  // until the first read is late
    }
  };
  engine.work(0);
  EXPECT_EQ(engine.rereads().issued, 1U);
  EXPECT_GT(engine.busy(), 0ns);
  turns.park();
  engine.work(1);  // gives up
  EXPECT_TRUE(turns.quiet());
  EXPECT_EQ(engine.rereads().won, 0U);
  EXPECT_EQ(engine.stuck(), 1U);
  engine.to().restart();
  engine.begin(1, 0);
  EXPECT_EQ(engine.stuck(), 0U);

  // By now it is known what a read takes.
  turns.open(unbounded);
  ASSERT_EQ(engine.try_take(0), take_result::taken);
  from->during = [&] {
    const auto end = std::chrono::steady_clock::now() + 1us;
    while (std::chrono::steady_clock::now() < end) EXPECT_EQ(engine.try_take(1), take_result::none);
  };
  engine.work(0);
  EXPECT_EQ(engine.rereads().issued, 1U);
}

/// Steps of `rows` samples, each read by one of two readers.
template <class Device = penstock::cpu_device>
struct small_engine {
  using type = penstock::detail::engine<numbers_schema, Device>;
  small_engine(std::shared_ptr<nothing_source> from, std::uint64_t rows, const penstock::detail::late_limits& limits,
               const Device& device = {}, std::uint32_t depth = 1)
      : of(std::make_shared<penstock::channel<numbers_schema, Device>>(
               device, penstock::batch_layout<numbers_schema>(numbers{4}.schema(), static_cast<std::size_t>(rows)),
               penstock::ring_shape{
                   .host = depth, .device = penstock::separate_device<Device> ? depth : 0, .readers = 2},
               std::nullopt, nullptr),
           std::move(from), penstock::detail::epoch_map({.positions = rows, .batch = rows}, {}), false) {
    of.read_again(limits);
    for (std::uint32_t reader : {0U, 1U}) of.prepare(reader);
    of.begin(0, 0);
    of.to().turns.open(std::uint64_t{1} << 38);
  }
  type of;
};

TEST(reread, what_is_usual_is_one_sample_not_all_of_the_range_before_it) {
  constexpr std::uint64_t rows = 64;
  const auto from = std::make_shared<nothing_source>();
  small_engine engine(from, rows, {.factor = 2, .floor = 0ns});
  ASSERT_EQ(engine.of.try_take(0), penstock::take_result::taken);
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t read = 0;
  bool found = false;
  std::function<void()> one = [&] {
    const auto now = std::chrono::steady_clock::now();
    const bool last = ++read == rows;
    const auto end = now + (last ? (now - begin) / 4 : 200us);
    do {
      if (last) found = engine.of.try_take(1) == penstock::take_result::taken;
    } while (!found && std::chrono::steady_clock::now() < end);
    if (!last) from->during = one;
  };
  from->during = one;
  engine.of.work(0);
  EXPECT_EQ(read, rows);
  EXPECT_TRUE(found);  // as long as some 16 samples take, it took no longer
  if (found) engine.of.work(1);
}

TEST(reread, a_reader_that_could_not_begin_helps_nobody) {
  struct second_fails final : nothing_source {
    int opened = 0;
    std::unique_ptr<penstock::detail::reader_state> open() override {
      if (++opened == 2) throw std::runtime_error("too many files are open");
      return nothing_source::open();
    }
  };
  const auto from = std::make_shared<second_fails>();
  small_engine engine(from, 1, {.factor = 2, .floor = 0ns});
  ASSERT_EQ(engine.of.try_take(0), penstock::take_result::taken);
  from->during = [&] {
    const auto end = std::chrono::steady_clock::now() + 100us;  // late from the first moment on
    while (std::chrono::steady_clock::now() < end) {
      EXPECT_EQ(engine.of.try_take(1), penstock::take_result::none);
      EXPECT_EQ(engine.of.try_help(1), penstock::take_result::none);
    }
  };
  engine.of.work(0);
  EXPECT_EQ(engine.of.rereads().issued, 0U);
  auto batch = engine.of.to().receive();
  EXPECT_EQ(batch.size(), 1U);
}

/// Time that stands still; after 10 s of a wait, as whoever waits is to do something else now and then, it passes.
struct standing_clock final : penstock::manual_clock {
  void sleep_until(time_point target, time_point limit) override {
    const auto now = std::chrono::steady_clock::now();
    if (begun == time_point{}) begun = now;
    if (now - begun > 10s) return advance_to(target);
    manual_clock::sleep_until(target, std::min(limit, now + 1ms));
  }
  time_point begun{};
};

TEST(reread, a_reader_that_waits_for_a_copy_looks_for_late_reads_meanwhile) {
  const auto clock = std::make_shared<standing_clock>();
  const auto from = std::make_shared<nothing_source>();
  small_engine engine(from, 1, {.factor = 2, .floor = 4ms},
                      penstock::modelled_device({.copy_time = 1ms, .clock = clock}), 2);
  ASSERT_EQ(engine.of.try_take(0), penstock::take_result::taken);
  engine.of.work(0);  // and its copy has begun
  ASSERT_EQ(engine.of.try_take(0), penstock::take_result::taken);
  bool waited = false;
  from->during = [&] {
    while (engine.of.try_take(1) != penstock::take_result::taken) {
      waited = true;
      engine.of.await_fence(1);
    }
  };
  engine.of.work(0);
  EXPECT_TRUE(waited);
  EXPECT_EQ(clock->elapsed(), 0ns) << "it waited for the copy";
  EXPECT_EQ(engine.of.rereads().issued, 1U);
  engine.of.work(1);
  clock->advance(1s);
}

/// As far ahead of its consumer as it was given work for; notes whom the one reader works for.
struct replica_at final : penstock::detail::reader_client {
  struct course {
    std::atomic<bool> open{false};
    std::vector<const replica_at*> order;  // by the one reader
    std::latch done{1};
    std::size_t all = 0;
  };
  replica_at(course& of, std::uint64_t begin, std::uint64_t end) : whose(of), at(begin), last(end) {}
  void prepare(std::uint32_t) noexcept override {}
  penstock::take_result try_take(std::uint32_t) noexcept override {
    return whose.open && at < last ? penstock::take_result::taken : penstock::take_result::none;
  }
  void work(std::uint32_t) noexcept override {
    ++at;
    whose.order.push_back(this);
    if (whose.order.size() == whose.all) whose.done.count_down();
  }
  void await_fence(std::uint32_t) noexcept override {}
  std::uint64_t ahead() const noexcept override { return at; }

  course& whose;
  std::atomic<std::uint64_t> at;
  std::uint64_t last;
};

TEST(reader_pool, readers_help_the_replica_that_is_furthest_behind_and_has_work) {
  replica_at::course course;
  course.all = 14;
  const auto first = std::make_shared<replica_at>(course, 5, 8), last = std::make_shared<replica_at>(course, 0, 8),
             middle = std::make_shared<replica_at>(course, 3, 6), full = std::make_shared<replica_at>(course, 1, 1);
  {
    const auto pool = penstock::reader_pool::make(1);
    for (const auto& one : {first, last, middle, full}) pool->add(one);
    course.open = true;
    pool->waiting()->notify();
    course.done.wait();
  }
  std::uint64_t at_first = 5, at_last = 0, at_middle = 3;
  for (const replica_at* one : course.order) {
    const std::uint64_t least =
        std::min({at_first < 8 ? at_first : 99, at_last < 8 ? at_last : 99, at_middle < 6 ? at_middle : 99});
    std::uint64_t& at = one == first.get() ? at_first : one == last.get() ? at_last : at_middle;
    EXPECT_NE(one, full.get());
    EXPECT_EQ(at, least);
    ++at;
  }
}

TEST(reader_pool, has_one_reader_at_work_at_the_least_and_no_more_than_it_has) {
  for (const std::uint32_t active : {0U, 1U, 2U, 3U, ~0U}) {
    replica_at::course course;
    course.all = 50;
    course.open = true;
    const auto pool = penstock::reader_pool::make(2);
    pool->set_active(active);
    EXPECT_EQ(pool->active(), std::clamp(active, 1U, 2U));
    pool->set_active(std::min(active, 1U));  // the client is one reader's
    pool->add(std::make_shared<replica_at>(course, 0, 50));
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!course.done.try_wait() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(course.done.try_wait()) << active;
  }
}

/// Has work for reader 0 once, when `open`, and counts how often the other one looks.
struct one_at_work final : penstock::detail::reader_client {
  void prepare(std::uint32_t) noexcept override {}
  penstock::take_result try_take(std::uint32_t reader) noexcept override {
    if (reader == 1) ++looks;
    if (reader != 0 || !open.exchange(false)) return penstock::take_result::none;
    others_sleep = sleeps();  // and nothing else calls it
    return penstock::take_result::taken;
  }
  penstock::take_result try_help(std::uint32_t reader) noexcept override {
    if (reader == 1) ++looks;
    return penstock::take_result::none;
  }
  void work(std::uint32_t) noexcept override {
    const auto before = looks.load();
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (looks < before + 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    looked = looks >= before + 3;
    done.count_down();
  }
  void await_fence(std::uint32_t) noexcept override {}
  std::uint64_t ahead() const noexcept override { return 0; }
  std::chrono::steady_clock::duration look_every() const noexcept override { return 1ms; }
  /// Nobody has looked for 20 times as long as one may sleep who looks now and then.
  bool sleeps() const {
    const auto end = std::chrono::steady_clock::now() + 10s;
    auto seen = looks.load();
    for (auto since = std::chrono::steady_clock::now(), now = since; now < end;
         now = std::chrono::steady_clock::now()) {
      if (now - since > 20ms) return true;
      if (const auto more = looks.load(); more != seen) seen = more, since = now;
      std::this_thread::yield();
    }
    return false;
  }
  std::atomic<std::uint64_t> looks{0};
  std::atomic<bool> open{false}, others_sleep{false}, looked{false};
  std::latch done{1};
};

TEST(reader_pool, looks_for_late_reads_only_while_there_are_reads) {
  for (const std::uint32_t active : {2U, 1U}) {  // the other one waits for work, or rests
    const auto client = std::make_shared<one_at_work>();
    const auto pool = penstock::reader_pool::make(2);
    pool->set_active(active);
    pool->add(client);
    EXPECT_TRUE(client->sleeps()) << "it wakes with nothing to look for";
    client->open = true;
    pool->waiting()->notify();
    client->done.wait();
    EXPECT_TRUE(client->others_sleep);
    EXPECT_TRUE(client->looked) << "a read that may become late wakes nobody";
    EXPECT_TRUE(client->sleeps());
  }
}

}  // namespace
