// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/dataset/dataset.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

namespace detail {

template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;
template <class T>
inline constexpr std::size_t view_rank = 0;
template <class T, std::size_t Rank>
inline constexpr std::size_t view_rank<tensor_view<T, Rank>> = Rank;
template <class T>
inline constexpr bool is_tensor_view = false;
template <class T, std::size_t Rank>
inline constexpr bool is_tensor_view<tensor_view<T, Rank>> = true;

template <class T>
concept scalar_value = std::is_arithmetic_v<T>;
/// Contiguous elements of one type whose number is known: vector, span, array.
template <class T>
concept row_value = !is_tensor_view<T> && std::ranges::contiguous_range<const T> && std::ranges::sized_range<const T> &&
                    scalar_value<std::ranges::range_value_t<const T>>;
template <class T>
concept field_value = scalar_value<T> || row_value<T> || is_tensor_view<T>;

template <class T>
concept tuple_like = !field_value<T> && requires { std::tuple_size<T>::value; };

template <class T, std::size_t I>
using element_of = std::remove_cvref_t<std::tuple_element_t<I, T>>;

template <class T, class Indices>
inline constexpr bool all_fields = false;
template <class T, std::size_t... I>
inline constexpr bool all_fields<T, std::index_sequence<I...>> = (field_value<element_of<T, I>> && ...);

/// What a range may hold: one field's value, or a tuple of them.
template <class T>
concept sample_value =
    field_value<T> || (tuple_like<T> && all_fields<T, std::make_index_sequence<std::tuple_size<T>::value>>);

template <class T>
auto field_for(std::string name, const T& value) {
  if constexpr (scalar_value<T>) {
    return field<T>{std::move(name), {}};
  } else if constexpr (is_tensor_view<T>) {
    return field<std::remove_cv_t<typename T::element_type>, view_rank<T>>{std::move(name), value.shape()};
  } else {
    return field<std::ranges::range_value_t<const T>, 1>{std::move(name), {std::ranges::size(value)}};
  }
}

template <class T>
auto schema_for(const T& value) {
  if constexpr (field_value<T>) {
    return schema(field_for("0", value));
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      using std::get;
      return schema(field_for(std::to_string(I), static_cast<const element_of<T, I>&>(get<I>(value)))...);
    }(std::make_index_sequence<std::tuple_size<T>::value>{});
  }
}

/// Copies one field's value to its place; its extents must be those of the schema.
template <class T, class U, std::size_t Rank>
void assign_field(const T& value, const tensor_view<U, Rank>& to, std::size_t field) {
  if constexpr (scalar_value<T>) {
    *to.data() = static_cast<U>(value);
  } else {
    const auto* from = [&] {
      if constexpr (is_tensor_view<T>)
        return value.data();
      else
        return std::ranges::data(value);
    }();
    const std::size_t found = std::ranges::size(value);
    if (found != to.size())
      throw error(concat("field ", field, " has ", found, " elements, wanted ", to.size(), " as in sample 0"));
    if constexpr (std::same_as<std::remove_cvref_t<decltype(*from)>, U>) {
      if (found != 0) std::memcpy(to.data(), from, found * sizeof(U));
    } else {
      for (std::size_t i = 0; i < found; ++i) to.data()[i] = static_cast<U>(from[i]);
    }
  }
}

template <class T, class... Views>
void assign_sample(const T& value, const std::tuple<Views...>& to) {
  if constexpr (field_value<T>) {
    assign_field(value, std::get<0>(to), 0);
  } else {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      using std::get;
      (assign_field<element_of<T, I>>(get<I>(value), std::get<I>(to), I), ...);
    }(std::make_index_sequence<sizeof...(Views)>{});
  }
}

