// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/sample/fault_list.hpp>
#include <penstock/schedule/audience.hpp>
#include <penstock/schedule/engine.hpp>
#include <penstock/schedule/epoch_partner.hpp>
#include <penstock/schedule/state.hpp>
#include <penstock/schedule/tuner.hpp>

namespace penstock::detail {

struct feed_limits {
  std::chrono::nanoseconds timeout{};
  std::chrono::nanoseconds first_timeout{};
  std::chrono::nanoseconds warn_after{};  // 0: never
  bool next_epoch = true;
  std::optional<std::uint64_t> most_bad;   // samples of an epoch that may be left out or replaced
  std::optional<double> most_bad_share{};  // the same, of `samples`
  std::uint64_t samples = 0;               // of this replica in a whole epoch
  std::shared_ptr<fault_list> listed{};    // where samples that cannot be read are listed, or null
  bool drop_short = false;                 // streams: the last batch, if it is incomplete
  std::optional<tuner_range> tuned{};      // what is chosen while it runs
  std::uint64_t depth_bytes = 0;           // of one more of depth

  /// `most_bad_share` in samples. What is a whole number in decimals, such as 0.29 of 100, is that number.
  std::uint64_t most_bad_of_share() const {
    const double exact = *most_bad_share * static_cast<double>(samples);
    return static_cast<std::uint64_t>(exact + exact * 1e-12);
  }
};

/// The consumer's side of a feed. One thread at a time; `request_stop` may come from any.
template <class Schema, class Device>
class feed_core final : public feed_control {
  using clock = std::chrono::steady_clock;

 public:
  using batch = lease<Schema, Device>;
  static constexpr std::uint64_t unbounded = std::uint64_t{1} << 54;
  static constexpr std::chrono::nanoseconds told_to_stop_after = std::chrono::milliseconds(100);

  feed_core(std::shared_ptr<engine<Schema, Device>> shared, std::shared_ptr<reader_pool> pool, bool own_pool,
            feed_limits limits, std::uint64_t seed, std::uint64_t fingerprint)
      : engine_(std::move(shared)),
        pool_(std::move(pool)),
        own_pool_(own_pool),
        limits_(limits),
        watch_(engine_->to().turns.shape().readers) {
    state_.seed = seed;
    state_.fingerprint = fingerprint;
    engine_->to().set_drain_limit(limits_.timeout);
    if (limits_.tuned) {
      tuner_ = std::make_unique<tuner>(*limits_.tuned);
      engine_->count_busy();
    }
    set_readers();
    if (pool_) {
      engine_->to().turns.consumer.set_patient();
      engine_->has_threads();
      if (own_pool_) engine_->to().set_settlers(pool_->size());
      pool_->add(engine_);
    } else {
      engine_->prepare(0);
    }
  }
  feed_core(const feed_core&) = delete;
  feed_core& operator=(const feed_core&) = delete;

  engine<Schema, Device>& shared() noexcept { return *engine_; }
  const engine<Schema, Device>& shared() const noexcept { return *engine_; }
  const feed_state& state() const noexcept override { return state_; }
  std::uint64_t step() const noexcept override { return step_; }
  audience& listeners() noexcept { return listeners_; }
  bool open() const noexcept { return !shut_; }
  bool stopped() const noexcept override { return stop_requested_.load(std::memory_order_acquire); }
  /// Whose replicas the epochs are to be in step with. Each tells the other of its end.
  void keep_in_step_with(epoch_partner& partner) noexcept { partner_ = &partner; }
  void go_alone() noexcept override { partner_ = nullptr; }
  void reduces(bool begins) noexcept override {
    if (auto* const recorder = engine_->to().recorder()) recorder->reduces(begins);
  }
  void late(const late_event& event, bool speaks) override { listeners_.late(event, speaks); }
  void cut(const feed_state& state) noexcept override {
    cut_ = true;
    state_ = state;
    interrupt();
  }

