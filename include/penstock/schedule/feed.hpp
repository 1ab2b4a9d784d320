// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/schedule/feed_core.hpp>

namespace penstock {

/// The batches of an epoch, or the next n, as an input range; a small copyable handle on the feed.
///
/// `++` lets the batch go; the next one is received by the comparison with the end, which ends also when the feed is
/// stopped, and throws when reading failed. A batch may be moved out of `*it` and kept. The epoch ends with the last
/// copy of its handle, the feed's next epoch, or the feed; a handle that is used later throws.
template <class Schema, class Device>
class batch_range {
  using core = detail::feed_core<Schema, Device>;

 public:
  class iterator {
   public:
    using value_type = lease<Schema, Device>;
    using difference_type = std::ptrdiff_t;
    // All five, as range-v3's adaptors of iterators ask std::iterator_traits for them.
    using reference = value_type&;
    using pointer = value_type*;
    using iterator_category = std::input_iterator_tag;

    iterator() = default;
    explicit iterator(const batch_range* range) : range_(range) {}

    lease<Schema, Device>& operator*() const {
      if (!range_->receive()) throw error("a batch was asked for after the last one");
      return range_->core_->current();
    }
    iterator& operator++() {
      // One that was not looked at is passed over all the same.
      if (range_->receive()) range_->core_->let_go();
      range_->fresh_ = false;
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !range_->receive(); }

   private:
    const batch_range* range_ = nullptr;
  };

  batch_range() = default;
  batch_range(const batch_range& other) noexcept
      : core_(other.core_), generation_(other.generation_), left_(other.left_), crossing_(other.crossing_) {
    count(1);
  }
  batch_range(batch_range&& other) noexcept
      : core_(std::move(other.core_)),
        generation_(other.generation_),
        left_(other.left_),
        crossing_(other.crossing_),
        fresh_(other.fresh_) {}
  batch_range& operator=(batch_range other) noexcept {
    std::swap(core_, other.core_);
    std::swap(generation_, other.generation_);
    std::swap(left_, other.left_);
    std::swap(crossing_, other.crossing_);
    std::swap(fresh_, other.fresh_);
    return *this;
  }
  ~batch_range() { count(-1); }

  iterator begin() const { return iterator(this); }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  template <class, class>
  friend class feed;

  batch_range(std::shared_ptr<core> of, std::uint64_t left, bool crossing)
      : core_(std::move(of)), generation_(++core_->generation), left_(left), crossing_(crossing) {
    core_->handles = 1;
  }

  core& used() const {
    if (!core_ || !core_->open()) throw error("this range of batches outlived its feed");
    if (core_->generation != generation_) throw error("this range of batches ended when its feed began another epoch");
    return *core_;
  }
  // True if there is a batch, received now or not yet let go.
  bool receive() const {
    core& from = used();
    if (fresh_) return true;
    if (left_ == 0) return false;
    for (bool begun = false; !from.fetch(); begun = true) {
      // An epoch without a batch ends it, as there may never be one.
      if (!crossing_ || begun || from.stopped() || from.left_early()) return left_ = 0, false;
      from.go_on();
    }
    --left_;
    fresh_ = true;
    return true;
  }
  void count(int by) noexcept {
    if (!core_ || core_->generation != generation_ || !core_->open()) return;
    core_->handles += static_cast<std::uint32_t>(by);
    // What crosses epochs goes on where it ended.
    if (core_->handles == 0 && !(crossing_ && left_ == 0)) core_->leave();
    if (core_->handles == 0) core_->let_go();
  }

  std::shared_ptr<core> core_;
  std::uint64_t generation_ = 0;
  mutable std::uint64_t left_ = 0;  // batches still to come from this handle
  bool crossing_ = false;
  mutable bool fresh_ = false;  // the batch at hand was received through this handle and not passed
};

/// A running pipeline: slots, twins, streams and threads, made all at once. Movable; consumed by one thread at a time.
///
/// Its type knows what its batches look like, nothing of where they come from: it can be a member, or returned from a
/// function in another file.
template <class Schema, class Device>
class feed {
  using core = detail::feed_core<Schema, Device>;

 public:
  using schema_type = Schema;
  using device_type = Device;
  using batch_type = lease<Schema, Device>;
  using range_type = batch_range<Schema, Device>;

  /// Made by `pipeline::start()`.
  explicit feed(std::shared_ptr<core> of) : core_(std::move(of)) {}
  feed(feed&&) noexcept = default;
  feed& operator=(feed&& other) noexcept {
    if (this != &other) {
      close();
      core_ = std::move(other.core_);
      stop_ = std::move(other.stop_);
    }
    return *this;
  }
  /// Stops and joins the readers, and waits for the device's last work on the feed's memory, each within the time-out.
  ~feed() { close(); }

