// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime that penstock's headers call, under their plain names and those that programs with
// per-thread default streams link to. One that is missing here fails to link.
#include <cstdio>
#include <cstring>

#include "../support/uncounted.hpp"
#include "atomics.hpp"
#include "machine.hpp"

using namespace cuda_double;

namespace {

constexpr unsigned char poison_byte = 0xDB;

/// The beginning of each call: counted, failed on command, and time goes on a little.
class call {
 public:
  enum kind { asks, enqueues, makes };
  call(const char* name, kind of) : lock_(order_lock()), name_(name) {
    machine& m = all();
    host& by = here();
    const std::uint64_t number = ++m.calls[name];
    if (of != asks) m.contexts.insert(by.device);
    if (m.with.eagerness != 0) m.step(m.draw(m.with.eagerness + 1));
    if (const auto armed = m.armed.find(name); armed != m.armed.end() && armed->second.first == number) {
      error_ = armed->second.second;
      if (error_ == cudaErrorIllegalAddress || error_ == cudaErrorLaunchFailure) m.dead = error_;
    }
    if (m.dead != cudaSuccess) error_ = m.dead;
    const std::string_view what = name;
    if (of == makes && (what.starts_with("cudaMalloc") || what.starts_with("cudaFree") || what.starts_with("cudaHost")) &&
        m.part_is_missing != nullptr && m.part_is_missing())
      m.wrong(std::string(name) + " while a collective waits for a rank: it may wait for the collective");
    if (of == makes && m.hot) m.wrong(std::string(name) + " on the hot path: it waits for the device, or allocates");
    // What is unsafe while something is captured.
    if (of == makes || std::string_view(name) == "cudaEventQuery" || std::string_view(name) == "cudaStreamQuery")
      refuse_in_capture();
  }
  cudaError_t error() const { return error_; }
  cudaError_t give(cudaError_t code) {
    if (code != cudaSuccess) here().last_error = code;
    return code;
  }
  /// What would have hurt only now and then.
  cudaError_t refuse(cudaError_t code, const std::string& why) {
    all().wrong(std::string(name_) + ": " + why);
    return give(code);
  }
  /// A thread that captures may not do this, and no other whose mode is the global one while a capture's is: the
  /// capture is void.
  void refuse_in_capture() {
    for (stream* one : all().streams)
      if (one->capture != nullptr && (one->captured_by == &here() ||
                                      (one->capture_is_global && here().capture_mode == cudaStreamCaptureModeGlobal))) {
        one->capture_invalid = true;
        if (error_ == cudaSuccess) error_ = cudaErrorStreamCaptureUnsupported;
      }
  }
  stream* on(cudaStream_t handle, bool per_thread) {
    machine& m = all();
    stream* const found = m.find(handle, per_thread, here());
    if (found != nullptr && m.legacy.contains(found->device) && m.legacy[found->device] == found &&
        !m.with.legacy_is_named)
      m.wrong(std::string(name_) + " on the legacy stream, which nobody has named");
    return found;
  }