  void resume(const feed_state& from) {
    check_not_waiting();
    const auto same = [](std::string_view what, std::uint64_t found, std::uint64_t wanted) {
      if (found != wanted)
        throw error(concat("resume: the state's ", what, " is ", found, ", wanted ", wanted,
                           ": it was taken from a feed of another dataset, plan or seed"));
    };
    same("seed", from.seed, state_.seed);
    same("fingerprint", from.fingerprint, state_.fingerprint);
    if (!engine_->is_stream() && from.samples > engine_->from().positions())
      throw error(
          concat("resume: the state counts ", from.samples, " samples of an epoch of ", engine_->from().positions()));
    let_go();
    if (in_epoch_) end_epoch(true);
    ++generation;
    interrupt();
    failure_ = nullptr;
    faults_.clear();
    state_ = from;
    normalise();
    resumed_ = state_.samples != 0;
    if (partner_ != nullptr) partner_->resumed();
  }

  /// Readers never go past the end of this epoch.
  void set_last_epoch(std::uint64_t epoch) noexcept { last_epoch_ = epoch; }

  /// Begins `epoch`: where the feed stands if that is in this epoch's beginning or was resumed, else from its start.
  void begin_epoch(std::uint64_t epoch) {
    check_pending();
    end_what_was_begun();
    const bool go_on = std::exchange(resumed_, false) && state_.epoch == epoch;
    move_to(epoch, go_on ? state_.samples : 0);
  }
  /// Goes on from where the feed stands. A failure stays until an epoch is begun or a state resumed.
  void go_on() {
    check_pending();
    end_what_was_begun();
    if (failure_) std::rethrow_exception(failure_);
    resumed_ = false;
    move_to(state_.epoch, state_.samples);
  }
  bool in_epoch() const noexcept { return in_epoch_; }
  /// What was chosen, if anything is.
  const tuner* chosen() const noexcept { return tuner_.get(); }
  /// Of all slots and twins; there may be more slots than twins, or fewer.
  std::uint64_t bytes() const noexcept {
    const ring_shape& shape = engine_->to().turns.shape();
    const std::uint64_t slot = bytes_of_slot<separate_device<Device>>(engine_->to().layout());
    return shape.host * slot + shape.device * (limits_.depth_bytes - slot);
  }
  /// The epoch was cut before its end.
  bool left_early() const noexcept { return cut_ && state_.epoch == epoch_; }

  /// Receives the next batch of the epoch into `current`; false at its end, or when stopped.
  bool fetch() {
    while (true)
      if (const std::optional<bool> fetched = try_fetch()) return *fetched;
  }
  batch& current() noexcept { return current_; }
  std::span<const sample_fault> faults() const noexcept { return faults_; }
  void let_go() noexcept { engine_->to().take_back(current_); }

  /// The loop was left: readers stop within one sample's read time.
  void leave() noexcept {
    let_go();
    if (!in_epoch_) return;
    if (steps_left_ != 0) interrupt();
    try {
      end_epoch(steps_left_ != 0);
    } catch (...) {
      // The loop is being left, perhaps by an exception: an observer's own has nowhere to go.
    }
  }

  void request_stop() noexcept override {
    stop_requested_.store(true, std::memory_order_release);
    engine_->stop_reads();
    engine_->to().turns.consumer.notify();
  }

  /// Observers are told of the end, once, after the last steps that ended whole.
  void finish(std::string_view reason) {
    std::exception_ptr thrown;
    try {
      if (!listeners_.ended()) tell_steps(reason == "done");
    } catch (...) {
      thrown = std::current_exception();  // by an observer, or a device that is lost
    }
    listeners_.run_ends(reason);
    if (thrown && reason != "error") std::rethrow_exception(thrown);
  }

  /// Ends everything; what is held by leases and by stuck readers stays.
  void shut() noexcept {
    if (std::exchange(shut_, true)) return;
    leave();
    if (partner_ != nullptr) std::exchange(partner_, nullptr)->feed_ends();
    auto& turns = engine_->to().turns;
    engine_->stop_reads();
    turns.park();
    const bool quiet = wait_quiet(timed_out_ ? std::chrono::nanoseconds(0) : limits_.timeout);
    if (pool_) {
      pool_->remove(engine_.get());
      // Where one reader is stuck the others are on their way out, and need no more than a moment.
      if (!quiet)
        pool_->set_grace(std::chrono::milliseconds(50));
      else if (own_pool_)
        pool_->set_grace(limits_.timeout);
      pool_.reset();
    }
    if (quiet) engine_->to().restart();
    try {
      finish(failure_ ? "error" : stopped() ? "stopped" : "done");
    } catch (...) {
      // A destructor cannot pass on what an observer throws; run() asks before.
    }
    if (auto* const recorder = engine_->to().recorder()) recorder->tell_nobody();
    try {
      // Where the epoch's end could not: an observer threw, or there was no room on the disk.
      if (limits_.listed) limits_.listed->write();
    } catch (...) {
    }
    engine_->to().abandon();
  }

