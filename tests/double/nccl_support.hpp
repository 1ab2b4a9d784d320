// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <penstock/communicator/nccl_world.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

#include "../cuda_double/nccl_double.hpp"
#include "support.hpp"
#include "watchdog.hpp"

namespace doubled {

/// What nccl.cuh does with kernels.
struct test_kernels {
  static constexpr bool available = true;
  static void divide(penstock::cuda_stream_view on, void* values, std::size_t count, penstock::element_type type,
                     const penstock::control_words* reduced) {
    ASSERT_EQ(type, penstock::element_type::float32);
    cuda_double::launch(on, {reads(reduced, sizeof *reduced), writes(values, 4 * count)}, [=] {
      for (std::size_t i = 0; i < count; ++i)
        static_cast<float*>(values)[i] /= static_cast<float>(reduced->total_weight());
    });
  }
};

inline std::vector<penstock::cuda_device> devices(int n) {
  std::vector<penstock::cuda_device> result;
  for (int i = 0; i < n; ++i) result.emplace_back(i);
  return result;
}

/// y = 2x + 1 at x = 0, 1, ...
inline auto line(std::size_t rows) {
  std::vector<float> x(rows);
  for (std::size_t i = 0; i < rows; ++i) x[i] = static_cast<float>(i) / 8;
  return x;
}

/// A linear model on a device: what a rank has.
struct model {
  explicit model(const penstock::cuda_device& device)
      : memory(device.allocate(64)), values(reinterpret_cast<float*>(memory.data())) {}
  penstock::cuda_memory memory;
  float* values;  // a, b, then the gradient of a, of b

  void clear(penstock::cuda_stream_view on) {
    cuda_double::launch(as_launched(on), {writes(values, 16)}, [v = values] { v[0] = v[1] = v[2] = v[3] = 0; });
  }
  penstock::reduce_buffer gradient(penstock::reduction how = penstock::weighted_mean) const {
    return penstock::buffer(values + 2, 2, how);
  }
  /// The mean gradient over the batch's rows.
  template <class Batch>
  void differentiate(Batch& batch, penstock::cuda_stream_view on) {
    const auto [field] = batch.fields();
    const float* const x = field.data();
    cuda_double::launch(as_launched(on), {reads(x, 4 * batch.size()), writes(values, 16)},
                        [v = values, x, n = batch.size()] {
                          float a = 0, b = 0;
                          for (std::size_t i = 0; i < n; ++i) {
                            const float e = v[0] * x[i] + v[1] - (2 * x[i] + 1);
                            a += e * x[i];
                            b += e;
                          }
                          v[2] = n == 0 ? 1e9F : a / static_cast<float>(n);
                          v[3] = n == 0 ? 1e9F : b / static_cast<float>(n);
                        });
  }
  /// The step, where all ranks' words say so.
  void update(penstock::cuda_stream_view on, const penstock::control_words* gate) {
    cuda_double::launch(as_launched(on), {reads(gate, sizeof *gate), writes(values, 16)}, [v = values, gate, this] {
      if (!gate->counts()) return;
      v[0] -= 0.1F * v[2];
      v[1] -= 0.1F * v[3];
      ++updates;
    });
  }
  std::uint64_t updates = 0;
};

/// A run's memory of its own: nothing is alive behind it.
inline void expect_nothing_left() {
  EXPECT_EQ(cuda_double::communicators_alive(), 0u);
  EXPECT_EQ(cuda_double::alive(), "");
}

}  // namespace doubled
