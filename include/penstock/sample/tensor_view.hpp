// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <penstock/sample/config.hpp>

namespace penstock {

/// Memory that the host may dereference.
struct host_memory {};
/// Memory of a device: the host may hold and pass its addresses, not read through them.
struct device_memory {};

/// A non-owning, contiguous, row-major view of `Rank` dimensions.
///
/// Extents are run-time values, the last one varies fastest. Copies are shallow and cheap. Views of
/// `device_memory` give their address and extents everywhere, their elements in device code alone: reading
/// one on the host does not compile. Nothing is checked against the extents.
template <class T, std::size_t Rank, class Space = host_memory>
class tensor_view {
  static constexpr bool on_host = std::same_as<Space, host_memory>;

 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using memory_space = Space;

  constexpr tensor_view() = default;
  /// `data` points at the product of `shape` elements.
  constexpr tensor_view(T* data, const std::array<std::size_t, Rank>& shape) : data_(data) {
    for (std::size_t i = 0; i != Rank; ++i) extents_[i] = shape[i];
  }
  /// A view of mutable elements is one of constant elements, too.
  template <class U>
    requires(std::same_as<const U, T>)
  constexpr tensor_view(const tensor_view<U, Rank, Space>& other) : tensor_view(other.data(), other.shape()) {}

  PENSTOCK_HOST_DEVICE static constexpr std::size_t rank() { return Rank; }
  PENSTOCK_HOST_DEVICE constexpr T* data() const { return data_; }
  PENSTOCK_HOST_DEVICE constexpr T* data_handle() const { return data_; }
  PENSTOCK_HOST_DEVICE constexpr std::size_t extent(std::size_t dimension) const { return extents_[dimension]; }
  PENSTOCK_HOST_DEVICE constexpr std::size_t stride(std::size_t dimension) const {
    std::size_t product = 1;
    for (std::size_t i = dimension + 1; i < Rank; ++i) product *= extents_[i];
    return product;
  }
  /// Number of elements; 1 for rank 0.
  PENSTOCK_HOST_DEVICE constexpr std::size_t size() const {
    std::size_t product = 1;
    for (std::size_t i = 0; i != Rank; ++i) product *= extents_[i];
    return product;
  }
  PENSTOCK_HOST_DEVICE constexpr std::size_t size_bytes() const { return size() * sizeof(T); }
  PENSTOCK_HOST_DEVICE constexpr bool empty() const { return size() == 0; }
  constexpr std::array<std::size_t, Rank> shape() const {
    std::array<std::size_t, Rank> result{};
    for (std::size_t i = 0; i != Rank; ++i) result[i] = extents_[i];
    return result;
  }

  /// The element at the given indices, one for each dimension: `y()` for rank 0, `x(row, column)` for rank 2.
  template <std::convertible_to<std::size_t>... Indices>
    requires(sizeof...(Indices) == Rank && on_host)
  constexpr T& operator()(Indices... indices) const {
    return data_[offset(static_cast<std::size_t>(indices)...)];
  }
#if defined(__CUDACC__)
  template <std::convertible_to<std::size_t>... Indices>
    requires(sizeof...(Indices) == Rank && !on_host)
  __device__ constexpr T& operator()(Indices... indices) const {
    return data_[offset(static_cast<std::size_t>(indices)...)];
  }
  __device__ constexpr T& operator[](std::size_t index) const
    requires(Rank == 1 && !on_host)
  {
    return data_[index];
  }
#endif

  /// The view of one dimension less at `index` of the first one.
  PENSTOCK_HOST_DEVICE constexpr auto operator[](std::size_t index) const
    requires(Rank > 1)
  {
    return sub(index);
  }
  constexpr T& operator[](std::size_t index) const
    requires(Rank == 1 && on_host)
  {
    return data_[index];
  }
  /// The view of one dimension less at `index`, also for rank 1, where it is a scalar.
  PENSTOCK_HOST_DEVICE constexpr auto sub(std::size_t index) const
    requires(Rank >= 1)
  {
    tensor_view<T, Rank - 1, Space> result;
    result.data_ = data_ + index * stride(0);
    for (std::size_t i = 1; i < Rank; ++i) result.extents_[i - 1] = extents_[i];
    return result;
  }
  /// The view of the first `count` entries of the first dimension.
  PENSTOCK_HOST_DEVICE constexpr tensor_view first(std::size_t count) const
    requires(Rank >= 1)
  {
    tensor_view result = *this;
    result.extents_[0] = count;
    return result;
  }

  constexpr T* begin() const
    requires on_host
  {
    return data_;
  }
  constexpr T* end() const
    requires on_host
  {
    return data_ + size();
  }

  /// All elements, row after row. Host views convert by themselves, being contiguous ranges; a span does not know where
  /// its memory is, so that of a device's must be asked for.
  constexpr explicit operator std::span<T>() const
    requires(!on_host)
  {
    return {data_, size()};
  }

  /// Any mdspan-like type of the same element type and rank whose constructor takes a pointer and an array of extents.
  /// As with spans, to be asked for if the memory is a device's.
  template <class Mdspan>
    requires requires {
      typename Mdspan::extents_type;
      typename Mdspan::layout_type;
    } && (Mdspan::rank() == Rank) && std::same_as<typename Mdspan::element_type, T> &&
             std::constructible_from<Mdspan, T*, std::array<std::size_t, Rank>>
  constexpr explicit(!on_host) operator Mdspan() const {
    return Mdspan(data_, shape());
  }

 private:
  template <class, std::size_t, class>
  friend class tensor_view;

  template <class... Indices>
  PENSTOCK_HOST_DEVICE constexpr std::size_t offset(Indices... indices) const {
    std::size_t result = 0;
    std::size_t dimension = 0;
    ((result = result * extents_[dimension++] + indices), ...);
    return result;
  }

  T* data_ = nullptr;
  std::size_t extents_[Rank == 0 ? 1 : Rank] = {};
};

}  // namespace penstock

/// Pointers stay valid without the view that they came from.
template <class T, std::size_t Rank>
inline constexpr bool std::ranges::enable_borrowed_range<penstock::tensor_view<T, Rank>> = true;