 private:
  // Nothing: there was a batch without a sample, and another is to be asked for.
  std::optional<bool> try_fetch() {
    check_pending();
    let_go();
    if (failure_) std::rethrow_exception(failure_);
    if (!in_epoch_) return false;
    // Stopped after its last batch, it is whole.
    if (cut_ || (stopped() && steps_left_ != 0)) return end_epoch(true), std::optional(false);
    if (steps_left_ == 0) {
      if (state_.epoch == epoch_) count_epoch();  // an epoch without a batch
      return end_epoch(false), std::optional(false);
    }
    const bool watched = !listeners_.empty();
    const bool tuned = tuner_ != nullptr;
    const std::chrono::nanoseconds tuned_from = tuned ? engine_->now() : std::chrono::nanoseconds{};
    const std::size_t faults_before = faults_.size();
    const auto asked = watched ? clock::now() : clock::time_point{};
    auto* const recorder = engine_->to().recorder();
    const std::chrono::nanoseconds recorded_from = recorder != nullptr ? recorder->now() : std::chrono::nanoseconds{};
    bool received = false;
    try {
      if (recorder != nullptr) tell_steps(false);
      received = receive();
      if (received && recorder != nullptr)
        recorder->received(engine_->to().turn_of(current_), recorded_from, current_.info(),
                           engine_->to().layout().bytes_of(current_.rows()));
      if (received && !current_.faults().empty()) count_faults();
    } catch (...) {
      let_go();
      throw_failed();
    }
    if (!received) return end_epoch(true), std::optional(false);
    first_ = false;
    if (tuned) tune(tuned_from);
    const feed_state before = state_;
    const std::uint64_t left_before = steps_left_;
    const batch_info& info = current_.info();
    step_ = info.step;
    if (engine_->is_stream()) {
      const bool goes_on = partner_ != nullptr && partner_->goes_on_dry();
      if (info.end && !goes_on) steps_left_ = 0;
      const bool dropped =
          info.end && info.count != 0 && limits_.drop_short && info.count < engine_->to().layout().capacity();
      if (dropped && goes_on) return std::nullopt;  // what follows is empty
      if (goes_on && info.end && info.count == 0) partner_->gave_dry();
      state_.samples = info.drawn;
      if (!goes_on && info.end && (info.count == 0 || dropped)) {
        count_epoch();
        let_go();
        return end_epoch(false), std::optional(false);
      }
    } else {
      --steps_left_;
      state_.samples = info.next;
    }
    if (steps_left_ == 0) count_epoch();
    // All of it was left out. Replicas wait for each other, and take part with nothing.
    if (info.count == 0 && !current_.faults().empty() && partner_ == nullptr) return std::nullopt;
    if (!watched) return true;
    try {
      tell_batch(asked);
    } catch (...) {
      // The caller gets no batch, so the feed stands where it stood.
      let_go();
      state_ = before;
      steps_left_ = left_before;
      faults_.erase(faults_.begin() + static_cast<std::ptrdiff_t>(faults_before), faults_.end());
      throw_failed();
    }
    return true;
  }

  void end_what_was_begun() {
    let_go();
    if (in_epoch_) end_epoch(steps_left_ != 0);
    if (partner_ != nullptr) partner_->settle();
  }
  void move_to(std::uint64_t epoch, std::uint64_t position) {
    if (engine_->to().is_broken()) throw_broken(engine_->to().broken());
    if (stopped()) return stay_out(epoch, position);  // the loop to come ends before its first batch
    auto& turns = engine_->to().turns;
    const bool in_place =
        running_ && !failure_ && !engine_->is_stream() && state_.epoch == epoch && state_.samples == position;
    if (!in_place) restart_or_fail(epoch, position);
    if (position == 0) faults_.clear();
    epoch_ = epoch;
    state_.epoch = epoch;
    state_.samples = position;
    std::uint64_t limit = unbounded;
    if (engine_->is_stream()) {
      steps_left_ = unbounded;
    } else {
      const std::uint64_t end = engine_->map().end_of(epoch);
      steps_left_ = end - turns.next_step();
      if (!limits_.next_epoch || engine_->map().steps_per_epoch() == 0)
        limit = end;
      else if (last_epoch_ && *last_epoch_ >= epoch &&
               *last_epoch_ - epoch < unbounded / engine_->map().steps_per_epoch())
        limit = engine_->map().end_of(*last_epoch_);
    }
    if (!in_place && listeners_.hears_steps()) record_steps();
    if (tuner_) tuner_->pause();
    turns.open(limit);
    running_ = true;
    in_epoch_ = true;
    cut_ = false;
    if (partner_ != nullptr) partner_->epoch_begins(epoch, !engine_->is_stream(), steps_left_);
    tell_begin();
  }

