// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/late_watch.hpp>
#include <penstock/communicator/nccl_error.hpp>
#include <penstock/communicator/nccl_ledger.hpp>
#include <penstock/communicator/nccl_process.hpp>
#include <penstock/device/cuda.hpp>

namespace penstock {

/// No kernels: means are taken where the total weight is known before, as for planned steps that are weighed by
/// samples.
struct no_nccl_kernels {
  static constexpr bool available = false;
};

/// NVIDIA GPUs, by NCCL: one rank for each. Made by `nccl_world`.
///
/// A step's values and words are one group on a stream of its own, which waits for the batch's stream, and that for it:
/// the host goes on at once, and the words come back `lag` steps later. Until then `gate()` tells kernels whether the
/// step counts. Values of `ready` are on their way while the rest of the step is computed.
///
/// Nothing is allocated after a rank's first step in an epoch. Ranks of one process are compared before each group, so
/// that a call in another order or of another size is an error in place of a hang; between processes it ends by the
/// time-out. `Host` carries ids and texts. `Kernels` divides by a weight that only the device knows: see `nccl.cuh`.
///
/// While a step is under way, a rank's own cudaMalloc or cudaFree may wait for the others' steps, and these for it:
/// make what a loop needs before it.
template <class Host, class Kernels = no_nccl_kernels>
class nccl_communicator {
  using clock = std::chrono::steady_clock;
  using words = control_words;

 public:
  using device_type = cuda_device;
  using stream_view = cuda_stream_view;
  static constexpr bool immediate = false;

  /// Called by the rank's thread. `adopted` is not ours to destroy. Throws `replica_error` if a rank does not come.
  nccl_communicator(std::shared_ptr<detail::nccl_process> process, std::size_t local, Host host, cuda_device device,
                    const replica_options& options, ncclComm_t adopted = nullptr)
      : process_(std::move(process)), local_(local), host_(std::move(host)), device_(std::move(device)) {
    leaving_.of = process_.get();
    timeout_ = options.timeout;
    late_ = detail::late_watch(host_.rank(), options.warns_after());
    try {
      device_.bind_thread();
      make(options);
      begin(adopted);
    } catch (const replica_error& failed) {
      process_->abort(failed.rank(), failed.where(), failed.problem());
      quiet();
      process_->throw_if_aborted();
    } catch (const std::exception& failed) {
      process_->abort(host_.rank(), {.stage = "all_reduce"},
                      detail::concat("rank ", host_.rank(), " failed: ", std::string_view(failed.what())));
      quiet();
      throw;
    }
  }
  nccl_communicator(nccl_communicator&&) = default;
  ~nccl_communicator() {
    if (process_ != nullptr) end();
  }

  std::uint64_t rank() const noexcept { return host_.rank(); }
  std::uint64_t size() const noexcept { return host_.size(); }
  const cuda_device& device() const noexcept { return device_; }
  /// Whether other ranks are threads of this process, whose devices may wait for what this one's thread does.
  bool has_neighbours() const noexcept { return process_->ledger.ranks() > 1; }
  /// On which all is exchanged.
  stream_view own_stream() const noexcept { return stream_->view(); }
  /// In the device's memory: all ranks' words of the last step. `gate()->counts()`, in a kernel in the order of the
  /// batch's stream behind its all_reduce, is whether the step's update is to be made.
  const control_words* gate() const noexcept { return device_words(gate_slot()); }

