// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/range.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/permutation.hpp>

namespace penstock {

struct split_options {
  double validation = 0;   ///< share of all samples, 0 to 1
  double test = 0;         ///< share of all samples, 0 to 1; training gets the rest
  std::uint64_t seed = 0;  ///< of the random choice, which is independent of any feed's seed
};

namespace detail {

template <class Reader, class Schema>
concept reads_ranges = reads_in_bulk<Reader, Schema> || reads_in_bulk_with_context<Reader, Schema>;

/// Reads the part's samples `indices` by their numbers in the whole, a stretch at a time, so that nothing is allocated.
template <class Schema, class Reader>
std::size_t read_part(Reader& reader, const permutation& order, std::uint64_t first,
                      std::span<const std::uint64_t> indices, const batch_view<Schema>& to,
                      const range_context& context) {
  std::array<std::uint64_t, 256> origins;
  // The part's own numbers are what is told of progress: they are the ones that the feed's errors and batches name.
  const range_context inner{context.seed, context.epoch, context.stop, {}};
  for (std::size_t row = 0; row < indices.size();) {
    if (!context.progress.begin(indices[row])) return row;
    const std::size_t left = indices.size() - row;
    const std::size_t count = left < origins.size() ? left : origins.size();
    for (std::size_t i = 0; i < count; ++i) origins[i] = order(first + indices[row + i]);
    if (read_rows<Schema>(reader, reader, std::span(origins).first(count), rows_of(to, row, count), inner,
                          nothing_after{}) < count)
      return row;
    row += count;
  }
  return indices.size();
}

}  // namespace detail

/// A part of a dataset, chosen at random without a list: samples `first` to `first + size - 1` of a permutation that is
/// a function of the seed. Parts of one split are disjoint; they share the dataset.
template <dataset Dataset>
class subset {
 public:
  subset(std::shared_ptr<const Dataset> whole, permutation order, std::uint64_t first, std::uint64_t size)
      : whole_(std::move(whole)), order_(order), first_(first), size_(size) {}

  std::uint64_t size() const noexcept { return size_; }
  auto schema() const { return whole_->schema(); }
  /// The index in the whole dataset of this part's sample `index`.
  std::uint64_t origin(std::uint64_t index) const { return order_(first_ + index); }

  template <class To>
  void read(std::uint64_t index, const To& to) const
    requires requires(const Dataset& whole) { whole.read(index, to); }
  {
    whole_->read(origin(index), to);
  }
  template <class To>
  void read(std::uint64_t index, const To& to, read_context& context) const
    requires requires(const Dataset& whole) { whole.read(index, to, context); }
  {
    whole_->read(origin(index), to, context);
  }
  std::size_t read_range(std::span<const std::uint64_t> indices, const batch_view<detail::schema_of<Dataset>>& to,
                         const range_context& context) const
    requires detail::reads_ranges<const Dataset, detail::schema_of<Dataset>>
  {
    return detail::read_part<detail::schema_of<Dataset>>(*whole_, order_, first_, indices, to, context);
  }
  provenance where(std::uint64_t index) const
    requires detail::says_where<Dataset>
  {
    return whole_->where(origin(index));
  }
  bool reads_in_turn() const { return detail::reads_in_turn(*whole_); }
  void prefetch(std::uint64_t index) const
    requires detail::prefetches<const Dataset>
  {
    whole_->prefetch(origin(index));
  }
  void prefetch_place(std::uint64_t index) const
    requires detail::prefetches_places<const Dataset>
  {
    whole_->prefetch_place(origin(index));
  }
  decltype(auto) element(std::uint64_t index) const
    requires requires(const Dataset& whole) { whole.element(index); }
  {
    return whole_->element(origin(index));
  }
  auto open() const
    requires detail::opens_readers<Dataset>
  {
    return reader<std::remove_cvref_t<decltype(whole_->open())>>{whole_->open(), order_, first_};
  }

