// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/schedule/epoch_partner.hpp>
#include <penstock/schedule/pipeline.hpp>
#include <penstock/stage/plan.hpp>

namespace penstock {

/// What a step brings beside its values.
struct step_options {
  /// Of this rank's values, in place of the batch's number of samples: tokens, or what a mask leaves.
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
  bool stopped = false;     ///< before its end, by a stop on some rank
  std::uint64_t stopped_by = 0;
  feed_state state{};  ///< behind the last step whose update is in the model
};

/// One of several that train alike, each with a device and data of its own: what the body of `replicas` is given.
///
/// It keeps all ranks' loops in step. Every `all_reduce` carries, beside the values, how many samples they are of and
/// whether the rank goes on; all ranks see the same, and leave at the same step: the loop over the feed's epoch ends by
/// itself. A rank that leaves its loop, returns or throws releases the others: leaving a loop early ends that epoch on
/// all ranks, a stop ends the run, an error reaches all as a `replica_error`. The step at which that is noticed is void
/// on all ranks.
///
/// One thread, the one that runs the body; `stop` from any.
template <communicator Communicator>
class replica final : private detail::epoch_partner {
  using words = control_words;

 public:
  using device_type = typename Communicator::device_type;
  using stream_view = typename Communicator::stream_view;

  replica(Communicator communicator, const replica_options& options)
      : communicator_(std::move(communicator)),
        options_(options),
        lag_(Communicator::immediate ? 0 : options.lag),
        thread_(std::this_thread::get_id()),
        pending_(lag_ + 1) {
    known_.reserve(most_known);
    if (options.stop.stop_possible()) token_.emplace(options.stop, stopper{this});
  }
  replica(const replica&) = delete;
  replica& operator=(const replica&) = delete;
  ~replica() = default;

  std::uint64_t rank() const noexcept { return communicator_.rank(); }
  std::uint64_t size() const noexcept { return communicator_.size(); }
  const device_type& device() const noexcept { return communicator_.device(); }
  Communicator& communicator() noexcept { return communicator_; }
  /// For `partition({.world = replica})`.
  operator penstock::world() const noexcept { return {rank(), size()}; }

  /// A feed that is kept in step with the other ranks': that of the loop which calls `all_reduce`. One at a time; feeds
  /// for other purposes are started as usual. All ranks call it, and are held to the same data, seed, plan and global
  /// batch.
  ///
  /// Throws `std::invalid_argument` if the pipeline's `partition` is of another world.
  template <class Dataset, class... Stages>
  auto start(const pipeline<Dataset, Stages...>& work) {
    const penstock::world planned = std::get<0>(work.stages()).options.world;
    if (planned != penstock::world(*this))
      detail::reject_option(
          "partition", "world", detail::concat("rank ", planned.rank, " of ", planned.size),
          detail::concat("rank ", rank(), " of ", size(), ", the replica's: partition({.world = replica})"));
    if (control_ != nullptr) throw error("replica: it has a feed already, which has not ended");
    auto feed = work.start();
    const auto all = gather(feed.identity());
    for (std::uint64_t r = 0; r < size(); ++r)
      if (all[r] != all[0])
        throw error(detail::concat("replicas have different data, plans or batches: rank 0 has ", all[0], ", rank ", r,
                                   " ", all[r]));
    control_ = &feed.keep_in_step_with(*this);
    confirmed_ = control_->state();
    return feed;
  }