  // So many as work, of a pool of one's own.
  void set_readers() noexcept {
    const bool chosen = own_pool_ && tuner_ != nullptr && tuner_->range().most_readers != tuner_->range().readers;
    if (chosen) pool_->set_active(tuner_->readers());
    const std::uint32_t readers = chosen ? tuner_->readers() : own_pool_ ? pool_->size() : 0;
    // A pool of several feeds may have several consumers that wait.
    engine_->to().turns.consumer.set_spins(readers != 0 && readers < allowed_cpus().size() ? spins_before_sleep : 0);
  }
  [[gnu::noinline]] void tune(std::chrono::nanoseconds asked) {
    const auto now = engine_->now();
    const std::uint32_t readers = tuner_->readers();
    if (!tuner_->step({now, now - asked, engine_->busy()})) return;
    if (tuner_->readers() != readers) set_readers();
    if (tuner_->depth() > engine_->to().turns.buffers()) engine_->to().widen(tuner_->depth());
  }
  // Of an automatic depth, for a loop that holds all.
  bool widen_for_held() noexcept {
    auto& to = engine_->to();
    if (!tuner_ || to.turns.buffers() >= tuner_->range().most_depth) return false;
    tuner_->needs_depth(to.turns.buffers() + 1);
    to.widen(tuner_->depth());
    return true;
  }

  void record_steps() {
    engine_->to().record_steps();
    if (listeners_.hears_stages()) engine_->to().recorder()->tell_stages(&audience::stage, &listeners_);
  }
  // Those that are over; at the end of all those that were begun, too, whose work on the device is waited for.
  void tell_steps(bool all) {
    auto* const recorder = engine_->to().recorder();
    if (recorder == nullptr) return;
    const auto tell = [this](const step_record& one) { listeners_.step(one); };
    if constexpr (separate_device<Device>) {
      const auto deadline = deadline_after(limits_.timeout);
      recorder->collect(tell, [&](const auto& event) {
        return all && engine_->to().device().wait(event, [] { return false; }, deadline) == wait_result::complete;
      });
    } else {
      recorder->collect(tell);
    }
  }

  void stay_out(std::uint64_t epoch, std::uint64_t position) {
    if (partner_ == nullptr) return;
    // As those who go in: all are to stand at the same place afterwards.
    epoch_ = state_.epoch = epoch;
    state_.samples = position;
    const bool planned = !engine_->is_stream();
    partner_->epoch_begins(epoch, planned, planned ? engine_->map().steps_per_epoch() : unbounded);
    partner_->epoch_ends(true);
  }
  void restart_or_fail(std::uint64_t epoch, std::uint64_t position) {
    try {
      restart(epoch, position);
    } catch (const error&) {
      throw_failed();
    } catch (...) {
      // A stream's factory, or its range while what was delivered is skipped.
      try {
        throw error(message_of(std::current_exception()), {.stage = "read", .epoch = epoch}, std::current_exception());
      } catch (...) {
        throw_failed();
      }
    }
  }
  void restart(std::uint64_t epoch, std::uint64_t position) {
    auto& to = engine_->to();
    interrupt();
    // A read that does not end by itself in a while is told to; the next token that is needed then is allocated.
    if (engine_->from().takes_stop() && !wait_quiet(told_to_stop_after)) engine_->stop_reads();
    const auto quiet = [&] { return to.turns.quiet(); };
    if (!quiet() && !await(to.turns.control, quiet, limits_.timeout, "to begin anew, the feed waits for a reader")) {
      timed_out_ = true;
      throw timeout_error(concat("readers did not come back within ", text(limits_.timeout),
                                 " to begin anew: ", engine_->describe_readers(watch_, clock::now())),
                          waited_for(true));
    }
    timed_out_ = false;  // whoever was late has come back
    engine_->renew_stop();
    if (stopped()) engine_->stop_reads();
    to.restart();
    engine_->begin(epoch, position);
    failure_ = nullptr;
    first_ = true;
  }
  // Parks the readers; the next epoch begins with a restart.
  void interrupt() noexcept {
    engine_->to().turns.park();
    running_ = false;
  }
  bool wait_quiet(std::chrono::nanoseconds limit) noexcept {
    auto& turns = engine_->to().turns;
    return turns.control.wait([&] { return turns.quiet(); }, deadline_after(limit));
  }