 private:
  template <class Reader>
  struct reader {
    Reader own;
    permutation order;
    std::uint64_t first;

    template <class To>
    void read(std::uint64_t index, const To& to)
      requires requires(Reader& one) { one.read(index, to); }
    {
      own.read(order(first + index), to);
    }
    template <class To>
    void read(std::uint64_t index, const To& to, read_context& context)
      requires requires(Reader& one) { one.read(index, to, context); }
    {
      own.read(order(first + index), to, context);
    }
    std::size_t read_range(std::span<const std::uint64_t> indices, const batch_view<detail::schema_of<Dataset>>& to,
                           const range_context& context)
      requires detail::reads_ranges<Reader, detail::schema_of<Dataset>>
    {
      return detail::read_part<detail::schema_of<Dataset>>(own, order, first, indices, to, context);
    }
  };

  std::shared_ptr<const Dataset> whole_;
  permutation order_;
  std::uint64_t first_;
  std::uint64_t size_;
};

template <class Dataset>
struct split_result {
  subset<Dataset> train;
  subset<Dataset> validation;
  subset<Dataset> test;
};

/// Cuts a dataset in three disjoint parts that together are all of it: `auto [train, validation, test] = split(table,
/// {.validation = 0.1, .test = 0.2, .seed = 1});`. A function of sizes and seed alone. An lvalue dataset is referred
/// to, an rvalue is owned by the parts together.
template <class Source>
  requires detail::describes_samples<Source>
auto split(Source&& source, split_options options = {}) {
  static_assert(
      !detail::says_serial<std::remove_cvref_t<Source>>,
      "penstock: split takes a dataset that is read concurrently, upstream is a serial one: its parts would be read "
      "at the same time");
  static_assert(
      dataset<std::remove_cvref_t<Source>> || detail::says_serial<std::remove_cvref_t<Source>>,
      "penstock: split takes a dataset, upstream is a type with size() and schema() but without read(index, to) "
      "const or open() const");
  using Dataset = std::remove_cvref_t<Source>;
  const auto check = [](const char* name, double share) {
    if (!(share >= 0 && share <= 1)) detail::reject_option("split", name, std::to_string(share), "0 to 1");
  };
  check("validation", options.validation);
  check("test", options.test);
  check("validation + test", options.validation + options.test);

  std::shared_ptr<const Dataset> whole;
  if constexpr (std::is_lvalue_reference_v<Source>)
    whole = std::shared_ptr<const Dataset>(std::shared_ptr<void>{}, &source);
  else
    whole = std::make_shared<const Dataset>(std::move(source));
  const auto n = static_cast<std::uint64_t>(whole->size());
  const auto part = [n](double share) { return static_cast<std::uint64_t>(share * static_cast<double>(n) + 0.5); };
  const std::uint64_t test = part(options.test);
  const std::uint64_t wanted = part(options.validation);
  const std::uint64_t validation = wanted < n - test ? wanted : n - test;  // both may have been rounded up
  // A key of its own, so that no feed of the same seed draws the same order.
  const permutation order(n, options.seed, 0, ~std::uint64_t{0});
  return split_result<Dataset>{{whole, order, test + validation, n - test - validation},
                               {whole, order, test, validation},
                               {whole, order, 0, test}};
}

/// The same for a range of samples: an lvalue is referred to, a view or an rvalue is owned.
template <class Range>
  requires(!detail::describes_samples<Range> && detail::sample_range<std::remove_cvref_t<Range>>)
auto split(Range&& range, split_options options = {}) {
  using R = std::remove_cvref_t<Range>;
  if constexpr (std::ranges::view<R> || !std::is_lvalue_reference_v<Range>)
    return split(range_dataset<R>(std::forward<Range>(range)), options);
  else
    return split(range_dataset<detail::range_reference<R>>(detail::range_reference<R>(range)), options);
}

}  // namespace penstock
