// SPDX-License-Identifier: Apache-2.0
// What a file of the host's and one with kernels share: the pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <penstock/device/cuda.hpp>
#include <penstock/penstock.hpp>

namespace station {

/// A temperature and how often it was measured.
using measurement = std::tuple<float, std::int32_t>;
using table = std::vector<measurement>;

inline auto pipeline(const table& all, const penstock::cuda_device& device) {
  return all                                 // a dataset
         | penstock::partition({.seed = 7})  // shuffled
         | penstock::read({.readers = 2})    // reader threads
         | penstock::batch(100)              // the last one is short
         | penstock::transfer(device, {.depth = 2});
}

using feed = decltype(pipeline(std::declval<const table&>(), std::declval<const penstock::cuda_device&>()).start());
using batch = feed::batch_type;

/// Adds the weighted temperatures of a batch to `*sum`, on the batch's stream.
void add_products(const batch& of, double* sum);

/// The same over all of a table, by a pipeline that the file with the kernels starts.
void add_all(const table& all, const penstock::cuda_device& device, double* sum);

}  // namespace station
