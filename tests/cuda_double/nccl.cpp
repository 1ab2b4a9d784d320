// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include <cstring>
#include <list>
#include <utility>

#include "../support/uncounted.hpp"
#include "atomics.hpp"
#include "machine.hpp"
#include "nccl_double.hpp"

using namespace cuda_double;

namespace {

/// One reduction of a group, as a rank enters it.
struct part_call {
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t operation;
  double factor;  // of a pre-multiplied sum, else 1
  bool multiplied;
};
/// A rank's part of a group.
struct part {
  std::vector<part_call> calls;
  mark_pointer released = std::make_shared<mark>();
  std::vector<std::vector<unsigned char>> results;
  bool issued = false, here = false, is_void = false, done = false;
};
struct collective {
  std::vector<part> parts;
  bool mismatch = false;
  std::size_t issued = 0, here = 0;
};
struct clique;

}  // namespace

struct ncclComm {
  std::shared_ptr<clique> of;
  int rank = 0, device = 0;
  bool blocking = false, ready = false;
  std::uint64_t polls = 0, groups = 0;
  ncclResult_t error = ncclSuccess;
  std::function<void()> launch;
  std::map<int, double> operations;
};

namespace {

struct clique {
  std::string id;
  int size = 0;
  std::vector<ncclComm*> members;
  int come = 0;
  std::map<std::uint64_t, std::shared_ptr<collective>> groups;
};
struct state {
  std::uint64_t life = 0, ids = 0, aborts = 0;
  std::set<ncclComm*> communicators;
  std::list<std::shared_ptr<clique>> cliques;
};
struct entered {
  ncclComm* by;
  part_call call;
  cudaStream_t on;
};
thread_local int depth = 0;
thread_local std::vector<entered> entries;

bool part_is_missing();
state& now_state() {
  static state& the = *new state;
  if (the.life != all().life) {
    for (ncclComm* one : the.communicators) delete one;
    the = {};
    the.life = all().life;
  }
  all().part_is_missing = part_is_missing;
  return the;
}
bool part_is_missing() {
  for (const auto& one : now_state().cliques)
    for (const auto& [number, group] : one->groups)
      if (group->issued != 0 && group->issued < static_cast<std::size_t>(one->size)) {
        // Those of communicators that are no more wait for nobody.
        for (int r = 0; r < one->size; ++r) {
          const part& each = group->parts[static_cast<std::size_t>(r)];
          if (each.issued && !each.is_void && one->members[static_cast<std::size_t>(r)] != nullptr) return true;
        }
      }
  return false;
}

std::size_t bytes_of(ncclDataType_t type) {
  return type == ncclFloat32 || type == ncclInt32 || type == ncclUint32 ? 4 : 8;
}
template <class T>
void reduce_as(collective& of, std::size_t at) {
  const part_call& first = of.parts[0].calls[at];
  std::vector<T> sum(first.count);
  bool begun = false;
  for (const part& each : of.parts) {
    const part_call& call = each.calls[at];
    for (std::size_t i = 0; i < sum.size(); ++i) {
      T value;
      std::memcpy(&value, static_cast<const unsigned char*>(call.from) + i * sizeof(T), sizeof(T));
      if (call.multiplied) value = static_cast<T>(value * static_cast<T>(call.factor));
      if (!begun)
        sum[i] = value;
      else if (call.operation == ncclMax)
        sum[i] = value > sum[i] ? value : sum[i];
      else
        sum[i] = static_cast<T>(sum[i] + value);
    }
    begun = true;
  }
  for (part& each : of.parts) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(sum.data());
    each.results.emplace_back(bytes, bytes + sum.size() * sizeof(T));
  }
}
void all_have_come(collective& of) {
  for (std::size_t at = 0; at < of.parts[0].calls.size(); ++at) switch (of.parts[0].calls[at].type) {
      case ncclFloat32: reduce_as<float>(of, at); break;
      case ncclFloat64: reduce_as<double>(of, at); break;
      case ncclInt32: reduce_as<std::int32_t>(of, at); break;
      case ncclUint32: reduce_as<std::uint32_t>(of, at); break;
      case ncclInt64: reduce_as<std::int64_t>(of, at); break;
      default: reduce_as<std::uint64_t>(of, at);
    }
  for (part& each : of.parts) each.released->done = true;
}

