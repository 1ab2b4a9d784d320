// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// DLPack's `DLManagedTensor`, of whichever header a program has it from: <dlpack/dlpack.h>, <ATen/dlpack.h>, ...
template <class Managed>
concept dlpack_managed_tensor = requires(Managed& one) {
  { one.dl_tensor.data } -> std::convertible_to<void*>;
  { one.dl_tensor.shape } -> std::convertible_to<const std::int64_t*>;
  one.dl_tensor.device.device_id = 0;
  one.dl_tensor.dtype.bits = 0;
  one.manager_ctx = nullptr;
  one.deleter(&one);
};

/// Calls the tensor's own deleter, as whoever takes one over has to.
struct dlpack_delete {
  template <dlpack_managed_tensor Managed>
  void operator()(Managed* one) const noexcept {
    if (one->deleter != nullptr) one->deleter(one);
  }
};
/// `release()` gives it to another library.
template <dlpack_managed_tensor Managed>
using dlpack_tensor = std::unique_ptr<Managed, dlpack_delete>;

namespace detail {

/// DLPack's codes: signed 0, unsigned 1, float 2, and bool 6, which it has since version 0.8 (LibTorch 1.13 refuses
/// it).
template <class T>
constexpr int dlpack_code() {
  if constexpr (std::same_as<T, bool>) return 6;
  if constexpr (std::integral<T>) return std::is_signed_v<T> ? 0 : 1;
  return std::floating_point<T> ? 2 : -1;
}

/// A field's tensor and what it points at, in one piece.
template <class Managed, class Lease, std::size_t Rank>
struct dlpack_holder {
  std::shared_ptr<Lease> owner;
  std::array<std::int64_t, Rank> shape{}, strides{};
  Managed managed{};
};

template <class Managed, class Lease, class View>
dlpack_tensor<Managed> make_dlpack(const std::shared_ptr<Lease>& owner, const View& view, int ordinal) {
  using element = typename View::value_type;
  using holder = dlpack_holder<Managed, Lease, View::rank()>;
  constexpr int code = dlpack_code<element>();
  static_assert(code >= 0, "penstock: DLPack has no tensors of this field's element type: wanted a number or bool");
  auto made = std::make_unique<holder>();
  made->owner = owner;
  for (std::size_t i = 0; i < View::rank(); ++i) {
    made->shape[i] = static_cast<std::int64_t>(view.extent(i));
    made->strides[i] = static_cast<std::int64_t>(view.stride(i));
  }
  auto& tensor = made->managed.dl_tensor;
  using device_type = std::remove_reference_t<decltype(tensor.device.device_type)>;
  constexpr bool on_host = host_device<typename Lease::device_type>;
  tensor.data = const_cast<element*>(view.data());
  tensor.device.device_type = static_cast<device_type>(on_host ? 1 : 2);  // kDLCPU, kDLCUDA
  tensor.device.device_id = ordinal;
  tensor.ndim = static_cast<int>(View::rank());
  tensor.dtype.code = static_cast<std::uint8_t>(code);
  tensor.dtype.bits = static_cast<std::uint8_t>(8 * sizeof(element));
  tensor.dtype.lanes = 1;
  tensor.shape = made->shape.data();
  tensor.strides = made->strides.data();
  tensor.byte_offset = 0;
  made->managed.manager_ctx = made.get();
  made->managed.deleter = [](Managed* one) { delete static_cast<holder*>(one->manager_ctx); };
  return dlpack_tensor<Managed>(&made.release()->managed);
}

}  // namespace detail

/// The fields of a batch as DLPack's tensors, without a copy, for any library that takes these:
///
///   auto [x, y] = penstock::to_dlpack<DLManagedTensor>(std::move(batch), device);
///   other_library::from_dlpack(x.release());
///
/// The batch is moved there; the tensors own it together. It is let go by whoever deletes the last of them, on any
/// thread, be the feed gone by then. Rows first, `batch.rows()` of them; each field begins at a multiple of 128 bytes.
/// `device` is that of the batch: `cpu_device` or `cuda_device`. On a GPU the other library's work is to be ordered
/// with the batch's stream, which is to be asked for before.
template <dlpack_managed_tensor Managed, class... Fields, class Device>
std::array<dlpack_tensor<Managed>, sizeof...(Fields)> to_dlpack(lease<schema<Fields...>, Device>&& batch,
                                                                const Device& device) {
  constexpr bool known = host_device<Device> || requires { static_cast<int>(device.ordinal()); };
  static_assert(known, "penstock: DLPack is told of no such device: wanted a batch of cpu_device or cuda_device");
  int ordinal = 0;
  if constexpr (!host_device<Device> && known) ordinal = static_cast<int>(device.ordinal());
  const auto owner = std::make_shared<lease<schema<Fields...>, Device>>(std::move(batch));
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<dlpack_tensor<Managed>, sizeof...(Fields)>{
        detail::make_dlpack<Managed>(owner, owner->template get<I>(), ordinal)...};
  }(std::index_sequence_for<Fields...>{});
}
template <dlpack_managed_tensor Managed, class Schema, class Device>
void to_dlpack(const lease<Schema, Device>&, const Device&) = delete;  // its tensors outlive a borrowed batch: move it

}  // namespace penstock
