// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/device/cuda_error.hpp>
#include <penstock/device/cuda_event.hpp>
#include <penstock/device/cuda_memory.hpp>
#include <penstock/device/cuda_scope.hpp>
#include <penstock/device/cuda_stream.hpp>
#include <penstock/device/cuda_wait.hpp>
#include <penstock/device/device.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/tensor_view.hpp>

namespace penstock {

struct cuda_options {
  int device = 0;                 ///< its ordinal, as in cudaSetDevice
  int priority = 0;               ///< of streams: lower numbers go first, as in cudaStreamCreateWithPriority
  std::size_t pinned_budget = 0;  ///< bytes of host memory that may be pinned; 0: half of the machine's
  /// Mistakes that cost speed or data, and are silent otherwise, show: a batch's memory is filled with 0xFF (floats:
  /// NaN) once it was let go, behind the work on its stream, for kernels on a stream that nothing orders with it; the
  /// first copy of pageable memory, which is no background copy, is told of on stderr. On by default in debug builds
  /// (where files of one program disagree on NDEBUG, say it).
#if defined(NDEBUG)
  bool find_mistakes = false;
#else
  bool find_mistakes = true;
#endif
};

/// An NVIDIA GPU, by the CUDA runtime's C API: for `transfer(cuda_device{0})`. Link `penstock::cuda`.
///
/// A small value; copies refer to the same device and budget. Its streams are non-blocking: nothing of ours is on the
/// legacy stream, unless the application names it as the consumer's. Where a call depends on the thread's current
/// device, that is set and put back; an application that works on a device other than 0 calls `cudaSetDevice` first, as
/// its own launches need it, too, and as putting back device 0 would make a context there. All calls may come from any
/// thread. Failures throw `cuda_error`; an error that was pending from the application's own calls is reported as such,
/// and left.
class cuda_device {
 public:
  using memory_space = device_memory;
  using memory = cuda_memory;
  using stream = cuda_stream;
  using stream_view = cuda_stream_view;
  using event = cuda_event;

  /// Throws `cuda_error` where there is no usable driver, `std::invalid_argument` where there is no such device.
  explicit cuda_device(int ordinal = 0) : cuda_device(with_ordinal(ordinal)) {}
  explicit cuda_device(const cuda_options& options) : options_(options) {
    detail::cuda_check_pending("a cuda_device was made");
    const int devices = count();
    if (options.device < 0 || options.device >= devices)
      detail::reject_option("cuda_device", "device", std::to_string(options.device),
                            devices == 0 ? "a device, but there is none"
                                         : detail::concat("0 to ", devices - 1, ", the devices that are visible"));
    budget_ = std::make_shared<detail::pinned_budget>(options.device, options.pinned_budget);
  }