  void post(const exchange<stream_view>& one) {
    process_->throw_if_aborted();
    try {
      if (one.joins)
        join(one);
      else
        enter(one);
    } catch (const replica_error& failed) {
      process_->abort(failed.rank(), failed.where(), failed.problem());
      process_->throw_if_aborted();
    } catch (const std::invalid_argument&) {
      throw;
    } catch (const std::exception& failed) {
      const provenance where{.stage = "all_reduce", .epoch = one.epoch, .step = one.step};
      process_->abort(rank(), where, detail::concat("rank ", rank(), " failed: ", std::string_view(failed.what())));
      process_->throw_if_aborted();
    }
  }
  control_words words_of(std::uint64_t number) {
    const slot* found = nullptr;
    for (const slot& one : slots_)
      if (one.number == number + 1) found = &one;
    if (found == nullptr) throw error("nccl: words of an exchange that was not posted, or is long past");
    if (found->words) return *found->words;
    const bool in_time = wait_and_tell(found->patient, found->groups, found->where, [&](clock::time_point deadline) {
      return wait_for(found->done, deadline) != wait_result::timed_out;
    });
    process_->throw_if_aborted();
    if (!in_time) late(found->groups, found->where);
    control_words result;
    std::memcpy(&result, pinned(found->index, 1), sizeof result);
    return result;
  }
  std::vector<std::string> all_gather(std::string text) {
    process_->throw_if_aborted();
    return host_.all_gather(std::move(text));
  }
  /// What is waited for on the host. Where the rank's thread is in a wait of the user's own, it is said on standard
  /// error.
  void warn_by(late_hook hook) noexcept {
    late_.warn_by(hook);
    if constexpr (requires { host_.warn_by(hook); }) host_.warn_by(hook);
  }
  void abort(std::uint64_t by, provenance where, std::string problem) {
    process_->abort(by, std::move(where), std::move(problem));
  }

 private:
  struct slot {
    explicit slot(cuda_event event) : done(std::move(event)) {}
    cuda_event done;
    std::size_t index = 0;
    std::uint64_t number = 0;  // and 1
    std::uint64_t groups = 0;
    bool patient = false;
    provenance where;
    std::optional<control_words> words;  // of an exchange on the host
  };
  struct factor {
    ncclRedOp_t operation{};
    double value = 0;
    bool made = false;
  };
  // Tells the process once that the rank has gone, also where the constructor throws.
  struct leaving {
    detail::nccl_process* of = nullptr;
    leaving() = default;
    leaving(leaving&& other) noexcept : of(std::exchange(other.of, nullptr)) {}
    ~leaving() {
      if (of != nullptr) of->leave();
    }
  };

  detail::nccl_seat& seat() noexcept { return process_->seat(local_); }

  // ---- beginning and end

