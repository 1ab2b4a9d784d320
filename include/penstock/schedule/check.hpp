// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <penstock/channel/lease.hpp>
#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/range.hpp>
#include <penstock/dataset/stream.hpp>
#include <penstock/stage/batch.hpp>
#include <penstock/stage/bucket.hpp>
#include <penstock/stage/compute.hpp>
#include <penstock/stage/read.hpp>
#include <penstock/stage/reduce.hpp>
#include <penstock/stage/stage.hpp>

/// The sentences that a pipeline which does not fit together is refused with. Each check is made once, where the stage
/// is added; what was refused is `rejected`, with which nothing more is instantiated.
namespace penstock::detail {

// ---- what stands left of the first stage

// The assertions name values, not concepts, whose every part a compiler would explain.
template <class Source>
consteval bool check_source() {
  using D = std::remove_cvref_t<Source>;
  if constexpr (is_stream<D>) {
    return true;
  } else if constexpr (describes_samples<D>) {
    constexpr bool fits = dataset<D>;
    if constexpr (fits) {
      return true;
    } else if constexpr (opens<D>) {
      static_assert(fits,
                    "penstock: partition takes a dataset, upstream is a type whose open() gives something without "
                    "read(index, to), to being a sample_view of the dataset's schema");
    } else if constexpr (reads<D, schema_of<D>>) {
      static_assert(
          fits,
          "penstock: partition takes a dataset, upstream is a type whose read() is not const, but readers call it "
          "concurrently: make it const, or give each reader a state of its own by open() const, or say `static "
          "constexpr bool serial = true`");
    } else {
      static_assert(fits,
                    "penstock: partition takes a dataset, upstream is a type with size() and schema() but without "
                    "read(index, to), to being a sample_view of its schema");
    }
  } else if constexpr (std::ranges::range<const D>) {
    constexpr bool accessible = std::ranges::random_access_range<const D> && std::ranges::sized_range<const D>;
    constexpr bool stays = !dangling_range<const D>;
    constexpr bool fits = sample_range<D>;
    if constexpr (fits) {
      return true;
    } else if constexpr (!stays) {
      static_assert(
          stays,
          "penstock: partition takes a dataset, upstream is a range of rvalue references, which a member of a "
          "temporary element would dangle as: return the member by value, by a lambda");
    } else if constexpr (!accessible) {
      static_assert(accessible,
                    "penstock: partition takes a dataset, upstream is a range without random access or size: make it a "
                    "stream(factory), or collect it first");
    } else {
      static_assert(
          fits,
          "penstock: partition takes a dataset, upstream is a range whose elements are not samples: numbers, rows "
          "of numbers (array, vector, span, tensor_view), or tuples of these");
    }
  } else if constexpr (std::ranges::range<D>) {
    constexpr bool iterable = std::ranges::range<const D>;
    static_assert(
        iterable,
        "penstock: partition takes a dataset, upstream is a range that cannot be iterated as const, but readers "
        "iterate it at once: make it a stream(factory), or collect it first");
  } else {
    constexpr bool fits = describes_samples<D>;
    static_assert(fits,
                  "penstock: partition takes a dataset, upstream is neither a range of samples nor a type with size(), "
                  "schema() and read(index, to)");
  }
  return false;
}

// ---- which stage may follow which

template <stage_kind Up, stage_kind Down>
consteval bool check_order() {
  using enum stage_kind;
  constexpr bool fits = (Up == dataset && Down == partition) || (Up == partition && Down == read) ||
                        (Up == read && Down == batch) || (Up == batch && Down == transfer) ||
                        (Up == transfer && (Down == compute || Down == reduce)) ||
                        (Up == compute && (Down == compute || Down == all_reduce || Down == reduce)) ||
                        (Up == all_reduce && (Down == compute || Down == reduce));
  constexpr auto after = [](stage_kind up) { return Up == up; };  // a comparison is explained by clang at length
  if constexpr (fits) {
    return true;
  } else if constexpr (Up == reduce) {
    static_assert(fits, "penstock: nothing comes after reduce, which gives one value an epoch: use what run() returns");
  } else if constexpr (Down == partition) {
    static_assert(fits,
                  "penstock: partition takes a dataset, upstream gives what an earlier stage made of one: partition is "
                  "the first stage");
  } else if constexpr (Down == read) {
    static_assert(!after(dataset),
                  "penstock: read takes indices, upstream gives a dataset: add partition() before read");
    static_assert(after(dataset),
                  "penstock: read takes indices, upstream gives samples or batches: there is one read in a "
                  "pipeline, after partition");
  } else if constexpr (Down == batch) {
    static_assert(!after(dataset),
                  "penstock: batch takes samples, upstream gives a dataset: add partition() and read() before batch");
    static_assert(!after(partition), "penstock: batch takes samples, upstream gives indices: add read() before batch");
    static_assert(
        after(dataset) || after(partition),
        "penstock: batch takes samples, upstream gives batches: there is one batch in a pipeline, after read");
  } else if constexpr (Down == transfer) {
    static_assert(!after(dataset),
                  "penstock: transfer takes batches, upstream gives a dataset: add partition(), read() and "
                  "batch(size) before transfer");
    static_assert(!after(partition),
                  "penstock: transfer takes batches, upstream gives indices: add read() and batch(size) "
                  "before transfer");
    static_assert(!after(read),
                  "penstock: transfer takes batches, upstream gives samples: add batch(size) before transfer");
    static_assert(Up < transfer,
                  "penstock: transfer takes batches on the host, upstream gives batches on a device or results: "
                  "there is one transfer in a pipeline, after batch");
  } else if constexpr (Down == compute) {
    static_assert(!after(batch),
                  "penstock: compute takes batches on a device, upstream gives batches on the host: add "
                  "transfer(device) before compute, cpu_device{} for the CPU");
    static_assert(after(batch),
                  "penstock: compute takes batches on a device, upstream gives a dataset, indices or samples: it "
                  "comes after partition, read, batch and transfer");
  } else if constexpr (Down == all_reduce) {
    static_assert(!after(Up),
                  "penstock: all_reduce takes what compute returns, values in the device's memory, upstream gives no "
                  "such: add compute(function) before all_reduce");
  } else {
    static_assert(!after(batch),
                  "penstock: reduce takes batches on a device or results of compute, upstream gives batches on "
                  "the host: add transfer(device) before reduce, cpu_device{} for the CPU");
    static_assert(after(batch),
                  "penstock: reduce takes batches on a device or results of compute, upstream gives a dataset, "
                  "indices or samples: it comes after partition, read, batch and transfer");
  }
  return false;
}

// ---- what each stage needs of what is upstream

template <class Schema, class Transform>
inline constexpr bool transforms = std::same_as<Transform, no_transform> ||
                                   std::is_invocable_v<const Transform&, const sample_view<Schema>&, philox&> ||
                                   std::is_invocable_v<const Transform&, const sample_view<Schema>&>;

template <class Schema, class Transform>
consteval bool check_transform() {
  constexpr bool fits = transforms<Schema, Transform>;
  static_assert(fits,
                "penstock: read takes a transform of samples, but this one can be called neither with (sample, random) "
                "nor with (sample), sample being a const sample_view of what upstream, or batch's collate, gives");
  return fits;
}

template <class Dataset>
concept has_elements = requires(const Dataset& dataset) { dataset.element(std::uint64_t{}); };

template <class Schema, class Collate>
inline constexpr bool cast_fits = true;
template <class... Fields, class... Elements>
inline constexpr bool cast_fits<schema<Fields...>, cast_t<Elements...>> =
    sizeof...(Elements) == 0 || sizeof...(Elements) == sizeof...(Fields);

template <class Dataset, class Collate>
concept collates_elements = has_elements<Dataset> && requires(const Dataset& dataset, const Collate& collate) {
  requires is_schema<std::remove_cvref_t<decltype(collate.schema(dataset))>>;
  collate(dataset.element(std::uint64_t{}), std::declval<const sample_view<decltype(collate.schema(dataset))>&>());
};

template <class Stream, class Collate, class Transform>
consteval bool check_stream_batch() {
  using sample = typename Stream::sample_type;
  constexpr bool no_cast = !is_cast<Collate> || std::same_as<Collate, cast_t<>>;
  static_assert(no_cast, "penstock: batch takes the element types of a stream's samples as they are: no cast");
  if constexpr (!no_cast) {
    return false;
  } else if constexpr (std::same_as<Collate, cast_t<>>) {
    return check_transform<typename Stream::schema_type, Transform>();
  } else if constexpr (std::same_as<Collate, bucket_by_length> && !varies_in_length<sample>) {
    constexpr bool varies = varies_in_length<sample>;
    static_assert(varies,
                  "penstock: batch takes bucket_by_length for samples with a row of varying length (vector or span), "
                  "but upstream's have none");
    return varies;
  } else {
    constexpr bool fits = collates_elements<stream_elements<sample>, Collate>;
    static_assert(fits,
                  "penstock: batch takes a collate with schema(dataset) and operator()(element, sample_view); for a "
                  "stream the dataset is its first sample, as element(0); this collate and this stream do not fit");
    if constexpr (fits) {
      using collated = decltype(std::declval<const Collate&>().schema(std::declval<const stream_elements<sample>&>()));
      return check_transform<std::remove_cvref_t<collated>, Transform>();
    }
    return false;
  }
}

/// The type that flows out of a compute: its result, or the batch again where it returns nothing.
template <class Function, class Item, class Batch>
struct compute_result {
  using returned = decltype(call_compute(std::declval<Function&>(), std::declval<Item>(), std::declval<Batch&>()));
  using type = std::conditional_t<std::is_void_v<returned>, Batch&, std::remove_cvref_t<returned>>;
};

}  // namespace penstock::detail
