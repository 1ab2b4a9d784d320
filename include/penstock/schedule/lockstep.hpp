// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/channel/record.hpp>
#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/late_watch.hpp>
#include <penstock/device/device.hpp>
#include <penstock/schedule/audience.hpp>
#include <penstock/schedule/epoch_partner.hpp>

namespace penstock {

/// What a step brings beside its values.
struct step_options {
  /// Of this rank's values, in place of the batch's number of samples: tokens, or what a mask leaves. Given on all
  /// ranks or on none.
  std::optional<double> weight{};
  /// Added over the ranks, at most eight: sums for the progress monitor.
  std::span<const double> metrics{};
};

/// What a step has come to over all ranks; true where its update is to be made.
///
/// With a communicator whose words come back later, `of` says which step the numbers are of (none yet in the first
/// ones), and whether the update is made is decided on the device, see `replica::gate`.
struct step_result {
  bool counts = false;
  std::optional<std::uint64_t> of{};
  double weight = 0;
  std::uint64_t samples = 0;
  std::array<double, control_words::most_metrics> metrics{};

  explicit operator bool() const noexcept { return counts; }
};

/// How a rank's part of a replicated run ended.
struct replica_summary {
  std::uint64_t steps = 0;  ///< whose update is in the model
  bool stopped = false;     ///< a stop on some rank was agreed on, be it behind the last step
  std::uint64_t stopped_by = 0;
  feed_state state{};  ///< behind the last step whose update is in the model
};

namespace detail {

/// What keeps a rank's loop in step with the others': the sequence of its exchanges, and what follows from their words.
///
/// The words of an exchange are equal on all ranks, and each looks at those of step k before it posts step k + lag + 1.
/// So all take every decision at the same place, and post as many exchanges: none waits for one that does not come. A
/// rank that cannot bring values goes on to take part without until all have seen why.
template <communicator Communicator>
class lockstep final : public epoch_partner {
  using words = control_words;
  using stream_view = typename Communicator::stream_view;

 public:
  lockstep(Communicator communicator, const replica_options& options)
      : communicator_(std::move(communicator)),
        uneven_(options.uneven),
        lag_(Communicator::immediate ? 0 : options.lag),
        thread_(std::this_thread::get_id()),
        stream_(communicator_.device().make_stream()),
        pending_(lag_ + 1) {
    if constexpr (requires { communicator_.warn_by(late_hook{}); }) communicator_.warn_by({&lockstep::late, this});
  }
  lockstep(const lockstep&) = delete;
  lockstep& operator=(const lockstep&) = delete;
  ~lockstep() {
    // It may wait once more where it goes.
    if constexpr (requires { communicator_.warn_by(late_hook{}); }) communicator_.warn_by({});
    if (control_ != nullptr) control_->go_alone();
  }

  /// What happens outside the steps.
  enum class meeting : std::uint64_t { broadcast = 1, sum, barrier };

  std::uint64_t rank() const noexcept { return communicator_.rank(); }
  std::uint64_t size() const noexcept { return communicator_.size(); }
  const Communicator& communicator() const noexcept { return communicator_; }
  Communicator& communicator() noexcept { return communicator_; }
  stream_view any_stream() const noexcept { return stream_.view(); }
  bool has_feed() const noexcept { return control_ != nullptr; }
  const feed_state& confirmed() const noexcept { return confirmed_; }
  std::uint64_t steps() const noexcept { return steps_; }
  bool over() const noexcept { return over_; }
  bool failed_by_itself() const noexcept { return own_failure_; }
  provenance where() const { return {.stage = "all_reduce", .epoch = epoch_, .step = step_}; }
  const std::exception_ptr& cause() const noexcept { return cause_; }
  void request_stop() noexcept { stop_requested_.store(true, std::memory_order_release); }

  void keep(feed_control& control) noexcept {
    control_ = &control;
    confirmed_ = control.state();
    if (over_) control.request_stop();
  }

  std::vector<std::string> all_gather(std::string text) {
    return with_others([&] { return communicator_.all_gather(std::move(text)); });
  }

