// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/sample/error.hpp>
#include <penstock/sample/philox.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

/// What a dataset's `read` may ask for by taking a third parameter `read_context&`.
struct read_context {
  philox& random;               ///< the sample's own stream: a function of seed, epoch and sample index
  std::uint64_t epoch;          ///< from 0
  const std::stop_token& stop;  ///< requested when the feed is stopped or ends, or waits to begin anew
};

/// Told by a reader which sample it reads, and asked whether to go on. Reads of one range share one.
class read_progress {
 public:
  read_progress() = default;
  read_progress(std::atomic<std::uint64_t>& sample, const std::atomic<std::uint64_t>& door)
      : sample_(&sample), door_(&door) {}

  /// False if the range is no longer wanted.
  bool begin(std::uint64_t sample) const noexcept {
    if (sample_ == nullptr) return true;
    sample_->store(sample, std::memory_order_relaxed);
    return door_->load(std::memory_order_relaxed) != 0;
  }

 private:
  std::atomic<std::uint64_t>* sample_ = nullptr;
  const std::atomic<std::uint64_t>* door_ = nullptr;  // 0 while it is closed
};

/// What all samples of one range have in common; good for the call that it is given to.
struct range_context {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  const std::stop_token& stop;
  read_progress progress{};
};

namespace detail {

/// What a call that was refused with a sentence gives instead: nothing more is instantiated with it.
struct rejected {
  rejected start() const { return {}; }
  rejected epoch(std::uint64_t) const { return {}; }
  rejected* begin() const { return nullptr; }
  rejected* end() const { return nullptr; }
};

template <class D>
concept describes_samples = requires(const std::remove_cvref_t<D>& dataset) {
  { dataset.size() } -> std::convertible_to<std::uint64_t>;
  requires is_schema<std::remove_cvref_t<decltype(dataset.schema())>>;
};

template <describes_samples D>
using schema_of = std::remove_cvref_t<decltype(std::declval<const std::remove_cvref_t<D>&>().schema())>;

template <class Reader, class Schema>
concept reads_with_context = requires(Reader& reader, std::uint64_t index, const sample_view<Schema>& to,
                                      read_context& context) { reader.read(index, to, context); };
template <class Reader, class Schema>
concept reads_samples =
    reads_with_context<Reader, Schema> ||
    requires(Reader& reader, std::uint64_t index, const sample_view<Schema>& to) { reader.read(index, to); };
template <class Reader, class Schema>
concept reads_in_bulk = requires(Reader& reader, std::span<const std::uint64_t> indices, const batch_view<Schema>& to) {
  reader.read_range(indices, to);
};
template <class Reader, class Schema>
concept reads_in_bulk_with_context =
    requires(Reader& reader, std::span<const std::uint64_t> indices, const batch_view<Schema>& to,
             const range_context& context) { reader.read_range(indices, to, context); };
/// Tells how many rows it read before it was told to stop.
template <class Reader, class Schema>
concept counts_rows = requires(Reader& reader, std::span<const std::uint64_t> indices, const batch_view<Schema>& to,
                               const range_context& context) {
  { reader.read_range(indices, to, context) } -> std::same_as<std::size_t>;
};
template <class Reader, class Schema>
concept reads =
    reads_samples<Reader, Schema> || reads_in_bulk<Reader, Schema> || reads_in_bulk_with_context<Reader, Schema>;

template <class D>
concept opens = requires(const D& dataset) { dataset.open(); };
template <class D>
concept says_serial = requires { requires D::serial; };
/// Whether a read waits for another's that is under way: the dataset is serial, or made of one that is.
template <class D>
constexpr bool reads_in_turn([[maybe_unused]] const D& dataset) {
  if constexpr (says_serial<D>)
    return true;
  else if constexpr (requires { static_cast<bool>(dataset.reads_in_turn()); })
    return dataset.reads_in_turn();
  else
    return false;
}
template <class D>
concept prefetches = requires(D& dataset, std::uint64_t index) { dataset.prefetch(index); };

/// Knows which file a sample is in, without reading it.
template <class D>
concept says_where = requires(const D& dataset, std::uint64_t index) {
  { dataset.where(index) } -> std::convertible_to<provenance>;
};

/// Samples lie behind pointers: those are brought near first, for the hint at the sample to find them.
template <class D>
concept prefetches_places = requires(D& dataset, std::uint64_t index) { dataset.prefetch_place(index); };

template <class D>
concept opens_readers = opens<D> && requires(const D& dataset) {
  requires reads<std::remove_cvref_t<decltype(dataset.open())>, schema_of<D>>;
};

}  // namespace detail

/// For a dataset's `prefetch`: has the processor bring these bytes near, which are copied soon. Of long rows the first
/// ones: it follows by itself once the copy has begun. A hint, whatever `first` is.
inline void prefetch_lines(const void* first, std::size_t size) noexcept {
  constexpr std::size_t line = 64, whole = 4096, begin = 1024;
  if (size == 0) return;
  asm volatile("");  // g++ leaves out calls of functions that do nothing but prefetch
  const auto* const bytes = static_cast<const char*>(first);
  const std::size_t last = (size <= whole ? size : begin) - 1;
  // Into the second-level cache: it can wait for more lines at once than the first one, twice as many rows a second.
  for (std::size_t at = 0; at < last; at += line) __builtin_prefetch(bytes + at, 0, 2);
  __builtin_prefetch(bytes + last, 0, 2);  // rows seldom begin where a line does
}

