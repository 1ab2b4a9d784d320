// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/sample/fault_list.hpp>
#include <penstock/sample/fingerprint.hpp>
#include <penstock/schedule/cpu_share.hpp>
#include <penstock/schedule/dataset_source.hpp>
#include <penstock/schedule/feed.hpp>
#include <penstock/schedule/stream_source.hpp>
#include <penstock/stage/batch.hpp>
#include <penstock/stage/bucket.hpp>
#include <penstock/stage/partition.hpp>
#include <penstock/stage/read.hpp>
#include <penstock/stage/transfer.hpp>

/// From the values that describe a pipeline to a feed that runs.
namespace penstock::detail {

/// `std::make_shared` in a third of the time to compile: the count is allocated apart, once for each feed.
template <class T, class... From>
std::shared_ptr<T> share(From&&... from) {
  return std::shared_ptr<T>(new T(std::forward<From>(from)...));
}

/// Holds what stands left of the first stage: an lvalue is referred to, an rvalue is owned, a view is copied.
template <class Source>
auto hold(Source&& source) {
  using D = std::remove_cvref_t<Source>;
  using whole = std::remove_reference_t<Source>;
  if constexpr (describes_samples<D> || is_stream<D>) {
    if constexpr (std::is_lvalue_reference_v<Source>)
      return std::shared_ptr<whole>(std::shared_ptr<void>{}, &source);
    else
      return share<D>(std::move(source));
  } else if constexpr (std::ranges::view<D> || !std::is_lvalue_reference_v<Source>) {
    return share<range_dataset<D>>(range_dataset<D>(std::forward<Source>(source)));
  } else {
    using reference = range_reference<D>;
    return share<range_dataset<reference>>(range_dataset<reference>(reference(source)));
  }
}

/// How many samples of each bucket make a step of `global` samples at most over `world` replicas.
inline std::vector<bucket_shape> bucket_shapes(const bucket_options& options, std::uint64_t global,
                                               std::uint64_t world) {
  std::vector<bucket_shape> result;
  for (const std::size_t bound : options.bounds) {
    const std::uint64_t most = options.tokens == 0 ? global : options.tokens / bound * world;
    result.push_back({bound, most < global ? most : global});
  }
  return result;
}

/// What a pipeline's feed is made of: schema of the stored samples, source of the samples.
template <class Dataset, class Plan, class Transform, class Collate>
struct source_of {
  using schema_type = stored_schema<Dataset, Collate>;
  using type = dataset_source<Dataset, Plan, Transform, Collate>;
};
template <class Factory, class Plan, class Transform, class Collate>
struct source_of<stream_dataset<Factory>, Plan, Transform, Collate> {
  using schema_type = stored_schema<stream_dataset<Factory>, Collate>;
  using type = stream_source<stream_dataset<Factory>, Transform, Collate>;
};
template <class Factory, class Plan, class Transform, class Collate>
struct source_of<const stream_dataset<Factory>, Plan, Transform, Collate>
    : source_of<stream_dataset<Factory>, Plan, Transform, Collate> {};

/// The list of samples that could not be read, if there is one.
template <class Dataset>
std::shared_ptr<fault_list> list_of(const Dataset& dataset, const quarantine_list& list, world where) {
  if (list.empty()) return {};
  const auto samples = static_cast<std::uint64_t>(dataset.size());
  return list.open(where.rank, where.size, {samples, fingerprint_of(samples, dataset.schema())});
}

/// The feed of a pipeline that reaches transfer.
template <class Dataset, class Partition, class Read, class Batch, class Transfer, class... Rest>
struct feed_maker {
  static constexpr bool streams = is_stream<std::remove_const_t<Dataset>>;
  using parts = source_of<Dataset, decltype(Partition::order), decltype(Read::transform), decltype(Batch::collate)>;
  using source_type = typename parts::type;
  using schema_type = typename parts::schema_type;
  using device_type = decltype(Transfer::device);
  using feed_type = feed<schema_type, device_type>;