  /// Ends the step: reduces the last values of it, with its words.
  step_result step(const batch_info& info, const step_options& options, std::span<const reduce_buffer> buffers,
                   stream_view on) {
    if (!begin_step(info)) return {};
    const reducing told(control_);
    if (!Communicator::immediate && last_step_ == info.step)
      throw error(
          "replica: a second all_reduce in a step, which a communicator whose words come back later cannot have, as "
          "ranks count on one: give it all values at once, or begin with ready",
          where());
    last_step_ = info.step;
    words mine = step_words(info, options);
    for (std::size_t i = 0; i < options.metrics.size(); ++i) mine.sums[words::first_metric + i] = options.metrics[i];
    describe(mine, call_step + early_, mixed(info.next, options.weight.has_value()), buffers);
    const step_result result = end_step(mine, buffers, on, total_of(info, options));
    throw_held();
    return result;
  }
  /// Begins to reduce values of a step that goes on.
  void begin_early(const batch_info& info, const step_options& options, std::span<const reduce_buffer> buffers,
                   stream_view on) {
    if (!begin_step(info)) return;
    const reducing told(control_);
    // Before the first exchange of a step, as who joins does.
    if (early_ == 0) judged_early_ = {};
    if (begun_ - judged_ > lag_) judged_early_ = judge_next();
    if (ended_) return;
    words mine = step_words(info, options);
    describe(mine, call_step + early_, mixed(info.next, options.weight.has_value()), buffers);
    ++early_;
    const words all = post(mine, buffers, on, {.early = true, .total = total_of(info, options)});
    if constexpr (Communicator::immediate) judge(all, nullptr);
    throw_held();
  }
  /// Outside the steps: all ranks' words, at once. `of` is what ranks have to agree on beside.
  words meet(words mine, meeting what, std::uint64_t of, std::span<const reduce_buffer> buffers, stream_view on,
             double total) {
    check_usable();
    settle_debts();
    drain();
    describe(mine, static_cast<std::uint64_t>(what), of, buffers);
    const words all = post(mine, buffers, on, {.total = total});
    check(all);
    if (all.has(words::stopping) || all.has(words::leaving))
      throw error(detail::concat("ranks are at different places: rank ",
                                 all.rank_of(all.has(words::stopping) ? words::stopping : words::leaving),
                                 " ends its loop where rank ", rank(),
                                 " exchanges values outside one; wanted the same calls on all ranks"),
                  where());
    throw_held();
    return all;
  }
  /// The body has returned. Waits until all have.
  replica_summary finish() {
    if (cause_) std::rethrow_exception(cause_);
    throw_held();
    if (!failed_) {
      settle_debts();
      const bool lagged_stop = stop_left_ && !over_ && !Communicator::immediate;
      if (stop_left_ && !over_ && !lagged_stop) {
        ended_ = false;
        join(words::stopping);
      }
      for (bool all_have = false; !all_have;) {
        words mine;
        mine.sums[words::finished] = 1;
        mine.maxima[words::returned] = words::named(rank());
        if (lagged_stop) mine.maxima[words::stopping] = words::named(rank());
        const words all = post(mine, {}, any_stream(), {.joins = lagged_stop, .patient = true});
        if (all.has(words::failing)) throw_failure(all);
        all_have = all.sums[words::finished] == static_cast<double>(size());
        if (all.has(words::stopping)) {
          over_ = true;
          stopped_by_ = all.rank_of(words::stopping);
        } else if (!all_have) {
          throw_returned(all);
        }
      }
    }
    // All have ended: there is nobody to be told.
    if (held_) failed_ = own_failure_ = true;
    throw_held();
    return {steps_, over_, stopped_by_, confirmed_};
  }
  /// The body has thrown: the others are told, at their next exchange.
  void fail(const std::exception_ptr& cause) noexcept {
    if (failed_) return;  // who was told need not tell
    own_failure_ = true;
    try {
      own_problem_ = detail::message_of(cause);
      // What others are about to bring is known within an epoch alone, which matters where values cannot be left out.
      if (!Communicator::immediate && !owes_)
        return communicator_.abort(rank(), where(), detail::concat("rank ", rank(), " failed: ", own_problem_));
      ended_ = false;
      join(words::failing);
      // It was the epoch's last step.
      if (!ended_) communicator_.abort(rank(), where(), detail::concat("rank ", rank(), " failed: ", own_problem_));
    } catch (const replica_error&) {
      // All know, or the others have gone.
    } catch (...) {
      // It can take part no more: whoever waits is told so, and if that fails, too, waits for the time-out.
      try {
        communicator_.abort(rank(), where(), detail::concat("rank ", rank(), " failed: ", own_problem_));
      } catch (...) {
      }
    }
    failed_ = true;
  }

