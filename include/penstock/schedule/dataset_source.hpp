// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/channel/layout.hpp>
#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/stream.hpp>
#include <penstock/device/cpu.hpp>
#include <penstock/sample/fault_list.hpp>
#include <penstock/schedule/source.hpp>
#include <penstock/stage/batch.hpp>
#include <penstock/stage/plan.hpp>
#include <penstock/stage/read.hpp>

namespace penstock::detail {

/// Calls the user's transform of `read`, if there is one.
template <class Transform, class Sample>
void apply_transform([[maybe_unused]] const Transform& transform, [[maybe_unused]] const Sample& sample,
                     [[maybe_unused]] philox& random) {
  if constexpr (std::is_invocable_v<const Transform&, const Sample&, philox&>)
    transform(sample, random);
  else if constexpr (std::is_invocable_v<const Transform&, const Sample&>)
    transform(sample);
}

/// Writes a sample to places of other element types.
template <class... From, class... To>
void convert_sample(const std::tuple<From...>& from, const std::tuple<To...>& to) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto one = [](const auto& source, const auto& target) {
      using element = typename std::remove_cvref_t<decltype(target)>::value_type;
      const std::size_t n = source.size();
      for (std::size_t i = 0; i < n; ++i) target.data()[i] = static_cast<element>(source.data()[i]);
    };
    (one(std::get<I>(from), std::get<I>(to)), ...);
  }(std::index_sequence_for<From...>{});
}

/// How samples get from the dataset to their places: directly, converted, or by the user's collate.
template <class Dataset, class Collate>
struct collation {
  using schema_type = decltype(std::declval<const Collate&>().schema(std::declval<const Dataset&>()));
  static schema_type stored(const Dataset& dataset, const Collate& collate) { return collate.schema(dataset); }
};
template <class Dataset>
struct collation<Dataset, cast_t<>> {
  using schema_type = schema_of<Dataset>;
  static schema_type stored(const Dataset& dataset, cast_t<>) { return dataset.schema(); }
};
template <class Dataset, class... Elements>
  requires(sizeof...(Elements) > 0)
struct collation<Dataset, cast_t<Elements...>> {
  using schema_type = decltype(cast_schema(std::declval<schema_of<Dataset>>(), cast_t<Elements...>{}));
  static schema_type stored(const Dataset& dataset, cast_t<Elements...> elements) {
    return cast_schema(dataset.schema(), elements);
  }
};

template <class Factory, class Collate>
  requires(!is_cast<Collate>)
struct collation<stream_dataset<Factory>, Collate> {
  using elements = stream_elements<typename stream_dataset<Factory>::sample_type>;
  using schema_type = decltype(std::declval<const Collate&>().schema(std::declval<const elements&>()));
};
template <class Factory>
struct collation<stream_dataset<Factory>, cast_t<>> {
  using schema_type = typename stream_dataset<Factory>::schema_type;
};
/// The schema of the batches of a stream whose first sample is given.
template <class Sample, class Collate>
auto stream_schema(const Sample& first, const Collate& collate) {
  if constexpr (is_cast<Collate>)
    return schema_for(first);
  else
    return collate.schema(stream_elements<Sample>{&first});
}

template <class Dataset, class Collate>
using stored_schema = typename collation<std::remove_const_t<Dataset>, Collate>::schema_type;

/// A dataset read in the order of a plan.
template <class Dataset, class Plan, class Transform, class Collate>
class dataset_source final : public source<stored_schema<Dataset, Collate>> {
  using stored = stored_schema<Dataset, Collate>;
  static constexpr bool collates = !is_cast<Collate>;

  struct no_schema {};
  // Samples are read straight into their places: no collate, which asks for elements, and no cast.
  static constexpr bool direct = [] {
    if constexpr (collates)
      return false;
    else
      return std::same_as<stored, schema_of<Dataset>>;
  }();

 public:
  dataset_source(std::shared_ptr<Dataset> dataset, Plan plan, std::uint64_t seed, Transform transform, Collate collate,
                 bad_samples bad, std::shared_ptr<const fault_list> listed)
      : dataset_(std::move(dataset)),
        plan_(std::move(plan)),
        seed_(seed),
        transform_(std::move(transform)),
        collate_(std::move(collate)),
        bad_(bad),
        listed_(std::move(listed)) {}

  std::uint64_t positions() const override { return plan_.size(); }
  bool leaves_out() const override { return bad_ == bad_samples::skip; }

