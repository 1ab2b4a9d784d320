// SPDX-License-Identifier: Apache-2.0
// What a profiler is told by NVTX. The test is the profiler, which NVTX finds as it would find one that is linked into
// the program, and writes down every call.
#include <penstock/observe/nvtx.hpp>

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/communicator/local_cuda.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

#include "support.hpp"

namespace {

struct call {
  enum class kind { create, destroy, push, pop, start, end, name };
  kind what{};
  std::thread::id thread{};
  std::string thread_name{};
  std::string text{};
  std::uint64_t number = 0;  // payload, or the range's
  std::uint64_t range = 0;
  const void* stream = nullptr;
};
using kind = call::kind;

/// What came, in one order for all threads.
class profiler {
 public:
  static profiler& the() {
    static profiler one;
    return one;
  }
  static int NVTX_API attach(NvtxGetExportTableFunc_t table_of) {
    const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;
    const auto put = [&](int id, auto* function) {
      if (static_cast<unsigned>(id) < size) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
    };
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
    put(NVTX_CBID_CORE2_DomainCreateA, &create);
    put(NVTX_CBID_CORE2_DomainDestroy, &destroy);
    put(NVTX_CBID_CORE2_DomainRangePushEx, &push);
    put(NVTX_CBID_CORE2_DomainRangePop, &pop);
    put(NVTX_CBID_CORE2_DomainRangeStartEx, &start);
    put(NVTX_CBID_CORE2_DomainRangeEnd, &end);
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CUDART, &table, &size) == 0) return 0;
    put(NVTX_CBID_CUDART_NameCudaStreamA, &name);
    return 1;
  }
  std::vector<call> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(calls_, {});
  }

 private:
  std::uint64_t add(call one) {
    one.thread = std::this_thread::get_id();
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    one.thread_name = name;
    const std::scoped_lock lock(mutex_);
    if (one.what == kind::start) one.range = ++ranges_;
    calls_.push_back(std::move(one));
    return calls_.back().range;
  }
  static nvtxDomainHandle_t domain() { return reinterpret_cast<nvtxDomainHandle_t>(&the()); }
  static void check(nvtxDomainHandle_t of, const nvtxEventAttributes_t* with) {
    EXPECT_EQ(of, domain());
    EXPECT_EQ(with->version, NVTX_VERSION);
    EXPECT_EQ(with->size, NVTX_EVENT_ATTRIB_STRUCT_SIZE);
    EXPECT_EQ(with->colorType, NVTX_COLOR_ARGB);
    EXPECT_EQ(with->messageType, NVTX_MESSAGE_TYPE_ASCII);
    EXPECT_EQ(with->payloadType, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64);
  }
  static call of(kind what, const nvtxEventAttributes_t* with) {
    call result{.what = what};
    result.text = with->message.ascii;
    result.number = with->payload.ullValue;
    return result;
  }

  static nvtxDomainHandle_t NVTX_API create(const char* name) {
    call one{.what = kind::create};
    one.text = name;
    the().add(std::move(one));
    return domain();
  }
  static void NVTX_API destroy(nvtxDomainHandle_t which) {
    EXPECT_EQ(which, domain());
    the().add({.what = kind::destroy});
  }
  static int NVTX_API push(nvtxDomainHandle_t where, const nvtxEventAttributes_t* with) {
    check(where, with);
    the().add(of(kind::push, with));
    return 0;
  }
  static int NVTX_API pop(nvtxDomainHandle_t where) {
    EXPECT_EQ(where, domain());
    the().add({.what = kind::pop});
    return 0;
  }
  static nvtxRangeId_t NVTX_API start(nvtxDomainHandle_t where, const nvtxEventAttributes_t* with) {
    check(where, with);
    return the().add(of(kind::start, with));
  }
  static void NVTX_API end(nvtxDomainHandle_t where, nvtxRangeId_t id) {
    EXPECT_EQ(where, domain());
    call one{.what = kind::end};
    one.range = id;
    the().add(std::move(one));
  }

  static void NVTX_API name(cudaStream_t stream, const char* text) {
    call one{.what = kind::name};
    one.text = text;
    one.stream = stream;
    the().add(std::move(one));
  }

  std::mutex mutex_;
  std::vector<call> calls_;
  std::uint64_t ranges_ = 0;
};