  /// Reduces values over all ranks, in place, in the order of the batch's stream, and ends the step. `values` are
  /// vectors, spans, tensor_views, ... in the device's memory, or `buffer(values, how)`; each becomes its weighted mean
  /// unless `how` says otherwise. The same ones in the same order on all ranks.
  ///
  /// If the result is false, values are what they were, or zeros, and the update is to be left out: the run or the
  /// epoch ends here, or no rank had a sample.
  template <class Batch, class... Values>
  step_result all_reduce(const Batch& batch, const step_options& options, Values&&... values) {
    const std::array<reduce_buffer, sizeof...(Values)> buffers{buffer(std::forward<Values>(values))...};
    return step(batch.info(), options, buffers, batch.stream());
  }
  template <class Batch, class... Values>
    requires(!(std::same_as<std::remove_cvref_t<Values>, step_options> || ...))
  step_result all_reduce(const Batch& batch, Values&&... values) {
    return all_reduce(batch, step_options{}, std::forward<Values>(values)...);
  }
  /// The same for any number of buffers.
  template <class Batch>
  step_result all_reduce_buffers(const Batch& batch, const step_options& options,
                                 std::span<const reduce_buffer> buffers) {
    return step(batch.info(), options, buffers, batch.stream());
  }
  /// Begins to reduce values that are ready in the order of the batch's stream, while the rest of the step is computed:
  /// layer by layer, last first. In the same order on all ranks and in each step; they are reduced for what is enqueued
  /// after the step's `all_reduce`, which ends it. Of weighted means the weight is the batch's samples, or `options`'.
  template <class Batch, class... Values>
  void ready(const Batch& batch, const step_options& options, Values&&... values) {
    const std::array<reduce_buffer, sizeof...(Values)> buffers{buffer(std::forward<Values>(values))...};
    begin_early(batch.info(), options, buffers, batch.stream());
  }
  template <class Batch, class... Values>
    requires(!(std::same_as<std::remove_cvref_t<Values>, step_options> || ...))
  void ready(const Batch& batch, Values&&... values) {
    ready(batch, step_options{}, std::forward<Values>(values)...);
  }

  /// Rank `root`'s values replace those of all others, such as initial parameters. On `on`, in its order.
  template <class... Values>
  void broadcast(std::uint64_t root, stream_view on, Values&&... values) {
    std::array<reduce_buffer, sizeof...(Values)> buffers{buffer(std::forward<Values>(values))...};
    for (auto& one : buffers) one.how = reduction::sum;
    words mine;
    mine.sums[words::weight] = rank() == root ? 1 : 0;
    meet(mine, call_broadcast, buffers, on, 1);
  }
  /// Adds numbers on the host over all ranks, in place, in the order of the ranks: results of a validation. Waits.
  void sum(std::span<double> numbers) {
    for (std::size_t at = 0; at < numbers.size(); at += words::most_metrics) {
      const auto part = numbers.subspan(at, least(words::most_metrics, numbers.size() - at));
      words mine;
      for (std::size_t i = 0; i < part.size(); ++i) mine.sums[words::first_metric + i] = part[i];
      const words all = meet(mine, call_sum, {}, any_stream(), 0);
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = all.sums[words::first_metric + i];
    }
  }
  /// Returns when all ranks have come.
  void barrier() { meet({}, call_barrier, {}, any_stream(), 0); }
  /// Every rank's text, by rank.
  std::vector<std::string> gather(std::string text) {
    barrier();
    return communicator_.all_gather(std::move(text));
  }

  /// Ends the run on all ranks, at the step that they are at next.
  void stop() noexcept { stop_requested_.store(true, std::memory_order_release); }
  /// The run was stopped, here or elsewhere, and all ranks know.
  bool stopped() const noexcept { return over_; }
  /// Behind the last step whose update is in the model on every rank, as far as is known: what a checkpoint has to
  /// keep. At the end of an epoch that is known.
  const feed_state& state() const noexcept { return confirmed_; }
  std::uint64_t steps() const noexcept { return steps_; }

  // ---- for `replicas`