 private:
  support::uncounted machinery_;
  std::unique_lock<std::recursive_mutex> lock_;
  const char* name_;
  cudaError_t error_ = cudaSuccess;
};

#define DOUBLE_BEGIN(name, kind) \
  call now(name, call::kind);    \
  if (now.error() != cudaSuccess) return now.give(now.error())

cudaError_t copy(const char* name, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t handle, bool per_thread) {
  DOUBLE_BEGIN(name, enqueues);
  machine& m = all();
  stream* const on = now.on(handle, per_thread);
  if (on == nullptr) return now.refuse(cudaErrorInvalidResourceHandle, "the stream is none");
  const bool up = kind == cudaMemcpyHostToDevice;
  const void* const host_side = up ? from : to;
  const void* const device_side = up ? to : from;
  const block* const there = m.holds(device_side, bytes);
  if (there == nullptr || there->pinned)
    return now.refuse(cudaErrorInvalidValue, std::to_string(bytes) + " bytes that are not within a device's memory");
  const block* const pinned = m.holds(host_side, bytes);
  if (pinned == nullptr || !pinned->pinned) {
    ++m.pageable;
    m.wrong(std::string(name) + ": the host's memory is pageable, so that the call waits for the device");
  }
  auto* const out = static_cast<unsigned char*>(to);
  const auto* const in = static_cast<const unsigned char*>(from);
  // Read and written bit by bit, somewhere between begin and end.
  const std::size_t early = m.draw(bytes + 1);
  return m.enqueue(
      *on, name, {reads(from, bytes), writes(to, bytes)},
      [=] {
        std::memset(out, poison_byte, bytes);
        std::memcpy(out, in, early);
      },
      [=] { std::memcpy(out + early, in + early, bytes - early); });
}
// Between devices: each side is of the device that is named.
cudaError_t copy_peer(const char* name, void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                      cudaStream_t handle, bool per_thread) {
  DOUBLE_BEGIN(name, enqueues);
  machine& m = all();
  stream* const on = now.on(handle, per_thread);
  if (on == nullptr) return now.refuse(cudaErrorInvalidResourceHandle, "the stream is none");
  const auto is_of = [&](const void* data, int device) {
    const block* const found = m.holds(data, bytes);
    return found != nullptr && !found->pinned && found->device == device;
  };
  if (!is_of(to, to_device) || !is_of(from, from_device))
    return now.refuse(cudaErrorInvalidValue, std::to_string(bytes) + " bytes that are not within that device's memory");
  auto* const out = static_cast<unsigned char*>(to);
  const auto* const in = static_cast<const unsigned char*>(from);
  const std::size_t early = m.draw(bytes + 1);
  return m.enqueue(
      *on, name, {reads(from, bytes), writes(to, bytes)},
      [=] {
        std::memset(out, poison_byte, bytes);
        std::memcpy(out, in, early);
      },
      [=] { std::memcpy(out + early, in + early, bytes - early); });
}
cudaError_t fill(const char* name, void* to, int value, std::size_t bytes, cudaStream_t handle, bool per_thread) {
  DOUBLE_BEGIN(name, enqueues);
  machine& m = all();
  stream* const on = now.on(handle, per_thread);
  if (on == nullptr) return now.refuse(cudaErrorInvalidResourceHandle, "the stream is none");
  const block* const there = m.holds(to, bytes);
  if (there == nullptr || there->pinned)
    return now.refuse(cudaErrorInvalidValue, std::to_string(bytes) + " bytes that are not within a device's memory");
  return m.enqueue(*on, name, {writes(to, bytes)}, {}, [=] { std::memset(to, value, bytes); });
}
cudaError_t record(const char* name, cudaEvent_t handle, cudaStream_t stream_handle, bool per_thread) {
  DOUBLE_BEGIN(name, enqueues);
  machine& m = all();
  auto* const what = reinterpret_cast<event*>(handle);
  stream* const on = now.on(stream_handle, per_thread);
  if (on == nullptr || !m.events.contains(what))
    return now.refuse(cudaErrorInvalidResourceHandle, "no such event or stream");
  if (what->device != on->device)
    return now.refuse(cudaErrorInvalidResourceHandle, "an event of device " + std::to_string(what->device) +
                                                          " on a stream of device " + std::to_string(on->device));
  what->captured = on->capture;
  if (on->capture != nullptr) return cudaSuccess;
  host& by = here();
  what->recorded = m.push(*on, by).mark;
  by.known.advance(by.actor);
  return cudaSuccess;
}
cudaError_t wait(const char* name, cudaStream_t stream_handle, cudaEvent_t handle, bool per_thread) {
  DOUBLE_BEGIN(name, enqueues);
  machine& m = all();
  auto* const what = reinterpret_cast<event*>(handle);
  stream* const on = now.on(stream_handle, per_thread);
  if (on == nullptr || !m.events.contains(what))
    return now.refuse(cudaErrorInvalidResourceHandle, "no such event or stream");
  if (what->captured != nullptr) {
    // Joins the capture that the event is of.
    on->capture = what->captured;
    on->captured_by = &here();
    return cudaSuccess;
  }
  if (on->capture != nullptr) {
    on->capture_invalid = true;
    return now.give(cudaErrorStreamCaptureIsolation);
  }
  host& by = here();
  if (what->recorded) {
    on->known.join(what->recorded->known);
    m.push(*on, by).after.push_back(what->recorded);
  }
  by.known.advance(by.actor);
  return cudaSuccess;
}
// Whether all that a mark stands for is done; some of it happens now, so that whoever asks again and again gets there.
cudaError_t query(call& now, const mark_pointer& of) {
  machine& m = all();
  if (of && !of->done) m.step(m.draw(4));
  if (of && !of->done) return now.give(m.dead != cudaSuccess ? m.dead : cudaErrorNotReady);
  if (of) here().known.join(of->known);
  return cudaSuccess;
}
cudaError_t query_stream(const char* name, cudaStream_t handle, bool per_thread) {
  DOUBLE_BEGIN(name, asks);
  stream* const on = all().find(handle, per_thread, here());
  if (on == nullptr) return now.refuse(cudaErrorInvalidResourceHandle, "the stream is none");
  if (on->capture != nullptr) {
    on->capture_invalid = true;
    return now.give(cudaErrorStreamCaptureUnsupported);
  }
  return query(now, on->last);
}

template <class Handle, class T>
cudaError_t destroy(const char* name, Handle handle, std::set<T*> machine::* of, const char* unknown) {
  DOUBLE_BEGIN(name, makes);
  auto* const old = reinterpret_cast<T*>(handle);
  if ((all().*of).erase(old) == 0) return now.refuse(cudaErrorInvalidResourceHandle, unknown);
  delete old;
  return cudaSuccess;
}

// ---- graphs

cudaError_t begin_capture(const char* name, cudaStream_t handle, cudaStreamCaptureMode mode, bool per_thread) {
  DOUBLE_BEGIN(name, enqueues);
  machine& m = all();
  stream* const on = m.find(handle, per_thread, here());
  if (on == nullptr) return now.refuse(cudaErrorInvalidResourceHandle, "the stream is none");
  if (m.legacy.contains(on->device) && m.legacy[on->device] == on) return now.give(cudaErrorStreamCaptureUnsupported);
  if (mode != cudaStreamCaptureModeThreadLocal)
    m.wrong(std::string(name) + ": not in thread-local mode, so that calls of other threads void the capture");
  if (on->capture != nullptr) return now.give(cudaErrorIllegalState);
  on->capture = new graph;
  on->capture->device = on->device;
  on->captured_by = &here();
  on->capture_origin = true;
  on->capture_is_global = mode == cudaStreamCaptureModeGlobal;
  on->capture_invalid = false;
  return cudaSuccess;
}
cudaError_t end_capture(const char* name, cudaStream_t handle, cudaGraph_t* out, bool per_thread) {
  call now(name, call::enqueues);
  machine& m = all();
  stream* const on = m.find(handle, per_thread, here());
  if (on == nullptr || !on->capture_origin) return now.give(cudaErrorIllegalState);
  graph* const made = on->capture;
  bool invalid = false;
  for (stream* one : m.streams)
    if (one->capture == made) {
      invalid = invalid || one->capture_invalid;
      one->capture = nullptr;
      one->capture_origin = one->capture_invalid = false;
    }
  for (event* one : m.events)
    if (one->captured == made) one->captured = nullptr;
  *out = nullptr;
  if (now.error() != cudaSuccess || invalid) {
    delete made;
    // A call that fails has ended the capture all the same.
    return now.give(now.error() != cudaSuccess ? now.error() : cudaErrorStreamCaptureInvalidated);
  }
  m.graphs.insert(made);
  *out = reinterpret_cast<cudaGraph_t>(made);
  return cudaSuccess;
}
cudaError_t is_capturing(const char* name, cudaStream_t handle, cudaStreamCaptureStatus* out, bool per_thread) {
  DOUBLE_BEGIN(name, asks);
  stream* const on = all().find(handle, per_thread, here());
  if (on == nullptr) return now.refuse(cudaErrorInvalidResourceHandle, "the stream is none");
  *out = on->capture == nullptr ? cudaStreamCaptureStatusNone
         : on->capture_invalid  ? cudaStreamCaptureStatusInvalidated
                                : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t launch_graph(const char* name, cudaGraphExec_t handle, cudaStream_t stream_handle, bool per_thread) {
  DOUBLE_BEGIN(name, enqueues);
  machine& m = all();
  auto* const what = reinterpret_cast<graph*>(handle);
  stream* const on = now.on(stream_handle, per_thread);
  if (on == nullptr || !m.executables.contains(what))
    return now.refuse(cudaErrorInvalidResourceHandle, "no such graph or stream");
  for (const node& one : what->nodes) m.enqueue(*on, one.what, one.touches, one.begin, one.end);
  return cudaSuccess;
}

}  // namespace

extern "C" {

// ---- errors

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorPeerAccessAlreadyEnabled: return "cudaErrorPeerAccessAlreadyEnabled";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    default: return "cudaErrorOfTheDouble";
  }
}
const char* cudaGetErrorString(cudaError_t code) { return code == cudaSuccess ? "no error" : "an error of the double"; }
cudaError_t cudaPeekAtLastError() {
  const std::scoped_lock lock(order_lock());
  return all().dead != cudaSuccess ? all().dead : here().last_error;
}
cudaError_t cudaGetLastError() {
  const std::scoped_lock lock(order_lock());
  if (all().dead != cudaSuccess) return all().dead;
  return std::exchange(here().last_error, cudaSuccess);
}