// Before the first call of NVTX. A tool that the environment names would come before the one that is linked.
[[maybe_unused]] const bool attached = [] {
  ::unsetenv("NVTX_INJECTION64_PATH");
#if defined(NVTX_LOAD_SEQUENCE_VERSION) && NVTX_LOAD_SEQUENCE_VERSION >= 2
  InitializeInjectionNvtx2_fnptr = &profiler::attach;
  return true;
#else
  return false;
#endif
}();

/// The calls as ranges. Of each thread those that are pushed are popped, none is popped that was not pushed; each that
/// is started is ended once.
struct ranges {
  std::map<std::string, std::multiset<std::uint64_t>> steps;  // of each name
  std::set<std::string> readers;                              // names of the threads that read
  std::size_t domains = 0;

  explicit ranges(const std::vector<call>& calls) {
    std::map<std::thread::id, std::vector<std::string>> open;
    std::set<std::uint64_t> started;
    std::size_t destroyed = 0;
    for (const call& one : calls) switch (one.what) {
        case kind::create:
          EXPECT_EQ(one.text, "penstock");
          ++domains;
          break;
        case kind::destroy: ++destroyed; break;
        case kind::push:
          if (one.text == "read") readers.insert(one.thread_name);
          steps[one.text].insert(one.number);
          // A reader reads, or passes a copy on; not one within the other.
          EXPECT_EQ(open[one.thread].size(), 0U) << one.text << " in " << open[one.thread].back();
          open[one.thread].push_back(one.text);
          break;
        case kind::pop:
          if (open[one.thread].empty()) {
            ADD_FAILURE() << "a range is popped that was not pushed";
            break;
          }
          open[one.thread].pop_back();
          break;
        case kind::start:
          steps[one.text].insert(one.number);
          started.insert(one.range);
          break;
        case kind::name: break;
        case kind::end: EXPECT_EQ(started.erase(one.range), 1U) << "ended, but not open: range " << one.range; break;
      }
    for (const auto& [thread, left] : open) {
      EXPECT_EQ(left.size(), 0U) << "not popped: " << left.back();
    }
    EXPECT_EQ(started.size(), 0U) << "started and never ended";
    EXPECT_EQ(domains, destroyed);
  }
  bool has_each_once(const std::string& name, std::uint64_t count) {
    std::multiset<std::uint64_t> wanted;
    for (std::uint64_t i = 0; i < count; ++i) wanted.insert(i);
    return steps[name] == wanted;
  }
};

struct nvtx : testing::Test {
  void SetUp() override {
    if (!attached)
      GTEST_SKIP() << "these headers of NVTX find no profiler that is linked (NVTX_LOAD_SEQUENCE_VERSION < 2)";
    profiler::the().take();
  }
};

const std::vector<float> data(40, 1.0F);

template <class Device>
auto feed_of(Device device, int readers, int depth = 2, const std::vector<float>& of = data) {
  return (of | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = readers}) |
          penstock::batch(4) | penstock::transfer(std::move(device), {.depth = depth}))
      .start();
}

