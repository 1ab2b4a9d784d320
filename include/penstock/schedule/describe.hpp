// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/channel/layout.hpp>
#include <penstock/schedule/pipeline.hpp>
#include <penstock/schedule/readers.hpp>
#include <penstock/schedule/threads.hpp>
#include <penstock/stage/read.hpp>

namespace penstock {

namespace detail {

template <class T>
std::string element_name() {
  if constexpr (std::floating_point<T>)
    return concat("float", 8 * sizeof(T));
  else if constexpr (std::same_as<T, bool>)
    return "bool";
  else if constexpr (std::integral<T>)
    return concat(std::is_signed_v<T> ? "int" : "uint", 8 * sizeof(T));
  else
    return concat(sizeof(T), "-byte element");
}

/// "x float32[256, 9], price float32[256]"; without a batch size "x float32[9], price float32".
template <class Schema>
std::string describe_schema(const Schema& schema, std::size_t batch) {
  std::string out;
  std::apply(
      [&](const auto&... fields) {
        const auto one = [&](const auto& field) {
          using element = typename std::remove_cvref_t<decltype(field)>::element_type;
          if (!out.empty()) out += ", ";
          out += concat(field.name, " ", element_name<element>());
          std::string extents;
          const auto add = [&](std::size_t extent) { extents += concat(extents.empty() ? "" : ", ", extent); };
          if (batch != 0) add(batch);
          for (std::size_t extent : field.shape) add(extent);
          if (!extents.empty()) out += concat("[", extents, "]");
        };
        (one(fields), ...);
      },
      schema.fields);
  return out;
}

/// Columns as wide as their longest cell.
template <class Rows>
std::string table(const Rows& rows) {
  std::vector<std::size_t> width;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i == width.size()) width.push_back(0);
      if (row[i].size() > width[i]) width[i] = row[i].size();
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(width[i] - row[i].size() + 2, ' ');
    }
    out += line + "\n";
  }
  return out;
}

inline std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 10'000) return concat(bytes, " B");
  if (bytes < 10'000'000) return concat((bytes + 500) / 1000, " kB");
  return concat((bytes + 500'000) / 1'000'000, " MB");
}

inline std::string describe_shuffle(const shuffle& how) {
  if (how.is_none()) return "in order";
  if (how.is_full()) return "shuffled";
  if (how.is_window())
    return concat("shuffled in a window of ", how.block(), " (samples further apart keep their order)");
  return concat("shuffled in blocks of ", how.block());
}

/// "4 reader threads on CPUs 0-3"; all CPUs that are allowed go without saying, unless `in_full`.
inline std::string describe_readers(const read_options& options, bool in_full = false, reader_limit limit = {}) {
  const bool own = !options.shared;
  if (own && options.readers == 0) return "consumer's thread";
  const cpu_set cpus = own ? placed_on("read", options.cpus) : options.shared->cpus();
  const bool automatically = own && options.readers == automatic;
  const std::uint64_t count = automatically ? limit.of(read_stage<>::most_readers(cpus))
                              : own         ? static_cast<std::uint64_t>(options.readers)
                                            : options.shared->size();
  std::string out = automatically    ? concat("automatic (", read_stage<>::least_readers(options), " to ", count, ") ")
                    : own || in_full ? concat(count, ' ')
                                     : "";
  out += concat(own ? "" : "shared ", "reader thread", own && count == 1 ? "" : "s");
  if (in_full || cpus != allowed_cpus()) out += concat(cpus.size() == 1 ? " on CPU " : " on CPUs ", cpus.text());
  return out;
}

/// ", leaves out 100 bad samples an epoch at most"
inline std::string describe_bad(const read_options& options, std::uint64_t unless_given) {
  std::string out = options.bad == bad_samples::skip ? ", leaves out " : ", replaces ";
  if (options.most_bad || !options.most_bad_share)
    out += concat(options.most_bad.value_or(unless_given), " bad samples ");
  if (options.most_bad_share)
    out += concat(options.most_bad ? "and " : "bad samples, ", 100 * *options.most_bad_share, " % ");
  out += "an epoch at most";
  return options.quarantine.empty() ? out : concat(out, ", listed in ", options.quarantine.path());
}

inline std::string_view describe_last(last_batch last) {
  switch (last) {
    case last_batch::drop: return "last one dropped if short";
    case last_batch::pad: return "last one padded";
    default: return "last one may be short";
  }
}

}  // namespace detail

