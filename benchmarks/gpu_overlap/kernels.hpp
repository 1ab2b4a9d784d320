// SPDX-License-Identifier: Apache-2.0
// The kernels of this question, launched from code that the host's compiler builds. Each call only enqueues.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gpu_overlap {

/// Adds the first word of each of `rows` rows (1024 at most) to `*sum`, and runs for `length` in all, on one processor
/// of the device: nothing else of it is kept from working. Times come from the device's own clock of nanoseconds.
void launch_step(const std::uint64_t* batch, std::size_t rows, std::size_t words_a_row, std::chrono::nanoseconds length,
                 unsigned long long* sum, cudaStream_t stream);

/// Runs for `length`, then writes `value` to `*word`.
void launch_signal(std::uint64_t* word, std::uint64_t value, std::chrono::nanoseconds length, cudaStream_t stream);

/// Does nothing.
void launch_nothing(cudaStream_t stream);

}  // namespace gpu_overlap