/// A random-access collection of samples.
///
/// `size()` is the number of samples, `schema()` their fields, `read(index, to)` writes sample `index` in place into
/// the views `to` (a `sample_view` of the schema); it may take a third parameter, `read_context&`. It is const and
/// called by many readers at once, unless
/// - `open() const` is there: its result is one reader's own state (a file handle, a decoder), and its `read` is used;
/// or
/// - `static constexpr bool serial = true` says that only one reader may be in it at a time.
/// Optional: `read_range(indices, to)` reads a whole range where that is faster, row i of the batch views being sample
/// indices[i]; `prefetch(index)` hints at a sample that will soon be read; `where(index) const` gives a `provenance`
/// with the path of the sample's file, for messages about a read that failed or does not end. It is called from any
/// thread, while samples are read, and opens nothing; `reads_in_turn() const` is true where reads wait for each other:
/// of a dataset made of another that is serial, or read by a library that does one thing at a time.
template <class D>
concept dataset = detail::describes_samples<D> && std::is_object_v<D> &&
                  (detail::opens_readers<D> || (detail::says_serial<D> && detail::reads<D, detail::schema_of<D>>) ||
                   (!detail::opens<D> && !detail::says_serial<D> && detail::reads<const D, detail::schema_of<D>>));

namespace detail {

/// How many samples ahead of the one that is read the hint is given: some 8 KiB, what a processor may have under way.
template <class Schema>
std::size_t prefetch_distance(const batch_view<Schema>& to) {
  constexpr std::size_t ahead = 8192, least = 4, most = 32;
  const std::size_t bytes =
      std::apply([](const auto&... views) { return (std::size_t{0} + ... + views.sub(0).size_bytes()); }, to);
  const std::size_t samples = bytes == 0 ? most : ahead / bytes;
  return samples < least ? least : samples > most ? most : samples;
}

/// Hints at samples to come when that at `row` is about to be read; at the first one of all that are within reach.
template <class D>
void hint(D& source, std::span<const std::uint64_t> indices, std::size_t row, std::size_t ahead) {
  const auto reached = [&](std::size_t distance, auto&& tell) {
    for (std::size_t i = row == 0 ? 0 : row + distance; i <= row + distance && i < indices.size(); ++i)
      tell(indices[i]);
  };
  if constexpr (prefetches_places<D>) reached(2 * ahead, [&](std::uint64_t index) { source.prefetch_place(index); });
  if constexpr (prefetches<D>) reached(ahead, [&](std::uint64_t index) { source.prefetch(index); });
}

template <class Schema, class Reader, class To>
void read_one(Reader& reader, std::uint64_t index, const To& to, [[maybe_unused]] philox& random,
              [[maybe_unused]] const range_context& context) {
  if constexpr (reads_with_context<Reader, Schema>) {
    read_context one{random, context.epoch, context.stop};
    reader.read(index, to, one);
  } else {
    reader.read(index, to);
  }
}

/// Given as `after`: there is nothing to be done to the samples.
struct nothing_after {
  template <class Sample>
  void operator()(std::size_t, const Sample&, philox&) const {}
};

/// Reads samples `indices` into the rows of `to` and calls `after(row, sample, random)` for each; returns the rows
/// done, fewer than asked for if `context.progress` said stop. `hints` is what is told of samples to come.
template <class Schema, class Reader, class Hints, class After>
std::size_t read_rows(Reader& reader, Hints& hints, std::span<const std::uint64_t> indices,
                      const batch_view<Schema>& to, const range_context& context, After&& after) {
  if constexpr (reads_in_bulk_with_context<Reader, Schema> || reads_in_bulk<Reader, Schema>) {
    if (indices.empty() || !context.progress.begin(indices[0])) return 0;
    if constexpr (counts_rows<Reader, Schema>) {
      if (reader.read_range(indices, to, context) < indices.size()) return 0;
    } else if constexpr (reads_in_bulk_with_context<Reader, Schema>) {
      reader.read_range(indices, to, context);
    } else {
      reader.read_range(indices, to);
    }
    if constexpr (!std::is_same_v<std::remove_cvref_t<After>, nothing_after>) {
      for (std::size_t row = 0; row < indices.size(); ++row) {
        context.progress.begin(indices[row]);
        philox random(context.seed, context.epoch, indices[row]);
        after(row, sample_at(to, row), random);
      }
    }
    return indices.size();
  } else {
    const std::size_t ahead = prefetch_distance<Schema>(to);
    for (std::size_t row = 0; row < indices.size(); ++row) {
      if (!context.progress.begin(indices[row])) return row;
      hint(hints, indices, row, ahead);
      const auto sample = sample_at(to, row);
      philox random(context.seed, context.epoch, indices[row]);
      read_one<Schema>(reader, indices[row], sample, random, context);
      after(row, sample, random);
    }
    return indices.size();
  }
}

}  // namespace detail
}  // namespace penstock
