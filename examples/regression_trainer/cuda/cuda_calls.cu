// SPDX-License-Identifier: Apache-2.0
// The launches: which thread calls a function object of device_math.hpp for what, and nothing else.
#include "cuda_calls.hpp"

#include <algorithm>

#include <penstock/communicator/local.cuh>

#include "../device_math.hpp"

namespace trainer {
namespace {

template <class Function>
__global__ void each_kernel(std::size_t count, Function f) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) f(i);
}

// x runs over columns, so that the threads of a warp have neighbouring elements.
template <class Function>
__global__ void cells_kernel(std::size_t rows, std::size_t columns, Function f) {
  const std::size_t column = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const std::size_t stride = std::size_t{gridDim.y} * blockDim.y;
  for (std::size_t row = std::size_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows; row += stride) f(row, column);
}

// A block of Tile by Lanes threads has Tile columns, whole; see `lane_sum`. No thread leaves before the last barrier.
template <unsigned Tile, unsigned Lanes, class Terms>
__global__ void __launch_bounds__(Tile* Lanes) sums_kernel(std::size_t rows, std::size_t columns, Terms f) {
  __shared__ typename Terms::sum lanes[Lanes][Tile];
  const unsigned x = threadIdx.x, lane = threadIdx.y;
  const std::size_t column = std::size_t{blockIdx.x} * Tile + x;
  lanes[lane][x] = column < columns ? lane_sum(f, rows, column, lane, Lanes) : typename Terms::sum{};
  for (unsigned half = Lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) lanes[lane][x] += lanes[lane + half][x];
  }
  if (lane == 0 && column < columns) f.finish(column, lanes[0][x]);  // that this thread wrote itself
}

unsigned blocks(std::size_t of, std::size_t each, std::size_t most = 0x7fffffff) {
  return static_cast<unsigned>(std::min((of + each - 1) / each, most));
}

void check_launch(const char* kernel) {
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) throw penstock::cuda_error(code, kernel);
}

}  // namespace

bool cuda_calls::has_kernels() {
  cudaFuncAttributes found{};
  const cudaError_t code = cudaFuncGetAttributes(&found, each_kernel<adam_update>);
  if (code != cudaSuccess && code == cudaPeekAtLastError()) cudaGetLastError();
  return code == cudaSuccess;
}

template <class Function>
void cuda_calls::each(std::size_t count, const Function& f) {
  if (count == 0) return;
  constexpr unsigned threads = 256;
  each_kernel<<<blocks(count, threads, 1 << 20), threads, 0, stream().get()>>>(count, f);
  check_launch("the launch of each_kernel");
}

template <class Function>
void cuda_calls::cells(std::size_t rows, std::size_t columns, const Function& f) {
  if (rows == 0 || columns == 0) return;
  const dim3 threads(32, 8);
  const dim3 grid(blocks(columns, threads.x), blocks(rows, threads.y, 65535));
  cells_kernel<<<grid, threads, 0, stream().get()>>>(rows, columns, f);
  check_launch("the launch of cells_kernel");
}

template <class Terms>
void cuda_calls::sums(std::size_t rows, std::size_t columns, const Terms& f) {
  if (columns == 0) return;
  if (columns == 1) {
    constexpr sum_shape shape = one_column;
    sums_kernel<shape.tile, shape.lanes><<<1, dim3(shape.tile, shape.lanes), 0, stream().get()>>>(rows, columns, f);
  } else {
    constexpr sum_shape shape = many_columns;
    sums_kernel<shape.tile, shape.lanes>
        <<<blocks(columns, shape.tile), dim3(shape.tile, shape.lanes), 0, stream().get()>>>(rows, columns, f);
  }
  check_launch("the launch of sums_kernel");
}

template void cuda_calls::each(std::size_t, const adam_update&);
template void cuda_calls::each(std::size_t, const momentum_update&);
template void cuda_calls::each(std::size_t, const halt_with_others&);
template void cuda_calls::cells(std::size_t, std::size_t, const add_bias&);
template void cuda_calls::sums(std::size_t, std::size_t, const squared_error&);
template void cuda_calls::sums(std::size_t, std::size_t, const rectified_gradient&);

void cuda_reduction::prepare(const penstock::cuda_device& device, std::span<const penstock::cuda_device> others) {
  penstock::cuda_kernels().prepare(device, others);
}
void cuda_reduction::sum(const penstock::cuda_device& device, const penstock::local_sum& what,
                         penstock::cuda_stream_view on) const {
  penstock::cuda_kernels().sum(device, what, on);
}

}  // namespace trainer
