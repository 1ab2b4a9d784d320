// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <penstock/observe/stream_event.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/fault.hpp>
#include <penstock/sample/late_event.hpp>
#include <penstock/sample/step_record.hpp>

namespace penstock {

/// A run starts, or goes on after a resume: work of an earlier run is what `first_*` count, never part of later events.
struct run_begin {
  std::optional<std::uint64_t> epochs{};             ///< of the whole run; unknown in a loop of one's own
  std::optional<std::uint64_t> steps_per_epoch{};    ///< unknown for streams
  std::optional<std::uint64_t> samples_per_epoch{};  ///< unknown for streams
  std::uint64_t first_epoch = 0;                     ///< the epoch that the first batch will be of
  std::uint64_t first_step = 0;                      ///< the step of that epoch that the first batch will be
  std::uint64_t first_sample = 0;                    ///< samples of that epoch that an earlier run has delivered
  std::string_view description{};                    ///< of the pipeline, may be empty
};

/// The consumer has just been given a batch.
struct batch_event {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;                         ///< of the epoch, from 0
  std::uint64_t samples = 0;                      ///< really in the batch, padding not counted
  std::chrono::nanoseconds wait{0};               ///< how long the consumer waited for this batch
  std::optional<std::uint64_t> steps_in_epoch{};  ///< unknown for streams
};

/// The user reported a value.
struct metric_event {
  std::string_view name{};
  double value = 0;
  std::uint64_t epoch = 0;  ///< of the batch that the consumer was given last
  std::uint64_t step = 0;
};

/// An epoch ended, by its last batch or early; counts are of this run alone.
struct epoch_event {
  std::uint64_t epoch = 0;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  std::chrono::nanoseconds elapsed{0};
  std::chrono::nanoseconds waited{0};      ///< the part of `elapsed` in which the consumer waited for data
  std::span<const sample_fault> faults{};  ///< samples that could not be read, in step order; see `read_options::bad`
};

/// An error is about to reach the consumer.
struct error_event {
  std::string_view message{};
  provenance where{};
};

/// The run is over.
struct run_end {
  std::string_view reason{};  ///< "done", "stopped" or "error"
};

namespace detail {

template <class Observer>
concept hears_begin = requires(Observer& observer, const run_begin& event) { observer.on_begin(event); };
template <class Observer>
concept hears_batch = requires(Observer& observer, const batch_event& event) { observer.on_batch(event); };
template <class Observer>
concept hears_metric = requires(Observer& observer, const metric_event& event) { observer.on_metric(event); };
template <class Observer>
concept hears_epoch = requires(Observer& observer, const epoch_event& event) { observer.on_epoch(event); };
template <class Observer>
concept hears_error = requires(Observer& observer, const error_event& event) { observer.on_error(event); };
template <class Observer>
concept hears_end = requires(Observer& observer, const run_end& event) { observer.on_end(event); };
template <class Observer>
concept hears_late = requires(Observer& observer, const late_event& event) { observer.on_late(event); };
template <class Observer>
concept hears_step = requires(Observer& observer, const step_record& event) { observer.on_step(event); };
template <class Observer>
concept hears_stage = requires(Observer& observer, const stage_event& event) { observer.on_stage(event); };
template <class Observer>
concept hears_stream = requires(Observer& observer, const stream_event& event) { observer.on_stream(event); };
template <class Observer>
concept called_with_batch = requires(Observer& observer, const batch_event& event) { observer(event); };

/// A member of the right name that cannot be called with its event would never be heard: no silent miss.
template <class Observer>
constexpr bool hooks_fit = true;
template <class Observer>
  requires std::is_class_v<Observer>
constexpr bool hooks_fit<Observer> = (hears_begin<Observer> || !requires { &Observer::on_begin; }) &&
                                     (hears_batch<Observer> || !requires { &Observer::on_batch; }) &&
                                     (hears_metric<Observer> || !requires { &Observer::on_metric; }) &&
                                     (hears_epoch<Observer> || !requires { &Observer::on_epoch; }) &&
                                     (hears_step<Observer> || !requires { &Observer::on_step; }) &&
                                     (hears_stage<Observer> || !requires { &Observer::on_stage; }) &&
                                     (hears_stream<Observer> || !requires { &Observer::on_stream; }) &&
                                     (hears_late<Observer> || !requires { &Observer::on_late; }) &&
                                     (hears_error<Observer> || !requires { &Observer::on_error; }) &&
                                     (hears_end<Observer> || !requires { &Observer::on_end; });

}  // namespace detail

/// Listens to a feed or a run. Any type with at least one of `on_begin(const run_begin&)`, `on_batch(const
/// batch_event&)`, `on_metric(const metric_event&)`, `on_epoch(const epoch_event&)`, `on_step(const step_record&)`,
/// `on_late(const late_event&)`, `on_error(const error_event&)` and `on_end(const run_end&)`; or a callable that takes
/// a `const batch_event&`.
///
/// `on_stream(const stream_event&)` is told once of each stream that the feed's work goes onto, such as to name it.
///
/// A feed looks at clocks for each step only if one of its observers has `on_step` or `on_stage`, as ledger and trace.
/// `on_stage(const stage_event&)` alone is called by the threads that work, by several at once; it throws nothing.
///
/// All events of a feed come one after another on the thread that consumes it; views in an event are valid during the
/// call. An observer may throw: the exception reaches whoever called the feed, who then gets no batch. One of one's
/// own:
///
///     struct loss_log {
///       std::FILE* to;
///       void on_metric(const penstock::metric_event& event) {
///         if (event.name == "loss") std::fprintf(to, "%ju,%ju,%g\n", event.epoch, event.step, event.value);
///       }
///       void on_end(const penstock::run_end&) { std::fflush(to); }
///     };
///     feed.observe(loss_log{file});                                           // owned by the feed
///     feed.observe([&](const penstock::batch_event& batch) { seen += batch.samples; });
template <class Observer>
concept observer =
    detail::hears_begin<std::remove_reference_t<Observer>> || detail::hears_batch<std::remove_reference_t<Observer>> ||
    detail::hears_metric<std::remove_reference_t<Observer>> || detail::hears_epoch<std::remove_reference_t<Observer>> ||
    detail::hears_error<std::remove_reference_t<Observer>> || detail::hears_end<std::remove_reference_t<Observer>> ||
    detail::hears_late<std::remove_reference_t<Observer>> || detail::hears_step<std::remove_reference_t<Observer>> ||
    detail::hears_stage<std::remove_reference_t<Observer>> || detail::hears_stream<std::remove_reference_t<Observer>> ||
    detail::called_with_batch<std::remove_reference_t<Observer>>;

/// Observers of any types, in the order in which they were added. An empty list owns nothing and `notify` does nothing;
/// only `add` allocates.
class observer_list {
 public:
  /// An lvalue is referred to and must outlive the list; an rvalue is owned.
  template <observer Observer>
  void add(Observer&& observer) {
    static_assert(
        detail::hooks_fit<std::remove_reference_t<Observer>>,
        "penstock: an observer's on_begin, on_batch, on_metric, on_epoch, on_step, on_stage, on_stream, on_late, "
        "on_error or on_end cannot be called with a const reference to its event: run_begin, batch_event, "
        "metric_event, epoch_event, step_record, stage_event, stream_event, late_event, error_event, run_end");
    using held = std::conditional_t<std::is_lvalue_reference_v<Observer>, Observer, std::remove_const_t<Observer>>;
    auto* last = &first_;
    while (*last) last = &(*last)->next;
    last->reset(new model<held>(std::forward<Observer>(observer)));
    hears_steps_ |= detail::hears_step<std::remove_reference_t<Observer>>;
    hears_late_ |= detail::hears_late<std::remove_reference_t<Observer>>;
    hears_stages_ |= detail::hears_stage<std::remove_reference_t<Observer>>;
    hears_streams_ |= detail::hears_stream<std::remove_reference_t<Observer>>;
  }