// ---- devices

cudaError_t cudaGetDeviceCount(int* count) {
  DOUBLE_BEGIN("cudaGetDeviceCount", asks);
  *count = all().with.devices;
  return *count == 0 ? now.give(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  DOUBLE_BEGIN("cudaGetDevice", asks);
  *device = here().device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  DOUBLE_BEGIN("cudaSetDevice", asks);
  if (device < 0 || device >= all().with.devices) return now.refuse(cudaErrorInvalidDevice, "there is no such device");
  here().device = device;
  all().contexts.insert(device);
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  DOUBLE_BEGIN("cudaThreadExchangeStreamCaptureMode", asks);
  std::swap(*mode, here().capture_mode);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  DOUBLE_BEGIN("cudaGetDeviceProperties", asks);
  if (device < 0 || device >= all().with.devices) return now.refuse(cudaErrorInvalidDevice, "there is no such device");
  *properties = {};
  std::strcpy(properties->name, "double");
  return cudaSuccess;
}
// Devices 0 and 1 are linked, 2 is behind the same switch as they are, and 3 and later ones reach nobody.
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  DOUBLE_BEGIN("cudaDeviceGetPCIBusId", asks);
  if (device < 0 || device >= all().with.devices) return now.refuse(cudaErrorInvalidDevice, "there is no such device");
  if (bytes < 13) return now.refuse(cudaErrorInvalidValue, "less than 13 characters");
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", 0x3A + device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  DOUBLE_BEGIN("cudaDeviceGetByPCIBusId", asks);
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  const int read = std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function);
  const int found = static_cast<int>(bus) - 0x3A;
  if (read != 4 || domain + slot + function != 0 || found < 0 || found >= all().with.devices)
    return now.give(cudaErrorInvalidDevice);
  *device = found;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
  DOUBLE_BEGIN("cudaDeviceCanAccessPeer", asks);
  *can = device != other && device < 3 && other < 3 ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags) {
  DOUBLE_BEGIN("cudaDeviceEnablePeerAccess", enqueues);
  const int device = here().device;
  if (flags != 0 || device == other || device >= 3 || other >= 3)
    return now.refuse(cudaErrorInvalidValue, "flags, or a device that cannot be reached");
  if (!all().peers.insert({device, other}).second) return now.give(cudaErrorPeerAccessAlreadyEnabled);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int device, int other) {
  DOUBLE_BEGIN("cudaDeviceGetP2PAttribute", asks);
  if (which != cudaDevP2PAttrNativeAtomicSupported) return now.refuse(cudaErrorInvalidValue, "not known to the double");
  *value = device + other == 1 ? 1 : 0;
  return cudaSuccess;
}