 private:
  static constexpr std::uint64_t call_step = 16;
  static constexpr std::uint64_t most_dry = 1000;
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  struct posted {
    std::uint64_t number = 0;
    std::uint64_t step = 0;
    feed_state behind{};
    bool joined = false;
  };
  struct how {
    bool joins = false, early = false, patient = false;
    double total = 0;
  };

  void check_thread() const {
    if (std::this_thread::get_id() != thread_)
      throw error(
          "replica: it is used by another thread than the one that runs the body: ranks have to bring their values in "
          "one order, which threads do not keep");
  }

  // ---- exchanges

  // This rank waits for others. What an observer throws is held until the exchange has ended, which cannot be left.
  static void late(void* whom, const late_event& event, bool speaks) noexcept {
    auto& self = *static_cast<lockstep*>(whom);
    if (self.control_ == nullptr) {
      if (speaks) say_late(event.message);
      return;
    }
    self.tells_ = true;
    try {
      self.control_->late(event, speaks);
    } catch (...) {
      if (!self.held_) self.held_ = std::current_exception();
    }
    self.tells_ = false;
  }
  void throw_held() {
    if (held_) std::rethrow_exception(std::exchange(held_, nullptr));
  }
  static std::uint64_t mixed(std::uint64_t hash, std::uint64_t with) noexcept {
    hash ^= with + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
    return hash * 0xff51afd7ed558ccdULL;
  }
  void describe(words& mine, std::uint64_t what, std::uint64_t of, std::span<const reduce_buffer> buffers) {
    // Where a loop has ended, each rank's last step may be another.
    const bool within = in_epoch_ && !ended_;
    std::uint64_t hash = mixed(mixed(mixed(what, of), within ? epoch_ : never), within ? step_ : never);
    hash = mixed(hash, buffers.size());
    std::uint64_t count = 0;
    for (const reduce_buffer& one : buffers) {
      const bool mean = one.how == reduction::weighted_mean || one.how == reduction::mean_of_sums;
      if (mean && one.type != element_type::float32 && one.type != element_type::float64)
        throw std::invalid_argument(
            "penstock: all_reduce: a mean of integers was asked for, wanted floats, or reduction::sum or maximum");
      hash = mixed(mixed(hash, static_cast<std::uint64_t>(one.type)), static_cast<std::uint64_t>(one.how));
      hash = mixed(hash, one.count);
      count += one.count;
    }
    mine.describe(hash, count);
  }
  // With an immediate communicator, or `early` aside, returns the reduced words.
  words post(const words& mine, std::span<const reduce_buffer> buffers, stream_view on, how as) {
    enter(mine, buffers, on, as);
    if (as.early && !Communicator::immediate) return {};
    return words_of(number_ - 1);
  }
  void enter(const words& mine, std::span<const reduce_buffer> buffers, stream_view on, how as) {
    check_thread();
    with_others([&] {
      communicator_.post({.number = number_,
                          .epoch = epoch_,
                          .step = step_,
                          .words = mine,
                          .buffers = buffers,
                          .joins = as.joins,
                          .total_weight = as.total,
                          .early = as.early,
                          .patient = as.patient,
                          .stream = on});
    });
    ++number_;
  }
  words words_of(std::uint64_t number) {
    return with_others([&] { return communicator_.words_of(number); });
  }
  // What the communicator throws as a replica_error is thrown on all ranks, and there is nothing more to exchange.
  template <class Call>
  decltype(auto) with_others(Call&& call) {
    try {
      return call();
    } catch (const replica_error&) {
      failed_ = true;
      if (!cause_) cause_ = std::current_exception();
      begun_ = judged_;
      throw;
    }
  }
  void check(const words& all) {
    if (all.has(words::failing)) throw_failure(all);
    // A stop may meet those who have just ended.
    if (all.has(words::returned) && !all.has(words::stopping)) throw_returned(all);
    // A void step need not be agreed on.
    if (!all.ends() && !all.agree()) throw_for_all(rank(), detail::describe_disagreement(all));
  }
  // It is thrown again where it was caught, or thrown while a loop was left.
  [[noreturn]] void throw_for_all(std::uint64_t first, std::string problem) {
    failed_ = true;
    cause_ = std::make_exception_ptr(replica_error(first, std::move(problem), where()));
    std::rethrow_exception(cause_);
  }
  [[noreturn]] void throw_failure(const words& all) {
    failed_ = true;
    const std::uint64_t first = all.rank_of(words::failing);
    const auto problems = all_gather(own_problem_);
    throw_for_all(first, detail::concat("rank ", first, " failed: ", problems[first]));
  }
  [[noreturn]] void throw_returned(const words& all) {
    const std::uint64_t first = all.rank_of(words::returned);
    throw_for_all(first, detail::concat("rank ", first,
                                        " has returned from its body, where others go on to exchange values; wanted "
                                        "the same epochs on all ranks"));
  }