template <class Device>
void expect_ranges_of_an_epoch(const Device& device, int readers, bool copies) {
  {
    penstock::nvtx_ranges observer;
    auto feed = feed_of(device, readers);
    feed.observe(observer);
    for (auto& batch : feed.epoch(0)) (void)batch;
  }
  ranges seen(profiler::the().take());
  EXPECT_EQ(seen.domains, 1U);
  EXPECT_TRUE(seen.has_each_once("compute", 10));
  // By several threads in parts, and steps of the next epoch, too.
  const auto& read = seen.steps["read"];
  for (std::uint64_t step = 0; step < 10; ++step) EXPECT_GE(read.count(step), 1U) << step;
  const auto& copied = seen.steps["transfer"];
  for (std::uint64_t step = 0; step < 10; ++step) EXPECT_EQ(copied.count(step), copies ? 1U : 0U) << step;
  EXPECT_EQ(seen.steps.size(), 3U) << "read, transfer, compute";
  for (const std::string& name : seen.readers) {
    EXPECT_EQ(name.starts_with("penstock:read"), readers > 0) << name;
  }
  EXPECT_FALSE(seen.readers.empty());
}

TEST_F(nvtx, has_a_range_for_each_stage_of_each_step_on_the_thread_that_does_it) {
  for (const int readers : {0, 1, 3}) {
    SCOPED_TRACE(readers);
    expect_ranges_of_an_epoch(penstock::cpu_device(), readers, false);
    expect_ranges_of_an_epoch(penstock::modelled_device(), readers, true);
    doubled::fresh({.events_are_timed = true});
    expect_ranges_of_an_epoch(doubled::watched_device(), readers, true);
  }
}

// The step fails, the thread goes on: what it does later would be shown as a part of that copy.
TEST_F(nvtx, a_copy_that_fails_ends_its_range) {
  for (const char* const function : {"cudaMemcpyAsync", "cudaEventRecord"})
    for (std::uint64_t n = 1; n < 12; ++n) {
      SCOPED_TRACE(std::string(function) + ' ' + std::to_string(n));
      doubled::fresh({.events_are_timed = true});
      {
        penstock::nvtx_ranges observer;
        auto feed = feed_of(doubled::watched_device(), 1);
        feed.observe(observer);
        cuda_double::fail(function, n, cudaErrorUnknown);
        try {
          for (auto& batch : feed.epoch(0)) (void)batch;
        } catch (const penstock::error&) {
        }
      }
      const ranges seen(profiler::the().take());
    }
}

// One batch is held while more are computed than any table of open ranges is long.
TEST_F(nvtx, a_range_ends_with_its_step_however_long_that_is_held) {
  const std::vector<float> many(4 * 400, 1.0F);
  {
    penstock::nvtx_ranges observer;
    auto feed = feed_of(penstock::modelled_device(), 0, 64, many);
    feed.observe(observer);
    auto first = feed.next();
    for (int i = 0; i < 300; ++i) feed.next();
    first.release();
    for (int i = 0; i < 10; ++i) feed.next();
  }
  const ranges seen(profiler::the().take());
}

/// The streams that were given names, each once, by name.
std::map<std::string, const void*> names_of(const std::vector<call>& calls) {
  std::map<std::string, const void*> result;
  for (const call& one : calls) {
    if (one.what != kind::name) continue;
    EXPECT_TRUE(result.emplace(one.text, one.stream).second) << one.text << " is given twice";
  }
  std::set<const void*> streams;
  for (const auto& [name, stream] : result) {
    EXPECT_TRUE(stream != nullptr && streams.insert(stream).second) << "a stream has two names, one is " << name;
  }
  return result;
}

TEST_F(nvtx, streams_have_names_once_the_epoch_begins) {
  doubled::fresh({.events_are_timed = true});
  const doubled::on_device current(1);
  penstock::nvtx_ranges observer;
  auto feed = feed_of(doubled::watched_device(1), 1);
  EXPECT_EQ(cuda_double::count_alive().streams, 2U);
  feed.observe(observer);
  const void* given = nullptr;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : feed.epoch(epoch)) given = batch.stream().get();
  const auto names = names_of(profiler::the().take());
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names.begin()->first, "penstock batches, device 1");
  EXPECT_EQ(names.begin()->second, given);
  EXPECT_EQ(names.rbegin()->first, "penstock copies, device 1");
}

