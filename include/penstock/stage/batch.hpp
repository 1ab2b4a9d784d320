// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/sample/error.hpp>
#include <penstock/sample/schema.hpp>
#include <penstock/stage/plan.hpp>
#include <penstock/stage/stage.hpp>

namespace penstock {

struct batch_options {
  std::int64_t size = 0;    ///< samples in a batch of this replica; or
  std::int64_t global = 0;  ///< samples in a step over all replicas
  last_batch last = last_batch::keep;
  bool allow_empty = false;  ///< an epoch without any batch is an error unless allowed
};

/// In `cast`: this field keeps its element type.
struct keep {};

/// Element types that fields are converted to while they are written, one for each field, or `keep`.
template <class... Elements>
struct cast_t {};
template <class... Elements>
inline constexpr cast_t<Elements...> cast{};

namespace detail {

template <class T>
inline constexpr bool is_cast = false;
template <class... E>
inline constexpr bool is_cast<cast_t<E...>> = true;

template <class Field, class Element>
using cast_field =
    field<std::conditional_t<std::same_as<Element, keep>, typename Field::element_type, Element>, Field::rank>;

template <class... Fields, class... Elements>
auto cast_schema(const schema<Fields...>& from, cast_t<Elements...>) {
  return std::apply(
      [](const Fields&... fields) { return schema(cast_field<Fields, Elements>{fields.name, fields.shape}...); },
      from.fields);
}

}  // namespace detail

/// How many samples make a batch, and how they are put together. Takes samples, gives batches.
///
/// `Collate` is `cast_t<...>` or a type of the user's that writes a dataset's elements of varying size to places of one
/// size; see `pad_to` in stage/collate.hpp.
template <class Collate = cast_t<>>
struct batch_stage {
  static constexpr stage_kind kind = stage_kind::batch;

  batch_options options;
  Collate collate;

  /// Samples of a step over all `world` replicas.
  std::uint64_t global(std::uint64_t world) const {
    return options.global != 0 ? static_cast<std::uint64_t>(options.global)
                               : static_cast<std::uint64_t>(options.size) * world;
  }
  /// The most that one of `world` replicas gets in a step.
  std::size_t capacity(std::uint64_t world) const {
    return static_cast<std::size_t>((global(world) + world - 1) / world);
  }
  void validate() const {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    if (options.size != 0 && options.global != 0)
      detail::reject_option("batch", "global", std::to_string(options.global),
                            detail::concat("none beside size, which is ", options.size));
    const bool by_size = options.global == 0;
    const std::int64_t given = by_size ? options.size : options.global;
    if (given < 1 || given > most)
      detail::reject_option("batch", by_size ? "size" : "global", std::to_string(given), "1 to 2^31");
  }
};

/// Batches of `size` samples, the last one of an epoch with what is left.
inline batch_stage<> batch(std::int64_t size) { return {{.size = size}, {}}; }
inline batch_stage<> batch(batch_options options) { return {options, {}}; }

/// The same, put together by `collate`: `batch(256, cast<float, keep>)`.
template <class Collate>
batch_stage<Collate> batch(std::int64_t size, Collate collate) {
  return {{.size = size}, std::move(collate)};
}
template <class Collate>
batch_stage<Collate> batch(batch_options options, Collate collate) {
  return {options, std::move(collate)};
}

}  // namespace penstock