// ---- streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int) {
  DOUBLE_BEGIN("cudaStreamCreateWithPriority", makes);
  machine& m = all();
  static std::uint64_t& number = *new std::uint64_t(0);
  if (flags != cudaStreamNonBlocking)
    m.wrong("cudaStreamCreateWithPriority: a stream that waits for the legacy stream");
  *out = reinterpret_cast<cudaStream_t>(&m.make_stream(
      here().device, false, "stream " + std::to_string(++number) + " of device " + std::to_string(here().device)));
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  DOUBLE_BEGIN("cudaStreamDestroy", makes);
  auto* const old = reinterpret_cast<stream*>(handle);
  if (!all().streams.contains(old)) return now.refuse(cudaErrorInvalidResourceHandle, "the stream is none");
  all().destroy(old);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) { return query_stream("cudaStreamQuery", handle, false); }
cudaError_t cudaStreamQuery_ptsz(cudaStream_t handle) { return query_stream("cudaStreamQuery", handle, true); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  DOUBLE_BEGIN("cudaEventCreateWithFlags", makes);
  if (flags != cudaEventDisableTiming && !all().with.events_are_timed)
    all().wrong("cudaEventCreateWithFlags: an event with timing, which costs");
  auto* const made = new event;
  made->timed = flags == cudaEventDefault;
  made->device = here().device;
  all().events.insert(made);
  *out = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return destroy("cudaEventDestroy", handle, &machine::events, "the event is none");
}
// A microsecond for each thing that happens on any stream.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  DOUBLE_BEGIN("cudaEventElapsedTime", asks);
  auto* const first = reinterpret_cast<event*>(from);
  auto* const second = reinterpret_cast<event*>(to);
  if (!all().events.contains(first) || !all().events.contains(second) || !first->timed || !second->timed ||
      !first->recorded || !second->recorded)
    return now.refuse(cudaErrorInvalidResourceHandle, "no such event, or one without a time");
  if (!first->recorded->done || !second->recorded->done) return now.give(cudaErrorNotReady);
  *milliseconds = (static_cast<float>(second->recorded->at) - static_cast<float>(first->recorded->at)) / 1000;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  DOUBLE_BEGIN("cudaEventQuery", asks);
  auto* const of = reinterpret_cast<event*>(handle);
  if (!all().events.contains(of)) return now.refuse(cudaErrorInvalidResourceHandle, "the event is none");
  return query(now, of->recorded);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record("cudaEventRecord", event, stream, false);
}
cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return record("cudaEventRecord", event, stream, true);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return wait("cudaStreamWaitEvent", stream, event, false);
}
cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return wait("cudaStreamWaitEvent", stream, event, true);
}

