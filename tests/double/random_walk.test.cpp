// SPDX-License-Identifier: Apache-2.0
// Pipelines of all kinds, used in all ways, in whatever order: thousands of schedules, each from a seed.
// PENSTOCK_SEED=<n> runs that one alone.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "../laws/configurations.hpp"
#include "watchdog.hpp"

namespace {

using namespace laws;
using namespace std::chrono_literals;
using cuda_double::reads;
using cuda_double::watched_device;
using cuda_double::writes;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t schedules = 400;
#elif defined(__OPTIMIZE__)
constexpr std::uint64_t schedules = 4000;
#else
constexpr std::uint64_t schedules = 1500;
#endif

/// What schedules have done, all together: each has to have occurred.
class coverage {
 public:
  static constexpr std::array names{"inline",
                                    "readers",
                                    "depth 1",
                                    "fewer slots than twins",
                                    "more slots than twins",
                                    "eagerness 0",
                                    "library's stream",
                                    "named stream",
                                    "legacy stream",
                                    "per-thread stream",
                                    "keep",
                                    "drop",
                                    "pad",
                                    "short batch",
                                    "empty share",
                                    "whole epoch",
                                    "early exit",
                                    "thrown by a body",
                                    "held",
                                    "all held",
                                    "let go elsewhere",
                                    "outlived the feed",
                                    "begun anew in mid-epoch",
                                    "resumed",
                                    "single batches",
                                    "steps over epochs",
                                    "stopped",
                                    "further stream",
                                    "dataset failed",
                                    "CUDA failed",
                                    "CUDA failed at the start",
                                    "reported only",
                                    "went on after a failure"};

  void count(std::string_view what) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i] == what) return void(++counts_[i]);
    ADD_FAILURE() << "coverage has no \"" << what << '"';
  }
  void expect_all() const {
    for (std::size_t i = 0; i < names.size(); ++i) EXPECT_GT(counts_[i], 0U) << names[i] << " did not occur";
  }

 private:
  std::array<std::uint64_t, names.size()> counts_{};
};

class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u) {}
  std::uint64_t below(std::uint64_t limit) {
    // Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014.
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % limit;
  }
  int from(int least, int most) {
    return least + static_cast<int>(below(static_cast<std::uint64_t>(most - least) + 1));
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T, std::size_t N>
  T of(const T (&all)[N]) {
    return all[below(N)];
  }

 private:
  std::uint64_t state_;
};

constexpr std::uint64_t never = ~std::uint64_t{0};

struct bad_sample {
  std::uint64_t which = never, epoch = 0;
  void operator()(std::uint64_t index, const penstock::read_context& context) const {
    if (index == which && context.epoch == epoch) throw std::runtime_error("this sample is bad");
  }
};
struct body_failed {};

/// What kernels have found when they ran; by whichever thread lets them.
struct findings {
  std::atomic<std::uint64_t> run{0}, wrong{0};
};

enum class consumer { library, named, legacy, per_thread };

/// Where the feed has to stand.
struct position {
  std::uint64_t epoch = 0, step = 0;
};

class walk {
  using feed_type = penstock::feed<schema_type, watched_device>;
  using batch_type = penstock::lease<schema_type, watched_device>;

 public:
  walk(std::uint64_t seed, coverage& seen) : dice_(seed), seen_(seen) {
    const auto eagerness = static_cast<unsigned>(dice_.below(9));
    kind_ = dice_.of({consumer::library, consumer::library, consumer::named, consumer::legacy, consumer::per_thread});
    cuda_double::reset({.seed = seed, .eagerness = eagerness, .legacy_is_named = kind_ == consumer::legacy});
    if (eagerness == 0) seen_.count("eagerness 0");
    plan_.readers = dice_.from(0, 4);
    plan_.depth = dice_.from(1, 4);
    host_depth_ = dice_.from(0, 4);
    plan_.how = dice_.of(all_shuffles);
    plan_.last = dice_.of(all_lasts);
    plan_.batch = dice_.from(1, 8);
    plan_.seed = seed;
    if (dice_.one_in(4)) plan_.world = {static_cast<std::uint32_t>(dice_.below(2)), 2};
    samples_ = static_cast<std::uint64_t>(plan_.batch) + dice_.below(20);
    if (dice_.one_in(4)) bad_ = {dice_.below(samples_), dice_.below(3)};
    seen_.count(plan_.readers == 0 ? "inline" : "readers");
    if (plan_.depth == 1) seen_.count("depth 1");
    if (host_depth_ != 0 && host_depth_ < plan_.depth) seen_.count("fewer slots than twins");
    if (host_depth_ > plan_.depth) seen_.count("more slots than twins");
    const char* const streams[] = {"library's stream", "named stream", "legacy stream", "per-thread stream"};
    seen_.count(streams[static_cast<int>(kind_)]);
    const char* const lasts[] = {"keep", "drop", "pad"};
    seen_.count(lasts[static_cast<int>(plan_.last)]);
  }

