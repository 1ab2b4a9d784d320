// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include <penstock/communicator/local_device.hpp>
#include <penstock/device/modelled.hpp>

namespace penstock {

/// Kernels of replicas on modelled devices, of stated speed. All ranks share one device, as each modelled device has a
/// time of its own.
class modelled_kernels {
 public:
  struct options {
    double bandwidth = 0;                ///< of what kernels read and write, bytes per second; 0: instantaneous
    std::chrono::nanoseconds latency{};  ///< of each kernel
  };

  modelled_kernels() : modelled_kernels(options{}) {}
  explicit modelled_kernels(const options& with) : options_(with) {
    if (!(with.bandwidth >= 0) || with.latency.count() < 0)
      detail::reject_option("modelled_kernels", "bandwidth or latency", "less than 0", "0 or more");
  }

  static bool same(const modelled_device& a, const modelled_device& b) { return a == b; }
  static void check(std::span<const modelled_device> devices) {
    for (const modelled_device& one : devices)
      if (!(one == devices[0]))
        detail::reject_option("replicas", "devices", "several modelled ones",
                              "copies of one modelled_device, which all ranks share");
  }
  void prepare(const modelled_device&, std::span<const modelled_device>) { launches_ = std::make_shared<launches>(); }
  void copy(void*, const modelled_device&, const void*, const modelled_device&, std::size_t, modelled_stream_view) {
    throw error("modelled device: a copy between two of them");
  }
  void sum(const modelled_device&, const local_sum& what, modelled_stream_view on) {
    launch* free = nullptr;
    for (launch& one : launches_->all)
      if (!one.busy.load(std::memory_order_acquire)) free = &one;
    if (free == nullptr) free = &launches_->all.emplace_back();
    free->what = what;
    free->busy.store(true, std::memory_order_relaxed);
    auto length = options_.latency;
    if (options_.bandwidth > 0)
      length += std::chrono::nanoseconds(
          static_cast<std::chrono::nanoseconds::rep>(static_cast<double>(what.bytes()) / options_.bandwidth * 1e9));
    on.launch(length, [held = launches_, free] {
      detail::sum_on_host(free->what);
      free->busy.store(false, std::memory_order_release);
    });
  }

 private:
  // What a kernel is given, until it has run: by whichever thread.
  struct launch {
    local_sum what;
    std::atomic<bool> busy{false};
  };
  struct launches {
    launches() {
      for (int i = 0; i < 16; ++i) all.emplace_back();
    }
    std::deque<launch> all;
  };

  options options_;
  std::shared_ptr<launches> launches_;
};

using local_modelled_world = local_device_world<modelled_device, modelled_kernels>;

}  // namespace penstock
