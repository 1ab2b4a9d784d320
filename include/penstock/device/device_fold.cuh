// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cub/block/block_reduce.cuh>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <penstock/device/cuda.hpp>
#include <penstock/device/cuda_launch.cuh>
#include <penstock/device/fold_rows.hpp>

namespace penstock {

namespace detail {

/// Folds the rows of a batch, and each block's result into the block's own accumulator: no second pass, no atomics. The
/// first `begun` accumulators hold something.
template <class T, class Function, class Operation>
__global__ void __launch_bounds__(fold_shape::threads)
    fold_kernel(Function function, std::size_t rows, T* accumulators, unsigned begun, Operation operation) {
  using block_reduce = cub::BlockReduce<T, fold_shape::threads>;
  __shared__ typename block_reduce::TempStorage storage;
  const std::size_t thread = std::size_t{blockIdx.x} * fold_shape::threads + threadIdx.x;
  const std::size_t threads = std::size_t{gridDim.x} * fold_shape::threads;
  T value{};
  if (thread < rows) value = fold_rows(function, thread, threads, rows, operation);
  const auto busy = static_cast<int>(fold_shape::busy(rows, blockIdx.x));
  value = block_reduce(storage).Reduce(value, operation, busy);
  if (threadIdx.x != 0) return;
  T& to = accumulators[blockIdx.x];
  to = blockIdx.x < begun ? operation(to, value) : value;
}

/// One block: folds the accumulators and `initial` into `to`.
template <class T, class Operation>
__global__ void __launch_bounds__(fold_shape::threads)
    finish_fold_kernel(const T* accumulators, unsigned begun, T initial, T* to, Operation operation) {
  using block_reduce = cub::BlockReduce<T, fold_shape::threads>;
  __shared__ typename block_reduce::TempStorage storage;
  T value{};
  if (threadIdx.x < begun)
    value = fold_rows(array_rows<T>{accumulators}, threadIdx.x, fold_shape::threads, begun, operation);
  value = block_reduce(storage).Reduce(value, operation, static_cast<int>(fold_shape::busy(begun, 0)));
  if (threadIdx.x == 0) *to = operation(initial, value);
}

}  // namespace detail

/// How far a fold on the device has come; the values are on the device.
template <class T>
struct fold_state {
  T initial{};
  unsigned begun = 0;  ///< accumulators that hold something
  std::optional<cuda_stream_view> stream{};
};

/// A fold over the rows of all batches of an epoch, a loss for example, whose value stays on the device until the end:
/// one kernel a batch, which is only enqueued, and one copy back an epoch.
///
/// `Function` maps a row number to a value: `struct { __host__ __device__ T operator()(std::size_t row) const; }`, made
/// anew for each batch from the batch's views. `T` is trivially copyable. `Operation` is associative and commutative;
/// the order of rows is fixed, so that the same batches give the same bits, on any device. In a loop of one's own:
///
///     penstock::device_fold<squared_error> fold(device);
///     auto loss = fold.initial();
///     for (auto& batch : feed.epoch(e)) fold.add(loss, squared_error{...}, batch.size(), batch.stream());
///     std::printf("%g\n", fold.finish(loss));
///
/// or `... | penstock::reduce(fold.initial(), fold.over([](auto& batch) { return squared_error{...}; }))`.
/// Device memory is allocated, and the kernels are loaded, by the constructor. Copies share them: one epoch at a time.
/// Errors are `cuda_error`s.
template <class Function, class Operation = plus>
class device_fold {
 public:
  using value_type = detail::folded_type<Function>;
  using state_type = fold_state<value_type>;
  static_assert(
      std::is_trivially_copyable_v<value_type> && std::is_trivially_copyable_v<Function>,
      "penstock: device_fold takes a function that is trivially copyable and gives a value that is, too: both "
      "go to the device as bytes");

  explicit device_fold(const cuda_device& device, Operation operation = {})
      : shared_(std::make_shared<shared>(device)), operation_(std::move(operation)) {
    const detail::cuda_scope scope(device.ordinal());
    detail::cuda_preload(&detail::fold_kernel<value_type, Function, Operation>);
    detail::cuda_preload(&detail::finish_fold_kernel<value_type, Operation>);
  }

  /// What an epoch begins with; `value` is folded in once.
  state_type initial(value_type value = {}) const { return {value}; }

  /// Enqueues the fold of rows 0 to `rows` into `to`. All of an epoch on one stream.
  void add(state_type& to, const Function& function, std::size_t rows, cuda_stream_view stream) const {
    if (rows == 0) return;
    if (to.stream && *to.stream != stream)
      throw error("device_fold: a batch is on another stream than those before it, wanted one stream in an epoch");
    detail::cuda_check_pending("a batch was folded on the device");
    const detail::cuda_scope scope(shared_->device.ordinal());
    const unsigned blocks = detail::fold_shape::blocks(rows);
    detail::cuda_launch("launch of device_fold's kernel", &detail::fold_kernel<value_type, Function, Operation>, blocks,
                        detail::fold_shape::threads, stream, function, rows, shared_->accumulators(), to.begun,
                        operation_);
    if (blocks > to.begun) to.begun = blocks;
    to.stream = stream;
  }

  /// The value, once all that was added is done: the only call that waits. Its stream still exists.
  value_type finish(const state_type& state) const {
    if (state.begun == 0) return state.initial;
    const shared& at = *shared_;
    const detail::cuda_scope scope(at.device.ordinal());
    value_type* const result = at.accumulators() + detail::fold_shape::most_blocks;
    detail::cuda_launch("launch of device_fold's last kernel", &detail::finish_fold_kernel<value_type, Operation>, 1,
                        detail::fold_shape::threads, *state.stream, at.accumulators(), state.begun, state.initial,
                        result, operation_);
    at.device.copy_to_host(at.host.data(), result, sizeof(value_type), *state.stream);
    state.stream->synchronize();
    return *reinterpret_cast<const value_type*>(at.host.data());
  }

  /// The operation of a `penstock::reduce`, whose initial value is `initial()`: `make(batch)` gives the function of the
  /// batch's rows.
  template <class Make>
  class reduction {
   public:
    reduction(device_fold fold, Make make) : fold_(std::move(fold)), make_(std::move(make)) {}
    template <class Batch>
    void operator()(state_type& state, Batch& batch) {
      if (batch.size() != 0) fold_.add(state, make_(batch), batch.size(), batch.stream());
    }
    /// Called by `run` after the epoch's last batch.
    value_type finish(const state_type& state) const { return fold_.finish(state); }

   private:
    device_fold fold_;
    Make make_;
  };
  template <class Make>
  reduction<std::decay_t<Make>> over(Make&& make) const {
    return {*this, std::forward<Make>(make)};
  }

 private:
  struct shared {
    explicit shared(const cuda_device& on)
        : device(on),
          memory(on.allocate((detail::fold_shape::most_blocks + 1) * sizeof(value_type))),
          host(on.allocate_host(sizeof(value_type))) {}
    value_type* accumulators() const { return reinterpret_cast<value_type*>(memory.data()); }

    cuda_device device;
    cuda_memory memory;  // the accumulators, and the result
    cuda_host_memory host;
  };

  std::shared_ptr<shared> shared_;
  Operation operation_;
};

}  // namespace penstock