  /// The batches of one epoch, from its beginning, or from where a resumed feed stands if that is in it. Ends what an
  /// earlier handle had begun. If the feed stands at this epoch's beginning, what was read ahead is used.
  range_type epoch(std::uint64_t number) {
    core_->begin_epoch(number);
    return range_type(core_, core::unbounded, false);
  }
  /// The next `n` batches from where the feed stands, over the ends of epochs.
  range_type steps(std::uint64_t n) {
    ++core_->generation;
    core_->go_on();
    return range_type(core_, n, true);
  }
  /// The next batch from where the feed stands; none, once, after the last one of each epoch, and when stopped.
  /// `while (auto batch = feed.next())` is one epoch.
  batch_type next() {
    if (!core_->in_epoch()) {
      ++core_->generation;
      core_->go_on();
    }
    if (!core_->fetch()) return {};
    return std::move(core_->current());
  }

  /// Where a checkpoint taken now would go on: after the last batch that was delivered.
  feed_state state() const { return core_->state(); }
  /// Samples of this epoch, or of the last one, that could not be read and were left out or replaced, in step order;
  /// see `read_options::bad`. Good until the next batch or epoch is asked for.
  std::span<const sample_fault> faults() const { return core_->faults(); }
  /// How many late reads were issued again, see `late_reads::reread`; from any thread.
  reread_counts rereads() const noexcept { return core_->shared().rereads(); }
  /// Goes on from `state`, with the very next sample, in batches of this feed's own size: what is left of the epoch is
  /// cut anew, and its first step has the number of the whole epoch's step that the sample is in. Throws
  /// `penstock::error` if the state is of another dataset, plan or seed.
  void resume(const feed_state& state) { core_->resume(state); }

  /// Steps of a whole epoch; nothing for streams.
  std::optional<std::uint64_t> steps_per_epoch() const {
    if (core_->shared().is_stream()) return {};
    return core_->shared().map().steps_per_epoch();
  }
  /// The fields of a batch's samples.
  const Schema& schema() const { return core_->shared().to().layout().schema(); }

  /// What was chosen where readers or depth are `automatic`; else what was given, and no reason. On the loop's thread.
  penstock::tuning tuning() const {
    const ring_shape& shape = core_->shared().to().turns.shape();
    const detail::tuner* const chosen = core_->chosen();
    if (chosen == nullptr) return {shape.readers, shape.readers, shape.host, shape.host, core_->bytes(), true, 0, {}};
    const auto& range = chosen->range();
    return {chosen->readers(), range.most_readers, chosen->depth(), range.most_depth,
            core_->bytes(),    chosen->settled(),  chosen->steps(), chosen->why()};
  }

  /// An lvalue is referred to, an rvalue owned; see `observer`. Add observers before the first epoch.
  template <observer Observer>
  void observe(Observer&& observer) {
    core_->listeners().add(std::forward<Observer>(observer));
  }
  /// Gives observers a value of the user's, such as the loss.
  void report(std::string_view name, double value) { core_->listeners().metric(name, value); }

  /// Ends the current loop and all later ones as if the data had ended; from any thread.
  void stop() noexcept { core_->request_stop(); }
  /// The same when `token` asks for it.
  void stop_when(std::stop_token token) { stop_ = std::make_unique<callback>(std::move(token), stopper{core_.get()}); }
  bool stopped() const noexcept { return core_->stopped(); }

  /// For `replica::start`: epochs end where `partner` says, and it is told of them.
  detail::feed_control& keep_in_step_with(detail::epoch_partner& partner) noexcept {
    core_->keep_in_step_with(partner);
    return *core_;
  }
  /// Of dataset, plan and batch, with the seed: what replicas have to agree on.
  std::string identity() const {
    const feed_state& at = core_->state();
    const detail::epoch_map& map = core_->shared().map();
    const step_shape& steps = map.whole();
    return detail::concat("seed ", at.seed, ", fingerprint ", at.fingerprint, ", ", steps.batch,
                          " samples a step over ", map.where().size, " replicas, last batch ",
                          steps.last == last_batch::keep   ? "kept"
                          : steps.last == last_batch::drop ? "dropped"
                                                           : "padded");
  }

  /// What observers are told of the pipeline when they are told of the beginning.
  void describe_as(std::string text) { core_->listeners().describe_as(std::move(text)); }
  /// Readers do not read past the end of epoch `number`.
  void set_last_epoch(std::uint64_t number) { core_->set_last_epoch(number); }
  /// Tells observers how it ended; without it the destructor says "done", "stopped" or "error".
  void finish(std::string_view reason) { core_->finish(reason); }

 private:
  struct stopper {
    core* of;
    void operator()() const noexcept { of->request_stop(); }
  };
  using callback = std::stop_callback<stopper>;

  void close() noexcept {
    stop_.reset();
    if (core_) core_->shut();
    core_.reset();
  }

  std::shared_ptr<core> core_;
  std::unique_ptr<callback> stop_;
};

/// A feed's type says nothing of its dataset and stages, so the erased form is the feed itself.
template <class Schema, class Device>
using any_feed = feed<Schema, Device>;

}  // namespace penstock