  /// The body has returned. Waits until all have.
  replica_summary finish() {
    if (!failed_) {
      settle_debts();
      if (stop_left_ && !over_) join(words::stopping);
      for (bool all_have = false; !all_have;) {
        words mine;
        mine.sums[words::finished] = 1;
        mine.maxima[words::returned] = words::named(rank());
        const words all = post(mine, {}, any_stream(), {.patient = true});
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
    return {steps_, over_, stopped_by_, confirmed_};
  }
  /// The body has thrown: the others are told, at their next exchange.
  void fail(const std::exception_ptr& cause) noexcept {
    if (failed_) return;
    try {
      std::rethrow_exception(cause);
    } catch (const replica_error&) {
      failed_ = true;  // who is told of it need not tell
      return;
    } catch (...) {
      own_failure_ = true;
    }
    try {
      own_problem_ = detail::message_of(cause);
      // What others are about to bring is known within an epoch alone, which matters where values cannot be left out.
      if (!Communicator::immediate && !owes_)
        return communicator_.abort(rank(), where(), detail::concat("rank ", rank(), " failed: ", own_problem_));
      ended_ = false;
      join(words::failing);
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
  provenance where() const { return {.stage = "all_reduce", .epoch = epoch_, .step = step_}; }
  /// The failure is this rank's own, not one that it was told of.
  bool failed_by_itself() const noexcept { return own_failure_; }

 private:
  static constexpr std::size_t least(std::size_t a, std::size_t b) noexcept { return a < b ? a : b; }
  static constexpr std::uint64_t call_broadcast = 1, call_sum = 2, call_barrier = 3, call_step = 4;

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
  struct stopper {
    replica* of;
    void operator()() const noexcept { of->stop(); }
  };

  stream_view any_stream() {
    if (!stream_) stream_.emplace(device().make_stream());
    return stream_->view();
  }
  void check_thread() const {
    if (std::this_thread::get_id() != thread_)
      throw error(
          "replica: it is used by another thread than the one that runs the body: ranks have to bring their values in "
          "one order, which threads do not keep");
  }

  // ---- exchanges

  static std::uint64_t mixed(std::uint64_t hash, std::uint64_t with) noexcept {
    hash ^= with + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
    return hash * 0xff51afd7ed558ccdULL;
  }
  // Which buffer it is: they are numbered as they come first, so that another order in a later step shows.
  std::uint64_t number_of(const reduce_buffer& one) {
    for (std::size_t i = 0; i < known_.size(); ++i)
      if (known_[i] == one.data) return i;
    if (known_.size() < most_known) known_.push_back(one.data);
    return known_.size();
  }
  void describe(words& mine, std::uint64_t what, std::span<const reduce_buffer> buffers) {
    std::uint64_t hash = mixed(mixed(mixed(what, epoch_), step_), buffers.size());
    std::uint64_t count = 0;
    for (const reduce_buffer& one : buffers) {
      const bool mean = one.how == reduction::weighted_mean || one.how == reduction::mean_of_sums;
      if (mean && one.type != element_type::float32 && one.type != element_type::float64)
        throw std::invalid_argument(
            "penstock: all_reduce: a mean of integers was asked for, wanted floats, or reduction::sum or maximum");
      hash = mixed(mixed(hash, static_cast<std::uint64_t>(one.type)), static_cast<std::uint64_t>(one.how));
      if (what == call_step) hash = mixed(hash, number_of(one));
      count += one.count;
    }
    mine.describe(hash, count);
  }
  // With an immediate communicator, or `early` aside, returns the reduced words.
  words post(const words& mine, std::span<const reduce_buffer> buffers, stream_view on, how as) {
    check_thread();
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
    const std::uint64_t number = number_++;
    if (as.early && !Communicator::immediate) return {};
    return communicator_.words_of(number);
  }
  // Outside the steps.
  words meet(words mine, std::uint64_t what, std::span<const reduce_buffer> buffers, stream_view on, double total) {
    settle_debts();
    drain();
    describe(mine, what, buffers);
    const words all = post(mine, buffers, on, {.total = total});
    check(all);
    if (all.has(words::stopping) || all.has(words::leaving))
      throw error(detail::concat("ranks are at different places: rank ",
                                 all.rank_of(all.has(words::stopping) ? words::stopping : words::leaving),
                                 " ends its loop where rank ", rank(),
                                 " exchanges values outside one; wanted the same calls on all ranks"),
                  where());
    return all;
  }
  void check(const words& all) {
    if (all.has(words::failing)) throw_failure(all);
    // A stop may meet those who have just ended.
    if (all.has(words::returned) && !all.has(words::stopping)) throw_returned(all);
    if (!all.agree()) {
      failed_ = true;
      throw replica_error(rank(), detail::describe_disagreement(all), where());
    }
  }
  [[noreturn]] void throw_failure(const words& all) {
    failed_ = true;
    const std::uint64_t first = all.rank_of(words::failing);
    const auto problems = communicator_.all_gather(own_problem_);
    throw replica_error(first, detail::concat("rank ", first, " failed: ", problems[first]), where());
  }
  [[noreturn]] void throw_returned(const words& all) {
    failed_ = true;
    const std::uint64_t first = all.rank_of(words::returned);
    throw replica_error(first,
                        detail::concat("rank ", first,
                                       " has returned from its body, where others go on to exchange "
                                       "values; wanted the same epochs on all ranks"),
                        where());
  }

  // ---- steps

  step_result step(const batch_info& info, const step_options& options, std::span<const reduce_buffer> buffers,
                   stream_view on) {
    if (!begin_step(info)) return {};
    words mine = step_words(info, options);
    for (std::size_t i = 0; i < options.metrics.size(); ++i) mine.sums[words::first_metric + i] = options.metrics[i];
    describe(mine, mixed(call_step, early_), buffers);
    return end_step(mine, buffers, on, total_of(info, options));
  }
  void begin_early(const batch_info& info, const step_options& options, std::span<const reduce_buffer> buffers,
                   stream_view on) {
    if (!begin_step(info)) return;
    words mine = step_words(info, options);
    describe(mine, mixed(call_step, early_), buffers);
    ++early_;
    const words all = post(mine, buffers, on, {.early = true, .total = total_of(info, options)});
    if constexpr (Communicator::immediate) judge(all, {});
  }
  // False if the loop has ended already, and this is the rest of its last turn.
  bool begin_step(const batch_info& info) {
    check_thread();
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
    mine.sums[words::with_data] = 1;
    if (stop_requested_.load(std::memory_order_acquire)) mine.maxima[words::stopping] = words::named(rank());
    return mine;
  }
  static double total_of(const batch_info& info, const step_options& options) {
    return options.weight ? 0 : static_cast<double>(info.total);
  }
  step_result end_step(const words& mine, std::span<const reduce_buffer> buffers, stream_view on, double total) {
    step_result result;
    if (begun_ - judged_ > lag_) result = judge_next();
    if (ended_) return {};
    posted_ = control_->state();
    pending_[begun_++ % pending_.size()] = {number_, step_, posted_, false};
    early_ = 0;
    post_step(mine, buffers, on, {.total = total});
    if (lag_ == 0) result = judge_next();
    if (ended_) return {};
    if (lag_ != 0) result.counts = true;
    return result;
  }
  void post_step(const words& mine, std::span<const reduce_buffer> buffers, stream_view on, how as) {
    check_thread();
    communicator_.post({.number = number_++,
                        .epoch = epoch_,
                        .step = step_,
                        .words = mine,
                        .buffers = buffers,
                        .joins = as.joins,
                        .total_weight = as.total,
                        .stream = on});
  }
  // Looks at the words of the oldest step that was not looked at.
  step_result judge_next() {
    const posted& one = pending_[judged_++ % pending_.size()];
    const words all = communicator_.words_of(one.number);
    all_dry_ = all.sums[words::with_data] == 0;
    step_result result;
    result.counts = judge(all, one) && all.sums[words::weight] > 0;
    result.of = one.step;
    result.weight = all.sums[words::weight];
    result.samples = static_cast<std::uint64_t>(all.sums[words::samples]);
    for (std::size_t i = 0; i < words::most_metrics; ++i) result.metrics[i] = all.sums[words::first_metric + i];
    return result;
  }
  // The same on all ranks, as the words are. False if the step is void.
  bool judge(const words& all, const std::optional<posted>& of) {
    if (ended_) return false;
    if (all.has(words::failing)) {
      ended_ = true;
      throw_failure(all);
    }
    check(all);
    if (all.has(words::stopping) || all.has(words::leaving)) {
      ended_ = true;
      if (all.has(words::stopping)) {
        over_ = true;
        stopped_by_ = all.rank_of(words::stopping);
      }
      if (control_ != nullptr) {
        control_->cut(confirmed_);
        if (over_) control_->request_stop();
      }
      return false;
    }
    if (of && !of->joined) {
      confirmed_ = of->behind;
      ++steps_;
    }
    return true;
  }
  void drain() {
    while (judged_ != begun_) judge_next();
  }

  // ---- taking part without a batch

  // Until all have seen that this rank `says` so.
  void join(words::maximum says) {
    words mine;
    mine.maxima[says] = words::named(rank());
    while (!ended_) {
      if (begun_ - judged_ > lag_) judge_next();
      if (ended_) break;
      post_joining(mine);
    }
    drain();
  }
  void post_joining(const words& mine) {
    pending_[begun_++ % pending_.size()] = {number_, step_, control_ != nullptr ? control_->state() : confirmed_, true};
    early_ = 0;
    post_step(mine, {}, any_stream(), {.joins = true});
    if (lag_ == 0) judge_next();
  }
  // A stream that has run dry: until all have.
  void join_dry() {
    all_dry_ = false;
    while (!ended_ && !all_dry_) {
      if (begun_ - judged_ > lag_) judge_next();
      if (ended_ || all_dry_) break;
      ++step_;
      post_joining({});
    }
    drain();
  }
  void settle_debts() {
    if (!std::exchange(owes_, false) || failed_) return;
    join(words::leaving);
  }

  void epoch_begins(std::uint64_t epoch, std::optional<std::uint64_t> steps) override {
    settle_debts();
    if (over_ || failed_) return;
    epoch_ = epoch;
    step_ = 0;
    early_ = 0;
    planned_ = steps;
    in_epoch_ = true;
    ended_ = false;
    confirmed_ = posted_ = control_->state();
    exceptions_ = std::uncaught_exceptions();
  }
  void epoch_ends(bool early) override {
    if (!std::exchange(in_epoch_, false) || failed_ || over_) return;
    if (ended_) return drain();
    step_ = control_->step();
    if (std::uncaught_exceptions() > exceptions_) {
      // Either the body's, and `fail` follows, or one that the body deals with.
      owes_ = true;
      return;
    }
    // A last batch that was received and not exchanged is a loop that was left.
    if (early || (planned_ && control_->state() != posted_)) {
      join(control_->stopped() || stop_requested_.load(std::memory_order_acquire) ? words::stopping : words::leaving);
    } else if (planned_) {
      drain();
    } else if (options_.uneven == uneven::stop) {
      join(words::leaving);
    } else {
      join_dry();
    }
  }
  void feed_ends() noexcept override {
    stop_left_ = control_->stopped();
    control_ = nullptr;
  }

  static constexpr std::size_t most_known = 256;

  Communicator communicator_;
  replica_options options_;
  std::uint32_t lag_;
  std::thread::id thread_;
  std::optional<typename device_type::stream> stream_;
  std::vector<posted> pending_;  // steps whose words were not looked at
  std::uint64_t begun_ = 0, judged_ = 0;
  std::uint64_t number_ = 0;
  std::vector<const void*> known_;
  detail::feed_control* control_ = nullptr;
  feed_state confirmed_, posted_;
  std::string own_problem_;
  std::optional<std::uint64_t> planned_;
  std::uint64_t epoch_ = 0, step_ = 0, early_ = 0, steps_ = 0, stopped_by_ = 0;
  int exceptions_ = 0;
  bool in_epoch_ = false;
  bool ended_ = false;   // this epoch, on all ranks
  bool over_ = false;    // the run was stopped
  bool failed_ = false;  // there is nothing to take part in any more
  bool own_failure_ = false;
  bool owes_ = false;  // the loop was left without the others' knowing
  bool stop_left_ = false;
  bool all_dry_ = false;
  std::atomic<bool> stop_requested_{false};
  std::optional<std::stop_callback<stopper>> token_;
};

}  // namespace penstock
