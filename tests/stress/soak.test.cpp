// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: it takes seconds; by hand it runs under both sanitizers
// ctest: no asan: likewise
// Feeds of all kinds, one after another, with errors, stops, loops left, restarts, batches held, slow samples, reads
// that are stuck and issued again, readers and depth that the feed chooses, caches, lists of bad samples, ledgers,
// observers that throw, ranks in lockstep and buckets, as a seed decides: each batch is what the plan says, and
// threads, descriptors and memory stay flat. PENSTOCK_SOAK_SECONDS=3600 makes it an hour of a minute, PENSTOCK_SEED
// replays the decisions, PENSTOCK_SOAK_ROUND=n those of scenario n, again and again.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <ranges>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <penstock/dataset/any_dataset.hpp>
#include <penstock/dataset/cached.hpp>
#include <penstock/dataset/quarantine.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/observe/ledger.hpp>

#include "../known_failures/support.hpp"
#include "../support/temporary_directory.hpp"
#include "soak_buckets.hpp"
#include "soak_replicas.hpp"
#include "soak_weather.hpp"

#if !KNOWN_FAILURES_SANITIZED
/// What `new` has given and `delete` has not had back: exact, where `mallinfo2` counts what threads keep for reuse,
/// too.
static std::atomic<std::size_t> bytes_alive{0};