/// A table of the pipeline for a person: each stage, where it runs, what it does, and what flows out of it.
///
/// Options are described as they are; nothing is started or allocated. A stream's first element is drawn to learn its
/// shapes.
template <class Dataset, class... Stages>
std::string describe(const pipeline<Dataset, Stages...>& work) {
  std::apply(
      [](const auto&... stages) {
        const auto check = [](const auto& stage) {
          if constexpr (requires { stage.validate(); }) stage.validate();
        };
        (check(stages), ...);
      },
      work.stages());
  using detail::concat;
  using D = std::remove_const_t<Dataset>;
  constexpr bool streams = detail::is_stream<D>;
  std::vector<std::vector<std::string>> rows{{"stage", "runs on", "does", "gives"}};

  const auto first = [&] {
    if constexpr (streams) {
      auto range = work.dataset().make(0);
      auto at = std::ranges::begin(range);
      if (at == std::ranges::end(range)) throw error("the stream is empty: it has no first sample to describe");
      return typename D::sample_type(*at);
    } else {
      return 0;
    }
  }();
  const auto sample_schema = [&] {
    if constexpr (streams) {
      return detail::schema_for(first);
    } else {
      return work.dataset().schema();
    }
  }();
  const std::string sample = detail::describe_schema(sample_schema, 0);
  std::string size = "unknown size";
  if constexpr (!streams) size = concat(work.dataset().size(), " samples");
  if constexpr (requires { work.dataset().describe(); }) size += concat(": ", work.dataset().describe());
  rows.push_back({"dataset", "readers", size, concat("samples (", sample, ")")});

  std::uint64_t world_size = 1;
  std::string readers;
  bool ahead = true;  // batches are read before they are asked for
  std::string bytes;
  std::string batches;
  std::uint64_t kept_bytes = 0, copied_bytes = 0;  // of one more of depth
  std::apply(
      [&](const auto&... stages) {
        const auto one = [&](const auto& stage) {
          using stage_type = std::remove_cvref_t<decltype(stage)>;
          if constexpr (stage_type::kind == stage_kind::partition) {
            world_size = stage.options.world.size;
            const std::string order = stage_type::plan_is_given ? "in an order of the user's"
                                                                : detail::describe_shuffle(stage.options.shuffle);
            rows.push_back({"partition", "readers", concat(order, ", seed ", stage.options.seed),
                            concat("indices for rank ", stage.options.world.rank, " of ", world_size)});
          } else if constexpr (stage_type::kind == stage_kind::read) {
            readers = detail::describe_readers(stage.options);
            ahead = stage.options.readers != 0 || stage.options.shared;
            const bool transformed = !std::same_as<decltype(stage.transform), no_transform>;
            const bool again = stage.options.late == late_reads::reread;
            std::string does = again ? "reads, late ones again by another" : "reads in place";
            if (transformed) does += ", transforms";
            if (stage.options.bad != bad_samples::fail)
              does += detail::describe_bad(stage.options, stage_type::default_most_bad);
            rows.push_back({"read", readers, does, concat("samples (", sample, ")")});
          } else if constexpr (stage_type::kind == stage_kind::batch) {
            const std::size_t capacity = stage.capacity(world_size);
            const auto describe_batch = [&](const auto& stored) {
              batches = detail::describe_schema(stored, capacity);
              const batch_layout layout(stored, capacity);
              bytes = detail::bytes_text(layout.bytes());
              kept_bytes = detail::bytes_of_depth<false>(layout);
              copied_bytes = detail::bytes_of_depth<true>(layout);
            };
            if constexpr (streams)
              describe_batch(detail::stream_schema(first, stage.collate));
            else
              describe_batch(detail::collation<D, decltype(stage.collate)>::stored(work.dataset(), stage.collate));
            rows.push_back({"batch", readers, concat(capacity, " samples, ", detail::describe_last(stage.options.last)),
                            concat("host batches (", batches, ")")});
          } else if constexpr (stage_type::kind == stage_kind::transfer) {
            constexpr bool copies = separate_device<decltype(stage.device)>;
            std::string count = concat(stage.host_depth()), twins = concat(stage.device_depth());
            if (stage.is_automatic()) {
              const std::uint32_t most = stage.allowed_depth(copies ? copied_bytes : kept_bytes);
              const std::uint32_t least = stage.begins_at(most);
              count = twins = ahead ? concat("automatic (", least, " to ", most, ')') : concat(least);
            }
            const std::string slots = concat(count, " host slots of ", bytes);
            rows.push_back({"transfer", copies ? "copy stream" : "no copy",
                            copies ? concat(slots, ", ", twins, " device twins of ", bytes)
                                   : concat(slots, ", handed over as they are"),
                            concat("batches on ", stage.device.describe(), " (", batches, ")")});
          } else if constexpr (stage_type::kind == stage_kind::compute) {
            rows.push_back(
                {"compute", "batch's stream", "the user's function, called on the thread that runs", "its result"});
          } else if constexpr (stage_type::kind == stage_kind::all_reduce) {
            rows.push_back({"all_reduce", "batch's stream", "combines all ranks' values, in place", "the same values"});
          } else {
            rows.push_back({"reduce", "run's thread", "folds in step order", "one value an epoch"});
          }
        };
        (one(stages), ...);
      },
      work.stages());
  return detail::table(rows);
}

}  // namespace penstock