  provenance where([[maybe_unused]] std::uint64_t sample) const noexcept override {
    if constexpr (says_where<Dataset>) {
      try {
        if (sample < static_cast<std::uint64_t>(dataset_->size())) return dataset_->where(sample);
      } catch (...) {
        // What is to be told is more than where it was.
      }
    }
    return {};
  }
  std::uint64_t fingerprint() const override {
    std::uint64_t hash = mix(mix(mix(mix_start, dataset_->size()), plan_.size()), seed_);
    std::uint64_t begin[8] = {};
    const std::uint64_t known = plan_.size() < 8 ? plan_.size() : 8;
    plan_.order(seed_, 0, 0, std::span(begin).first(static_cast<std::size_t>(known)));
    for (std::uint64_t index : begin) hash = mix(hash, index);
    return hash;
  }

  bool takes_stop() const override {
    using reader = typename opened<Dataset, opens<Dataset>>::type;
    if constexpr (collates)
      return false;
    else if constexpr (opens<Dataset>)
      return reads_with_context<reader, schema_of<Dataset>> || reads_in_bulk_with_context<reader, schema_of<Dataset>>;
    else
      return reads_with_context<Dataset, schema_of<Dataset>> || reads_in_bulk_with_context<Dataset, schema_of<Dataset>>;
  }

  std::unique_ptr<reader_state> open() override {
    auto result = std::make_unique<state>();
    if constexpr (opens<Dataset>) result->reader.emplace(dataset_->open());
    if constexpr (!collates && !direct) {
      result->layout = batch_layout<schema_of<Dataset>>(dataset_->schema(), 1);
      result->scratch = aligned_memory(result->layout.bytes());
    }
    return result;
  }

  fill_result fill(reader_state& own, const fill_request<stored>& request) override {
    auto& reader = static_cast<state&>(own);
    plan_.order(seed_, request.epoch, request.first, request.indices);
    check_indices(request);
    const range_context context{seed_, request.epoch, reader.stop, request.progress};
    std::unique_lock<std::mutex> turn;
    if constexpr (says_serial<Dataset>) turn = std::unique_lock(serial_);
    std::size_t rows = 0;
    if constexpr (opens<Dataset>)
      rows = read_all(*reader.reader, reader, request, context);
    else if constexpr (says_serial<Dataset>)
      rows = read_all(*dataset_, reader, request, context);
    else
      rows = read_all(std::as_const(*dataset_), reader, request, context);
    return {rows, false, rows < request.indices.size()};
  }

 private:
  // A plan of the user's may be of another dataset; reading past the end would go unnoticed.
  void check_indices(const fill_request<stored>& request) const {
    const auto size = static_cast<std::uint64_t>(dataset_->size());
    std::uint64_t greatest = 0;
    for (const std::uint64_t index : request.indices) greatest = index > greatest ? index : greatest;
    if (greatest < size) return;
    for (std::size_t i = 0; i < request.indices.size(); ++i)
      if (request.indices[i] >= size)
        throw error(concat("the plan gives sample ", request.indices[i], " at position ", request.first + i,
                           " of epoch ", request.epoch, ", wanted one of the dataset's 0 to ", size - 1));
  }

  template <class D, bool Opens>
  struct opened {
    using type = std::remove_cvref_t<decltype(std::declval<const D&>().open())>;
  };
  template <class D>
  struct opened<D, false> {
    struct type {};
  };
  template <bool Scratch, class D>
  struct scratch_layout {
    using type = no_schema;
  };
  template <class D>
  struct scratch_layout<true, D> {
    using type = batch_layout<schema_of<D>>;
  };

  struct state final : reader_state {
    std::optional<typename opened<Dataset, opens<Dataset>>::type> reader;
    [[no_unique_address]] typename scratch_layout<!collates && !direct, Dataset>::type layout;
    aligned_memory scratch;
  };

  /// As the policy for bad samples says: all at once, or with each row for itself.
  template <class Reader>
  std::size_t read_all(Reader& reader, state& own, const fill_request<stored>& request, const range_context& context) {
    if (bad_ == bad_samples::fail) return read(reader, own, request, context);
    using schema = schema_of<Dataset>;
    const bool any_listed = listed_ && listed_->lists_any(request.indices);
    if constexpr (direct && (reads_in_bulk<Reader, schema> || reads_in_bulk_with_context<Reader, schema>)) {
      try {
        if (!any_listed) return read(reader, own, request, context);
      } catch (...) {
        // Which sample it was shows when they are read one by one.
      }
    }
    const std::size_t ahead = prefetch_distance<stored>(request.to);
    fill_request<stored> one = request;
    for (std::size_t row = 0; row < request.indices.size(); ++row) {
      hint(*dataset_, request.indices, row, ahead);
      one.indices = request.indices.subspan(row, 1);
      one.to = rows_of(request.to, row, 1);
      try {
        if (any_listed) refuse_listed(one.indices[0]);
        if (read(reader, own, one, context) == 0) return row;
      } catch (const std::bad_alloc&) {
        throw;
      } catch (...) {
        if (own.stop.stop_requested() || !read_another(reader, own, one, context, request.first_row + row)) throw;
      }
    }
    return request.indices.size();
  }

