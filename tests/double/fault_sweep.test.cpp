// SPDX-License-Identifier: Apache-2.0
// A small training run, again and again, with a failure at each call of the runtime in turn.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <penstock/device/cuda_graph.hpp>
#include <penstock/device/results.hpp>

#include "../laws/configurations.hpp"
#include "watchdog.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace {

using namespace laws;
using namespace std::chrono_literals;
using cuda_double::reads;
using cuda_double::watched_device;
using cuda_double::writes;

struct variant {
  const char* name;
  int readers = 2;
  int device = 0;  // the thread's current one is 0
  bool own_stream = false, graph = false;
};
void PrintTo(const variant& one, std::ostream* out) { *out << one.name; }
constexpr variant variants[] = {{"two readers"},
                                {.name = "inline", .readers = 0},
                                {.name = "a stream of its own", .own_stream = true},
                                {.name = "a captured step", .graph = true},
                                {.name = "another device", .readers = 1, .device = 1}};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t stride = 4, least_runs = 40;
#else
constexpr std::uint64_t stride = 1, least_runs = 100;
#endif
constexpr std::uint64_t samples_in_all = 10, epochs = 2;

/// What failed: a message that says it, and the call inside.
struct failed {
  std::string message, call;
  cudaError_t code = cudaSuccess;
};
failed failure_of(const penstock::error& caught) {
  failed result{caught.what(), {}, cudaSuccess};
  if (const auto* inner = dynamic_cast<const penstock::cuda_error*>(&caught)) {
    result.call = inner->call();
    result.code = inner->code();
  } else {
    try {
      caught.rethrow_cause();
    } catch (const penstock::error& cause) {
      const failed inner_most = failure_of(cause);
      result.call = inner_most.call;
      result.code = inner_most.code;
    } catch (...) {
    }
  }
  return result;
}

/// Two epochs: a kernel for each step on its stream and one on a further stream, both of whose sums come back.
class training {
  using batch_type = penstock::lease<schema_type, watched_device>;

