// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nvtx3/nvToolsExt.h>
#if __has_include(<cuda.h>)
#include <nvtx3/nvToolsExtCudaRt.h>
#endif

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include <penstock/observe/observer.hpp>
#include <penstock/observe/stream_event.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/step_record.hpp>

namespace penstock {

/// Marks what a feed does for Nsight Systems, in a domain "penstock": an observer. Ranges "read", "transfer" (the
/// enqueueing of a copy) and "compute" (while the batch is held), on the threads that do it, with the step, counted
/// over the feed's life, as payload. The readers' threads have names of their own already, which Nsight shows. CUDA
/// streams that the library has made get names, such as "penstock copies, device 0", behind which replicas have
/// ", rank 2"; what they are for says `stream_event`. A stream of the application's keeps the name that it has.
///
/// One for each feed, which refers to it. Needs the headers of NVTX 3, which come with the CUDA Toolkit: target
/// `penstock::nvtx`. Without a profiler a range costs some nanoseconds.
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

  void on_stream(const stream_event& event) {
#if __has_include(<cuda.h>)
    if (event.cuda == nullptr || !event.own) return;
    std::string name = detail::concat("penstock ", event.use);
    if (event.device) name += detail::concat(", device ", *event.device);
    if (event.ranks != 1) name += detail::concat(", rank ", event.rank);
    nvtxNameCudaStreamA(event.cuda, name.c_str());
#else
    (void)event;
#endif
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
  // Several are held at a time, and let go in any order, by any thread. One whose place is still taken, by a step that
  // is held for as many others, goes without a range.
  void held(const stage_event& event) noexcept {
    open_range& place = open_[event.step % open_.size()];
    if (event.begins) {
      if (place.step.load(std::memory_order_acquire) != none) return;
      const auto what = attributes("compute", 0xFF519E3E, event.step);
      place.id = nvtxDomainRangeStartEx(domain_, &what);
      place.step.store(event.step, std::memory_order_release);
    } else {
      if (place.step.load(std::memory_order_acquire) != event.step) return;
      nvtxDomainRangeEnd(domain_, place.id);
      place.step.store(none, std::memory_order_release);
    }
  }

  static constexpr std::uint64_t none = ~std::uint64_t{0};
  struct open_range {
    std::atomic<std::uint64_t> step{none};
    nvtxRangeId_t id = 0;  // of who put the step there
  };

  nvtxDomainHandle_t domain_;
  std::array<open_range, 256> open_{};
};

}  // namespace penstock
