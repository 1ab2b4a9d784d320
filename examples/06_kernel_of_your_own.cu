// SPDX-License-Identifier: Apache-2.0
// A kernel of one's own in the loop: the price of a diamond from its weight, as in 01_loop_of_your_own.cpp, on a GPU.
//
//   nvcc -std=c++20 -O3 -arch=native -Iinclude examples/06_kernel_of_your_own.cu -o 06_kernel_of_your_own
#include <cmath>
#include <cstdio>

#include <penstock/dataset/csv.hpp>
#include <penstock/device/cuda.hpp>
#include <penstock/device/results.hpp>
#include <penstock/penstock.hpp>

constexpr int threads = 256;  // a power of two

/// What is trained, and how well it does; on the device.
struct model {
  float slope, offset;
  float squares, samples;  // squared errors of this epoch so far
};

template <class T, std::size_t Rank>
using device_view = penstock::tensor_view<T, Rank, penstock::device_memory>;

/// One step of gradient descent, by one block: the batch is small.
__global__ void train(device_view<const float, 2> x, device_view<const float, 1> y, const penstock::step_header* step,
                      model* line) {
  __shared__ float slope[threads], offset[threads], squares[threads];
  const unsigned me = threadIdx.x;
  slope[me] = offset[me] = squares[me] = 0;
  for (unsigned i = me; i < step->count; i += threads) {
    const float error = line->slope * x(i, 0) + line->offset - y(i);
    slope[me] += error * x(i, 0);
    offset[me] += error;
    squares[me] += error * error;
  }
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (me >= half) continue;
    slope[me] += slope[me + half];
    offset[me] += offset[me + half];
    squares[me] += squares[me + half];
  }
  if (me != 0) return;
  const float count = static_cast<float>(step->count);
  line->squares = squares[0] + (step->step == 0 ? 0 : line->squares);  // of this epoch
  line->samples = count + (step->step == 0 ? 0 : line->samples);
  line->slope -= 0.3f * slope[0] / count;
  line->offset -= 0.3f * offset[0] / count;
}

void print(const auto& epoch) {
  const model& line = epoch.values[0];
  std::printf("epoch %d: price = %.0f * carat %+.0f, root mean square error %.0f\n", static_cast<int>(epoch.step),
              line.slope, line.offset, std::sqrt(line.squares / line.samples));
}

int main(int argc, char** argv) {
  const char* file = argc > 1 ? argv[1] : "examples/data/diamonds.csv";
  if (!penstock::cuda_device::is_available()) {
    std::puts("there is no GPU here; examples/01_loop_of_your_own.cpp does the same on the CPU");
    return 1;
  }

  penstock::cuda_device device;
  auto feed = penstock::csv_table(file, {.target = "price", .columns = {"carat"}})  // a dataset
              | penstock::partition({.seed = 7})                                    // shuffled anew in each epoch
              | penstock::read({.readers = 2})                                      // into pinned memory, in place
              | penstock::batch(256)                                                // 256 samples at a time
              | penstock::transfer(device);                                         // copied on a stream of its own

  const auto memory = device.allocate(sizeof(model));
  auto* const line = reinterpret_cast<model*>(memory.data());
  penstock::results<model, penstock::cuda_device> epochs(device);  // on their way back, behind the work
  const std::uint64_t steps = feed.steps_per_epoch().value();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (auto& batch : feed.epoch(epoch)) {
      // Everything is enqueued on the batch's stream and nothing waits: batches are read and copied meanwhile, and the
      // batch's memory is reused when its kernel is done. On another stream the kernel might come before the copy.
      if (epoch == 0 && batch.step() == 0) cudaMemsetAsync(line, 0, sizeof(model), batch.stream());
      auto [x, y] = batch.fields();  // on the device
      train<<<1, threads, 0, batch.stream()>>>(x, y, batch.header(), line);
      if (batch.step() + 1 == steps) epochs.enqueue(line, batch.stream(), epoch);
    }
    while (auto done = epochs.next()) print(*done);  // what has come back so far
  }
  while (auto done = epochs.wait()) print(*done);
}
