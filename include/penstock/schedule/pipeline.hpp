// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/schedule/check.hpp>
#include <penstock/schedule/feed.hpp>
#include <penstock/schedule/make_feed.hpp>
#include <penstock/stage/all_reduce.hpp>
#include <penstock/stage/batch.hpp>
#include <penstock/stage/compute.hpp>
#include <penstock/stage/partition.hpp>
#include <penstock/stage/read.hpp>
#include <penstock/stage/reduce.hpp>
#include <penstock/stage/transfer.hpp>

namespace penstock {

template <class Dataset, class... Stages>
class pipeline;

namespace detail {

template <class T>
inline constexpr bool is_pipeline = false;
template <class Dataset, class... Stages>
inline constexpr bool is_pipeline<pipeline<Dataset, Stages...>> = true;

/// What flows out of the stages after transfer.
template <class Item, class Batch, class... Stages>
struct flow {
  using type = Item;
};
template <class Item, class Batch, class Function, class... Rest>
struct flow<Item, Batch, compute_stage<Function>, Rest...> {
  using type = typename flow<typename compute_result<Function, Item, Batch>::type, Batch, Rest...>::type;
};

template <class Item, class Batch, class Weight, class... Rest>
struct flow<Item, Batch, all_reduce_stage<Weight>, Rest...> : flow<Item, Batch, Rest...> {};

template <class Batch, class Partition, class Read, class Collect, class Transfer, class... Rest>
struct flow_after_transfer : flow<Batch&, Batch, Rest...> {};

}  // namespace detail

/// A dataset and stages: a value that describes. Copies share the dataset and nothing else; it owns no thread.
///
/// One that ends in `transfer` is started by its first `epoch()`, or as a feed of its own by `start()`. One that ends
/// in `compute` or `reduce` is driven by `penstock::run`.
template <class Dataset, class... Stages>
class pipeline {
 public:
  static constexpr std::size_t length = sizeof...(Stages);
  static constexpr stage_kind last = std::tuple_element_t<length - 1, std::tuple<Stages...>>::kind;
  static constexpr bool feeds = last >= stage_kind::transfer;

  pipeline(std::shared_ptr<Dataset> data, std::tuple<Stages...> stages)
      : data_(std::move(data)), stages_(std::move(stages)) {}
  pipeline(const pipeline& other) : data_(other.data_), stages_(other.stages_) {}
  pipeline(pipeline&&) noexcept = default;
  pipeline& operator=(pipeline other) noexcept {
    data_ = std::move(other.data_);
    stages_ = std::move(other.stages_);
    running_ = std::move(other.running_);
    return *this;
  }

  const Dataset& dataset() const noexcept { return *data_; }
  const std::shared_ptr<Dataset>& shared_dataset() const noexcept { return data_; }
  const std::tuple<Stages...>& stages() const noexcept { return stages_; }
  std::tuple<Stages...>& stages() noexcept { return stages_; }

  /// A feed of its own: validates all options, allocates everything, starts the readers. Throws `std::invalid_argument`
  /// for a bad option before any thread starts.
  auto start() const { return start(detail::reader_limit{}); }
  /// The same, for ranks that have CPUs in common.
  auto start([[maybe_unused]] detail::reader_limit limit) const {
    static_assert(feeds,
                  "penstock: start() needs a pipeline that ends in transfer(device), this one gives no batches yet");
    if constexpr (feeds) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return detail::feed_maker_of<Dataset, Stages...>::make(data_, limit, std::get<I>(stages_)...);
      }(std::make_index_sequence<4>{});
    } else {
      return detail::rejected{};
    }
  }

  /// The feed that the members below use, started now if it was not.
  decltype(auto) running() {
    static_assert(
        last == stage_kind::transfer,
        "penstock: epoch() and its like give batches, for which the pipeline ends in transfer(device); one that ends "
        "in compute or reduce is driven by penstock::run");
    if constexpr (last == stage_kind::transfer) {
      if (!running_) running_ = std::make_unique<feed_type>(start());
      return *running_;
    } else {
      return detail::rejected{};
    }
  }
  auto epoch(std::uint64_t number) { return running().epoch(number); }
  auto steps(std::uint64_t n) { return running().steps(n); }
  auto next() { return running().next(); }
  feed_state state() { return running().state(); }
  void resume(const feed_state& state) { running().resume(state); }
  template <observer Observer>
  void observe(Observer&& observer) {
    running().observe(std::forward<Observer>(observer));
  }
  void report(std::string_view name, double value) { running().report(name, value); }
  void stop() { running().stop(); }
  bool stopped() { return running().stopped(); }
  auto steps_per_epoch() { return running().steps_per_epoch(); }

 private:
  template <bool Feeds, class D, class... S>
  struct feed_or_nothing {
    using type = char;
  };
  template <class D, class... S>
  struct feed_or_nothing<true, D, S...> {
    using type = typename detail::feed_maker_of<D, S...>::feed_type;
  };
  using feed_type = typename feed_or_nothing<feeds, Dataset, Stages...>::type;

  std::shared_ptr<Dataset> data_;
  std::tuple<Stages...> stages_;
  std::unique_ptr<feed_type> running_;
};