  // Into `current`; false when stopped.
  bool receive() {
    if (!engine_->reads_now()) {
      if (!await_batch()) return false;
      current_ = engine_->to().receive();
      return true;
    }
    bool held = false;
    try {
      held = !engine_->read_now(current_);
    } catch (...) {
      // What a read that was stopped threw is not wanted any more.
      if (!stopped()) throw;
    }
    if (stopped()) return let_go(), false;
    if (held) throw_all_held();
    return true;
  }
  // On the consumer's side, so that it is the same step for any number of readers.
  [[gnu::noinline, gnu::cold]] void count_faults() {
    if (limits_.listed)
      for (const sample_fault& one : current_.faults()) limits_.listed->add(one);
    for (const sample_fault& one : current_.faults()) {
      if (limits_.most_bad && faults_.size() == *limits_.most_bad)
        throw_too_many(one, concat("most_bad leaves out or replaces ", *limits_.most_bad));
      if (limits_.most_bad_share && faults_.size() == limits_.most_bad_of_share())
        throw_too_many(one, concat("most_bad_share of ", *limits_.most_bad_share, " leaves out or replaces ",
                                   limits_.most_bad_of_share(), " of ", limits_.samples));
      faults_.push_back(one);
    }
  }
  [[noreturn]] void throw_too_many(const sample_fault& one, const std::string& limit) const {
    throw error(concat(one.problem, " (this epoch's sample number ", faults_.size() + 1,
                       " that cannot be read; read_options::", limit, ')'),
                one.where);
  }
  // The first batch waits for the last reader to have its state, so that nothing is allocated after it. Readers that
  // are shared may be busy elsewhere and get theirs when they come.
  bool is_ready() noexcept { return engine_->to().turns.is_ready() && (!own_pool_ || engine_->prepared()); }
  // True when a batch is ready, false when stopped; throws when there can be none.
  bool await_batch() {
    auto& to = engine_->to();
    auto& turns = to.turns;
    // What a read that was stopped threw is not wanted any more.
    if (is_ready()) return !stopped();
    check_held();
    if (!pool_) return read_inline();
    const auto limit = first_ ? limits_.first_timeout : limits_.timeout;
    const bool in_time =
        await(turns.consumer, [&] { return is_ready() || stopped() || to.is_broken(); }, limit, "no batch has come");
    if (is_ready()) return !stopped();
    if (to.is_broken()) throw_broken(to.broken());
    if (in_time) return false;
    timed_out_ = true;
    throw timeout_error(
        concat("no batch within ", text(limit), ": ", engine_->describe_readers(watch_, clock::now()), "; of ",
               turns.buffers(), " batches ", turns.outstanding(), " are held by the consumer, ", turns.ready_ahead(),
               " are ready; of ", turns.shape().host, " slots ", turns.free_slots(), " are free"),
        waited_for());
  }
  // Waits, and looks now and then at what readers do, to tell of it. False when `limit` has passed.
  template <class Gate, class Ready>
  [[gnu::noinline]] bool await(Gate& where, const Ready& ready, std::chrono::nanoseconds limit, const char* what) {
    const auto begin = clock::now();
    wait_schedule times(begin, limit, limits_.warn_after);
    if (where.wait(ready, times.next(begin))) return true;
    watch_.reset();
    for (auto now = clock::now();; now = clock::now()) {
      engine_->look(watch_, now);
      if (times.is_over(now)) return ready();
      if (times.warns(now)) warn(what, now - begin, now);
      if (where.wait(ready, times.next(now))) return true;
    }
  }
  [[gnu::noinline, gnu::cold]] void warn(const char* what, std::chrono::nanoseconds waited, clock::time_point now) {
    late_event event;
    event.waited = waited;
    event.where = waited_for(engine_->to().turns.parked());
    if (event.where.reader)
      event.reading = watch_.age(*event.where.reader, engine_->to().turns.reader_activity(*event.where.reader), now);
    const world whose = engine_->map().where();
    const std::string message =
        concat(event.where.text(), ": ", whose.size == 1 ? std::string() : concat("rank ", whose.rank, ": "), what,
               " for ", rough_text(waited), ": ", engine_->describe_readers(watch_, now));
    event.message = message;
    listeners_.late(event);
  }
  bool read_inline() {
    auto& to = engine_->to();
    for (;;) {
      if (stopped()) return false;
      if (to.is_broken()) throw_broken(to.broken());
      switch (engine_->try_take(0)) {
        case take_result::taken: engine_->work(0); break;
        case take_result::fenced:
          if (engine_->await_inline([this] { return stopped(); }, deadline_after(limits_.timeout)) ==
              wait_result::timed_out) {
            auto where = waited_for();
            where.stage = "transfer";
            throw timeout_error(concat("a copy to the device did not end within ", text(limits_.timeout)), where);
          }
          break;
        case take_result::none:
          // Its slots are full or held: the next step is ready, or waits for a buffer.
          break;
      }
      if (to.turns.is_ready()) return !stopped();
      check_held();
    }
  }
  void check_held() {
    auto& turns = engine_->to().turns;
    while (turns.outstanding() >= turns.buffers() && !turns.is_ready())
      if (!widen_for_held()) throw_all_held();
  }
  [[noreturn]] void throw_all_held() {
    throw all_held(concat("all ", engine_->to().turns.buffers(),
                          " batches of this feed are held: let one go, or ask for more depth in "
                          "transfer, before the next is asked for"));
  }
  // A copy's fence failed, the slots could not be had, the device is lost: there is nothing to go on with.
  [[noreturn]] void throw_broken(std::exception_ptr cause) const {
    batch_info info;
    const std::uint64_t next = engine_->to().turns.next_step();
    info.epoch = epoch_;
    info.step = engine_->is_stream() ? next - engine_->map().base() : engine_->map()(next).step;
    throw_failure({std::move(cause), {.stage = "transfer"}, 0, 1}, info);
  }
  // What the application's own calls have left behind is its own to deal with; the feed stays as it is. But with a lost
  // device it ends.
  void check_pending() {
    check_not_waiting();
    if constexpr (requires(const Device& device) { device.check_pending(std::string_view()); }) {
      const Device& device = engine_->to().device();
      try {
        device.check_pending("the next batch was asked for");
      } catch (...) {
        if (!device.is_lost()) throw;
        const std::exception_ptr cause = std::current_exception();
        try {
          throw_broken(cause);
        } catch (...) {
          throw_failed();
        }
      }
    }
  }
  void check_not_waiting() const {
    if (listeners_.tells_late())
      throw error("an observer that is told of a wait uses the feed, while that wait goes on",
                  {.epoch = epoch_, .step = step_});
  }
  // Recoverable: the feed stays as it is.
  struct all_held : error {
    using error::error;
  };