  void make(const replica_options& options) {
    stream_.emplace(device_.make_stream());
    ready_.emplace(device_.make_event());
    reduced_.emplace(device_.make_event());
    const std::size_t count = std::size_t{options.lag} + 2;
    slots_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      slots_.emplace_back(device_.make_event());
      slots_.back().index = i;
    }
    device_memory_ = device_.allocate(sizeof(words) * (count + 2));
    host_memory_ = device_.allocate_host(sizeof(words) * 2 * count);
    auto& own = seat();
    own.rank = host_.rank();
    own.world = host_.size();
    own.device = device_.ordinal();
    own.ring.resize(count);
  }
  void begin(ncclComm_t adopted) {
    ncclUniqueId id{};
    if (rank() == 0 && adopted == nullptr) detail::nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    const std::string place = detail::concat("device ", device_.pci_bus_id(), " of ", std::string_view(name));
    // Behind it all ranks have made what they need.
    const auto all = host_.all_gather(place + '\n' + hex(id));
    for (std::uint64_t r = 0; r < size(); ++r)
      for (std::uint64_t s = r + 1; s < size(); ++s)
        if (first_line(all[r]) == first_line(all[s]))
          throw replica_error(s, detail::concat("ranks ", r, " and ", s, " are both on ", first_line(all[r]),
                                                "; wanted a device for each rank"));
    auto& own = seat();
    const auto deadline = clock::now() + timeout_;
    if (adopted != nullptr) {
      int ranks = 0, mine = 0, on = 0;
      detail::nccl_check(ncclCommCount(adopted, &ranks), "ncclCommCount", adopted);
      detail::nccl_check(ncclCommUserRank(adopted, &mine), "ncclCommUserRank", adopted);
      detail::nccl_check(ncclCommCuDevice(adopted, &on), "ncclCommCuDevice", adopted);
      if (static_cast<std::uint64_t>(ranks) != size() || static_cast<std::uint64_t>(mine) != rank() ||
          on != device_.ordinal())
        throw error(detail::concat("nccl: the communicator is rank ", mine, " of ", ranks, " on device ", on,
                                   ", wanted rank ", rank(), " of ", size(), " on device ", device_.ordinal()));
      const std::scoped_lock lock(own.calls);
      own.adopted = true;
      own.communicator = adopted;
    } else {
      id = unhex(all[0].substr(all[0].find('\n') + 1));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      const std::scoped_lock lock(own.calls);
      process_->check();
      ncclComm_t made = nullptr;
      const ncclResult_t code =
          ncclCommInitRankConfig(&made, static_cast<int>(size()), id, static_cast<int>(rank()), &config);
      own.communicator = made;
      detail::nccl_check(code, "ncclCommInitRankConfig", made);
    }
    settle("ncclCommInitRankConfig", deadline);
    warm_up(deadline);
  }
  // What is loaded and connected at a first use is so now.
  void warm_up(clock::time_point deadline) {
    void* const at = device_words(gate_slot());
    const auto clear = cudaMemsetAsync(at, 0, sizeof(words), stream_->view());
    detail::cuda_check(clear, "cudaMemsetAsync");
    const double one = 1;
    factor_of(element_type::float32, 0, one, deadline);
    factor_of(element_type::float64, 0, one, deadline);
    const std::array<std::pair<ncclDataType_t, ncclRedOp_t>, 7> used{{{ncclFloat32, ncclSum},
                                                                      {ncclFloat32, factors_[0].operation},
                                                                      {ncclFloat32, ncclMax},
                                                                      {ncclFloat64, ncclSum},
                                                                      {ncclFloat64, factors_[1].operation},
                                                                      {ncclFloat64, ncclMax},
                                                                      {ncclUint64, ncclMax}}};
    group(
        [&](ncclComm_t with) {
          std::size_t offset = 0;
          for (const auto& [type, operation] : used) {
            void* const memory = static_cast<std::byte*>(at) + offset;
            offset += 8;
            reduce(memory, memory, 1, type, operation, with);
          }
        },
        deadline);
    device_.record(slots_[0].done, stream_->view());
    const auto state = wait_for(slots_[0].done, deadline);
    process_->throw_if_aborted();
    if (state == wait_result::timed_out) throw replica_error(rank(), "NCCL's first all-reduce did not end in time");
  }
  void end() noexcept {
    try {
      auto& own = seat();
      const auto deadline = clock::now() + std::min<std::chrono::nanoseconds>(timeout_, std::chrono::seconds(30));
      if (!process_->aborted()) {
        wait_for_stream(deadline);
        for (factor& one : factors_) drop(one, deadline);
        if (!own.adopted) {
          call([](ncclComm_t with) { return ncclCommFinalize(with); }, "ncclCommFinalize", deadline);
          const std::scoped_lock lock(own.calls);
          if (own.communicator != nullptr) detail::nccl_check(ncclCommDestroy(own.communicator), "ncclCommDestroy");
          own.communicator = nullptr;
        }
      }
    } catch (const std::exception& failed) {
      try {
        process_->abort(rank(), {.stage = "all_reduce"},
                        detail::concat("rank ", rank(), " failed: ", std::string_view(failed.what())));
      } catch (...) {
      }
    }
    quiet();
  }
  // Nothing of ours is on the stream any more.
  void quiet() noexcept {
    try {
      if (process_->aborted()) process_->abort(rank(), {}, {});  // has ended then
      {
        auto& own = seat();
        const std::scoped_lock lock(own.calls);
        own.finished = own.posted;
        own.communicator = nullptr;
      }
      // What was aborted has left the stream, or the device is lost, and its memory with it.
      wait_for_stream(clock::now() + std::chrono::seconds(10));
    } catch (...) {
    }
  }
  void wait_for_stream(clock::time_point deadline) {
    if (stream_) (void)stream_->view().synchronize([] { return false; }, deadline);
  }

  // ---- calls