 public:
  explicit training(const variant& with)
      : with_(with),
        plan_{.readers = with.readers, .depth = 2},
        device_(penstock::cuda_options{.device = with.device, .find_mistakes = true}) {
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) wanted_.push_back(planned(samples_in_all, plan_, epoch));
    EXPECT_EQ(device_.describe(), "cuda " + std::to_string(with.device) + " (double)");
    if (with.own_stream) own_.emplace(device_.make_stream());
    further_.emplace(device_.make_stream());
    forked_.emplace(device_.make_event());
    sums_ = device_.allocate(512);
    captured_.emplace(sum{&device_, loss()});
    losses_.emplace(device_, penstock::results_options{.depth = 8});
    norms_.emplace(device_, penstock::results_options{.depth = 8});
    penstock::transfer_options<watched_device> transfer{.depth = plan_.depth};
    if (own_) transfer.consumer = own_->view();
    penstock::read_options read{.readers = with.readers};
    if (with.readers != 0) read.timeout = 20s;
    feed_.emplace((samples<>{samples_in_all} | penstock::partition({.seed = plan_.seed, .shuffle = plan_.how}) |
                   penstock::read(read) | penstock::batch(plan_.batch) | penstock::transfer(device_, transfer))
                      .start());
    feed_->set_last_epoch(epochs - 1);
  }

  void all_epochs() {
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) one_epoch(epoch);
  }
  void one_epoch(std::uint64_t epoch) {
    std::size_t step = 0;
    for (auto& batch : feed_->epoch(epoch)) {
      const delivered& wanted = wanted_[epoch][step++];
      const auto indices = batch.indices();
      EXPECT_EQ((delivered{batch.epoch(), batch.step(), batch.rows(), {indices.begin(), indices.end()}}), wanted);
      for (std::size_t row = 0; row < batch.rows(); ++row) EXPECT_EQ(batch.host<0>()[row], wanted.indices[row]);
      enqueue(batch);
      look();
    }
    EXPECT_EQ(step, wanted_[epoch].size());
    collect();
  }
  /// What was asked for before a failure comes back right all the same.
  void collect() {
    while (const auto loss = losses_->wait()) check(*loss);
    while (const auto norm = norms_->wait()) check(*norm);
  }

 private:
  float* loss() const { return reinterpret_cast<float*>(sums_.data()); }
  float* norm() const { return reinterpret_cast<float*>(sums_.data() + 256); }

  void enqueue(batch_type& batch) {
    const std::uint64_t number = batch.epoch() * 100 + batch.step();
    if (with_.graph)
      (*captured_)(batch);
    else
      sum{&device_, loss()}(batch);
    losses_->enqueue(loss(), batch.stream(), number);
    device_.record(*forked_, batch.stream());
    device_.wait(further_->view(), *forked_);
    batch.used_on(further_->view());
    sum{&device_, norm()}.on(batch, further_->view());
    norms_->enqueue(norm(), further_->view(), number);
  }
  struct sum {
    const watched_device* device;
    float* to;
    void operator()(batch_type& batch) const { on(batch, batch.stream()); }
    void on(batch_type& batch, penstock::cuda_stream_view stream) const {
      const penstock::detail::cuda_scope scope(device->ordinal());
      const auto [id, values] = batch.fields();
      const auto* const header = batch.header();
      cuda_double::launch(stream,
                          {reads(header, sizeof *header), reads(id.data(), id.size() * sizeof(std::uint64_t)),
                           reads(values.data(), values.size() * sizeof(float)), writes(to, sizeof(float))},
                          [header, ids = id.data(), all = values.data(), rows = id.size(), at = to] {
                            float result = static_cast<float>(header->epoch * 100 + header->step);
                            for (std::size_t i = 0; i < rows; ++i) result += static_cast<float>(ids[i]);
                            for (std::size_t i = 0; i < 3 * rows; ++i) result += all[i];
                            *at = result;
                          });
    }
  };
  void look() {
    while (const auto loss = losses_->next()) check(*loss);
    while (const auto norm = norms_->next()) check(*norm);
  }
  void check(const penstock::results<float, watched_device>::result& result) const {
    float wanted = static_cast<float>(result.step);
    for (std::uint64_t index : wanted_[result.step / 100][result.step % 100].indices) {
      wanted += static_cast<float>(index);
      for (std::size_t i = 0; i < 3; ++i) wanted += samples<>::value(index, i);
    }
    EXPECT_EQ(result.values[0], wanted) << "of step " << result.step;
  }

  variant with_;
  configuration plan_;
  std::vector<std::vector<delivered>> wanted_;
  watched_device device_;
  std::optional<penstock::cuda_stream> own_, further_;
  std::optional<penstock::cuda_event> forked_;
  penstock::cuda_memory sums_;
  std::optional<penstock::captured<sum>> captured_;
  std::optional<penstock::results<float, watched_device>> losses_, norms_;
  std::optional<penstock::feed<schema_type, watched_device>> feed_;
};

struct outcome {
  std::optional<failed> thrown;
  std::string log;
};
/// A run, and what came of it. After a failure the same feed is asked for its last epoch once more.
outcome train(const variant& with, bool again) {
  outcome result;
  testing::internal::CaptureStderr();
  try {
    std::optional<training> run;
    run.emplace(with);
    try {
      run->all_epochs();
    } catch (const penstock::error& caught) {
      result.thrown = failure_of(caught);
    }
    if (result.thrown && again) {
      run->collect();
      try {
        run->one_epoch(epochs - 1);
      } catch (const penstock::error& caught) {
        // For good: then it is the same one.
        EXPECT_EQ(failure_of(caught).call, result.thrown->call) << caught.what();
      }
    }
  } catch (const penstock::error& caught) {
    EXPECT_FALSE(result.thrown) << result.thrown->message << "\nand then: " << caught.what();
    result.thrown = failure_of(caught);
  }
  result.log = testing::internal::GetCapturedStderr();
  return result;
}

const std::set<std::string> queries{"cudaEventQuery", "cudaStreamQuery", "cudaGetDevice", "cudaStreamIsCapturing"};
const std::set<std::string> destroying{"cudaFree", "cudaHostUnregister", "cudaEventDestroy", "cudaStreamDestroy",
                                       "cudaGraphExecDestroy"};

void expect_no_faults() {
  for (const std::string& fault : cuda_double::take_faults()) ADD_FAILURE() << fault;
}
void expect_clean(const variant& with) {
  const outcome clean = train(with, false);
  if (clean.thrown) ADD_FAILURE() << "a clean run: " << clean.thrown->message;
  EXPECT_EQ(clean.log, "");
  expect_no_faults();
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}
std::string what_is_left_by(const std::string& function) {
  if (function == "cudaFree") return "1 blocks of memory";
  if (function == "cudaHostUnregister") return "1 pinned blocks";
  if (function == "cudaEventDestroy") return "1 events";
  if (function == "cudaStreamDestroy") return "1 streams";
  if (function == "cudaGraphExecDestroy" || function == "cudaGraphDestroy") return "1 graphs";
  return "";
}
int current_device() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

