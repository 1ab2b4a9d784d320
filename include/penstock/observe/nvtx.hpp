// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <atomic>
#include <cstdint>

#include <penstock/observe/observer.hpp>
#include <penstock/sample/step_record.hpp>

namespace penstock {

/// Marks what a feed does for Nsight Systems, in a domain "penstock": an observer. Ranges "read", "transfer" (the
/// enqueueing of a copy) and "compute" (while the batch is held), on the threads that do it, with the step, counted
/// over the feed's life, as payload. The readers' threads have names of their own already, which Nsight shows.
///
/// Needs the headers of NVTX 3, which come with the CUDA Toolkit: target `penstock::nvtx`. Without a profiler a range
/// costs some nanoseconds.
class nvtx_ranges {
 public:
  nvtx_ranges() : domain_(nvtxDomainCreateA("penstock")) {}
  nvtx_ranges(const nvtx_ranges&) = delete;
  nvtx_ranges& operator=(const nvtx_ranges&) = delete;
  ~nvtx_ranges() { nvtxDomainDestroy(domain_); }

  void on_stage(const stage_event& event) noexcept {
    if (event.what == stage_event::stage::compute) return held(event);
    if (!event.begins) {
      nvtxDomainRangePop(domain_);
      return;
    }
    const bool reads = event.what == stage_event::stage::read;
    const auto what = attributes(reads ? "read" : "transfer", reads ? 0xFF3B75AF : 0xFFEF8636, event.step);
    nvtxDomainRangePushEx(domain_, &what);
  }

 private:
  static nvtxEventAttributes_t attributes(const char* name, std::uint32_t colour, std::uint64_t step) noexcept {
    nvtxEventAttributes_t out{};
    out.version = NVTX_VERSION;
    out.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    out.colorType = NVTX_COLOR_ARGB;
    out.color = colour;
    out.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    out.payload.ullValue = step;
    out.messageType = NVTX_MESSAGE_TYPE_ASCII;
    out.message.ascii = name;
    return out;
  }
  // Several are held at a time, and let go in any order, by any thread.
  void held(const stage_event& event) noexcept {
    auto& range = ranges_[event.step % ranges_.size()];
    if (event.begins) {
      const auto what = attributes("compute", 0xFF519E3E, event.step);
      range.store(nvtxDomainRangeStartEx(domain_, &what), std::memory_order_relaxed);
    } else {
      nvtxDomainRangeEnd(domain_, range.load(std::memory_order_relaxed));
    }
  }

  nvtxDomainHandle_t domain_;
  std::array<std::atomic<nvtxRangeId_t>, 256> ranges_{};
};

}  // namespace penstock