  // ---- steps

  void check_usable() const {
    check_thread();
    if (tells_)
      throw error(
          "replica: an observer that is told of a wait for other ranks exchanges values, while that wait goes on; "
          "wanted by the loop, when it is over",
          where());
    if (cause_) std::rethrow_exception(cause_);
    if (failed_)
      throw error("replica: the run has ended by an error that was caught: there is nobody to exchange values with",
                  where());
  }
  // False if the loop has ended already, and this is the rest of its last turn.
  /// The feed is told how long its batch is being reduced.
  class reducing {
   public:
    explicit reducing(feed_control* whom) noexcept : whom_(whom) {
      if (whom_ != nullptr) whom_->reduces(true);
    }
    reducing(const reducing&) = delete;
    reducing& operator=(const reducing&) = delete;
    ~reducing() {
      if (whom_ != nullptr) whom_->reduces(false);
    }

   private:
    feed_control* whom_;
  };

  bool begin_step(const batch_info& info) {
    check_usable();
    if (control_ == nullptr)
      throw error("replica: all_reduce outside an epoch: the feed is to be made by replica.start(pipeline)");
    if (!in_epoch_ || ended_) return false;
    step_ = info.step;
    return true;
  }
  words step_words(const batch_info& info, const step_options& options) const {
    if (options.metrics.size() > words::most_metrics)
      detail::reject_option("all_reduce", "number of metrics", std::to_string(options.metrics.size()), "at most 8");
    const double weight = options.weight.value_or(static_cast<double>(info.count));
    if (!(weight >= 0) || weight > 1e300)
      detail::reject_option("all_reduce", "weight", std::to_string(weight), "0 or more, and finite");
    words mine;
    mine.sums[words::weight] = weight;
    mine.sums[words::samples] = info.count;
    mine.sums[words::with_data] = info.count != 0 ? 1 : 0;
    if (stop_requested_.load(std::memory_order_acquire)) mine.maxima[words::stopping] = words::named(rank());
    return mine;
  }
  static double total_of(const batch_info& info, const step_options& options) {
    return options.weight ? 0 : static_cast<double>(info.total);
  }
  step_result end_step(const words& mine, std::span<const reduce_buffer> buffers, stream_view on, double total) {
    step_result result;
    if (early_ != 0) result = judged_early_;
    if (begun_ - judged_ > lag_) result = judge_next();
    if (ended_) return {};
    posted_ = control_->state();
    post_step({number_, step_, posted_, false}, mine, buffers, on, {.total = total});
    if (lag_ == 0) result = judge_next();
    if (ended_) return {};
    if (lag_ != 0) result.counts = true;
    return result;
  }
  void post_step(const posted& one, const words& mine, std::span<const reduce_buffer> buffers, stream_view on, how as) {
    early_ = 0;
    enter(mine, buffers, on, as);
    pending_[begun_++ % pending_.size()] = one;
  }
  // Looks at the words of the oldest step that was not looked at.
  step_result judge_next() {
    const posted& one = pending_[judged_++ % pending_.size()];
    const words all = words_of(one.number);
    step_result result;
    result.counts = judge(all, &one) && all.sums[words::weight] > 0;
    result.of = one.step;
    result.weight = all.sums[words::weight];
    result.samples = static_cast<std::uint64_t>(all.sums[words::samples]);
    for (std::size_t i = 0; i < words::most_metrics; ++i) result.metrics[i] = all.sums[words::first_metric + i];
    return result;
  }
  // The same on all ranks, as the words are. False if the step is void.
  bool judge(const words& all, const posted* of) {
    if (ended_) return false;
    if (all.has(words::failing)) {
      end_epoch();
      drain();
      throw_failure(all);
    }
    check(all);
    if (all.has(words::stopping) || all.has(words::leaving)) {
      end_epoch();
      if (all.has(words::stopping)) {
        over_ = true;
        stopped_by_ = all.rank_of(words::stopping);
      }
      if (all.has(words::dry)) end_dry();
      if (control_ != nullptr) {
        control_->cut(confirmed_);
        if (over_) control_->request_stop();
      }
      return false;
    }
    if (of == nullptr || of->joined) return true;
    confirmed_ = of->behind;
    if (all.sums[words::weight] > 0) ++steps_;
    if (!planned_ && all.sums[words::with_data] == 0) {
      end_epoch();
      end_dry();
      if (control_ != nullptr) control_->cut(confirmed_);
    }
    return true;
  }
  // The epoch has ended as streams have: the next one is what there is to go on with.
  void end_dry() noexcept {
    confirmed_.epoch = epoch_ + 1;
    confirmed_.samples = 0;
  }
  // All ranks see it by the words of the step that was judged last, and have entered, or enter, all that others may
  // enter before they look at these.
  void end_epoch() noexcept {
    ended_ = true;
    owed_ = judged_ + lag_ < end_ ? judged_ + lag_ : end_;
  }
  void drain() {
    words mine;
    mine.maxima[words::leaving] = words::named(rank());
    while (!failed_) {
      if (ended_ && begun_ < owed_ && begun_ - judged_ <= lag_)
        post_joining(mine);
      else if (judged_ != begun_)
        judge_next();
      else
        return;
    }
  }