/// `body(function, n)` for each call of a clean run.
template <class Body>
std::uint64_t for_each_call(const variant& with, Body&& body) {
  cuda_double::reset();
  expect_clean(with);
  EXPECT_EQ(cuda_double::alive(), "");
  std::map<std::string, std::uint64_t> calls;
  for (const std::string& function : cuda_double::functions_called())
    if (!queries.contains(function)) calls[function] = cuda_double::calls(function);
  std::uint64_t runs = 0;
  int wrong = 0;
  for (const auto& [function, number] : calls)
    for (std::uint64_t n = 1; n <= number; n += n < 4 ? 1 : stride) {
      const std::string what = function + " #" + std::to_string(n) + " of " + std::to_string(number);
      const testing::ScopedTrace trace(__FILE__, __LINE__, what);
      const watchdog watching(what + ", " + with.name);
      ++runs;
      cuda_double::reset({.seed = cuda_double::seed_or(runs), .eagerness = static_cast<unsigned>(runs % 9)});
      body(function, n);
      if (testing::Test::HasFailure() && ++wrong == 5) return runs;
    }
  return runs;
}

class fault_sweep : public testing::TestWithParam<variant> {};

TEST_P(fault_sweep, each_call_that_fails_is_told_of_once_and_nothing_is_lost) {
  const variant with = GetParam();
  const std::uint64_t runs = for_each_call(with, [&](const std::string& function, std::uint64_t n) {
    const cudaError_t code = n % 2 == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation;
    cuda_double::fail(function, n, code);
    const outcome seen = train(with, true);
    EXPECT_GE(cuda_double::calls(function), n);
    expect_no_faults();
    if (seen.thrown) {
      EXPECT_EQ(seen.thrown->code, code);
      EXPECT_TRUE(seen.thrown->call.starts_with(function)) << seen.thrown->call;
      EXPECT_NE(seen.thrown->message.find(function), std::string::npos) << seen.thrown->message;
      EXPECT_EQ(seen.log, "");
      EXPECT_FALSE(destroying.contains(function)) << "a destructor's failure was thrown";
    } else {
      EXPECT_NE(seen.log.find(function), std::string::npos) << "neither thrown nor logged: " << seen.log;
    }
    EXPECT_EQ(cuda_double::alive(), what_is_left_by(function));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    // What could not be put back was logged.
    if (function == "cudaSetDevice" && !seen.thrown)
      EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    else
      EXPECT_EQ(current_device(), 0);
    expect_clean(with);
    EXPECT_EQ(cuda_double::alive(), what_is_left_by(function));
  });
  EXPECT_GE(runs, least_runs);
  cuda_double::reset();
}

TEST_P(fault_sweep, a_lost_device_ends_the_run_and_a_fresh_process_is_clean) {
  const variant with = GetParam();
  const std::uint64_t runs = for_each_call(with, [&](const std::string& function, std::uint64_t n) {
    cuda_double::fail(function, n, cudaErrorIllegalAddress);
    {
#if defined(__SANITIZE_ADDRESS__)
      const __lsan::ScopedDisabler leaked_on_purpose{};  // nobody can tell whether the device still copies
#endif
      const outcome seen = train(with, false);
      if (seen.thrown) {
        EXPECT_EQ(seen.thrown->code, cudaErrorIllegalAddress) << seen.thrown->message;
        EXPECT_EQ(seen.thrown->message.find("application"), std::string::npos) << seen.thrown->message;
        EXPECT_FALSE(seen.thrown->call.empty());
      } else {
        EXPECT_NE(seen.log, "");
      }
    }
    expect_no_faults();
    cuda_double::reset();
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    expect_clean(with);
    EXPECT_EQ(cuda_double::alive(), "");
  });
  EXPECT_GE(runs, least_runs);
  cuda_double::reset();
}

INSTANTIATE_TEST_SUITE_P(cuda, fault_sweep, testing::ValuesIn(variants), [](const auto& tested) {
  std::string name = tested.param.name;
  for (char& letter : name)
    if (letter == ' ') letter = '_';
  return name;
});

}  // namespace
