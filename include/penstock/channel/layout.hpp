// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include <penstock/sample/schema.hpp>

namespace penstock {

/// Where the fields of a batch lie in its slot: one after the other, each aligned, `capacity` samples each.
///
/// All fields share one allocation, so that a batch is one copy to a device whatever the number of fields.
template <class Schema>
class batch_layout {
 public:
  /// Good for vector loads and for a device's memory transactions.
  static constexpr std::size_t alignment = 256;

  batch_layout() = default;
  batch_layout(Schema schema, std::size_t capacity) : schema_(std::move(schema)), capacity_(capacity) {
    std::size_t at = 0;
    each([&](auto index, const auto& field) {
      using element = typename std::remove_cvref_t<decltype(field)>::element_type;
      offsets_[index] = at;
      row_bytes_[index] = field.elements() * sizeof(element);
      at += (row_bytes_[index] * capacity + alignment - 1) / alignment * alignment;
    });
    bytes_ = at;
  }

  const Schema& schema() const noexcept { return schema_; }
  std::size_t capacity() const noexcept { return capacity_; }
  /// Of the whole slot.
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t offset(std::size_t field) const noexcept { return offsets_[field]; }
  /// Of one sample's field.
  std::size_t row_bytes(std::size_t field) const noexcept { return row_bytes_[field]; }
  /// Up to the last byte of `rows` samples: what a copy of a short batch has to carry.
  std::size_t bytes_of(std::size_t rows) const noexcept {
    return offsets_[Schema::size - 1] + row_bytes_[Schema::size - 1] * rows;
  }

  /// Views of `rows` samples from `first` on, in the memory at `base`.
  template <class Space = host_memory>
  batch_view<Schema, Space> views(std::byte* base, std::size_t rows, std::size_t first = 0) const {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return batch_view<Schema, Space>(view<I, Space>(base, rows, first)...);
    }(std::make_index_sequence<Schema::size>{});
  }

  template <std::size_t I, class Space = host_memory>
  auto view(std::byte* base, std::size_t rows, std::size_t first = 0) const {
    using field = field_t<I, Schema>;
    using element = typename field::element_type;
    std::array<std::size_t, field::rank + 1> shape{rows};
    for (std::size_t d = 0; d != field::rank; ++d) shape[d + 1] = std::get<I>(schema_.fields).shape[d];
    auto* data = reinterpret_cast<element*>(base + offsets_[I] + first * row_bytes_[I]);
    return tensor_view<element, field::rank + 1, Space>(data, shape);
  }

 private:
  template <class F>
  void each(F&& f) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (f(I, std::get<I>(schema_.fields)), ...);
    }(std::make_index_sequence<Schema::size>{});
  }

  Schema schema_{};
  std::size_t capacity_ = 0;
  std::size_t bytes_ = 0;
  std::array<std::size_t, Schema::size> offsets_{};
  std::array<std::size_t, Schema::size> row_bytes_{};
};

}  // namespace penstock