static void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  bytes_alive.fetch_add(::malloc_usable_size(memory), std::memory_order_relaxed);
  return memory;
}
static void discount(void* memory) noexcept {
  bytes_alive.fetch_sub(::malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}
void* operator new(std::size_t size) { return counted(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t to) {
  const auto at = static_cast<std::size_t>(to);
  return counted(std::aligned_alloc(at, (size + at - 1) / at * at));
}
void operator delete(void* memory) noexcept { discount(memory); }
void operator delete(void* memory, std::size_t) noexcept { discount(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { discount(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { discount(memory); }
#else
static constexpr std::size_t bytes_alive = 0;
#endif

namespace {

using namespace known_failures;
using namespace soak;
using penstock::automatic;
using penstock::bad_samples;
using penstock::last_batch;
using penstock::late_reads;
using penstock::shuffle;
using clock = std::chrono::steady_clock;

constexpr bool sanitized = KNOWN_FAILURES_SANITIZED != 0;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// ---- what is read

enum class source { table, range, cached, stream };
using cached_table = penstock::cached_dataset<table>;

struct scenario {
  source from = source::table;
  std::uint64_t n = 0, seed = 0;
  shuffle how = shuffle::full;
  bad_samples bad = bad_samples::fail;
  std::shared_ptr<weather> at;
  std::shared_ptr<const cached_table> cache;
  std::size_t memory = 0;  // of the cache
  std::string directory{};
  std::string list{};  // of bad samples
};

/// How a feed of it is cut and scheduled: another one for each feed.
struct schedule {
  penstock::read_options read{};
  int depth = 1;
  std::optional<std::uint64_t> memory{};
  std::int64_t batch = 1;
  last_batch last = last_batch::keep;
  bool listens = false;
};

template <class Device>
auto start(const scenario& s, const schedule& with, const Device& device, auto&& dataset) {
  return (std::forward<decltype(dataset)>(dataset) | penstock::partition({.seed = s.seed, .shuffle = s.how}) |
          penstock::read(with.read, [](const auto& sample, penstock::philox& random) { draw_for(sample, random); }) |
          penstock::batch({.size = with.batch, .last = with.last}) |
          penstock::transfer(device, {.depth = with.depth, .memory = with.memory}))
      .start();
}
template <class Device>
auto start(const scenario& s, const schedule& with, const Device& device) {
  const auto numbers = [n = s.n, at = s.at] {
    return std::views::iota(std::uint64_t{0}, n) |
           std::views::transform([at](std::uint64_t index) { return at->read(index); });
  };
  if (s.from == source::table) return start(s, with, device, table{s.n, s.at});
  if (s.from == source::cached) return start(s, with, device, penstock::any_dataset<number_schema>(*s.cache));
  if (s.from == source::range) return start(s, with, device, numbers());
  return start(s, with, device, penstock::stream(numbers));
}

// ---- what has to come of it

/// Where a feed stands and what its next batch is, from plan and policies alone.
class expectation {
 public:
  expectation(const scenario& s, const schedule& with) : s_(s), with_(with) {}

  std::uint64_t epoch = 0, position = 0;
  std::uint64_t stream_step = 0;  // since a loop over a stream began

  bool is_stream() const { return s_.from == source::stream; }
  std::uint64_t steps_per_epoch() const {
    return penstock::step_shape{s_.n, static_cast<std::uint64_t>(with_.batch), with_.last, 0}.steps();
  }
  bool stands_as(const penstock::feed_state& state) const { return state.epoch == epoch && state.samples == position; }
  void set(const penstock::feed_state& state) {
    epoch = state.epoch;
    position = state.samples;
    if (!is_stream() && position != 0 && at_end()) next_epoch();
  }
  /// A loop has ended by itself: what was left makes no batch.
  void end_of_loop() {
    while (position != 0 && pass_one()) {
    }
  }
  /// Passes what is not delivered, if it is next.
  bool pass_one() {
    if (position != 0 && at_end())
      next_epoch();
    else if (is_empty())
      go_on();
    else
      return false;
    return true;
  }

  /// Row by row of the next batch, -1 where its sample is bad. None is left in an epoch that has ended.
  std::vector<std::int64_t> next_rows() {
    std::vector<std::int64_t> rows;
    const auto& all = order();
    for (std::uint64_t i = position; i < position + next_count(); ++i)
      rows.push_back(s_.at->is_bad(all[i]) && !s_.at->healed ? -1 : static_cast<std::int64_t>(all[i]));
    return rows;
  }
  std::optional<std::uint64_t> first_bad() {
    const auto& all = order();
    for (std::uint64_t i = position; i < position + next_count(); ++i)
      if (s_.at->is_bad(all[i])) return all[i];
    return {};
  }
  std::uint64_t next_step() const {
    return is_stream() ? stream_step : position / static_cast<std::uint64_t>(with_.batch);
  }

  /// Looks at a batch that was delivered, and goes on.
  template <class Batch>
  void take(const Batch& batch) {
    while (is_stream() ? at_end() && pass_one() : is_empty() && pass_one()) {
    }
    const std::uint64_t count = next_count();
    check(count != 0 && !(is_stream() && dropped()), "a batch after the end of epoch ", epoch);
    check(batch.epoch() == epoch && batch.step() == next_step(), "epoch ", batch.epoch(), " step ", batch.step(),
          ", wanted epoch ", epoch, " step ", next_step());
    std::vector<std::int64_t> rows = next_rows();
    const auto bad = static_cast<std::size_t>(std::ranges::count(rows, -1));
    check(bad == 0 || s_.bad != bad_samples::fail, "a bad sample was delivered");
    check(batch.faults().size() == bad, "the batch has ", batch.faults().size(), " faults, wanted ", bad);
    if (s_.bad == bad_samples::skip) close(rows);
    for (const auto& fault : batch.faults()) {
      check(s_.at->is_bad(fault.sample), "sample ", fault.sample, " is good");
      if (!fault.substitute) continue;
      rows.at(fault.row) = static_cast<std::int64_t>(*fault.substitute);
      check(*fault.substitute < s_.n && !s_.at->is_bad(*fault.substitute), "a bad substitute");
      const auto [known, is_new] = substitutes_.try_emplace({epoch, fault.sample}, *fault.substitute);
      check(is_new || known->second == *fault.substitute, "another substitute than before");
    }
    check(batch.size() == rows.size(), "the batch has ", batch.size(), " samples, wanted ", rows.size());
    check(batch.rows() == (with_.last == last_batch::pad ? static_cast<std::size_t>(with_.batch) : rows.size()),
          "the batch has ", batch.rows(), " rows");
    const auto numbers = batch.template host<0>();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto sample = static_cast<std::uint64_t>(rows[i]);
      const std::uint64_t index = is_stream() ? position + i : sample;
      check(batch.indices()[i] == index, "row ", i, " is sample ", batch.indices()[i], ", wanted ", index);
      penstock::philox random(s_.seed, epoch, index);
      check(numbers[i] == (sample << 32 | random()), "row ", i, " holds something else than sample ", sample);
    }
    for (std::size_t i = rows.size(); i < batch.rows(); ++i) check(numbers[i] == 0, "padding is not zero");
    go_on();
  }

 private:
  std::uint64_t next_count() const {
    return std::min(static_cast<std::uint64_t>(with_.batch), s_.n - std::min(position, s_.n));
  }
  bool dropped() const {
    return with_.last == last_batch::drop && next_count() < static_cast<std::uint64_t>(with_.batch);
  }
  bool at_end() const { return next_count() == 0 || dropped(); }
  void next_epoch() {
    ++epoch;
    position = stream_step = 0;
  }
  void go_on() {
    const bool short_one = next_count() < static_cast<std::uint64_t>(with_.batch);
    position += next_count();
    ++stream_step;
    if (is_stream() ? short_one : at_end()) next_epoch();
  }
  // A batch that all samples were left out of is not delivered.
  bool is_empty() {
    return s_.bad == bad_samples::skip && next_count() != 0 &&
           std::ranges::all_of(next_rows(), [](std::int64_t row) { return row < 0; });
  }
  static void close(std::vector<std::int64_t>& rows) {
    for (std::size_t i = 0;; ++i) {
      while (!rows.empty() && rows.back() < 0) rows.pop_back();
      if (i >= rows.size()) return;
      if (rows[i] >= 0) continue;
      rows[i] = rows.back();
      rows.pop_back();
    }
  }
  const std::vector<std::uint64_t>& order() {
    if (order_of_ == epoch) return order_;
    order_of_ = epoch;
    order_.resize(s_.n);
    if (!is_stream()) {
      penstock::default_plan(s_.n, s_.how).order(s_.seed, epoch, 0, order_);
      return order_;
    }
    std::vector<std::uint64_t> window;
    std::uint64_t next = 0;
    penstock::philox random(s_.seed, epoch, 0, penstock::random_domain::plan);
    for (std::uint64_t& one : order_) {
      if (s_.how.is_none()) {
        one = next++;
        continue;
      }
      while (window.size() < s_.how.block() && next < s_.n) window.push_back(next++);
      std::swap(window[random.below(window.size())], window.back());
      one = window.back();
      window.pop_back();
    }
    return order_;
  }

  const scenario& s_;
  const schedule& with_;
  std::vector<std::uint64_t> order_;
  std::uint64_t order_of_ = ~std::uint64_t{0};
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> substitutes_;
};

// ---- what is done with it

struct observer_threw {};

/// One scenario: some loops over feeds of it, each as drawn from (seed, round, loop) alone.
template <class Device>
class player {
  using feed_type = decltype(start(scenario{}, schedule{}, std::declval<const Device&>()));
  using batch_type = typename feed_type::batch_type;

 public:
  player(std::uint64_t seed, std::uint64_t round, Device device, std::shared_ptr<penstock::reader_pool> pool,
         const penstock_test::temporary_directory& folder, tally& counts)
      : seed_(seed), round_(round), device_(std::move(device)), pool_(std::move(pool)), counts_(counts) {
    penstock::philox random(seed_, 0, round_, penstock::random_domain::user);
    s_.from = static_cast<source>(random.below(4));
    s_.n = 8 + random.below(std::uint64_t{120});
    s_.at = std::make_shared<weather>(s_.n);
    s_.seed = random();
    const std::uint64_t block = 1 + random.below(std::uint64_t{20});
    switch (random.below(3)) {
      case 0: s_.how = shuffle::none; break;
      case 1: s_.how = s_.from == source::stream ? shuffle::window(block) : shuffle::full; break;
      default: s_.how = s_.from == source::stream ? shuffle::window(block) : shuffle::blocks(block);
    }
    if (random.below(2) == 0) s_.at->slow_every = 3 + random.below(std::uint64_t{60});
    // There are good ones to substitute, and a stream's first sample is needed to begin.
    if (random.below(2) == 0 && s_.n > 40) {
      s_.at->bad_every = 7 + random.below(std::uint64_t{60});
      s_.at->bad_at = 1 + random.below(s_.at->bad_every - 1);
      if (s_.from != source::stream) s_.bad = static_cast<bad_samples>(random.below(3));
      // What is left out or replaced stays so.
      if (s_.bad != bad_samples::fail && random.below(4) == 0) {
        s_.list = folder / ("bad" + std::to_string(round_) + ".csv");
        ++counts_.lists;
      }
    }
    if (s_.from == source::cached) {
      constexpr std::uint64_t most = 264;  // of a sample, with what it takes to keep it
      s_.memory = random.below(most * s_.n + 1);
      if (random.below(3) == 0) s_.directory = folder / ("cache" + std::to_string(round_));
      make_cache();
      ++counts_.cached;
    }
    s_.at->stuck.every = 3 + random.below(std::uint64_t{40});
    s_.at->stuck.at = random.below(s_.at->stuck.every);
    s_.at->stuck.longer = random.below(std::uint64_t{4});
    // Readers of a cache wait a while for who reads the same sample.
    if (s_.from == source::cached && random.below(8) != 0) s_.at->stuck.every = 0;
  }

  player(const player&) = delete;
  player& operator=(const player&) = delete;
  ~player() { s_.at->stuck.let_go(); }

  void play() {
    constexpr std::uint64_t loops = 8;
    for (loop_ = 0; loop_ < loops; ++loop_) {
      penstock::philox random(seed_, 1 + loop_, round_, penstock::random_domain::user);
      if (!feed_) make(random);
      one_loop(random);
      if (feed_) check_place("between loops");
    }
    if (random_release(1)) release(0);
    close();  // leases may outlive it
    while (!held_.empty()) release(0);
    if (!s_.list.empty()) std::remove(s_.list.c_str());
    if (!s_.directory.empty()) std::filesystem::remove_all(s_.directory);
  }
  std::string describe() const {
    return penstock::detail::concat(
        "round ", round_, ", loop ", loop_, ": ",
        s_.from == source::table    ? "table"
        : s_.from == source::range  ? "range"
        : s_.from == source::cached ? "cached"
                                    : "stream",
        " of ", s_.n, ", shuffle ",
        s_.how.is_none()   ? "none"
        : s_.how.is_full() ? "full"
                           : "by ",
        s_.how.block(), ", bad ", static_cast<int>(s_.bad), " every ", s_.at->bad_every, " at ", s_.at->bad_at,
        s_.list.empty() ? ", " : ", listed, ", s_.directory.empty() ? "" : "in a directory, ", with_.read.readers,
        " readers, ", with_.read.shared ? "shared, " : "", with_.read.late == late_reads::reread ? "again, " : "",
        "stuck every ", s_.at->stuck.every, ", depth ", with_.depth, ", batch ", with_.batch, ", last ",
        static_cast<int>(with_.last), ", epoch ", expected_ ? expected_->epoch : 0, " sample ",
        expected_ ? expected_->position : 0);
  }

 private:
  struct kept {
    batch_type batch;
    std::vector<std::uint64_t> numbers;
  };

  void make(penstock::philox& random) {
    with_ = {};
    draw_reading(with_.read, random);
    with_.depth = random.below(6) < 4 ? 1 + static_cast<int>(random.below(4)) : automatic;
    constexpr std::uint64_t of_batch = 2 * (256 + 256) + 64;  // on host and device, of 8 numbers at the most
    if (with_.depth == automatic && random.below(2) == 0)
      with_.memory = 2 * of_batch + random.below(std::uint64_t{16} * of_batch);
    with_.batch = 1 + random.below(8);
    with_.last = static_cast<last_batch>(random.below(3));
    with_.listens = random.below(4) == 0;
    if (expected_) {
      state_ = {0, expected_->epoch, expected_->position, 0};
    }
    // What another process would find there.
    if (!s_.directory.empty() && random.below(2) == 0) make_cache();
    ledger_.reset();
    if (with_.listens) ledger_.emplace();
    feed_.emplace(start(s_, with_, device_));
    ++counts_.feeds;
    events_ = delivered_ = held_here_ = held_ever_ = 0;
    failed_ever_ = false;
    most_held_ = static_cast<int>(feed_->tuning().most_depth);
    if (ledger_) feed_->observe(*ledger_);
    throw_at_ = ~std::uint64_t{0};
    within_ = false;
    feed_->observe([this](const penstock::batch_event& event) {
      if (events_ == throw_at_) throw observer_threw{};
      check(event.epoch == feed_->state().epoch || feed_->state().samples == 0, "an event of another epoch");
      ++events_;
    });
    expected_.emplace(s_, with_);
    if (state_.epoch == 0 && state_.samples == 0) return;
    penstock::feed_state at = feed_->state();
    at.epoch = state_.epoch;
    at.samples = state_.samples;
    resume(at);
  }
  void make_cache() {
    const penstock::cached_options options{.memory = s_.memory, .directory = s_.directory};
    s_.cache = std::make_shared<const cached_table>(penstock::cached(table{s_.n, s_.at}, options));
  }
  // The scenario's and the feed's part of the options.
  void draw_reading(penstock::read_options& to, penstock::philox& random) {
    const std::uint64_t readers = random.below(std::uint64_t{7});
    to.readers = readers < 5 ? static_cast<int>(readers) : automatic;
    to.bad = s_.bad;
    if (s_.bad != bad_samples::fail) to.most_bad = ~std::uint64_t{0};
    to.quarantine = penstock::quarantine(s_.list);
    if (random.below(5) == 0) {
      to.readers = 1;
      to.shared = pool_;
    }
    const bool several = !to.shared && (to.readers == automatic || to.readers > 1);
    if (several) to.timeout = std::chrono::seconds(100);
    if (several && s_.from != source::stream && random.below(2) == 0) read_again(to, random);
    // Of those that the feed chooses one may be all that works beside who is stuck.
    s_.at->stuck.allow(to.late != late_reads::reread ? 0 : to.readers == automatic ? 1 : to.readers - 1);
  }
  void close() {
    if (!feed_) return;
    check(events_ == delivered_, "the observer was told of ", events_, " batches, wanted ", delivered_);
    check_tuning();
    counts_.rereads += feed_->rereads().won;
    const bool whole = !failed_ever_ && held_ever_ == 0 && !feed_->stopped();
    feed_.reset();
    if (s_.cache)
      check(s_.cache->counts().bytes <= s_.memory, "the cache has ", s_.cache->counts().bytes, " bytes, wanted ",
            s_.memory, " at most");
    if (!ledger_) return;
    const auto total = ledger_->total();
    // Batches may be received and not delivered, as all samples were left out or it is dropped.
    check(!whole || total.steps >= delivered_, "the ledger has ", total.steps, " steps, wanted ", delivered_);
    ++counts_.ledgers;
  }
  void check_tuning() {
    const bool chosen = with_.read.readers == automatic || with_.depth == automatic;
    const auto now = feed_->tuning();
    check(now.readers <= now.most_readers && now.depth <= now.most_depth, now.readers, " of ", now.most_readers,
          " readers, depth ", now.depth, " of ", now.most_depth);
    check(!with_.memory || now.bytes <= *with_.memory, now.bytes, " bytes, wanted ", *with_.memory, " at most");
    counts_.tuned += chosen;
  }
  void resume(const penstock::feed_state& state) {
    feed_->resume(penstock::feed_state::parse(state.text()));
    expected_->set(state);
    within_ = false;
    resumed_ = expected_->position != 0;
    ++counts_.resumed;
    check_place("resumed");
  }

  void one_loop(penstock::philox& random) {
    enum { epoch, other_epoch, steps, next } way = {};
    const auto drawn = random.below(8);
    way = drawn < 3 ? epoch : drawn == 3 ? other_epoch : drawn < 6 ? steps : next;
    const std::uint64_t per_epoch = expected_->steps_per_epoch();
    const std::uint64_t most = random.below(3) == 0 ? 4 * per_epoch : 1 + random.below(2 * per_epoch);
    const std::uint64_t stop_at = random.below(8) == 0 ? random.below(per_epoch + 1) : ~std::uint64_t{0};
    throw_at_ = random.below(8) == 0 ? events_ + random.below(per_epoch + 1) : ~std::uint64_t{0};
    const std::uint64_t hold_every = random.below(3) == 0 ? 1 + random.below(std::uint64_t{9}) : 0;
    const std::uint64_t release_every = 1 + random.below(std::uint64_t{9});
    const std::uint64_t number = random.below(std::uint64_t{1000});
    const std::uint64_t after = random.below(std::uint64_t{6});
    const bool anew = random.below(2) == 0;

    std::jthread stopper;
    std::uint64_t done = 0;
    // False: the loop is left.
    snare& stuck = s_.at->stuck;
    const std::uint64_t stuck_before = stuck.caught();
    const auto body = [&](batch_type& batch) {
      expected_->take(batch);
      if (done == 0 && way == next) stuck.set();
      for (const std::uint64_t index : batch.indices()) stuck.comes(index);
      for (const auto& fault : batch.faults()) stuck.comes(fault.sample);
      stuck.batch_has_come();
      ++counts_.batches;
      ++delivered_;
      ++done;
      counts_.faults += batch.faults().size();
      check_place("after a batch");
      if (stop_at + 1 == done) stopper = std::jthread([this] { feed_->stop(); });
      if (done % release_every == 0 && !held_.empty()) release(0);
      if (hold_every != 0 && done % hold_every == 0 && held_here_ + 1 < most_held_) hold(std::move(batch));
      return done < most;
    };
    bool left = false, failed = false;
    const bool goes_on = way == next && within_;
    const std::uint64_t began_in = way == other_epoch ? number : expected_->epoch;
    try {
      if (way == epoch || way == other_epoch) {
        const bool in_it = std::exchange(resumed_, false) && expected_->epoch == began_in;
        if (!in_it) expected_->epoch = began_in, expected_->position = 0;
        expected_->stream_step = 0;
        within_ = false;
        auto range = feed_->epoch(began_in);
        stuck.set();
        for (auto& batch : range)
          if (!body(batch)) {
            left = true;
            break;
          }
      } else if (way == steps) {
        resumed_ = within_ = false;
        expected_->stream_step = 0;
        auto range = feed_->steps(most);
        stuck.set();
        for (auto& batch : range) body(batch);
        left = within_ = done == most;  // next() goes on from there
      } else {
        resumed_ = false;
        if (!std::exchange(within_, true)) expected_->stream_step = 0;
        while (auto batch = feed_->next())
          if (!body(batch)) {
            left = true;
            break;
          }
        if (!left) within_ = false;
      }
    } catch (const observer_threw&) {
      check(events_ == throw_at_, "the observer threw without being told to");
      ++counts_.observers;
      failed = true;
    } catch (const penstock::error& caught) {
      see(caught);
      failed = true;
    }
    stuck.let_go();  // to begin anew, and the end, wait for all readers
    counts_.stuck += stuck.caught() - stuck_before;
    failed_ever_ |= failed;
    if (stopper.joinable()) stopper.join();
    throw_at_ = ~std::uint64_t{0};
    const bool stopped = feed_->stopped();
    check(left || failed || stopped || way != steps, "steps(", most, ") ended after ", done);
    if (!left && !failed && !stopped) {
      expected_->end_of_loop();
      // Left behind its last batch an epoch has its end still to come.
      const bool end_alone = goes_on && done == 0 && expected_->epoch == began_in;
      check((end_alone || expected_->epoch == began_in + 1) && expected_->position == 0, "loop of kind ",
            static_cast<int>(way), " from epoch ", began_in, " ended within its epoch after ", done, " batches");
    }
    counts_.left += left;
    counts_.stops += stopped;
    counts_.errors += failed;
    if (!expected_->stands_as(feed_->state()) && !((stopped || failed) && passed_unseen())) check_place("after a loop");
    if (loop_ == 3) mark_ = feed_->state();
    if (stopped || anew) {
      close();
    } else if (failed || after == 0) {
      resume(feed_->state());
    } else if (after == 1 && mark_) {
      resume(*mark_);
    }
  }
  void check_place(const char* when) const {
    if (expected_->stands_as(feed_->state())) return;
    throw wrong{penstock::detail::concat(when, " the feed stands at ", feed_->state().text(), ", wanted epoch ",
                                         expected_->epoch, " sample ", expected_->position)};
  }
  // A stop or an error came behind what is not delivered: a batch that all samples were left out of, one that is
  // dropped, the end of a stream.
  bool passed_unseen() {
    while (!expected_->stands_as(feed_->state()))
      if (!expected_->pass_one()) return false;
    return true;
  }

  void see(const penstock::error& caught) {
    check(s_.at->bad_every != 0 && s_.bad == bad_samples::fail && !s_.at->healed,
          "an error from nowhere: ", caught.what());
    if (!expected_->is_stream()) {
      const auto bad = expected_->first_bad();
      check(bad && caught.where().sample == bad && caught.where().epoch == expected_->epoch &&
                caught.where().step == expected_->next_step(),
            "an error out of its order: ", caught.what());
    }
    s_.at->healed = true;
  }
  void hold(batch_type batch) {
    const auto numbers = batch.template host<0>();
    std::vector<std::uint64_t> copy(numbers.data(), numbers.data() + batch.rows());
    held_.push_back({std::move(batch), std::move(copy)});
    ++held_here_;
    ++held_ever_;
    ++counts_.held;
  }
  void release(std::size_t which) {
    const kept& one = held_[which];
    const auto numbers = one.batch.template host<0>();
    check(std::equal(one.numbers.begin(), one.numbers.end(), numbers.data()), "a batch that was held has changed");
    if (held_.size() - which <= static_cast<std::size_t>(held_here_)) --held_here_;
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  bool random_release(std::size_t least) const { return held_.size() > least; }

  std::uint64_t seed_, round_, loop_ = 0;
  Device device_;
  std::shared_ptr<penstock::reader_pool> pool_;
  tally& counts_;
  scenario s_;
  schedule with_;
  std::optional<expectation> expected_;
  penstock::feed_state state_;
  std::optional<penstock::feed_state> mark_;
  std::uint64_t events_ = 0, delivered_ = 0, throw_at_ = ~std::uint64_t{0};
  int held_here_ = 0;  // of the present feed: the last ones of `held_`
  int held_ever_ = 0, most_held_ = 1;
  bool failed_ever_ = false;
  std::optional<penstock::ledger> ledger_;
  bool within_ = false, resumed_ = false;
  std::optional<feed_type> feed_;
  std::vector<kept> held_;  // oldest first
};

// ---- what stays flat

struct footprint {
  std::size_t threads = 0, descriptors = 0, objects = 0, heap = 0, maps = 0;

  static footprint now() {
    const struct mallinfo2 memory = ::mallinfo2();
    footprint result{threads_alive(), open_descriptors(), bytes_alive, memory.uordblks + memory.hblkhd, 0};
    if (std::FILE* const file = std::fopen("/proc/self/maps", "r")) {
      for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) result.maps += c == '\n';
      std::fclose(file);
    }
    return result;
  }
};

TEST(stress, soak_batches_stay_right_and_threads_descriptors_and_memory_flat) {
  const std::uint64_t seconds = from_environment("PENSTOCK_SOAK_SECONDS", sanitized ? 3 : 60);
  const hang_limit limit(static_cast<unsigned>(seconds) + 240);
  const std::uint64_t seed = from_environment("PENSTOCK_SEED", std::random_device()());
  std::printf("PENSTOCK_SEED=%ju\n", static_cast<std::uintmax_t>(seed));
  std::fflush(stdout);

  const penstock_test::temporary_directory folder;
  const auto pool = penstock::reader_pool::make(2);
  tally counts;
  std::optional<footprint> first;
  footprint last;
  const auto began = clock::now();
  const auto past = [&](double share) {
    return std::chrono::duration<double>(clock::now() - began).count() > share * static_cast<double>(seconds);
  };
  const auto play = [&](auto&& one) {
    try {
      one.play();
    } catch (const wrong& caught) {
      ADD_FAILURE() << caught.what << "\n" << one.describe();
    } catch (const std::exception& caught) {
      ADD_FAILURE() << caught.what() << "\n" << one.describe();
    }
  };
  const bool one_alone = std::getenv("PENSTOCK_SOAK_ROUND") != nullptr;
  const std::uint64_t only = from_environment("PENSTOCK_SOAK_ROUND", 0);
  std::uint64_t played = 0;
  for (; !past(1) && !HasFailure(); ++played) {
    const std::uint64_t round = one_alone ? only : played;
    switch (penstock::philox(seed, ~std::uint64_t{0}, round, penstock::random_domain::user).below(8)) {
      case 0: play(bucketed(seed, round, counts)); break;
      case 1:
      case 2: play(replicated(seed, round, pool, counts)); break;
      case 3:
      case 4:
      case 5: play(player(seed, round, penstock::cpu_device{}, pool, folder, counts)); break;
      default:
        play(player(seed, round, penstock::modelled_device({.copy_time = std::chrono::microseconds(2)}), pool, folder,
                    counts));
    }
    if (played % 100 != 99) continue;
    if (!first && !past(0.1)) continue;  // what is had once is had by then
    if (first) {
      EXPECT_TRUE(threads_come_back_to(first->threads));
      // Readers that are shared let go of a feed that is gone when they next look, which they are told to.
      EXPECT_TRUE(comes_true([&] { return bytes_alive <= first->objects + 4096; })) << "bytes of new are not deleted";
    }
    last = footprint::now();
    if (!first) first = last;
    EXPECT_EQ(last.descriptors, first->descriptors);
    EXPECT_LE(last.threads, first->threads);
    if (!sanitized) {
      EXPECT_LE(last.heap, first->heap + (1U << 20)) << "bytes are allocated";
      EXPECT_LE(last.maps, first->maps + 40) << "parts of the memory are mapped";
    }
  }
  const double took = std::chrono::duration<double>(clock::now() - began).count();
  const auto print = [](const char* name, std::uint64_t count) {
    std::printf("  %-36s %ju\n", name, static_cast<std::uintmax_t>(count));
  };
  std::printf("%.1f s, %.0f batches a second, PENSTOCK_SEED=%ju\n", took, static_cast<double>(counts.batches) / took,
              static_cast<std::uintmax_t>(seed));
  print("scenarios", played);
  print("feeds", counts.feeds);
  print("batches", counts.batches);
  print("errors", counts.errors);
  print("of them observers'", counts.observers);
  print("samples left out or replaced", counts.faults);
  print("stops from another thread", counts.stops);
  print("loops left", counts.left);
  print("resumes", counts.resumed);
  print("batches held", counts.held);
  print("reads that were stuck", counts.stuck);
  print("reads issued again that won", counts.rereads);
  print("feeds that choose", counts.tuned);
  print("feeds with a ledger", counts.ledgers);
  print("scenarios with a cache", counts.cached);
  print("scenarios with a list", counts.lists);
  print("runs of ranks", counts.runs);
  print("of them failed", counts.ranks_failed);
  print("batches of buckets", counts.buckets);
  if (first)
    std::printf(
        "  threads %zu to %zu, descriptors %zu to %zu, bytes of new %zu to %zu, of the heap %zu to %zu, maps %zu to "
        "%zu\n",
        first->threads, last.threads, first->descriptors, last.descriptors, first->objects, last.objects, first->heap,
        last.heap, first->maps, last.maps);
}

}  // namespace