  bool empty() const noexcept { return !first_; }
  bool hears_steps() const noexcept { return hears_steps_; }
  bool hears_stages() const noexcept { return hears_stages_; }
  bool hears_streams() const noexcept { return hears_streams_; }
  bool hears_late() const noexcept { return hears_late_; }

  /// Calls every observer that has the hook. The first that throws ends the round; its exception leaves.
  void notify(const run_begin& event) const { each(event); }
  void notify(const batch_event& event) const { each(event); }
  void notify(const metric_event& event) const { each(event); }
  void notify(const epoch_event& event) const { each(event); }
  void notify(const step_record& event) const { each(event); }
  void notify(const late_event& event) const { each(event); }
  void notify(const stream_event& event) const { each(event); }
  /// From any thread, while none is added.
  void notify(const stage_event& event) const noexcept { each(event); }

  /// Calls all. What they throw is dropped, as the error that they are told of must arrive.
  void notify(const error_event& event) const noexcept {
    for (erased* one = first_.get(); one != nullptr; one = one->next.get()) {
      try {
        one->tell(event);
      } catch (...) {
      }
    }
  }

  /// Calls all, so that each may flush and close; then the first exception leaves, unless the run ended in an error.
  void notify(const run_end& event) const {
    std::exception_ptr first;
    for (erased* one = first_.get(); one != nullptr; one = one->next.get()) {
      try {
        one->tell(event);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first && event.reason != "error") std::rethrow_exception(first);
  }

 private:
  struct erased {
    virtual ~erased() = default;
    virtual void tell(const run_begin& event) = 0;
    virtual void tell(const batch_event& event) = 0;
    virtual void tell(const metric_event& event) = 0;
    virtual void tell(const epoch_event& event) = 0;
    virtual void tell(const step_record& event) = 0;
    virtual void tell(const late_event& event) = 0;
    virtual void tell(const stage_event& event) = 0;
    virtual void tell(const stream_event& event) = 0;
    virtual void tell(const error_event& event) = 0;
    virtual void tell(const run_end& event) = 0;

    std::unique_ptr<erased> next;
  };

  /// `Held` is a type (owned) or an lvalue reference.
  template <class Held>
  struct model final : erased {
    using type = std::remove_reference_t<Held>;

    template <class From>
    explicit model(From&& from) : held(std::forward<From>(from)) {}

    void tell([[maybe_unused]] const run_begin& event) override {
      if constexpr (detail::hears_begin<type>) held.on_begin(event);
    }
    void tell([[maybe_unused]] const batch_event& event) override {
      if constexpr (detail::hears_batch<type>) {
        held.on_batch(event);
      } else if constexpr (detail::called_with_batch<type>) {
        held(event);
      }
    }
    void tell([[maybe_unused]] const metric_event& event) override {
      if constexpr (detail::hears_metric<type>) held.on_metric(event);
    }
    void tell([[maybe_unused]] const epoch_event& event) override {
      if constexpr (detail::hears_epoch<type>) held.on_epoch(event);
    }
    void tell([[maybe_unused]] const step_record& event) override {
      if constexpr (detail::hears_step<type>) held.on_step(event);
    }
    void tell([[maybe_unused]] const late_event& event) override {
      if constexpr (detail::hears_late<type>) held.on_late(event);
    }
    void tell([[maybe_unused]] const stage_event& event) override {
      if constexpr (detail::hears_stage<type>) held.on_stage(event);
    }
    void tell([[maybe_unused]] const stream_event& event) override {
      if constexpr (detail::hears_stream<type>) held.on_stream(event);
    }
    void tell([[maybe_unused]] const error_event& event) override {
      if constexpr (detail::hears_error<type>) held.on_error(event);
    }
    void tell([[maybe_unused]] const run_end& event) override {
      if constexpr (detail::hears_end<type>) held.on_end(event);
    }

    Held held;
  };

  template <class Event>
  void each(const Event& event) const {
    for (erased* one = first_.get(); one != nullptr; one = one->next.get()) one->tell(event);
  }

  bool hears_steps_ = false;
  bool hears_stages_ = false;
  bool hears_streams_ = false;
  bool hears_late_ = false;
  std::unique_ptr<erased> first_;  // a list, which compiles in less time than a vector
};

}  // namespace penstock