  // `any`: whoever reads, for whatever step.
  provenance waited_for(bool any = false) const {
    provenance where{.stage = "read", .epoch = epoch_};
    const std::uint64_t next = engine_->to().turns.next_step();
    where.step = engine_->is_stream() ? next - engine_->map().base() : engine_->map()(next).step;
    // Of those who read for the step, the one that has been at its sample for longest.
    std::chrono::nanoseconds longest{-1};
    const auto now = clock::now();
    for (std::uint32_t i = 0; i < engine_->to().turns.shape().readers; ++i) {
      const auto at = engine_->to().turns.reader_activity(i);
      const auto age = watch_.age(i, at, now);
      if (!at.busy || (!any && at.step != next) || age <= longest) continue;
      longest = age;
      where.sample = at.sample;
      where.reader = i;
      if (any && !engine_->is_stream()) {
        const epoch_map::place place = engine_->map()(at.step);
        where.epoch = place.epoch;
        where.step = place.step;
      }
    }
    if (where.sample) where.complete_from(engine_->from().where(*where.sample));
    return where;
  }

  [[noreturn]] void throw_failed() {
    try {
      throw;
    } catch (const all_held&) {
      throw;
    } catch (const error& caught) {
      fail(caught.what(), caught.where());
      throw;
    } catch (const std::exception& caught) {
      fail(caught.what(), {});
      throw;
    } catch (...) {
      fail("an exception that is not a std::exception", {});
      throw;
    }
  }
  void fail(std::string_view message, const provenance& where) noexcept {
    failure_ = std::current_exception();
    interrupt();
    listeners_.error(message, where);
  }

