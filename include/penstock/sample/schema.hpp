// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/sample/tensor_view.hpp>

namespace penstock {

/// One typed field of a sample: element type and rank are compile-time, name and shape run-time facts.
///
/// The shape is that of one sample; a batch puts the number of samples before it.
template <class T, std::size_t Rank = 0>
struct field {
  static_assert(std::is_trivially_copyable_v<T>, "penstock: a field's element type must be trivially copyable");
  using element_type = T;
  static constexpr std::size_t rank = Rank;

  std::string name{};
  std::array<std::size_t, Rank> shape{};

  /// Elements in one sample.
  constexpr std::size_t elements() const {
    std::size_t product = 1;
    for (std::size_t extent : shape) product *= extent;
    return product;
  }
  bool operator==(const field&) const = default;
};

/// The fields of a sample, in order. `schema{field<float, 1>{"x", {9}}, field<float>{"price"}}`.
template <class... Fields>
struct schema {
  static constexpr std::size_t size = sizeof...(Fields);

  std::tuple<Fields...> fields;

  schema() = default;
  explicit schema(Fields... all) : fields(std::move(all)...) {}
  bool operator==(const schema&) const = default;
};

namespace detail {

template <class T>
inline constexpr bool is_schema = false;
template <class... Fields>
inline constexpr bool is_schema<schema<Fields...>> = true;

template <class Schema, std::size_t ExtraRank, class Space>
struct views_of;
template <class... Fields, std::size_t ExtraRank, class Space>
struct views_of<schema<Fields...>, ExtraRank, Space> {
  using type = std::tuple<tensor_view<typename Fields::element_type, Fields::rank + ExtraRank, Space>...>;
};

}  // namespace detail

/// Where one sample is written or read: a tuple of views, one for each field, without a batch dimension.
template <class Schema>
using sample_view = typename detail::views_of<Schema, 0, host_memory>::type;

/// The fields of a batch: a tuple of views whose first extent is the number of samples.
template <class Schema, class Space = host_memory>
using batch_view = typename detail::views_of<Schema, 1, Space>::type;

/// The I-th field's type.
template <std::size_t I, class Schema>
using field_t = std::tuple_element_t<I, decltype(Schema::fields)>;

/// Rows `first` to `first + count - 1` of a batch's views, as a batch.
template <class... Views>
constexpr std::tuple<Views...> rows_of(const std::tuple<Views...>& batch, std::size_t first, std::size_t count) {
  const auto rows = [=]<class View>(const View& view) {
    auto shape = view.shape();
    shape[0] = count;
    return View(view.data() + first * view.stride(0), shape);
  };
  return std::apply([&](const auto&... views) { return std::tuple<Views...>{rows(views)...}; }, batch);
}

/// Row `row` of a batch's views, as a sample.
template <class... Views>
constexpr auto sample_at(const std::tuple<Views...>& batch, std::size_t row) {
  return std::apply([row](const auto&... views) { return std::tuple{views.sub(row)...}; }, batch);
}

}  // namespace penstock
