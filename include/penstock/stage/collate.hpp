// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/dataset/range.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

/// What happens to a sequence longer than the declared maximum.
enum class longer { error, cut };

struct pad_options {
  std::size_t length = 0;  ///< elements of the longest sequence, at least 1
  penstock::longer longer = penstock::longer::error;
};

/// A collate for sequences of varying length: `batch(32, pad_to({.length = 128}))`.
///
/// For a range, or a stream, of samples whose rows (vectors, spans) differ in length. Each row field becomes two: its
/// elements, padded with zeros up to `length`, and a mask of as many bytes, 1 where there is an element. Other fields
/// stay as they are.
class pad_to {
 public:
  explicit pad_to(pad_options options) : options_(options) {
    if (options.length == 0) detail::reject_option("pad_to", "length", "0", "1 or more");
  }

  template <class Dataset>
    requires requires(const Dataset& dataset) { dataset.element(0); }
  auto schema(const Dataset&) const {
    using sample = std::remove_cvref_t<decltype(std::declval<const Dataset&>().element(0))>;
    return schema_of_sample<sample>();
  }

  template <class Sample, class... Views>
  void operator()(const Sample& sample, const std::tuple<Views...>& to) const {
    if constexpr (detail::field_value<Sample>) {
      write<0>(sample, to, 0);
    } else {
      write_fields<0, 0>(sample, to);
    }
  }

  /// Whether a field of this type is padded.
  template <class T>
  static constexpr bool pads = detail::row_value<T> && !detail::is_std_array<T>;

 private:
  template <class T>
  auto fields_for(std::string name) const {
    if constexpr (pads<T>) {
      using element = std::ranges::range_value_t<const T>;
      return std::tuple(field<element, 1>{name, {options_.length}},
                        field<std::uint8_t, 1>{name + "_mask", {options_.length}});
    } else {
      return std::tuple(detail::field_for(std::move(name), T{}));
    }
  }
  template <class Sample>
  auto schema_of_sample() const {
    const auto make = [](auto... fields) { return penstock::schema<decltype(fields)...>(std::move(fields)...); };
    if constexpr (detail::field_value<Sample>) {
      return std::apply(make, fields_for<Sample>("0"));
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return std::apply(make, std::tuple_cat(fields_for<detail::element_of<Sample, I>>(std::to_string(I))...));
      }(std::make_index_sequence<std::tuple_size_v<Sample>>{});
    }
  }

  template <std::size_t I, std::size_t Out, class Sample, class To>
  void write_fields(const Sample& sample, const To& to) const {
    if constexpr (I < std::tuple_size_v<Sample>) {
      using std::get;
      using value = detail::element_of<Sample, I>;
      write<Out>(static_cast<const value&>(get<I>(sample)), to, I);
      write_fields<I + 1, Out + (pads<value> ? 2 : 1)>(sample, to);
    }
  }
  template <std::size_t Out, class T, class To>
  void write(const T& value, const To& to, std::size_t field) const {
    if constexpr (pads<T>) {
      const auto& elements = std::get<Out>(to);
      const auto& mask = std::get<Out + 1>(to);
      std::size_t count = std::ranges::size(value);
      if (count > options_.length) {
        if (options_.longer == longer::error)
          throw error(detail::concat("field ", field, " has ", count, " elements, wanted at most ", options_.length,
                                     ", the length of pad_to (longer::cut shortens instead)"));
        count = options_.length;
      }
      for (std::size_t i = 0; i < options_.length; ++i) {
        elements[i] = i < count ? std::ranges::data(value)[i] : 0;
        mask[i] = i < count ? 1 : 0;
      }
    } else {
      detail::assign_field(value, std::get<Out>(to), field);
    }
  }

  pad_options options_;
};

}  // namespace penstock