  // ---- taking part without a batch

  // Until all have seen that this rank `says` so.
  void join(words::maximum says, bool dry = false) {
    words mine;
    mine.maxima[says] = words::named(rank());
    if (dry) mine.maxima[words::dry] = 1;
    while (!ended_ && !failed_ && begun_ < end_) {
      if (begun_ - judged_ > lag_) judge_next();
      if (ended_) break;
      post_joining(mine);
    }
    drain();
  }
  void post_joining(const words& mine) {
    post_step({number_, step_, control_ != nullptr ? control_->state() : confirmed_, true}, mine, {}, any_stream(),
              {.joins = true});
    if (lag_ == 0) judge_next();
  }
  void settle_debts() {
    if (!std::exchange(owes_, false) || failed_) return;
    join(words::leaving);
  }

  void settle() override {
    settle_debts();
    throw_held();
  }
  void epoch_begins(std::uint64_t epoch, bool planned, std::uint64_t steps) override {
    if (over_ || failed_) return;
    epoch_ = epoch;
    step_ = 0;
    early_ = 0;
    last_step_ = never;
    planned_ = planned;
    // What immediate communicators exchange needs no values, so that it may meet what comes after the epoch.
    end_ = planned && !Communicator::immediate ? begun_ + steps : never;
    owed_ = 0;
    in_epoch_ = true;
    ended_ = false;
    confirmed_ = posted_ = control_->state();
    exceptions_ = std::uncaught_exceptions();
  }
  void epoch_ends(bool early) override {
    if (!std::exchange(in_epoch_, false) || failed_) return;
    if (ended_ || over_) return drain();
    step_ = control_->step();
    if (std::uncaught_exceptions() > exceptions_) {
      // Either the body's, and `fail` follows, or one that the body deals with. Devices that wait for this rank are not
      // to wait while the body's memory is freed.
      if constexpr (requires { communicator_.has_neighbours(); })
        if (communicator_.has_neighbours()) return join(words::leaving);
      owes_ = true;
      return;
    }
    // A last batch that was received and not exchanged is a loop that was left.
    if (early || (planned_ && control_->state() != posted_)) {
      join(control_->stopped() || stop_requested_.load(std::memory_order_acquire) ? words::stopping : words::leaving);
    } else if (planned_) {
      drain();
    } else {
      join(words::leaving, true);
    }
  }
  bool goes_on_dry() const noexcept override { return uneven_ == uneven::join; }
  void gave_dry() override {
    dry_ = std::exchange(dry_since_, number_) == number_ ? dry_ + 1 : 0;
    if (dry_ == most_dry)
      throw error(detail::concat("replica: ", most_dry,
                                 " empty batches have passed without an all_reduce since this rank's stream ran dry; "
                                 "wanted one in each turn, by which ranks see when all are dry"),
                  where());
  }
  void resumed() noexcept override {
    if (!over_ && !failed_) confirmed_ = posted_ = control_->state();
  }
  world place() const noexcept override { return {rank(), size()}; }
  void tell_streams(const audience& to) const override {
    if constexpr (separate_device<typename Communicator::device_type>) {
      const auto tell = [&](stream_view one, std::string_view use) {
        stream_event event = stream_of(communicator_.device(), one, use);
        event.rank = rank();
        event.ranks = size();
        to.stream(event);
      };
      if constexpr (requires { communicator_.own_stream(); }) tell(communicator_.own_stream(), "all_reduce");
      tell(any_stream(), "barriers");
    }
  }
  void feed_ends() noexcept override {
    stop_left_ = control_->stopped();
    control_ = nullptr;
  }