namespace detail {

template <class Dataset, class... Stages, class Stage>
consteval bool check_stage(const pipeline<Dataset, Stages...>*, const Stage*) {
  using up = pipeline<Dataset, Stages...>;
  if constexpr (!check_order<up::last, Stage::kind>()) {
    return false;
  } else if constexpr (Stage::kind == stage_kind::read) {
    // A range's or stream's batch may have a collate, which gives the transform another sample: that is checked there.
    if constexpr (is_stream<std::remove_const_t<Dataset>> || has_elements<Dataset>)
      return true;
    else
      return check_transform<schema_of<Dataset>, decltype(Stage::transform)>();
  } else if constexpr (Stage::kind == stage_kind::batch) {
    using collate = decltype(Stage::collate);
    using transform = decltype(std::tuple_element_t<1, std::tuple<Stages...>>::transform);
    if constexpr (is_stream<std::remove_const_t<Dataset>>) {
      return check_stream_batch<std::remove_const_t<Dataset>, collate, transform>();
    } else if constexpr (std::same_as<collate, bucket_by_length>) {
      constexpr bool streams = is_stream<std::remove_const_t<Dataset>>;
      static_assert(streams,
                    "penstock: batch takes bucket_by_length for a stream, whose order is its own, upstream is a "
                    "dataset, whose order is partition's: make it a stream(factory), or use pad_to");
      return streams;
    } else if constexpr (is_cast<collate>) {
      constexpr bool fits = cast_fits<schema_of<Dataset>, collate>;
      static_assert(fits,
                    "penstock: batch's cast<...> has one element type, or keep, for each field, but upstream's samples "
                    "have another number of fields");
      return fits && check_transform<schema_of<Dataset>, transform>();
    } else {
      constexpr bool fits = collates_elements<Dataset, collate>;
      static_assert(fits,
                    "penstock: batch takes a collate with schema(dataset) and operator()(element, sample_view), for a "
                    "dataset with element(index), such as a range; this collate and this dataset do not fit");
      if constexpr (fits) return check_transform<stored_schema<Dataset, collate>, transform>();
      return false;
    }
  } else {
    return true;
  }
}

template <class Dataset, class... Stages, class Stage>
consteval bool check_flow(const pipeline<Dataset, Stages...>*, const Stage*) {
  if constexpr (Stage::kind >= stage_kind::compute) {
    using batch = typename feed_maker_of<Dataset, Stages...>::feed_type::batch_type;
    using item = typename flow_after_transfer<batch, Stages...>::type;
    if constexpr (Stage::kind == stage_kind::compute) {
      constexpr bool fits = computes<decltype(Stage::function), item, batch>;
      static_assert(
          fits,
          "penstock: compute takes a function of what is upstream (a lease of the batch, or an earlier compute's "
          "result), but this one can be called neither with that nor with that and the batch");
      return fits;
    } else if constexpr (Stage::kind == stage_kind::all_reduce) {
      constexpr bool fits = is_reducible_item<item>;
      static_assert(
          fits,
          "penstock: all_reduce takes values that can be changed in place, float, double or integers of 4 or 8 bytes, "
          "with data() and size(), or a tuple of such, but upstream's compute returns something else");
      constexpr bool weighs = std::same_as<decltype(Stage::weight), weight_by_samples> ||
                              std::is_invocable_r_v<double, decltype(Stage::weight)&, const batch&>;
      static_assert(weighs,
                    "penstock: all_reduce takes a weight that is called with the batch and gives a number, but "
                    "this one cannot be called so");
      return fits && weighs;
    } else {
      constexpr bool fits = folds<decltype(Stage::operation), decltype(Stage::initial), item>;
      static_assert(
          fits,
          "penstock: reduce takes an operation (value, item), item being what is upstream (a lease of the batch, "
          "or a compute's result), but this one cannot be called so or gives another type than the value's");
      return fits;
    }
  } else {
    return true;
  }
}

}  // namespace detail

/// Puts a stage after a dataset: `data | partition({.seed = 7})`. Any dataset, stream or range of samples; an lvalue is
/// referred to and must outlive all feeds, an rvalue is owned. (A reader that is abandoned because it never came back
/// from `read` still looks at its dataset: what may hang should be owned.)
template <class Source, stage Stage>
  requires(!detail::is_pipeline<std::remove_cvref_t<Source>> &&
           !std::same_as<std::remove_cvref_t<Source>, detail::rejected>)
auto operator|(Source&& source, Stage stage) {
  if constexpr (!detail::check_order<stage_kind::dataset, Stage::kind>()) {
    return detail::rejected{};
  } else if constexpr (!detail::check_source<Source>()) {
    return detail::rejected{};
  } else if constexpr (detail::is_stream<std::remove_cvref_t<Source>> && Stage::plan_is_given) {
    static_assert(
        !Stage::plan_is_given,
        "penstock: partition takes a plan for a dataset with random access, upstream is a stream, which has an order "
        "of its own: leave the plan out, and say .shuffle = shuffle::none or shuffle::window(n)");
    return detail::rejected{};
  } else {
    auto held = detail::hold(std::forward<Source>(source));
    using Dataset = typename decltype(held)::element_type;
    return pipeline<Dataset, Stage>(std::move(held), std::tuple<Stage>(std::move(stage)));
  }
}

/// Puts a stage after the others.
template <class Dataset, class... Stages, stage Stage>
auto operator|(pipeline<Dataset, Stages...> upstream, Stage stage) {
  constexpr const pipeline<Dataset, Stages...>* up = nullptr;
  constexpr const Stage* down = nullptr;
  if constexpr (!detail::check_stage(up, down)) {
    return detail::rejected{};
  } else if constexpr (!detail::check_flow(up, down)) {
    return detail::rejected{};
  } else {
    return std::apply(
        [&](Stages&... before) {
          return pipeline<Dataset, Stages..., Stage>(upstream.shared_dataset(),
                                                     {std::move(before)..., std::move(stage)});
        },
        upstream.stages());
  }
}

/// What was refused once is not refused again.
template <stage Stage>
detail::rejected operator|(detail::rejected, Stage) {
  return {};
}

}  // namespace penstock