// ---- memory

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  DOUBLE_BEGIN("cudaMalloc", makes);
  machine& m = all();
  block made{bytes, here().device, false, std::vector<unsigned char>(bytes + 512, poison_byte)};
  // As aligned as the hardware's.
  const auto begin = (reinterpret_cast<std::uintptr_t>(made.storage.data()) + 255) / 256 * 256;
  m.accesses.watch(reinterpret_cast<void*>(begin), bytes,
                   "a block of " + std::to_string(bytes) + " bytes on device " + std::to_string(made.device));
  m.blocks.emplace(begin, std::move(made));
  *out = reinterpret_cast<void*>(begin);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  DOUBLE_BEGIN("cudaFree", makes);
  machine& m = all();
  const auto found = m.blocks.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == m.blocks.end() || found->second.pinned)
    return now.refuse(cudaErrorInvalidValue, "the memory is none of cudaMalloc's");
  block& old = found->second;
  if (m.cancel(memory, old.bytes)) m.wrong("cudaFree: memory that an operation still uses");
  const std::size_t front = found->first - reinterpret_cast<std::uintptr_t>(old.storage.data());
  for (std::size_t i = 0; i < old.storage.size(); ++i)
    if ((i < front || i >= front + old.bytes) && old.storage[i] != poison_byte) {
      m.wrong("cudaFree: something was written outside of the memory");
      break;
    }
  std::memset(old.storage.data(), poison_byte, old.storage.size());
  m.accesses.unwatch(memory);
  if (m.freed.size() < 64) m.freed.push_back(std::move(old));
  m.blocks.erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  DOUBLE_BEGIN("cudaHostRegister", makes);
  machine& m = all();
  if (bytes == 0 || m.holds(memory, bytes) != nullptr)
    return now.refuse(cudaErrorInvalidValue, "no bytes, or registered already");
  if ((flags & cudaHostRegisterPortable) == 0) m.wrong("cudaHostRegister: not for all devices");
  m.blocks.emplace(reinterpret_cast<std::uintptr_t>(memory), block{bytes, 0, true, {}});
  m.accesses.watch(memory, bytes, "a pinned block of " + std::to_string(bytes) + " bytes");
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  DOUBLE_BEGIN("cudaHostUnregister", makes);
  machine& m = all();
  const auto found = m.blocks.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == m.blocks.end() || !found->second.pinned)
    return now.refuse(cudaErrorInvalidValue, "the memory is not registered");
  if (m.cancel(memory, found->second.bytes)) m.wrong("cudaHostUnregister: memory that an operation still uses");
  std::memset(memory, poison_byte, found->second.bytes);
  m.accesses.unwatch(memory);
  m.blocks.erase(found);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* memory) {
  DOUBLE_BEGIN("cudaPointerGetAttributes", asks);
  const block* const found = all().holds(memory, 1);
  *out = {};
  out->type = found == nullptr ? cudaMemoryTypeUnregistered : found->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy("cudaMemcpyAsync", to, from, bytes, kind, stream, false);
}
cudaError_t cudaMemcpyAsync_ptsz(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                 cudaStream_t stream) {
  return copy("cudaMemcpyAsync", to, from, bytes, kind, stream, true);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
  return copy_peer("cudaMemcpyPeerAsync", to, to_device, from, from_device, bytes, stream, false);
}
cudaError_t cudaMemcpyPeerAsync_ptsz(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                     cudaStream_t stream) {
  return copy_peer("cudaMemcpyPeerAsync", to, to_device, from, from_device, bytes, stream, true);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return fill("cudaMemsetAsync", to, value, bytes, stream, false);
}
cudaError_t cudaMemsetAsync_ptsz(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return fill("cudaMemsetAsync", to, value, bytes, stream, true);
}

