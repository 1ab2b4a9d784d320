// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <penstock/channel/lease.hpp>
#include <penstock/device/device.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

namespace detail {

/// By size and sign: `long` and `long long` are one to LibTorch. `Undefined` if it has none.
template <class T>
constexpr at::ScalarType torch_type() {
  if constexpr (std::same_as<T, float>) return at::kFloat;
  if constexpr (std::same_as<T, double>) return at::kDouble;
  if constexpr (std::same_as<T, bool>) return at::kBool;
  if constexpr (std::same_as<T, at::Half>) return at::kHalf;
  if constexpr (std::same_as<T, at::BFloat16>) return at::kBFloat16;
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? at::kChar : at::kByte;
    if constexpr (std::is_signed_v<T>) return sizeof(T) == 2 ? at::kShort : sizeof(T) == 4 ? at::kInt : at::kLong;
  }
  return at::ScalarType::Undefined;
}

/// Only CUDA's devices have an ordinal.
template <class Device>
inline constexpr bool is_torch_device = host_device<Device> || requires(const Device& device) {
  { device.ordinal() } -> std::convertible_to<int>;
};

/// Owns nothing; `deleter`, if given, is called when the last tensor on the memory goes.
template <class Device, class View, class... Deleter>
at::Tensor torch_blob(const View& view, Deleter&&... deleter) {
  using element = typename View::value_type;
  constexpr at::ScalarType type = torch_type<element>();
  static_assert(type != at::ScalarType::Undefined,
                "penstock: LibTorch has no tensors of this field's element type: wanted float, double, bool, int8, "
                "uint8, int16, int32, int64, at::Half or at::BFloat16; have the dataset give one of these (int32 for "
                "uint16), or take the other fields one by one: to_tensor<I>(batch)");
  static_assert(is_torch_device<Device>,
                "penstock: LibTorch knows no memory of this device: wanted a batch of cpu_device or cuda_device");
  if constexpr (type != at::ScalarType::Undefined && is_torch_device<Device>) {
    std::array<std::int64_t, View::rank()> sizes{};
    for (std::size_t i = 0; i < View::rank(); ++i) sizes[i] = static_cast<std::int64_t>(view.extent(i));
    // Of several GPUs LibTorch finds the one by the address.
    return at::from_blob(const_cast<element*>(view.data()), sizes, std::forward<Deleter>(deleter)...,
                         at::TensorOptions(host_device<Device> ? at::kCPU : at::kCUDA).dtype(type));
  } else {
    return {};
  }
}

}  // namespace detail

/// The I-th field of a batch as a tensor, without a copy: in the device's memory, `batch.rows()` rows first.
///
/// It borrows: the batch keeps its memory, and neither the tensor nor a view of it may be used once the batch was let
/// go, which in `for (auto& batch : feed.epoch(0))` is at the end of the loop's body. Autograd's graph, which may hold
/// it, lets go in `backward()`, or with the loss. `clone()` what is to stay.
template <std::size_t I, class Schema, class Device>
at::Tensor to_tensor(const lease<Schema, Device>& batch) {
  return detail::torch_blob<Device>(batch.template get<I>());
}
/// All fields: `auto [x, y] = penstock::to_tensors(batch);`
template <class... Fields, class Device>
std::array<at::Tensor, sizeof...(Fields)> to_tensors(const lease<schema<Fields...>, Device>& batch) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<at::Tensor, sizeof...(Fields)>{to_tensor<I>(batch)...};
  }(std::index_sequence_for<Fields...>{});
}

/// The same from a batch that is moved there: the tensors own it together, with all that shares their memory, and it is
/// let go by whoever drops the last of these, on any thread, be the feed gone by then. Until then it is a buffer less
/// for what is read ahead: with `depth` of them held, the feed waits, for ever if none is dropped.
///
/// On a GPU the memory returns behind what was enqueued on the batch's stream until the last one is dropped: name
/// others by `used_on` before.
template <class... Fields, class Device>
std::array<at::Tensor, sizeof...(Fields)> to_tensors(lease<schema<Fields...>, Device>&& batch) {
  const auto owner = std::make_shared<lease<schema<Fields...>, Device>>(std::move(batch));
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<at::Tensor, sizeof...(Fields)>{
        detail::torch_blob<Device>(owner->template get<I>(), [owner](void*) {})...};
  }(std::index_sequence_for<Fields...>{});
}
template <std::size_t I, class Schema, class Device>
at::Tensor to_tensor(lease<Schema, Device>&& batch) {
  const auto owner = std::make_shared<lease<Schema, Device>>(std::move(batch));
  return detail::torch_blob<Device>(owner->template get<I>(), [owner](void*) {});
}

}  // namespace penstock