  /// A sample that is known to be bad fails at once, as it did then.
  [[gnu::noinline, gnu::cold]] void refuse_listed(std::uint64_t sample) const {
    if (const sample_fault* const row = listed_->find(sample)) throw error(row->problem, row->where);
  }

  /// Called in a handler: leaves the row's sample out, or reads another in its place. False if that cannot be read
  /// either, or is not wanted any more.
  template <class Reader>
  [[gnu::noinline, gnu::cold]] bool read_another(Reader& reader, state& own, const fill_request<stored>& one,
                                                 const range_context& context, std::size_t row) {
    std::uint64_t& index = one.indices[0];
    sample_fault fault;
    fault.sample = index;
    fault.row = static_cast<std::uint32_t>(row);
    try {
      throw;
    } catch (const error& caught) {
      fault.where = caught.where();
      fault.problem = caught.problem();
    } catch (...) {
      fault.problem = message_of(std::current_exception());
    }
    fault.where.sample = index;
    fault.where.complete_from(where(index));
    constexpr int most = 16;
    philox random(seed_, one.epoch, index, random_domain::plan);
    for (int attempt = 0; bad_ == bad_samples::substitute && !fault.substitute; ++attempt) {
      if (attempt == most) return give_up(one, fault.sample);
      fill_request<stored> other = one;
      other.first = random.below(plan_.size());
      plan_.order(seed_, one.epoch, other.first, one.indices);
      check_indices(other);
      if (index == fault.sample || (listed_ && listed_->find(index) != nullptr)) continue;
      try {
        if (read(reader, own, one, context) == 0) return give_up(one, fault.sample);
        fault.substitute = index;
      } catch (const std::bad_alloc&) {
        throw;
      } catch (...) {
        if (own.stop.stop_requested()) return give_up(one, fault.sample);
      }
    }
    one.faults->note(std::move(fault));
    return true;
  }
  // The sample that its row was for is what the error is about.
  static bool give_up(const fill_request<stored>& one, std::uint64_t sample) {
    one.indices[0] = sample;
    one.progress.begin(sample);
    return false;
  }

  template <class Reader>
  std::size_t read(Reader& reader, [[maybe_unused]] state& own, const fill_request<stored>& request,
                   const range_context& context) {
    if constexpr (direct) {
      if constexpr (std::is_same_v<Transform, no_transform>)
        return read_rows<stored>(reader, *dataset_, request.indices, request.to, context, nothing_after{});
      else
        return read_rows<stored>(
            reader, *dataset_, request.indices, request.to, context,
            [this](std::size_t, const auto& sample, philox& random) { apply_transform(transform_, sample, random); });
    } else {
      for (std::size_t row = 0; row < request.indices.size(); ++row) {
        const std::uint64_t index = request.indices[row];
        if (!request.progress.begin(index)) return row;
        philox random(seed_, request.epoch, index);
        const auto to = sample_at(request.to, row);
        if constexpr (collates) {
          auto&& element = reader.element(index);
          collate_(element, to);
          apply_transform(transform_, to, random);
        } else {
          const auto sample = sample_at(own.layout.views(own.scratch.data(), 1), 0);
          read_one_row(reader, index, own, random, context);
          apply_transform(transform_, sample, random);
          convert_sample(sample, to);
        }
      }
      return request.indices.size();
    }
  }

  template <class Reader>
  void read_one_row(Reader& reader, std::uint64_t index, state& own, philox& random, const range_context& context) {
    using schema = schema_of<Dataset>;
    const auto rows = own.layout.views(own.scratch.data(), 1);
    if constexpr (reads_samples<Reader, schema>) {
      read_one<schema>(reader, index, sample_at(rows, 0), random, context);
    } else {
      const range_context quiet{context.seed, context.epoch, context.stop, {}};
      read_rows<schema>(reader, *dataset_, std::span(&index, 1), rows, quiet, nothing_after{});
    }
  }

  std::shared_ptr<Dataset> dataset_;
  Plan plan_;
  std::uint64_t seed_;
  Transform transform_;
  Collate collate_;
  bad_samples bad_;
  std::shared_ptr<const fault_list> listed_;  // or null
  std::mutex serial_;
};

}  // namespace penstock::detail