  Communicator communicator_;
  penstock::uneven uneven_;
  std::uint32_t lag_;
  std::thread::id thread_;
  typename Communicator::device_type::stream stream_;  // for exchanges that have nothing to be in order with
  std::vector<posted> pending_;                        // steps whose words were not looked at
  std::uint64_t begun_ = 0, judged_ = 0;
  std::uint64_t end_ = never;  // of what is begun in this epoch
  std::uint64_t owed_ = 0;     // in an epoch that has ended: how much is to be begun
  step_result judged_early_;
  std::uint64_t last_step_ = never;  // that was exchanged
  std::uint64_t number_ = 0;
  std::uint64_t dry_ = 0, dry_since_ = never;  // empty batches without an exchange
  feed_control* control_ = nullptr;
  feed_state confirmed_, posted_;
  std::string own_problem_;
  std::exception_ptr cause_;  // what all ranks were told
  std::exception_ptr held_;   // what an observer has thrown while this rank waited
  bool tells_ = false;        // observers, that it waits
  bool planned_ = true;       // all ranks know how many steps the epoch has
  std::uint64_t epoch_ = 0, step_ = 0, early_ = 0, steps_ = 0, stopped_by_ = 0;
  int exceptions_ = 0;
  bool in_epoch_ = false;
  bool ended_ = false;   // this epoch, on all ranks
  bool over_ = false;    // the run was stopped
  bool failed_ = false;  // there is nothing to take part in any more
  bool own_failure_ = false;
  bool owes_ = false;  // the loop was left without the others' knowing
  bool stop_left_ = false;
  std::atomic<bool> stop_requested_{false};
};

}  // namespace detail
}  // namespace penstock