  /// Devices that are visible to this process. Throws `cuda_error` where the driver cannot be used.
  static int count() {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code == cudaErrorNoDevice) {
      if (cudaPeekAtLastError() == code) cudaGetLastError();
      return 0;
    }
    detail::cuda_check(code, "cudaGetDeviceCount");
    return devices;
  }
  /// Whether there is a driver and a device: for programs that can do without.
  static bool is_available() noexcept {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess && cudaPeekAtLastError() == code) cudaGetLastError();
    return code == cudaSuccess && devices > 0;
  }

  int ordinal() const noexcept { return options_.device; }
  const cuda_options& options() const noexcept { return options_; }

  /// Pinned, zeroed.
  cuda_host_memory allocate_host(std::size_t bytes) const {
    auto result = reserve_host(bytes);
    result.touch();
    result.pin();
    return result;
  }
  /// Mapped only: to be touched, and pinned.
  cuda_host_memory reserve_host(std::size_t bytes) const { return {budget_, bytes}; }
  memory allocate(std::size_t bytes) const {
    const detail::cuda_scope scope(options_.device);
    return memory(bytes);
  }
  stream make_stream() const {
    const detail::cuda_scope scope(options_.device);
    return stream(options_.priority);
  }
  event make_event() const {
    const detail::cuda_scope scope(options_.device);
    return event(cudaEventDisableTiming);
  }
  /// One that notes its time, for `elapsed`; costs more to record.
  event make_timing_event() const {
    const detail::cuda_scope scope(options_.device);
    return event(cudaEventDefault);
  }
  /// The time between two timing events that the device has passed, to half a microsecond.
  std::chrono::nanoseconds elapsed(const event& from, const event& to) const {
    float milliseconds = 0;
    detail::cuda_check(cudaEventElapsedTime(&milliseconds, from.view(), to.view()), "cudaEventElapsedTime");
    return std::chrono::nanoseconds(
        static_cast<std::chrono::nanoseconds::rep>(1e6 * static_cast<double>(milliseconds)));
  }

  /// `from` is pinned, or the copy is no background copy.
  void copy_to_device(void* to, const void* from, std::size_t bytes, stream_view on) const {
    tell_if_pageable(from);
    copy(to, from, bytes, cudaMemcpyHostToDevice, on);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, stream_view on) const {
    tell_if_pageable(to);
    copy(to, from, bytes, cudaMemcpyDeviceToHost, on);
  }
  void record(event& recorded, stream_view on) const {
    const detail::cuda_scope scope(options_.device, on);
    detail::cuda_check(cudaEventRecord(recorded.view(), on), "cudaEventRecord");
  }
  void wait(stream_view waiting, const event& recorded) const {
    const detail::cuda_scope scope(options_.device, waiting);
    detail::cuda_check(cudaStreamWaitEvent(waiting, recorded.view(), cudaEventWaitDefault), "cudaStreamWaitEvent");
  }
  bool ready(const event& recorded) const {
    return detail::cuda_done([&] { return cudaEventQuery(recorded.view()); }, "cudaEventQuery");
  }
  template <interrupt Interrupt>
  wait_result wait(const event& recorded, const Interrupt& interrupted,
                   std::chrono::steady_clock::time_point deadline) const {
    return detail::cuda_wait([&] { return ready(recorded); }, interrupted, deadline);
  }
  /// For threads of ours, before any other call. What they ask does not void a capture of the application's, which in
  /// the global mode would forbid it to all threads.
  void bind_thread() const {
    detail::cuda_check(cudaSetDevice(options_.device), "cudaSetDevice");
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    detail::cuda_check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  }

  /// Throws while `on` is captured into a graph: what we enqueue there would be in the graph, and not be done.
  void check_not_captured(stream_view on) const {
    const detail::cuda_scope scope(options_.device, on);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    detail::cuda_check(cudaStreamIsCapturing(on, &status), "cudaStreamIsCapturing");
    if (status != cudaStreamCaptureStatusNone)
      throw error(
          "a batch was let go while its stream is captured into a graph, which its memory's next copy would have "
          "to wait for: hold it until the capture has ended");
  }
  /// See `cuda_options::find_mistakes`.
  void poison(void* at, std::size_t bytes, stream_view on) const {
    if (!options_.find_mistakes) return;
    const detail::cuda_scope scope(options_.device);
    detail::cuda_check(cudaMemsetAsync(at, 0xFF, bytes, on), "cudaMemsetAsync");
  }
  /// Throws if a call of the application's own has left an error on this thread; leaves it there.
  void check_pending(std::string_view doing) const { detail::cuda_check_pending(doing); }
  /// The thread's last error says that the device is lost for this process.
  bool is_lost() const noexcept { return cuda_error::is_sticky(cudaPeekAtLastError()); }

  /// "0000:3b:00.0", its place in the machine, as lspci and `cpus_near` name it.
  std::string pci_bus_id() const {
    char text[32] = {};
    detail::cuda_check(cudaDeviceGetPCIBusId(text, sizeof(text), options_.device), "cudaDeviceGetPCIBusId");
    std::string result = text;
    for (char& one : result)
      if (one >= 'A' && one <= 'F') one = static_cast<char>(one - 'A' + 'a');
    return result;
  }
  /// How data get to the device of that PCI bus id in this machine: "NVLink", "PCIe", or "host", by its memory, where
  /// the two cannot reach each other; "unknown" of a device that this process does not see. Links that have the atomics
  /// of a device's own memory, as PCIe has not, are told as NVLink.
  std::string link_to(const std::string& pci_bus_id) const {
    int other = 0;
    const cudaError_t code = cudaDeviceGetByPCIBusId(&other, pci_bus_id.c_str());
    if (code != cudaSuccess) {
      if (cuda_error::is_sticky(code)) detail::cuda_check(code, "cudaDeviceGetByPCIBusId");
      if (cudaPeekAtLastError() == code) cudaGetLastError();
      return "unknown";
    }
    if (other == options_.device) return "itself";
    int reaches = 0;
    detail::cuda_check(cudaDeviceCanAccessPeer(&reaches, options_.device, other), "cudaDeviceCanAccessPeer");
    if (reaches == 0) return "host";
    int atomics = 0;
    detail::cuda_check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, options_.device, other),
                       "cudaDeviceGetP2PAttribute");
    return atomics != 0 ? "NVLink" : "PCIe";
  }

  /// "cuda 0 (NVIDIA H200)"
  std::string describe() const {
    cudaDeviceProp properties{};
    detail::cuda_check(cudaGetDeviceProperties(&properties, options_.device), "cudaGetDeviceProperties");
    return detail::concat("cuda ", options_.device, " (", std::string_view(properties.name), ')');
  }
  bool operator==(const cuda_device& other) const noexcept {
    return options_.device == other.options_.device && budget_ == other.budget_;
  }

 private:
  static cuda_options with_ordinal(int ordinal) {
    cuda_options result;
    result.device = ordinal;
    return result;
  }
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, stream_view on) const {
    const detail::cuda_scope scope(options_.device, on);
    detail::cuda_check(cudaMemcpyAsync(to, from, bytes, kind, on), "cudaMemcpyAsync");
  }

  void tell_if_pageable(const void* host) const {
    if (!options_.find_mistakes || budget_->told_of_pageable.load(std::memory_order_relaxed)) return;
    cudaPointerAttributes attributes{};
    detail::cuda_check(cudaPointerGetAttributes(&attributes, host), "cudaPointerGetAttributes");
    if (attributes.type != cudaMemoryTypeUnregistered || budget_->told_of_pageable.exchange(true)) return;
    std::fputs(
        "penstock: a copy's host memory is pageable, so that the call waits for the device: allocate it by "
        "cuda_device::allocate_host; told once\n",
        stderr);
  }

  cuda_options options_;
  std::shared_ptr<detail::pinned_budget> budget_;
};

}  // namespace penstock
