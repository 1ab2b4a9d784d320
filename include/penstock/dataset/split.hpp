// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <penstock/dataset/dataset.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/permutation.hpp>

namespace penstock {

struct split_options {
  double validation = 0;   ///< share of all samples, 0 to 1
  double test = 0;         ///< share of all samples, 0 to 1; training gets the rest
  std::uint64_t seed = 0;  ///< of the random choice, which is independent of any feed's seed
};

/// A part of a dataset, chosen at random without a list: samples `first` to `first + size - 1` of a permutation that is a
/// function of the seed. Parts of one split are disjoint; they share the dataset.
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
  void prefetch(std::uint64_t index) const
    requires detail::prefetches<const Dataset>
  {
    whole_->prefetch(origin(index));
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
/// {.validation = 0.1, .test = 0.2, .seed = 1});`. A function of sizes and seed alone. An lvalue dataset is referred to, an
/// rvalue is owned by the parts together.
template <class Source>
  requires dataset<std::remove_cvref_t<Source>> && (!detail::says_serial<std::remove_cvref_t<Source>>)
auto split(Source&& source, split_options options = {}) {
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
  const std::uint64_t validation = std::min(part(options.validation), n - test);
  // A key of its own, so that no feed of the same seed draws the same order.
  const permutation order(n, options.seed, 0, ~std::uint64_t{0});
  return split_result<Dataset>{{whole, order, test + validation, n - test - validation},
                               {whole, order, test, validation},
                               {whole, order, 0, test}};
}

}  // namespace penstock