bool same(const std::vector<part_call>& a, const std::vector<part_call>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool like = a[i].multiplied == b[i].multiplied && (a[i].multiplied || a[i].operation == b[i].operation);
    if (!like || a[i].count != b[i].count || a[i].type != b[i].type) return false;
  }
  return true;
}
std::string text(const std::vector<part_call>& calls) {
  std::string result;
  for (const part_call& one : calls)
    result += (result.empty() ? "" : ", ") + std::to_string(one.count) + " of type " + std::to_string(one.type);
  return result;
}

// The group comes onto the stream.
void put_on_stream(ncclComm& by, std::vector<part_call> calls, stream& on, const vector_clock& known) {
  machine& m = all();
  clique& of = *by.of;
  auto& group = of.groups[by.groups];
  if (!group) {
    group = std::make_shared<collective>();
    group->parts.resize(static_cast<std::size_t>(of.size));
  }
  ++by.groups;
  const auto rank = static_cast<std::size_t>(by.rank);
  part& mine = group->parts[rank];
  mine.calls = std::move(calls);
  mine.issued = true;
  ++group->issued;
  for (std::size_t r = 0; r < group->parts.size(); ++r)
    if (r != rank && group->parts[r].issued && !same(group->parts[r].calls, mine.calls) && !group->mismatch) {
      group->mismatch = true;
      m.wrong("NCCL: rank " + std::to_string(r) + " reduces " + text(group->parts[r].calls) + " where rank " +
              std::to_string(rank) + " reduces " + text(mine.calls) + ": they hang");
    }
  std::vector<touch> read, written;
  for (const part_call& one : mine.calls) {
    read.push_back(reads(one.from, one.count * bytes_of(one.type)));
    written.push_back(writes(one.to, one.count * bytes_of(one.type)));
  }
  on.known.join(known);
  m.enqueue(on, "an all-reduce", std::move(read), {}, [group, rank] {
    if (group->parts[rank].is_void) return;
    group->parts[rank].here = true;
    if (++group->here == group->parts.size() && !group->mismatch) all_have_come(*group);
  });
  m.enqueue(on, "an all-reduce", std::move(written), {}, [group, rank] {
    part& own = group->parts[rank];
    own.done = true;
    for (std::size_t i = 0; i < own.calls.size(); ++i) {
      const std::size_t bytes = own.calls[i].count * bytes_of(own.calls[i].type);
      if (own.results.empty())
        std::memset(own.calls[i].to, 0xDB, bytes);
      else
        std::memcpy(own.calls[i].to, own.results[i].data(), bytes);
    }
  });
  on.queue.back().after.push_back(mine.released);
  std::erase_if(of.groups, [](const auto& entry) {
    for (const part& each : entry.second->parts)
      if (!each.done) return false;
    return true;
  });
}

class nccl_call {
 public:
  explicit nccl_call(const char* name, bool asks = false) : lock_(order_lock()), name_(name) {
    machine& m = all();
    here();
    now_state();
    const std::uint64_t number = ++m.calls[name];
    if (m.with.eagerness != 0) m.step(m.draw(m.with.eagerness + 1));
    if (const auto armed = m.armed.find(name); armed != m.armed.end() && armed->second.first == number)
      error_ = static_cast<ncclResult_t>(armed->second.second);
    if (m.dead != cudaSuccess && error_ == ncclSuccess && !asks) error_ = ncclUnhandledCudaError;
  }
  ncclResult_t error() const { return error_; }
  ncclResult_t refuse(ncclResult_t code, const std::string& why) {
    all().wrong(std::string(name_) + ": " + why);
    return code;
  }
  bool knows(ncclComm_t one) { return now_state().communicators.contains(one); }
  /// For calls that need the last one to have ended. The result is not ncclSuccess if the call cannot be.
  ncclResult_t check(ncclComm_t one) {
    if (!knows(one)) return refuse(ncclInvalidArgument, "the communicator is none");
    if (error_ != ncclSuccess) one->error = error_;
    if (one->error != ncclSuccess) return one->error;
    if (!one->ready || one->launch) return refuse(ncclInvalidUsage, "the call before is in progress");
    return ncclSuccess;
  }

 private:
  support::uncounted machinery_;
  std::unique_lock<std::recursive_mutex> lock_;
  const char* name_;
  ncclResult_t error_ = ncclSuccess;
};