// ---- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return begin_capture("cudaStreamBeginCapture", stream, mode, false);
}
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return begin_capture("cudaStreamBeginCapture", stream, mode, true);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  return end_capture("cudaStreamEndCapture", stream, out, false);
}
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* out) {
  return end_capture("cudaStreamEndCapture", stream, out, true);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* out) {
  return is_capturing("cudaStreamIsCapturing", stream, out, false);
}
cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* out) {
  return is_capturing("cudaStreamIsCapturing", stream, out, true);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t handle, unsigned long long) {
  DOUBLE_BEGIN("cudaGraphInstantiate", makes);
  auto* const from = reinterpret_cast<graph*>(handle);
  if (!all().graphs.contains(from)) return now.refuse(cudaErrorInvalidResourceHandle, "the graph is none");
  auto* const made = new graph(*from);
  all().executables.insert(made);
  *out = reinterpret_cast<cudaGraphExec_t>(made);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  return destroy("cudaGraphDestroy", handle, &machine::graphs, "the graph is none");
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  return destroy("cudaGraphExecDestroy", handle, &machine::executables, "the graph is none");
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return launch_graph("cudaGraphLaunch", graph, stream, false);
}
cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t graph, cudaStream_t stream) {
  return launch_graph("cudaGraphLaunch", graph, stream, true);
}

}  // extern "C"