  std::string describe() const {
    return text(plan_) + ", " + std::to_string(host_depth_) + " slots, " + std::to_string(samples_) +
           " samples in batches of " + std::to_string(plan_.batch);
  }

  void run() {
    const bool fails = dice_.one_in(3);
    if (fails) testing::internal::CaptureStderr();
    if (fails && dice_.one_in(4)) {
      arm(dice_.of({"cudaMalloc", "cudaEventCreateWithFlags", "cudaStreamCreateWithPriority", "cudaHostRegister",
                    "cudaSetDevice"}),
          dice_.below(8));
      at_start_ = true;
    }
    guarded([&] { live(fails && !at_start_); });
    feed_.reset();
    join();
    held_.clear();
    further_.clear();
    named_.reset();
    forked_.reset();
    cuda_double::finish();
    if (fails) {
      const std::string log = testing::internal::GetCapturedStderr();
      if (!log.empty()) seen_.count("reported only");
      EXPECT_TRUE(log.empty() || log.find(armed_) != std::string::npos) << log;
    }
    for (const std::string& fault : cuda_double::take_faults()) ADD_FAILURE() << fault;
    EXPECT_EQ(cuda_double::alive(), "");
    EXPECT_EQ(findings_->wrong, 0U) << "kernels saw something else than their batch";
    EXPECT_EQ(findings_->run, launched_);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }

 private:
  // ---- what goes wrong

  void arm(const char* function, std::uint64_t after) {
    armed_ = function;
    cuda_double::fail(function, after + 1, cudaErrorInvalidValue);
  }
  /// Runs `body`, and says whether nothing was thrown that nobody has asked for.
  template <class Body>
  void guarded(Body&& body) {
    try {
      body();
    } catch (const body_failed&) {
      seen_.count("thrown by a body");
    } catch (const penstock::error& caught) {
      failed(caught);
    }
  }
  void failed(const penstock::error& caught) {
    const std::string message = caught.what();
    if (message.find("are held") != std::string::npos) {
      EXPECT_TRUE(full_) << message;
      seen_.count("all held");
      return;
    }
    must_begin_ = true;
    if (message.find("this sample is bad") != std::string::npos) {
      EXPECT_EQ(caught.where().sample, bad_.which) << message;
      EXPECT_EQ(caught.where().epoch, bad_.epoch) << message;
      seen_.count("dataset failed");
      return;
    }
    EXPECT_FALSE(armed_.empty()) << message;
    EXPECT_NE(message.find(armed_), std::string::npos) << message;
    EXPECT_NE(message.find("cudaErrorInvalidValue"), std::string::npos) << message;
    seen_.count(at_start_ ? "CUDA failed at the start" : "CUDA failed");
    if (++cuda_failures_ == 2) is_over_ = true;
  }

  // ---- the feed and what is done with it

  void live(bool fails) {
    forked_.emplace(device_.make_event());
    if (kind_ == consumer::named) named_.emplace(device_.make_stream());
    for (std::uint64_t i = dice_.below(3); i > 0; --i) further_.push_back(device_.make_stream());
    penstock::transfer_options<watched_device> transfer{.depth = plan_.depth, .host_depth = host_depth_};
    if (kind_ == consumer::named) transfer.consumer = named_->view();
    if (kind_ == consumer::legacy) transfer.consumer = penstock::cuda_stream_view::legacy();
    if (kind_ == consumer::per_thread) transfer.consumer = penstock::cuda_stream_view::per_thread();
    penstock::read_options read{.readers = plan_.readers, .next_epoch = !dice_.one_in(3)};
    if (plan_.readers != 0) read.timeout = 30s;
    feed_.emplace((samples<bad_sample>{samples_, bad_} |
                   penstock::partition({.seed = plan_.seed, .shuffle = plan_.how, .world = plan_.world}) |
                   penstock::read(read) | penstock::batch({.global = plan_.batch, .last = plan_.last}) |
                   penstock::transfer(device_, transfer))
                      .start());
    saved_state_ = feed_->state();
    const std::uint64_t acts = 1 + dice_.below(6);
    const std::uint64_t failing = dice_.below(acts);
    for (std::uint64_t i = 0; i < acts && !is_over_; ++i) {
      if (fails && i == failing)
        arm(dice_.of({"cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaMemsetAsync"}),
            dice_.below(20));
      const bool was_failing = must_begin_;
      const std::uint64_t before = taken_;
      guarded([&] { act(); });
      if (was_failing && !must_begin_ && taken_ != before) seen_.count("went on after a failure");
    }
    if (dice_.one_in(8) && !is_over_ && !must_begin_) {
      feed_->stop();
      for (auto& batch : feed_->epoch(dice_.below(3))) ADD_FAILURE() << "step " << batch.step() << " after a stop";
      seen_.count("stopped");
    }
    if (dice_.one_in(2)) {
      if (!held_.empty()) seen_.count("outlived the feed");
      feed_.reset();
    }
  }