  template <class Event>
  wait_result wait_for(const Event& done, clock::time_point deadline) {
    return device_.wait(done, [this] { return process_->aborted(); }, deadline);
  }
  // This rank's thread waits, so that its process's watchdog need not tell of it.
  struct waiting {
    std::atomic<bool>& is;
    explicit waiting(std::atomic<bool>& waits) noexcept : is(waits) { is.store(true, std::memory_order_relaxed); }
    waiting(const waiting&) = delete;
    ~waiting() { is.store(false, std::memory_order_relaxed); }
  };
  // `wait(deadline)` until it is true, while it is told of. False if it is late, or the run aborted.
  template <class Wait>
  bool wait_and_tell(bool patient, std::uint64_t groups, const provenance& where, const Wait& wait) {
    const waiting told(seat().waits);
    const detail::wait_schedule times(clock::now(), patient ? std::chrono::nanoseconds::max() : timeout_,
                                      late_.after());
    return detail::wait_and_warn(
               times, [&](clock::time_point until) { return wait(until) || process_->aborted(); },
               [&](std::chrono::nanoseconds waited) { tell_of(groups, where, waited); }) &&
           !process_->aborted();
  }
  [[gnu::noinline, gnu::cold]] void tell_of(std::uint64_t groups, const provenance& where,
                                            std::chrono::nanoseconds waited) {
    const auto missing = process_->missing_at(seat(), groups);
    late_.tell(where, waited, missing, process_->is_first_to_wait(local_) && process_->ledger.is_first(local_, groups),
               missing.empty() ? process_->why_unknown(seat()) : "");
  }
  // Until the last call is really on the stream.
  void settle(std::string_view what, clock::time_point deadline) {
    const auto begun = clock::now();
    const waiting told(seat().waits);
    detail::wait_schedule times(begun, std::chrono::nanoseconds::max(), late_.after());
    for (;;) {
      ncclResult_t state = ncclSuccess;
      {
        const std::scoped_lock lock(seat().calls);
        process_->check();
        const ncclComm_t with = seat().communicator;
        if (with == nullptr) throw error("nccl: the communicator is no more");
        const ncclResult_t asked = ncclCommGetAsyncError(with, &state);
        if (asked != ncclSuccess) throw nccl_error(asked, "ncclCommGetAsyncError", with);
        if (state != ncclSuccess && state != ncclInProgress) throw nccl_error(state, what, with);
      }
      if (state == ncclSuccess) return;
      const auto now = clock::now();
      if (now > deadline)
        throw replica_error(rank(), detail::concat(what, " of rank ", rank(), " did not end within ",
                                                   timeout_.count() / 1'000'000, " ms: a rank has not come"));
      if (times.warns(now))
        late_.tell({.stage = "all_reduce"}, now - begun, {}, process_->is_first_to_wait(local_),
                   detail::concat("for which of them NCCL does not tell, in ", what));
      if (now - begun > std::chrono::microseconds(50)) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  template <class Function>
  void call(Function&& function, std::string_view what, clock::time_point deadline) {
    {
      const std::scoped_lock lock(seat().calls);
      process_->check();
      const ncclComm_t with = seat().communicator;
      if (with == nullptr) throw error("nccl: the communicator is no more");
      detail::nccl_check(function(with), what, with);
    }
    settle(what, deadline);
  }
  template <class Function>
  void group(Function&& function, clock::time_point deadline) {
    {
      const std::scoped_lock lock(seat().calls);
      process_->check();
      const ncclComm_t with = seat().communicator;
      if (with == nullptr) throw error("nccl: the communicator is no more");
      detail::nccl_check(ncclGroupStart(), "ncclGroupStart", with);
      try {
        function(with);
      } catch (...) {
        (void)ncclGroupEnd();  // what is thrown comes first
        throw;
      }
      detail::nccl_check(ncclGroupEnd(), "ncclGroupEnd", with);
    }
    settle("ncclGroupEnd", deadline);
  }
  void reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t how, ncclComm_t with) {
    detail::nccl_check(ncclAllReduce(from, to, count, type, how, with, stream_->view()), "ncclAllReduce", with);
  }
  static ncclDataType_t type_of(element_type type) noexcept {
    switch (type) {
      case element_type::float32: return ncclFloat32;
      case element_type::float64: return ncclFloat64;
      case element_type::int32: return ncclInt32;
      case element_type::int64: return ncclInt64;
      case element_type::uint32: return ncclUint32;
      default: return ncclUint64;
    }
  }
  // A sum of what is multiplied first; mostly by what it was in the step before. `which`: 0 of weighted means, 1.
  ncclRedOp_t factor_of(element_type type, std::size_t which, double value, clock::time_point deadline) {
    factor& one = factors_[2 * which + (type == element_type::float64 ? 1 : 0)];
    if (one.made && one.value == value) return one.operation;
    drop(one, deadline);
    float narrow = static_cast<float>(value);
    double wide = value;
    void* const scalar = type == element_type::float64 ? static_cast<void*>(&wide) : &narrow;
    call(
        [&](ncclComm_t with) {
          return ncclRedOpCreatePreMulSum(&one.operation, scalar, type_of(type), ncclScalarHostImmediate, with);
        },
        "ncclRedOpCreatePreMulSum", deadline);
    one.value = value;
    one.made = true;
    return one.operation;
  }
  void drop(factor& one, clock::time_point deadline) {
    if (std::exchange(one.made, false))
      call([&](ncclComm_t with) { return ncclRedOpDestroy(one.operation, with); }, "ncclRedOpDestroy", deadline);
  }

  // ---- exchanges

  static bool is_mean(const reduce_buffer& one) noexcept {
    return one.how == reduction::weighted_mean || one.how == reduction::mean_of_sums;
  }
  clock::time_point deadline_of(const exchange<stream_view>& one) const {
    return one.patient ? clock::time_point::max() : clock::now() + timeout_;
  }
  static provenance where_of(const exchange<stream_view>& one) {
    return {.stage = "all_reduce", .epoch = one.epoch, .step = one.step};
  }
  [[noreturn]] void late(std::uint64_t groups, const provenance& where) {
    const auto missing = process_->missing_at(seat(), groups);
    process_->abort(missing.empty() ? rank() : missing.front().rank, where,
                    detail::concat(missing.empty() ? "a rank" : detail::ranks_text(missing), " did not come within ",
                                   timeout_.count() / 1'000'000, " ms, as seen by rank ", rank()));
    process_->throw_if_aborted();
    throw error("nccl: late");
  }

  void enter(const exchange<stream_view>& one) {
    if constexpr (!Kernels::available)
      if (one.total_weight == 0 && std::any_of(one.buffers.begin(), one.buffers.end(), is_mean))
        throw std::invalid_argument(
            "penstock: all_reduce: a mean was asked for whose weight the device alone knows, as of streams or with a "
            "weight of the step's options, wanted the kernels of penstock/communicator/nccl.cuh, or reduction::sum and "
            "a "
            "division by replica.gate()'s weight");
    const bool outside = one.buffers.empty() && one.words.sums[words::with_data] == 0;
    if (outside || one.epoch != epoch_) first_step_ = true;
    epoch_ = one.epoch;
    // Ranks of one process meet on the host where one of them may still allocate: outside the steps, and in an epoch's
    // first.
    const bool meets = outside || first_step_;
    if (meets && !outside) reserve(one.buffers);
    process_->ledger.enter(local_,
                           {.call = one.words.maxima[words::call],
                            .elements = one.words.maxima[words::elements],
                            .early = one.early,
                            .total_known = one.total_weight != 0,
                            .returned = one.words.has(words::returned),
                            .outside = outside,
                            .buffers = one.buffers},
                           where_of(one));
    const std::uint64_t groups = process_->ledger.next(local_);
    if (meets && !wait_and_tell(one.patient, groups, where_of(one), [this](clock::time_point deadline) {
          return process_->ledger.wait_for_all(local_, [this] { return process_->aborted(); }, deadline);
        })) {
      process_->throw_if_aborted();
      late(groups, where_of(one));
    }
    if (outside && all_are_here()) return meet_on_host(one);
    if (!outside) remember(one);
    issue(one, one.buffers, one.early, false, outside);
    if (!one.early && !outside) first_step_ = false;
  }
  // Zeros take the place of values, for all groups of the step, or of the rest of it.
  void join(const exchange<stream_view>& one) {
    for (;;) {
      detail::nccl_shape shape;
      if (all_are_here()) {
        const std::uint64_t groups = process_->ledger.next(local_) + 1;
        if (!wait_and_tell(one.patient, groups, where_of(one), [&](clock::time_point deadline) {
              return process_->ledger.look(local_, shape, [this] { return process_->aborted(); }, deadline);
            })) {
          process_->throw_if_aborted();
          late(groups, where_of(one));
        }
      } else if (!one.patient) {
        if (position_ >= remembered_.size())
          throw replica_error(
              rank(),
              detail::concat("rank ", rank(),
                             " left its loop before its first all_reduce, so that it does not know what "
                             "others bring"),
              where_of(one));
        shape = remembered_[position_];
      }
      reserve(shape.buffers);
      process_->ledger.enter_joining(local_, where_of(one));
      if (all_are_here() && (shape.outside || !shape.known)) {
        position_ = 0;
        meet_on_host(one);
        break;
      }
      issue(one, shape.buffers, shape.early, true, true);
      position_ = shape.early ? position_ + 1 : 0;
      if (!shape.early) break;
    }
    early_means_.clear();
  }
  bool all_are_here() const { return process_->ledger.ranks() == size(); }
  // Words alone, where all ranks are threads of this process: no rank's device waits for another's thread, which may
  // make or free memory.
  void meet_on_host(const exchange<stream_view>& one) {
    std::string mine(sizeof(words), '\0');
    std::memcpy(mine.data(), &one.words, sizeof(words));
    const auto texts = host_.all_gather(std::move(mine));
    slot& own = slots_[exchanges_++ % slots_.size()];
    own.words.emplace();
    for (const std::string& text : texts) {
      words each;
      std::memcpy(&each, text.data(), sizeof each);
      own.words->add(each);
    }
    own.number = one.number + 1;
  }
  void remember(const exchange<stream_view>& one) {
    // What brings no samples is no step: a broadcast.
    if (one.words.sums[control_words::with_data] == 0) {
      position_ = one.early ? position_ + 1 : 0;
      return;
    }
    if (remembered_.size() <= position_) remembered_.resize(position_ + 1);
    auto& shape = remembered_[position_];
    shape.known = true;
    shape.early = one.early;
    shape.buffers.assign(one.buffers.begin(), one.buffers.end());
    if (!one.early) remembered_.resize(position_ + 1);
    position_ = one.early ? position_ + 1 : 0;
  }
  // Memory for a rank that joins: what it brings, and what it gets.
  void reserve(std::span<const reduce_buffer> buffers) {
    std::size_t bytes = 0;
    for (const auto& one : buffers) bytes = std::max(bytes, one.bytes());
    if (bytes <= zeros_.size()) return;
    wait_for_stream(clock::now() + timeout_);
    zeros_ = {};
    rest_ = {};
    zeros_ = device_.allocate(bytes);
    rest_ = device_.allocate(bytes);
    detail::cuda_check(cudaMemsetAsync(zeros_.data(), 0, bytes, stream_->view()), "cudaMemsetAsync");
  }

  void issue(const exchange<stream_view>& one, std::span<const reduce_buffer> buffers, bool early, bool joins,
             bool outside) {
    const auto deadline = deadline_of(one);
    const stream_view on = stream_->view();
    device_.record(*ready_, one.stream);
    device_.wait(on, *ready_);
    const double weight = one.words.sums[words::weight];
    const bool total_known = one.total_weight != 0;
    if (!joins && weight == 0)
      for (const auto& each : buffers) clear(each);
    slot* const own = early ? nullptr : &slots_[exchanges_ % slots_.size()];
    if (own != nullptr) {
      std::memcpy(pinned(own->index, 0), &one.words, sizeof(words));
      device_.copy_to_device(device_words(own->index), pinned(own->index, 0), sizeof(words), on);
    }
    std::array<ncclRedOp_t, 4> means{};
    for (const auto& each : buffers)
      if (is_mean(each)) {
        const std::size_t which = each.how == reduction::weighted_mean ? 0 : 1;
        const double divisor = total_known ? one.total_weight : 1;
        const double value = joins ? 1 : which == 0 ? weight / divisor : 1 / divisor;
        means[2 * which + (each.type == element_type::float64 ? 1 : 0)] = factor_of(each.type, which, value, deadline);
      }
    control_words* const result = device_words(outside ? gate_slot() + 1 : gate_slot());
    group(
        [&](ncclComm_t with) {
          for (const auto& each : buffers) {
            const std::size_t which = each.how == reduction::weighted_mean ? 0 : 1;
            const ncclRedOp_t how = is_mean(each) ? means[2 * which + (each.type == element_type::float64 ? 1 : 0)]
                                    : each.how == reduction::maximum ? ncclMax
                                                                     : ncclSum;
            reduce(joins ? zeros_.data() : each.data, joins ? static_cast<void*>(rest_.data()) : each.data, each.count,
                   type_of(each.type), how, with);
          }
          if (early) return;
          auto* const mine = reinterpret_cast<std::byte*>(device_words(own->index));
          auto* const all = reinterpret_cast<std::byte*>(result);
          reduce(mine, all, words::sums_end, ncclFloat64, ncclSum, with);
          reduce(mine + maxima_at, all + maxima_at, words::maxima_end, ncclUint64, ncclMax, with);
        },
        deadline);
    if constexpr (Kernels::available) {
      if (!joins && !total_known)
        for (const auto& each : buffers)
          if (is_mean(each)) early_means_.push_back(each);
      if (!early) {
        for (const auto& each : early_means_) Kernels::divide(on, each.data, each.count, each.type, result);
        early_means_.clear();
      }
    }
    if (early) return;
    device_.record(*reduced_, on);
    device_.wait(one.stream, *reduced_);
    device_.copy_to_host(pinned(own->index, 1), result, sizeof(words), on);
    own->number = one.number + 1;
    own->words.reset();
    own->patient = one.patient;
    own->groups = process_->ledger.next(local_);
    own->where = where_of(one);
    const std::scoped_lock lock(seat().calls);
    device_.record(own->done, on);
    // Slots are used again only when their words were seen.
    auto& beside = seat();
    const auto now = clock::now();
    if (beside.posted - beside.finished >= beside.ring.size()) {
      beside.finished = beside.posted - beside.ring.size() + 1;
      beside.progressed = now;
    }
    beside.ring[beside.posted++ % beside.ring.size()].emplace(own->done.view(), now, one.patient, own->groups,
                                                              own->where);
    ++exchanges_;
  }
  // A rank without weight brings nothing: zeros, and to a maximum what is near the least of its type (memory is filled
  // by bytes: -1.7e38 in floats).
  void clear(const reduce_buffer& one) {
    const bool least = one.how == reduction::maximum;
    const bool floats = one.type == element_type::float32 || one.type == element_type::float64;
    const bool is_signed = one.type == element_type::int32 || one.type == element_type::int64;
    const int byte = !least ? 0 : floats ? 0xFE : is_signed ? 0x80 : 0;
    detail::cuda_check(cudaMemsetAsync(one.data, byte, one.bytes(), stream_->view()), "cudaMemsetAsync");
  }

  // ---- memory

  static constexpr std::size_t maxima_at = words::sums_end * sizeof(double);
  static_assert(sizeof(words) == maxima_at + words::maxima_end * sizeof(std::uint64_t));

  std::size_t gate_slot() const noexcept { return slots_.size(); }
  control_words* device_words(std::size_t index) const noexcept {
    return reinterpret_cast<control_words*>(device_memory_.data()) + index;
  }
  std::byte* pinned(std::size_t index, std::size_t which) const noexcept {
    return host_memory_.data() + (2 * index + which) * sizeof(words);
  }
  static std::string hex(const ncclUniqueId& id) {
    std::string result;
    for (const char one : id.internal) {
      const auto byte = static_cast<unsigned char>(one);
      result += static_cast<char>('a' + (byte >> 4));
      result += static_cast<char>('a' + (byte & 15));
    }
    return result;
  }
  static ncclUniqueId unhex(const std::string& text) {
    ncclUniqueId result{};
    if (text.size() != 2 * sizeof result.internal) throw error("nccl: rank 0's id did not come whole");
    for (std::size_t i = 0; i < sizeof result.internal; ++i)
      result.internal[i] = static_cast<char>((text[2 * i] - 'a') << 4 | (text[2 * i + 1] - 'a'));
    return result;
  }
  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  std::shared_ptr<detail::nccl_process> process_;
  std::size_t local_;
  Host host_;
  cuda_device device_;
  std::chrono::nanoseconds timeout_{};
  detail::late_watch late_;
  leaving leaving_;
  cuda_memory device_memory_;  // words: of each slot, the gate's, and those of what is outside the steps
  cuda_host_memory host_memory_;
  cuda_memory zeros_, rest_;
  std::vector<slot> slots_;
  std::optional<cuda_event> ready_, reduced_;
  std::optional<cuda_stream> stream_;
  std::array<factor, 4> factors_{};
  std::vector<reduce_buffer> early_means_;
  std::vector<detail::nccl_shape> remembered_;  // the groups of a step
  std::size_t position_ = 0;                    // in it
  std::uint64_t exchanges_ = 0;
  std::uint64_t epoch_ = ~std::uint64_t{0};
  bool first_step_ = true;
};

}  // namespace penstock