  // The state of a finished epoch is the beginning of the next.
  void count_epoch() noexcept {
    state_.epoch += 1;
    state_.samples = 0;
  }
  void normalise() noexcept {
    if (!engine_->is_stream() && state_.samples != 0 && engine_->map().at_end(state_.samples)) count_epoch();
  }

  void end_epoch(bool early) {
    in_epoch_ = false;
    if (early) interrupt();
    if (partner_ != nullptr) partner_->epoch_ends(early);
    tell_steps(false);
    listeners_.epoch_ends(faults_);
    if (limits_.listed) limits_.listed->write();
  }

  void tell_begin() {
    run_begin event;
    if (last_epoch_ && *last_epoch_ < unbounded) event.epochs = *last_epoch_ + 1;
    if (!engine_->is_stream()) {
      event.steps_per_epoch = engine_->map().steps_per_epoch();
      event.samples_per_epoch = engine_->from().positions();
    }
    event.first_epoch = epoch_;
    event.first_sample = state_.samples;
    if (!engine_->is_stream() && steps_left_ != 0)
      event.first_step = engine_->map()(engine_->to().turns.next_step()).step;
    listeners_.epoch_begins(event);
    if (listeners_.asks_for_streams()) tell_streams();
  }
  [[gnu::noinline, gnu::cold]] void tell_streams() {
    if constexpr (separate_device<Device>) {
      const auto& to = engine_->to();
      const world whose = partner_ != nullptr ? partner_->place() : engine_->map().where();
      const auto tell = [&](stream_event event, bool own) {
        event.rank = whose.rank;
        event.ranks = whose.size;
        event.own = own;
        listeners_.stream(event);
      };
      tell(stream_of(to.device(), to.stream(), "batches"), to.stream_is_own());
      tell(stream_of(to.device(), to.copies(), "copies"), true);
    }
    if (partner_ != nullptr) partner_->tell_streams(listeners_);
  }
  void tell_batch(clock::time_point asked) {
    batch_event event;
    event.epoch = epoch_;
    event.step = current_.step();
    event.samples = current_.size();
    event.wait = clock::now() - asked;
    if (!engine_->is_stream()) event.steps_in_epoch = engine_->map().steps_per_epoch();
    listeners_.batch(event);
  }

  static std::string text(std::chrono::nanoseconds time) {
    const auto count = time.count();
    if (count % 1'000'000'000 == 0) return concat(count / 1'000'000'000, " s");
    if (count % 1'000'000 == 0) return concat(count / 1'000'000, " ms");
    return concat(count, " ns");
  }

  std::shared_ptr<engine<Schema, Device>> engine_;
  std::shared_ptr<reader_pool> pool_;
  bool own_pool_;
  feed_limits limits_;
  reader_watch watch_;
  feed_state state_;  // what was delivered
  audience listeners_;
  std::unique_ptr<tuner> tuner_;
  epoch_partner* partner_ = nullptr;
  batch current_;
  std::exception_ptr failure_;
  std::vector<sample_fault> faults_;  // of the epoch's batches that were delivered
  std::optional<std::uint64_t> last_epoch_;
  std::uint64_t epoch_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t steps_left_ = 0;
  bool in_epoch_ = false;
  bool cut_ = false;      // the epoch ends before its next batch
  bool running_ = false;  // readers work from where the state is
  bool resumed_ = false;
  bool first_ = true;  // no batch since the last start
  bool timed_out_ = false;
  bool shut_ = false;
  std::atomic<bool> stop_requested_{false};

 public:
  // For the handles on an epoch.
  std::uint64_t generation = 0;
  std::uint32_t handles = 0;
};

}  // namespace penstock::detail