/// Brings near what an element's fields hold, or refer to.
template <class T>
void prefetch_sample(const T& value) {
  if constexpr (scalar_value<T>) {
    prefetch_lines(std::addressof(value), sizeof(value));
  } else if constexpr (is_tensor_view<T>) {
    prefetch_lines(value.data(), value.size_bytes());
  } else if constexpr (row_value<T>) {
    prefetch_lines(std::ranges::data(value), std::ranges::size(value) * sizeof(std::ranges::range_value_t<const T>));
  } else {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      using std::get;
      (prefetch_sample<element_of<T, I>>(get<I>(value)), ...);
    }(std::make_index_sequence<std::tuple_size<T>::value>{});
  }
}

/// A member of an element that exists only while it is looked at: gone before it can be read. What moves from elements
/// that stay has the same type, and is no source for more than one epoch either.
template <class Range>
concept dangling_range =
    std::ranges::forward_range<Range> && std::is_rvalue_reference_v<std::ranges::range_reference_t<Range>>;

template <class Range>
concept sample_range =
    std::ranges::random_access_range<const Range> && std::ranges::sized_range<const Range> &&
    !dangling_range<const Range> && sample_value<std::remove_cvref_t<std::ranges::range_value_t<const Range>>>;

}  // namespace detail

/// Any random-access, sized range of samples as a dataset. A sample is a number, a contiguous row of numbers
/// (`std::array`, `std::vector`, `std::span`), a `tensor_view`, or a tuple-like of these; fields are named "0", "1",
/// ...
///
/// Rows and views take their extents from the first sample; another one that differs is an error when it is read. The
/// range is iterated as const, by many readers at once.
template <detail::sample_range Range>
class range_dataset {
 public:
  using sample_type = std::remove_cvref_t<std::ranges::range_value_t<const Range>>;
  using schema_type = decltype(detail::schema_for(std::declval<const sample_type&>()));

  explicit range_dataset(Range range) : range_(std::move(range)) {}

  std::uint64_t size() const { return static_cast<std::uint64_t>(std::ranges::size(range_)); }
  /// Throws if the range is empty and its rows have no extents of their own to tell.
  schema_type schema() const {
    if (size() != 0) {
      auto&& first = element(0);
      if constexpr (detail::sample_value<std::remove_cvref_t<decltype(first)>>)
        return detail::schema_for(first);
      else
        return detail::schema_for(static_cast<sample_type>(first));  // a proxy, as vector<bool> has
    }
    if constexpr (std::default_initializable<sample_type>) return detail::schema_for(sample_type{});
    throw error("an empty range has no first sample to take the fields' shapes from");
  }
  template <class... Views>
  void read(std::uint64_t index, const std::tuple<Views...>& to) const {
    auto&& value = element(index);
    if constexpr (detail::sample_value<std::remove_cvref_t<decltype(value)>>)
      detail::assign_sample<std::remove_cvref_t<decltype(value)>>(value, to);
    else
      detail::assign_sample<sample_type>(static_cast<sample_type>(value), to);
  }
  /// The sample itself, for a collate that needs more than fixed shapes.
  decltype(auto) element(std::uint64_t index) const {
    return std::ranges::begin(range_)[static_cast<std::ranges::range_difference_t<const Range>>(index)];
  }
  /// Where samples lie side by side in memory, the first lines of each field are brought near. Of other ranges even to
  /// look at an element may be a computation, which is made when it is read.
  void prefetch(std::uint64_t index) const
    requires std::ranges::contiguous_range<const Range>
  {
    detail::prefetch_sample(element(index));
  }
  /// The same of elements that only refer to what they hold.
  void prefetch_place(std::uint64_t index) const
    requires(std::ranges::contiguous_range<const Range> && !detail::scalar_value<sample_type> &&
             !detail::is_std_array<sample_type>)
  {
    prefetch_lines(std::addressof(element(index)), sizeof(sample_type));
  }

 private:
  Range range_;
};

namespace detail {

/// A range owned by somebody else.
template <class Range>
class range_reference {
 public:
  explicit range_reference(const Range& range) : range_(&range) {}
  auto begin() const { return std::ranges::begin(*range_); }
  auto end() const { return std::ranges::end(*range_); }
  auto size() const { return std::ranges::size(*range_); }

 private:
  const Range* range_;
};

}  // namespace detail
}  // namespace penstock