  void act() {
    switch (dice_.below(must_begin_ ? 4 : 8)) {
      case 0: return resume();
      case 1:
      case 2:
      case 3: return epoch();
      case 4:
      case 5: return single();
      case 6: return steps();
      default: return let_go();
    }
  }
  std::uint64_t in_epoch() { return wanted(at_.epoch).size(); }
  void moved_on() {
    if (++at_.step == in_epoch()) at_ = {at_.epoch + 1, 0};
  }

  void epoch() {
    const std::uint64_t number = dice_.one_in(2) ? at_.epoch : dice_.below(4);
    if (at_.step != 0 && !(resumed_ && number == at_.epoch)) seen_.count("begun anew in mid-epoch");
    at_ = {number, std::exchange(resumed_, false) && number == at_.epoch ? at_.step : 0};
    make_room();
    auto batches = feed_->epoch(number);
    must_begin_ = false;
    const std::uint64_t stop_after = dice_.one_in(3) ? dice_.below(in_epoch()) : never;
    const bool throws = dice_.one_in(3);
    std::uint64_t taken = 0;
    for (auto& batch : batches) {
      take_one(batch);
      moved_on();
      if (taken++ == stop_after) {
        if (throws) throw body_failed();
        seen_.count("early exit");
        return;
      }
      keep(batch);
    }
    EXPECT_EQ(at_.epoch, number + 1) << "the epoch ended early";
    EXPECT_EQ(at_.step, 0U);
    seen_.count("whole epoch");
  }
  void single() {
    seen_.count("single batches");
    bool was_end = false;
    for (std::uint64_t i = dice_.below(8) + 1; i > 0; --i) {
      make_room();
      resumed_ = false;
      batch_type batch = feed_->next();
      if (!batch) {
        // Once, behind an epoch's last batch.
        EXPECT_TRUE(at_.step == 0 && !was_end);
        was_end = true;
        continue;
      }
      was_end = false;
      take_one(batch);
      moved_on();
      keep(batch);
    }
  }
  void steps() {
    seen_.count("steps over epochs");
    const std::uint64_t number = dice_.below(12);
    make_room();
    resumed_ = false;
    std::uint64_t taken = 0;
    for (auto& batch : feed_->steps(number)) {
      take_one(batch);
      moved_on();
      keep(batch);
      ++taken;
    }
    EXPECT_EQ(taken, number);
  }
  void resume() {
    feed_->resume(saved_state_);
    at_ = saved_;
    resumed_ = at_.step != 0;
    must_begin_ = false;
    seen_.count("resumed");
  }

  // ---- held batches

  void keep(batch_type& batch) {
    if (!dice_.one_in(4)) {
      make_room(1);
      return;
    }
    held_.push_back(std::move(batch));
    seen_.count("held");
    make_room();
  }
  // All twins may be held: the next batch is refused then. Mostly there is one left.
  void make_room(std::size_t current = 0) {
    join();
    full_ = false;
    const auto depth = static_cast<std::size_t>(plan_.depth);
    if (held_.size() < depth) return;
    if (current == 0 && dice_.one_in(3)) {
      full_ = true;
      return;
    }
    while (held_.size() >= depth) let_go();
  }
  void let_go() {
    if (held_.empty()) return;
    const auto which = static_cast<std::ptrdiff_t>(dice_.below(held_.size()));
    batch_type batch = std::move(held_[static_cast<std::size_t>(which)]);
    held_.erase(held_.begin() + which);
    // A per-thread stream is the receiving thread's.
    if (kind_ == consumer::per_thread || dice_.one_in(2)) return;
    elsewhere_.emplace_back([mine = std::move(batch)]() mutable { mine.release(); });
    seen_.count("let go elsewhere");
    if (held_.size() + elsewhere_.size() >= static_cast<std::size_t>(plan_.depth)) join();
  }
  void join() {
    for (std::thread& one : elsewhere_) one.join();
    elsewhere_.clear();
  }

  // ---- a batch