TEST_F(nvtx, a_stream_of_the_applications_keeps_its_name) {
  doubled::fresh({.events_are_timed = true});
  const doubled::watched_device device;
  const auto mine = device.make_stream();
  {
    penstock::nvtx_ranges observer;
    doubled::transfer_options options;
    options.consumer = mine.view();
    auto feed =
        (data | penstock::partition() | penstock::read() | penstock::batch(4) | penstock::transfer(device, options))
            .start();
    feed.observe(observer);
    (void)feed.next();
  }
  const auto names = names_of(profiler::the().take());
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(names.begin()->first, "penstock copies, device 0");
}

struct no_kernels : penstock::detail::cuda_peer_copies {
  void sum(const penstock::cuda_device&, const penstock::local_sum&, penstock::cuda_stream_view) const {}
};

TEST_F(nvtx, streams_of_replicas_have_their_ranks_in_their_names) {
  doubled::fresh({.events_are_timed = true});
  std::size_t alive = 0;
  std::vector<doubled::watched_device> devices;
  for (const int ordinal : {0, 1}) devices.emplace_back(ordinal);
  penstock::replicas(penstock::local_device_world<doubled::watched_device, no_kernels>(devices), [&](auto& replica) {
    const doubled::on_device current(static_cast<int>(replica.rank()));
    penstock::nvtx_ranges observer;
    // A stream, of which the pipeline knows no rank.
    auto feed = replica.start(
        penstock::stream([] { return data; }) | penstock::partition({.shuffle = penstock::shuffle::none}) |
        penstock::read({.readers = 1}) | penstock::batch(4) | penstock::transfer(replica.device()));
    feed.observe(observer);
    for (auto& batch : feed.epoch(0)) replica.all_reduce(batch);
    replica.barrier();
    if (replica.rank() == 0) alive = cuda_double::count_alive().streams;
    replica.barrier();
  });
  const auto names = names_of(profiler::the().take());
  EXPECT_EQ(names.size(), alive);
  for (const char* const rank : {"0", "1"})
    for (const char* const use : {"batches", "copies", "all_reduce", "barriers"}) {
      const std::string name = penstock::detail::concat("penstock ", use, ", device ", rank, ", rank ", rank);
      EXPECT_TRUE(names.contains(name)) << name;
    }
}

/// Any observer may listen to streams.
struct listener {
  std::vector<penstock::stream_event> seen{};
  int begun = 0, batches = 0;
  void on_begin(const penstock::run_begin&) { ++begun; }
  void on_batch(const penstock::batch_event&) { ++batches; }
  void on_stream(const penstock::stream_event& event) {
    EXPECT_EQ(begun, 1);
    EXPECT_EQ(batches, 0);
    seen.push_back(event);
  }
};
template <class Device>
std::vector<penstock::stream_event> streams_of(const Device& device) {
  listener result;
  auto feed = feed_of(device, 1);
  feed.observe(result);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : feed.epoch(epoch)) (void)batch;
  return result.seen;
}

TEST(streams, are_told_of_once_and_before_the_first_batch) {
  EXPECT_TRUE(streams_of(penstock::cpu_device()).empty());
  const auto modelled = streams_of(penstock::modelled_device());
  ASSERT_EQ(modelled.size(), 2U);
  for (const auto& one : modelled) EXPECT_TRUE(one.cuda == nullptr && !one.device && one.own);
  const auto cuda = streams_of(doubled::watched_device());
  ASSERT_EQ(cuda.size(), 2U);
  EXPECT_EQ(cuda[0].use, "batches");
  EXPECT_EQ(cuda[1].use, "copies");
  EXPECT_NE(cuda[0].cuda, cuda[1].cuda);
  for (const auto& one : cuda) EXPECT_TRUE(one.cuda != nullptr && one.device == 0 && one.own && one.ranks == 1);
}

}  // namespace