void remove(ncclComm* old) {
  state& s = now_state();
  auto& members = old->of->members;
  members[static_cast<std::size_t>(old->rank)] = nullptr;
  bool any = false;
  for (const ncclComm* one : members) any = any || one != nullptr;
  if (!any) s.cliques.remove(old->of);
  s.communicators.erase(old);
  delete old;
}

}  // namespace

namespace cuda_double {

void fail_nccl(std::string_view function, std::uint64_t n, ncclResult_t code) {
  fail(function, n, static_cast<cudaError_t>(code));
}
void set_async_error(int rank, ncclResult_t code) {
  const std::scoped_lock lock(order_lock());
  for (ncclComm* one : now_state().communicators)
    if (one->rank == rank) one->error = code;
}
std::size_t communicators_alive() {
  const std::scoped_lock lock(order_lock());
  return now_state().communicators.size();
}
std::uint64_t nccl_aborts() {
  const std::scoped_lock lock(order_lock());
  return now_state().aborts;
}

}  // namespace cuda_double

extern "C" {

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclSuccess      ? "no error"
         : code == ncclInProgress ? "NCCL operation in progress"
                                  : "an NCCL error of the double";
}
const char* ncclGetLastError(ncclComm_t) { return "what the double says last"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  nccl_call now("ncclGetUniqueId");
  if (now.error() != ncclSuccess) return now.error();
  *id = {};
  const std::string name = "clique " + std::to_string(++now_state().ids);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  nccl_call now("ncclCommInitRankConfig");
  *out = nullptr;
  if (now.error() != ncclSuccess) return now.error();
  state& s = now_state();
  const std::string name(id.internal);
  std::shared_ptr<clique> of;
  for (const auto& one : s.cliques)
    if (one->id == name) of = one;
  if (!of) {
    of = std::make_shared<clique>();
    of->id = name;
    of->size = size;
    of->members.resize(static_cast<std::size_t>(size));
    s.cliques.push_back(of);
  }
  if (of->size != size || rank < 0 || rank >= size || of->members[static_cast<std::size_t>(rank)] != nullptr)
    return now.refuse(ncclInvalidArgument, "another size, or a rank twice");
  for (const ncclComm* one : of->members)
    if (one != nullptr && one->device == here().device) return now.refuse(ncclInvalidUsage, "two ranks on one device");
  auto* const made = new ncclComm;
  made->of = of;
  made->rank = rank;
  made->device = here().device;
  made->blocking = config->blocking != 0;
  made->polls = all().draw(4);
  if (made->blocking) now.refuse(ncclInvalidUsage, "the double has no blocking communicators");
  s.communicators.insert(made);
  of->members[static_cast<std::size_t>(rank)] = made;
  ++of->come;
  *out = made;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t one, ncclResult_t* out) {
  nccl_call now("ncclCommGetAsyncError", true);
  if (!now.knows(one)) return now.refuse(ncclInvalidArgument, "the communicator is none");
  if (now.error() != ncclSuccess) return now.error();
  *out = one->error;
  if (one->error != ncclSuccess) return ncclSuccess;
  if (!one->ready) {
    if (one->of->come < one->of->size || one->polls-- != 0) {
      if (one->of->come < one->of->size) one->polls = all().draw(4);
      *out = ncclInProgress;
      return ncclSuccess;
    }
    one->ready = true;
  }
  if (one->launch) {
    if (one->polls != 0) {
      --one->polls;
      *out = ncclInProgress;
      return ncclSuccess;
    }
    std::exchange(one->launch, nullptr)();
  }
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t one, int* out) {
  nccl_call now("ncclCommCount");
  if (const ncclResult_t code = now.check(one); code != ncclSuccess) return code;
  *out = one->of->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t one, int* out) {
  nccl_call now("ncclCommUserRank");
  if (const ncclResult_t code = now.check(one); code != ncclSuccess) return code;
  *out = one->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t one, int* out) {
  nccl_call now("ncclCommCuDevice");
  if (const ncclResult_t code = now.check(one); code != ncclSuccess) return code;
  *out = one->device;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t one) {
  nccl_call now("ncclCommFinalize");
  if (const ncclResult_t code = now.check(one); code != ncclSuccess) return code;
  one->polls = all().draw(4);
  one->launch = [] {};
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t one) {
  nccl_call now("ncclCommDestroy");
  if (const ncclResult_t code = now.check(one); code != ncclSuccess) return code;
  for (const auto& [number, group] : one->of->groups) {
    const part& mine = group->parts[static_cast<std::size_t>(one->rank)];
    if (mine.issued && group->issued != group->parts.size())
      now.refuse(ncclInvalidUsage, "a collective that not all ranks have entered is under way: it hangs");
  }
  remove(one);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t one) {
  nccl_call now("ncclCommAbort", true);
  if (!now.knows(one)) return now.refuse(ncclInvalidArgument, "the communicator is none");
  ++now_state().aborts;
  for (const auto& [number, group] : one->of->groups) {
    part& mine = group->parts[static_cast<std::size_t>(one->rank)];
    mine.is_void = true;
    mine.released->done = true;
  }
  remove(one);
  return now.error();
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* out, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t one) {
  nccl_call now("ncclRedOpCreatePreMulSum");
  if (const ncclResult_t code = now.check(one); code != ncclSuccess) return code;
  if (residence != ncclScalarHostImmediate) return now.refuse(ncclInvalidArgument, "a scalar on the device");
  int number = ncclNumOps;
  while (one->operations.contains(number)) ++number;
  double factor = 0;
  if (type == ncclFloat32) {
    float value;
    std::memcpy(&value, scalar, sizeof value);
    factor = static_cast<double>(value);
  } else {
    std::memcpy(&factor, scalar, sizeof factor);
  }
  one->operations[number] = factor;
  *out = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t one) {
  nccl_call now("ncclRedOpDestroy");
  if (const ncclResult_t code = now.check(one); code != ncclSuccess) return code;
  if (one->operations.erase(static_cast<int>(operation)) == 0)
    return now.refuse(ncclInvalidArgument, "the operation is none");
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  nccl_call now("ncclGroupStart");
  if (now.error() != ncclSuccess) return now.error();
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t one, cudaStream_t on) {
  nccl_call now("ncclAllReduce");
  if (const ncclResult_t code = now.check(one); code != ncclSuccess) return code;
  if (depth == 0) return now.refuse(ncclInvalidUsage, "the double wants a group");
  const std::size_t bytes = count * bytes_of(type);
  for (const void* each : {from, static_cast<const void*>(to)}) {
    const block* const there = all().holds(each, bytes);
    if (there == nullptr || there->pinned || there->device != one->device)
      return now.refuse(ncclInvalidArgument, "memory that is not within the device's");
  }
  part_call call{from, to, count, type, operation, 1, false};
  if (operation >= ncclNumOps) {
    if (!one->operations.contains(static_cast<int>(operation)))
      return now.refuse(ncclInvalidArgument, "the operation is none");
    call.factor = one->operations[static_cast<int>(operation)];
    call.multiplied = true;
  }
  entries.push_back({one, call, on});
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  nccl_call now("ncclGroupEnd");
  if (depth == 0) return now.refuse(ncclInvalidUsage, "there is no group");
  --depth;
  const auto group = std::exchange(entries, {});
  if (now.error() != ncclSuccess) {
    for (const entered& one : group)
      if (now.knows(one.by)) one.by->error = now.error();
    return now.error();
  }
  if (group.empty()) return ncclSuccess;
  ncclComm* const by = group.front().by;
  std::vector<part_call> calls;
  for (const entered& one : group) {
    if (one.by != by || one.on != group.front().on)
      return now.refuse(ncclInvalidUsage, "the double wants one communicator and one stream in a group");
    if (!now.knows(by)) return ncclInvalidArgument;
    if (by->error != ncclSuccess) return by->error;
    calls.push_back(one.call);
  }
  stream* const on = all().find(group.front().on, false, here());
  if (on == nullptr || on->device != by->device)
    return now.refuse(ncclInvalidArgument, "the stream is none of the device's");
  by->polls = all().draw(4);
  const vector_clock known = here().known;
  auto launch = [by, on, known, calls = std::move(calls)] { put_on_stream(*by, calls, *on, known); };
  if (by->polls == 0) return launch(), ncclSuccess;
  by->launch = std::move(launch);
  return ncclInProgress;
}

}  // extern "C"