  const std::vector<delivered>& wanted(std::uint64_t epoch) {
    const auto [found, is_new] = wanted_.try_emplace(epoch);
    if (is_new) {
      found->second = planned(samples_, plan_, epoch);
      // A share without a sample is padded, too: all ranks have batches of one size.
      const std::uint64_t world = plan_.world.size;
      if (plan_.last == last_batch::pad)
        for (delivered& one : found->second) one.rows = (static_cast<std::uint64_t>(plan_.batch) + world - 1) / world;
    }
    return found->second;
  }
  void take_one(batch_type& batch) {
    ++taken_;
    const delivered& mine = wanted(at_.epoch)[at_.step];
    const auto indices = batch.indices();
    EXPECT_EQ((delivered{batch.epoch(), batch.step(), batch.rows(), {indices.begin(), indices.end()}}), mine);
    const auto ids = batch.host<0>();
    for (std::size_t row = 0; row < batch.rows(); ++row)
      EXPECT_EQ(ids[row], row < mine.indices.size() ? mine.indices[row] : 0) << "row " << row;
    if (batch.rows() == 0) return seen_.count("empty share");
    if (batch.size() < static_cast<std::size_t>(plan_.batch) / plan_.world.size) seen_.count("short batch");
    for (const auto& other : further_) {
      if (!dice_.one_in(3)) continue;
      device_.record(*forked_, batch.stream());
      device_.wait(other.view(), *forked_);
      batch.used_on(other.view());
      look(batch, mine, other.view(), false);
      seen_.count("further stream");
    }
    for (std::uint64_t i = dice_.below(3); i > 0; --i) look(batch, mine, batch.stream(), false);
    // Nobody but the batch's own stream, and it last, may write: others may still read.
    if (further_.empty() && dice_.one_in(2)) look(batch, mine, batch.stream(), true);
    if (dice_.one_in(3)) {
      saved_state_ = feed_->state();
      saved_ = at_;
      if (++saved_.step == in_epoch()) saved_ = {saved_.epoch + 1, 0};
    }
  }
  /// A kernel that looks at the whole batch when it runs, and then perhaps overwrites it.
  void look(const batch_type& batch, const delivered& mine, penstock::cuda_stream_view stream, bool overwrites) {
    const auto [id, values] = batch.fields();
    const auto* const header = batch.header();
    const std::size_t rows = batch.rows(), real = batch.size();
    auto* const ids = id.data();
    auto* const all = values.data();
    std::vector<cuda_double::touch> touched{reads(header, sizeof *header), reads(ids, rows * sizeof *ids),
                                            reads(all, 3 * rows * sizeof *all)};
    if (overwrites) touched.push_back(writes(all, 3 * rows * sizeof *all));
    ++launched_;
    cuda_double::launch(
        stream, std::move(touched), [header, ids, all, rows, real, overwrites, mine, found = findings_] {
          bool right =
              header->epoch == mine.epoch && header->step == mine.step && header->rows == rows && header->count == real;
          for (std::size_t row = 0; row < rows; ++row) {
            const bool is_real = row < real;
            right = right && ids[row] == (is_real ? mine.indices[row] : 0);
            for (std::size_t i = 0; i < 3; ++i)
              right = right && all[3 * row + i] == (is_real ? samples<>::value(mine.indices[row], i) : 0.0F);
          }
          if (overwrites)
            for (std::size_t i = 0; i < 3 * rows; ++i) all[i] = -1.0F;
          ++found->run;
          if (!right) ++found->wrong;
        });
  }

  dice dice_;
  coverage& seen_;
  consumer kind_ = consumer::library;
  configuration plan_;
  int host_depth_ = 0;
  std::uint64_t samples_ = 0;
  bad_sample bad_;
  watched_device device_{penstock::cuda_options{.find_mistakes = true}};
  std::map<std::uint64_t, std::vector<delivered>> wanted_;
  std::shared_ptr<findings> findings_ = std::make_shared<findings>();
  std::uint64_t launched_ = 0, taken_ = 0;

  std::optional<penstock::cuda_event> forked_;
  std::optional<penstock::cuda_stream> named_;
  std::vector<penstock::cuda_stream> further_;
  std::optional<feed_type> feed_;
  std::vector<batch_type> held_;
  std::vector<std::thread> elsewhere_;

  position at_, saved_;
  penstock::feed_state saved_state_;
  bool resumed_ = false, must_begin_ = false, full_ = false, is_over_ = false, at_start_ = false;
  int cuda_failures_ = 0;
  std::string armed_;
};

TEST(random_walk, of_pipelines_delivers_what_was_planned_whatever_is_done) {
  coverage seen;
  int wrong = 0;
  const bool alone = std::getenv("PENSTOCK_SEED") != nullptr;
  const std::uint64_t first = cuda_double::seed_or(1), last = alone ? first : schedules;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const std::string name = "PENSTOCK_SEED=" + std::to_string(seed);
    const watchdog watching("random_walk, " + name);
    walk one(seed, seen);
    SCOPED_TRACE(name + ": " + one.describe());
    one.run();
    if (HasFailure() && ++wrong == 3) return;
  }
  if (!alone) seen.expect_all();
}

}  // namespace
