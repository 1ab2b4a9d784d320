// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <cstring>

#include "../support/uncounted.hpp"
#include "atomics.hpp"

namespace cuda_double {

namespace {

bool touches_range(const touch& one, const void* data, std::size_t bytes) {
  const auto a = reinterpret_cast<std::uintptr_t>(one.data), b = reinterpret_cast<std::uintptr_t>(data);
  return a < b + bytes && b < a + one.bytes;
}

}  // namespace

// Never destroyed: threads may end after everything else.
machine& all() {
  static machine& the = *new machine;
  return the;
}
std::recursive_mutex& order_lock() {
  static std::recursive_mutex& lock = *new std::recursive_mutex;
  return lock;
}
host& here() {
  thread_local host own;
  machine& m = all();
  if (own.life != m.life) {
    own.actor = m.accesses.add_actor("a host thread", own.known);
    own.life = m.life;
    own.own_streams.clear();
    own.last_error = cudaSuccess;
    own.capture_mode = cudaStreamCaptureModeGlobal;
    if (own.device >= m.with.devices) own.device = 0;
  }
  return own;
}
host::~host() {
  const support::uncounted machinery;
  const std::scoped_lock lock(order_lock());
  if (life == all().life) all().accesses.remove_actor(actor);
}

void note_acquire(const sync_point& from) {
  const support::uncounted machinery;
  here().known.join(from.known);
}
void note_release(sync_point& to, bool keeps) {
  const support::uncounted machinery;
  host& by = here();
  if (!keeps) to.known.clear();
  to.known.join(by.known);
  by.known.advance(by.actor);
}

std::uint64_t machine::draw(std::uint64_t below) {
  // Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014.
  std::uint64_t z = (random += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (z ^ (z >> 31)) % below;
}
void machine::wrong(std::string text) {
  if (faults.size() < 20) faults.push_back(std::move(text));
}

// ---- what happens

bool machine::step_once() {
  if (dead != cudaSuccess || all_held) return false;
  std::vector<stream*> able;
  for (stream* one : streams) {
    if (one->held || one->queue.empty()) continue;
    bool ready = true;
    for (const auto& before : one->queue.front().after) ready = ready && before->done;
    if (ready) able.push_back(one);
  }
  if (able.empty()) return false;
  stream& on = *able[draw(able.size())];
  operation& next = on.queue.front();
  if (!next.begun) {
    next.begun = true;
    if (next.begin) return next.begin(), true;
  }
  if (next.end) next.end();
  next.mark->done = true;
  next.mark->at = ++happened;
  on.queue.pop_front();
  return true;
}
void machine::step(std::uint64_t steps) {
  while (steps-- > 0 && step_once()) {
  }
}
void machine::finish() {
  while (step_once()) {
  }
}

// ---- what is enqueued

operation& machine::push(stream& on, const host& by) {
  on.known.join(by.known);
  operation next;
  // A legacy stream waits for all that block, and they for it.
  const bool is_legacy = legacy.contains(on.device) && legacy[on.device] == &on;
  for (stream* other : streams) {
    if (other == &on || other->device != on.device || !other->last) continue;
    const bool other_is_legacy = legacy.contains(on.device) && legacy[on.device] == other;
    if ((is_legacy && other->blocking) || (other_is_legacy && on.blocking)) {
      next.after.push_back(other->last);
      on.known.join(other->known);
    }
  }
  on.known.advance(on.actor);
  next.mark = std::make_shared<mark>();
  next.mark->known = on.known;
  on.last = next.mark;
  on.queue.push_back(std::move(next));
  return on.queue.back();
}
void machine::note(const char* what, const stream& on, std::uint64_t number, const std::vector<touch>& touches) {
  for (const touch& one : touches) {
    const access now{on.actor, on.known.of(on.actor), what, number};
    std::string conflict = accesses.add(one.data, one.bytes, one.writes, now, on.known);
    if (!conflict.empty()) wrong(std::move(conflict));
  }
}
cudaError_t machine::enqueue(stream& on, const char* what, std::vector<touch> touches, std::function<void()> begin,
                             std::function<void()> end) {
  if (on.capture != nullptr) {
    on.capture->nodes.push_back({what, std::move(touches), std::move(begin), std::move(end)});
    return cudaSuccess;
  }
  host& by = here();
  operation& next = push(on, by);
  note(what, on, ++operations, touches);
  next.touches = std::move(touches);
  next.begin = std::move(begin);
  next.end = std::move(end);
  by.known.advance(by.actor);
  return cudaSuccess;
}

// ---- what is known

stream& machine::make_stream(int device, bool blocking, std::string name) {
  auto* made = new stream;
  made->device = device;
  made->blocking = blocking;
  made->actor = accesses.add_actor(std::move(name), made->known);
  streams.insert(made);
  return *made;
}
// What was enqueued still happens: the stream stays until it has.
void machine::destroy(stream* old) {
  old->held = false;
  while (!old->queue.empty() && step_once()) {
  }
  streams.erase(old);
  accesses.remove_actor(old->actor);
  delete old;
}
stream* machine::find(cudaStream_t handle, bool per_thread, host& by) {
  if (handle == cudaStreamPerThread || (handle == nullptr && per_thread)) {
    stream*& own = by.own_streams[by.device];
    if (own == nullptr) own = &make_stream(by.device, true, "a per-thread default stream");
    return own;
  }
  if (handle == nullptr || handle == cudaStreamLegacy) {
    stream*& one = legacy[by.device];
    if (one == nullptr)
      one = &make_stream(by.device, false, "the legacy stream of device " + std::to_string(by.device));
    return one;
  }
  auto* const found = reinterpret_cast<stream*>(handle);
  return streams.contains(found) ? found : nullptr;
}
const block* machine::holds(const void* data, std::size_t bytes, std::uintptr_t* begin) const {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  auto found = blocks.upper_bound(at);
  if (found == blocks.begin()) return nullptr;
  --found;
  if (at - found->first > found->second.bytes || bytes > found->second.bytes - (at - found->first)) return nullptr;
  if (begin != nullptr) *begin = found->first;
  return &found->second;
}
bool machine::cancel(const void* data, std::size_t bytes) {
  bool found = false;
  for (stream* one : streams)
    for (operation& pending : one->queue)
      for (const touch& each : pending.touches)
        if (touches_range(each, data, bytes)) {
          pending.begin = pending.end = nullptr;
          found = true;
        }
  return found && dead == cudaSuccess;
}

// ---- for tests

void reset(const options& with) {
  const support::uncounted machinery;
  const std::scoped_lock lock(order_lock());
  machine& m = all();
  for (stream* one : m.streams) delete one;
  for (event* one : m.events) delete one;
  for (graph* one : m.graphs) delete one;
  for (graph* one : m.executables) delete one;
  const std::uint64_t life = m.life + 1;
  m = machine{};
  m.life = life;
  m.with = with;
  m.random = with.seed;
}

void launch(cudaStream_t handle, std::vector<touch> touches, std::function<void()> body) {
  const support::uncounted machinery;
  const std::scoped_lock lock(order_lock());
  machine& m = all();
  host& by = here();
  m.step(m.with.eagerness == 0 ? 0 : m.draw(m.with.eagerness + 1));
  stream* const on = m.find(handle, false, by);
  if (on == nullptr) return m.wrong("a kernel was launched on a stream that is none");
  if (on->device != by.device)
    return m.wrong("a kernel was launched on a stream of device " + std::to_string(on->device) +
                   " while the thread's current device is " + std::to_string(by.device));
  m.enqueue(*on, "a kernel", std::move(touches), {}, std::move(body));
}
void host_access(const touch& of, const char* what) {
  const support::uncounted machinery;
  const std::scoped_lock lock(order_lock());
  machine& m = all();
  host& by = here();
  std::string conflict =
      m.accesses.add(of.data, of.bytes, of.writes, {by.actor, by.known.of(by.actor), what, 0}, by.known);
  if (!conflict.empty()) m.wrong(std::move(conflict));
}
void hold(cudaStream_t handle) {
  const std::scoped_lock lock(order_lock());
  if (stream* const on = all().find(handle, false, here())) on->held = true;
}
void resume(cudaStream_t handle) {
  const std::scoped_lock lock(order_lock());
  if (stream* const on = all().find(handle, false, here())) on->held = false;
}
void hold_all() {
  const std::scoped_lock lock(order_lock());
  all().all_held = true;
}
void resume_all() {
  const std::scoped_lock lock(order_lock());
  all().all_held = false;
}
void finish() {
  const support::uncounted machinery;
  const std::scoped_lock lock(order_lock());
  all().finish();
}
void fail(std::string_view function, std::uint64_t n, cudaError_t code) {
  const std::scoped_lock lock(order_lock());
  all().armed[std::string(function)] = {all().calls[std::string(function)] + n, code};
}
void fault(cudaError_t code) {
  const std::scoped_lock lock(order_lock());
  all().dead = code;
}
void leave_error(cudaError_t code) {
  const std::scoped_lock lock(order_lock());
  here().last_error = code;
}
std::uint64_t calls(std::string_view function) {
  const std::scoped_lock lock(order_lock());
  const auto found = all().calls.find(function);
  return found == all().calls.end() ? 0 : found->second;
}
std::vector<std::string> functions_called() {
  const std::scoped_lock lock(order_lock());
  std::vector<std::string> result;
  for (const auto& [name, number] : all().calls)
    if (number != 0) result.push_back(name);
  return result;
}
std::set<int> contexts() {
  const std::scoped_lock lock(order_lock());
  return all().contexts;
}
std::size_t default_streams_used() {
  const std::scoped_lock lock(order_lock());
  std::size_t result = 0;
  for (const auto& [device, one] : all().legacy) result += one != nullptr;
  for (const stream* one : all().streams) result += one->blocking;
  return result;
}
std::uint64_t pageable_copies() {
  const std::scoped_lock lock(order_lock());
  return all().pageable;
}
void hot_path(bool on) {
  const std::scoped_lock lock(order_lock());
  all().hot = on;
}
std::vector<std::string> take_faults() {
  const std::scoped_lock lock(order_lock());
  return std::exchange(all().faults, {});
}
alive_counts count_alive() {
  const std::scoped_lock lock(order_lock());
  const machine& m = all();
  alive_counts result;
  for (const auto& [at, one] : m.blocks) ++(one.pinned ? result.pinned : result.memory);
  result.streams = m.streams.size();
  for (const auto& [device, one] : m.legacy) result.streams -= one != nullptr;
  for (const stream* one : m.streams)
    if (one->blocking) --result.streams;  // a thread's own
  result.events = m.events.size();
  result.graphs = m.graphs.size() + m.executables.size();
  return result;
}
void expect_some_alive() {
  const std::scoped_lock lock(order_lock());
  all().leaves_some = true;
}
bool some_may_be_alive() {
  const std::scoped_lock lock(order_lock());
  return all().leaves_some;
}
std::string alive() {
  const alive_counts now = count_alive();
  std::string result;
  const auto add = [&](std::size_t number, const char* what) {
    if (number != 0) result += (result.empty() ? "" : ", ") + std::to_string(number) + " " + what;
  };
  add(now.memory, "blocks of memory");
  add(now.pinned, "pinned blocks");
  add(now.streams, "streams");
  add(now.events, "events");
  add(now.graphs, "graphs");
  return result;
}

}  // namespace cuda_double