  static feed_type make(std::shared_ptr<Dataset> dataset, reader_limit limit, const Partition& partition,
                        const Read& read, const Batch& batch, const Transfer& transfer) {
    partition.validate();
    read.validate();
    const cpu_set cpus = placed_on("read", read.options.cpus);
    batch.validate();
    transfer.validate();
    const world where = partition.options.world;
    const std::size_t capacity = batch.capacity(where.size);

    std::shared_ptr<source_type> from;
    std::shared_ptr<fault_list> listed;
    schema_type schema;
    if constexpr (streams) {
      const shuffle how = partition.options.shuffle;
      if (!how.is_none() && !how.is_window())
        reject_option("partition", "shuffle", how.is_full() ? "full" : "blocks",
                      "shuffle::none or shuffle::window(n): a stream has no random access");
      if (read.options.bad != bad_samples::fail)
        reject_option("read", "bad", "skip or substitute",
                      "bad_samples::fail, as a stream cannot go on after an error");
      if (read.options.late == late_reads::reread)
        reject_option("read", "late", "late_reads::reread", "late_reads::wait, as a stream gives each sample once");
      std::vector<bucket_shape> buckets;
      if constexpr (std::same_as<decltype(Batch::collate), bucket_by_length>)
        buckets = bucket_shapes(batch.collate.options(), batch.global(where.size), where.size);
      if (!buckets.empty() && batch.options.last != last_batch::keep)
        reject_option("batch", "last", batch.options.last == last_batch::pad ? "pad" : "drop",
                      "last_batch::keep: bucket_by_length gives batches of different sizes all the time");
      from = share<source_type>(dataset, partition.options.seed, how.block(), where, read.transform, batch.collate,
                                std::move(buckets));
      schema = from->schema();
    } else {
      if (!Partition::plan_is_given && partition.options.shuffle.is_window())
        reject_option("partition", "shuffle", "window", "shuffle::full, blocks(n) or none: a window is for streams");
      if (read.options.late == late_reads::reread && reads_in_turn(*dataset))
        reject_option("read", "late", "late_reads::reread",
                      "late_reads::wait, as the dataset is serial, or made of one that is: a second read waits for the "
                      "first");
      listed = list_of(*dataset, read.options.quarantine, where);
      from = share<source_type>(dataset, partition.plan_for(dataset->size()), partition.options.seed, read.transform,
                                batch.collate, read.options.bad, listed);
      schema = collation<std::remove_const_t<Dataset>, decltype(Batch::collate)>::stored(*dataset, batch.collate);
    }

    const step_shape steps{from->positions(), batch.global(where.size), batch.options.last, 0};
    if (!streams && steps.steps() == 0 && !batch.options.allow_empty)
      reject_option("batch", steps.positions == 0 ? "number of samples" : "size",
                    std::to_string(steps.positions == 0 ? 0 : steps.batch),
                    steps.positions == 0
                        ? std::string("1 or more: the dataset is empty (allow_empty permits epochs without a batch)")
                        : concat("at most ", steps.positions,
                                 ", the number of samples, as the last incomplete batch is "
                                 "dropped (allow_empty permits epochs without a batch)"));

    std::shared_ptr<reader_pool> pool = read.options.shared;
    const bool own_pool = !pool && read.options.readers != 0;
    const bool automatic_readers = read.options.readers == automatic;
    const std::uint32_t most_readers = limit.of(read.most_readers(cpus));
    const auto readers = automatic_readers ? most_readers : static_cast<std::uint32_t>(read.options.readers);
    batch_layout<schema_type> layout(std::move(schema), capacity);
    ring_shape shape;
    shape.readers = own_pool ? readers : pool ? pool->size() : 1;
    const std::size_t most = std::bit_ceil(std::size_t{shape.readers});
    const std::size_t ranges = most < capacity ? most : std::bit_floor(capacity);
    shape.ranges = streams ? 1 : static_cast<std::uint32_t>(ranges);
    if (read.options.late == late_reads::reread && capacity / shape.ranges >= row_claims::most_rows)
      reject_option(
          "read", "late", "late_reads::reread",
          concat("late_reads::wait, as batches have more than ", row_claims::most_rows, " samples for each reader"));
    feed_limits limits;
    limits.depth_bytes = bytes_of_depth<separate_device<device_type>>(layout);
    if (transfer.is_automatic()) {
      shape.host = transfer.allowed_depth(limits.depth_bytes);
      shape.in_use = transfer.begins_at(shape.host);
      // What is read on the loop's own thread is not read ahead.
      if (!pool && !own_pool) shape.host = shape.in_use;
      shape.device = separate_device<device_type> ? shape.host : 0;
    } else {
      shape.host = transfer.host_depth();
      shape.device = transfer.device_depth();
    }
    if (automatic_readers || transfer.is_automatic()) {
      limits.tuned.emplace();
      limits.tuned->most_readers = shape.readers;
      limits.tuned->readers = automatic_readers ? read.least_readers(read.options) : limits.tuned->most_readers;
      // What the loop can hold; a depth that was given is not added to, however many slots there are on the host.
      limits.tuned->most_depth = separate_device<device_type> ? shape.device : shape.host;
      limits.tuned->depth = shape.in_use != 0 ? shape.in_use : limits.tuned->most_depth;
      limits.tuned->copies = separate_device<device_type>;
    }
    if (own_pool) pool = reader_pool::make(static_cast<int>(readers), {.cpus = cpus});

    using engine_type = engine<schema_type, device_type>;
    auto to =
        share<channel<schema_type, device_type>>(transfer.device, std::move(layout), shape, transfer.options.consumer,
                                                 pool ? pool->waiting() : nullptr, transfer.options.scalars);
    const std::uint64_t fingerprint = from->fingerprint();
    auto shared = share<engine_type>(std::move(to), std::move(from), epoch_map(steps, where),
                                     batch.options.last == last_batch::pad);
    if (read.options.late == late_reads::reread) shared->read_again({read.late_factor(), read.late_floor()});
    limits.timeout = read.timeout();
    limits.first_timeout = read.first_timeout();
    limits.warn_after = read.warn_after();
    limits.next_epoch = read.options.next_epoch;
    limits.most_bad = read.options.most_bad;
    if (read.options.most_bad_share) {
      limits.most_bad_share = *read.options.most_bad_share;
      limits.samples = streams ? 0 : steps.samples(where);
    } else if (!limits.most_bad) {
      limits.most_bad = Read::default_most_bad;
    }
    limits.listed = std::move(listed);
    limits.drop_short = batch.options.last == last_batch::drop;
    return feed_type(share<feed_core<schema_type, device_type>>(std::move(shared), std::move(pool), own_pool, limits,
                                                                partition.options.seed, fingerprint));
  }
};

template <class Dataset, class... Stages>
struct feed_maker_of {};
template <class Dataset, class Partition, class Read, class Batch, class Transfer, class... Rest>
struct feed_maker_of<Dataset, Partition, Read, Batch, Transfer, Rest...>
    : feed_maker<Dataset, Partition, Read, Batch, Transfer> {};

}  // namespace penstock::detail
