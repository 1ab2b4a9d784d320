// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/mpi_link.hpp>
#include <penstock/communicator/mpi_values.hpp>
#include <penstock/device/cpu.hpp>
#include <penstock/device/device.hpp>

namespace penstock {

namespace detail {

/// What a rank tells all others at the beginning of an exchange.
struct mpi_record {
  control_words words;
  std::uint64_t buffers = 0;
  std::uint64_t joins = 0;
};
static_assert(std::is_trivially_copyable_v<mpi_record> && std::is_trivially_copyable_v<reduce_buffer>);

/// Where values are reduced, of a device with memory of its own: a piece of the host's.
template <class Device>
class mpi_staging {
 public:
  explicit mpi_staging(const Device& device)
      : device_(device), ready_(device_.make_event()), done_(device_.make_event()) {}
  mpi_staging(mpi_staging&& other) noexcept
      : device_(other.device_),
        memory_(std::move(other.memory_)),
        ready_(std::move(other.ready_)),
        done_(std::move(other.done_)),
        used_(std::exchange(other.used_, false)) {}
  ~mpi_staging() {
    if (!used_) return;
    try {
      device_.wait(done_, [] { return false; }, std::chrono::steady_clock::now() + std::chrono::seconds(60));
    } catch (...) {
      // A lost device does nothing any more.
    }
  }

  /// Room for all of a step's values. What was there is done with.
  void reserve(std::size_t bytes, std::chrono::steady_clock::time_point deadline) {
    if (used_) wait(done_, deadline);
    if (bytes > memory_.size()) memory_ = device_.allocate_host(bytes);
  }
  std::byte* data() const noexcept { return memory_.data(); }
  template <class Stream>
  void fetch(void* to, const reduce_buffer& from, Stream on) {
    device_.copy_to_host(to, from.data, from.bytes(), on);
  }
  template <class Stream>
  void await_fetched(Stream on, std::chrono::steady_clock::time_point deadline) {
    device_.record(ready_, on);
    wait(ready_, deadline);
  }
  template <class Stream>
  void give_back(const reduce_buffer& to, const void* from, Stream on) {
    device_.copy_to_device(to.data, from, to.bytes(), on);
  }
  template <class Stream>
  void given_back(Stream on) {
    device_.record(done_, on);
    used_ = true;
  }

 private:
  using event = typename Device::event;
  void wait(const event& one, std::chrono::steady_clock::time_point deadline) {
    if (device_.wait(one, [] { return false; }, deadline) != wait_result::complete)
      throw timeout_error("the device did not bring the values to be exchanged within the time-out",
                          {.stage = "all_reduce"});
  }

  Device device_;
  decltype(std::declval<const Device&>().allocate_host(0)) memory_ = device_.allocate_host(64);
  event ready_, done_;
  bool used_ = false;
};
/// The host's values are reduced where they are.
struct mpi_no_staging {};

}  // namespace detail

/// One rank of several processes, by MPI. Made by `mpi_world`.
///
/// An exchange is an all-gather of what each rank says of it and then, if all go on with the same values, messages of
/// the values: each rank reduces a part of every buffer, for all. Both are waited for with the time-out. Words and
/// values are added in the order of the ranks, whatever the MPI, so that a repeated run is equal to the bit, all ranks
/// get the same bits, and as many threads of a `local_world` would.
///
/// Values of `exchange::early` are reduced while the step goes on, as far as MPI progresses by itself, if they are on
/// the host. Those of a device are staged through the host's memory, and the host waits for the device in every
/// exchange. Nothing is allocated by penstock unless buffers are more, or larger, than all before.
template <device Device>
class mpi_communicator {
  using clock = std::chrono::steady_clock;

 public:
  using device_type = Device;
  using stream_view = typename Device::stream_view;
  static constexpr bool immediate = true;

  mpi_communicator(std::shared_ptr<detail::mpi_link> link, Device device, const replica_options& options)
      : link_(std::move(link)),
        device_(std::move(device)),
        timeout_(options.timeout),
        late_(link_->rank(), options.warns_after()),
        records_(link_->size()),
        reduction_(link_->rank(), link_->size()),
        staging_(make_staging(device_)) {}

  std::uint64_t rank() const noexcept { return link_->rank(); }
  std::uint64_t size() const noexcept { return link_->size(); }
  const Device& device() const noexcept { return device_; }

  void post(const exchange<stream_view>& one) {
    link_->check_alive();
    guarded([&] {
      gather_records(one);
      const bool values = !words_.ends();
      // All ranks have begun what this one has, and end it.
      if (!values || !words_.agree() || !one.early) settle(one);
      if (!values) return;
      if (!words_.agree()) throw_disagreement(one);
      exchange_values(one);
      if (!one.early || staged) settle(one);
    });
  }
  control_words words_of(std::uint64_t) const noexcept { return words_; }

  std::vector<std::string> all_gather(std::string text) {
    link_->check_alive();
    std::vector<std::string> all;
    guarded([&] {
      const int mine = static_cast<int>(text.size());
      std::vector<int> lengths(size()), offsets(size());
      complete([&](MPI_Request& request) {
        return MPI_Iallgather(&mine, 1, MPI_INT, lengths.data(), 1, MPI_INT, link_->comm(), &request);
      });
      std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
      std::string joined(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
      complete([&](MPI_Request& request) {
        return MPI_Iallgatherv(text.data(), mine, MPI_BYTE, joined.data(), lengths.data(), offsets.data(), MPI_BYTE,
                               link_->comm(), &request);
      });
      for (std::size_t r = 0; r < lengths.size(); ++r)
        all.push_back(joined.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
    });
    return all;
  }
  void warn_by(late_hook hook) noexcept { late_.warn_by(hook); }
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    link_->abort(rank, std::move(where), std::move(problem));
  }

 private:
  static constexpr bool staged = !host_device<Device>;
  using staging = std::conditional_t<staged, detail::mpi_staging<Device>, detail::mpi_no_staging>;

  static staging make_staging(const Device& device) {
    if constexpr (staged) {
      device.bind_thread();
      return staging(device);
    } else {
      return {};
    }
  }
  static detail::mpi_place place(const exchange<stream_view>& one) { return {one.epoch, one.step}; }

  // What fails in MPI, or in the device, leaves something under way: the others are told.
  template <class Action>
  void guarded(Action&& action) {
    try {
      action();
    } catch (const replica_error&) {
      throw;
    } catch (const std::exception& caught) {
      link_->fail(caught.what());
      throw;
    }
  }
  // A collective outside the steps.
  template <class Begin>
  void complete(Begin&& begin, detail::mpi_place at = {}, bool patient = false) {
    MPI_Request request = MPI_REQUEST_NULL;
    detail::check_mpi(begin(request), "a collective of MPI");
    link_->wait({&request, 1}, at, false, late_, patient);
  }

  void gather_records(const exchange<stream_view>& one) {
    mine_ = {one.words, one.buffers.size(), one.joins ? 1U : 0U};
    complete(
        [&](MPI_Request& request) {
          return MPI_Iallgather(&mine_, sizeof mine_, MPI_BYTE, records_.data(), sizeof mine_, MPI_BYTE, link_->comm(),
                                &request);
        },
        place(one), one.patient);
    link_->met(place(one));
    words_ = {};
    for (const detail::mpi_record& its : records_) words_.add(its.words);
  }

  static bool brings(const detail::mpi_record& its) {
    return its.joins == 0 && its.words.sums[control_words::weight] != 0;
  }
  // The same on all ranks, as the records are.
  void exchange_values(const exchange<stream_view>& one) {
    bool somebody_joins = false;
    std::uint64_t first = size();
    weights_.clear();
    for (std::uint64_t r = 0; r < size(); ++r) {
      const detail::mpi_record& its = records_[r];
      weights_.push_back(its.joins == 0 ? its.words.sums[control_words::weight] : 0);
      somebody_joins = somebody_joins || its.joins != 0;
      if (first == size() && its.joins == 0 && its.buffers != 0) first = r;
    }
    if (first == size()) return;
    const std::span<const reduce_buffer> buffers = somebody_joins ? shape_of(one, first) : one.buffers;
    const bool own = !one.joins || one.buffers.size() == buffers.size();
    if constexpr (staged)
      exchange_staged(one, buffers, own);
    else
      exchange_here(one, buffers, own);
  }
  // Whoever joins learns what there is from the first rank that knows.
  std::span<const reduce_buffer> shape_of(const exchange<stream_view>& one, std::uint64_t first) {
    shape_.assign(records_[first].buffers, {});
    if (first == rank()) shape_.assign(one.buffers.begin(), one.buffers.end());
    complete(
        [&](MPI_Request& request) {
          return MPI_Ibcast(shape_.data(), static_cast<int>(shape_.size() * sizeof(reduce_buffer)), MPI_BYTE,
                            static_cast<int>(first), link_->comm(), &request);
        },
        place(one));
    return shape_;
  }
  void exchange_here(const exchange<stream_view>& one, std::span<const reduce_buffer> buffers, bool own) {
    std::size_t bytes = 0;
    if (!own)
      for (const reduce_buffer& buffer : buffers) bytes += room_of(buffer);
    // A step's joined exchanges may be under way: their memory stays.
    std::byte* at = nullptr;
    if (bytes != 0) at = scratch_.emplace_back(device_.allocate_host(bytes)).data();
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      reduce_buffer values = buffers[b];
      values.data = own ? one.buffers[b].data : at;
      if (!own) at += room_of(values);
      begin(values);
    }
  }
  void exchange_staged(const exchange<stream_view>& one, std::span<const reduce_buffer> buffers, bool own) {
    if constexpr (staged) {
      const auto deadline = deadline_of(timeout_);
      std::size_t bytes = 0;
      for (const reduce_buffer& buffer : buffers) bytes += room_of(buffer);
      staging_.reserve(bytes, deadline);
      const bool fetches = brings(records_[rank()]);
      std::byte* at = staging_.data();
      if (fetches) {
        for (const reduce_buffer& buffer : one.buffers) {
          staging_.fetch(at, buffer, one.stream);
          at += room_of(buffer);
        }
        staging_.await_fetched(one.stream, deadline);
      }
      at = staging_.data();
      for (reduce_buffer buffer : buffers) {
        buffer.data = at;
        begin(buffer);
        at += room_of(buffer);
      }
      wait_for_values(one);
      if (!own) return;
      at = staging_.data();
      for (const reduce_buffer& buffer : one.buffers) {
        staging_.give_back(buffer, at, one.stream);
        at += room_of(buffer);
      }
      staging_.given_back(one.stream);
    }
  }
  static std::size_t room_of(const reduce_buffer& one) noexcept { return (one.bytes() + 127) / 128 * 128; }
  void begin(const reduce_buffer& values) {
    reduction_.begin(values, weights_, words_.sums[control_words::weight], link_->comm());
  }
  void wait_for_values(const exchange<stream_view>& one) {
    if (reduction_.empty()) return;
    link_->wait(reduction_.requests(), place(one), true, late_);
    reduction_.go_on(link_->comm());
    link_->wait(reduction_.requests(), place(one), true, late_);
    reduction_.end();
  }
  // All that this step has begun is complete.
  void settle(const exchange<stream_view>& one) {
    wait_for_values(one);
    scratch_.clear();
  }
  static clock::time_point deadline_of(std::chrono::nanoseconds timeout) {
    const auto now = clock::now();
    const auto left = clock::time_point::max() - now;
    return timeout < left ? now + timeout : clock::time_point::max();
  }

  [[noreturn]] void throw_disagreement(const exchange<stream_view>& one) const {
    const auto found = detail::find_disagreement(
        size(), words_, [&](std::uint64_t r) -> const control_words& { return records_[r].words; });
    throw replica_error(found.rank, found.problem, {.stage = "all_reduce", .epoch = one.epoch, .step = one.step});
  }

  using host_memory_type = decltype(std::declval<const Device&>().allocate_host(0));

  std::shared_ptr<detail::mpi_link> link_;
  Device device_;
  std::chrono::nanoseconds timeout_;
  detail::late_watch late_;
  detail::mpi_record mine_;
  std::vector<detail::mpi_record> records_;
  control_words words_;
  std::vector<reduce_buffer> shape_;
  std::vector<double> weights_;
  detail::mpi_reduction reduction_;
  std::vector<host_memory_type> scratch_;
  staging staging_;
};

/// Ranks that are processes, begun by `mpirun` or the like: each is one rank, and its body runs on the thread that
/// calls `replicas` or `run`, the one that made the world.
///
///     penstock::mpi_world world;
///     penstock::replicas(world, [](auto& replica) { ... });
///
/// Begins MPI with MPI_THREAD_FUNNELED and ends it, unless it was begun before: then it needs to have been for that
/// level or more, and is left as it is. All ranks of the communicator make the world together, and it is to live until
/// all that uses it has ended.
///
/// After a rank did not come, or MPI failed, the world is dead: all that is called says so again. What was begun, with
/// the memory of the values that were being exchanged, cannot be taken back from MPI. So the destructor of a world that
/// began MPI tells the cause on stderr and calls MPI_Abort; where MPI is the user's, MPI_Abort is all that is left to
/// the user, too.
template <device Device = cpu_device>
class mpi_world {
 public:
  using communicator_type = mpi_communicator<Device>;
  static constexpr bool threads = false;

  /// All processes.
  explicit mpi_world(Device device = {})
    requires std::default_initializable<Device>
      : mpi_world(MPI_COMM_WORLD, std::move(device)) {}
  /// The same, where a device cannot be made of nothing.
  explicit mpi_world(Device device)
    requires(!std::default_initializable<Device>)
      : mpi_world(MPI_COMM_WORLD, std::move(device)) {}
  /// The processes of a communicator, which is duplicated.
  explicit mpi_world(MPI_Comm ranks, Device device)
      : link_(std::make_shared<detail::mpi_link>(ranks)), device_(std::move(device)) {}
  explicit mpi_world(MPI_Comm ranks)
    requires std::default_initializable<Device>
      : mpi_world(ranks, Device{}) {}
  /// The device is made for this rank's number among those of the same machine: `device_for(local_rank)`.
  template <std::invocable<int> DeviceFor>
    requires std::convertible_to<std::invoke_result_t<DeviceFor&, int>, Device>
  explicit mpi_world(DeviceFor&& device_for, MPI_Comm ranks = MPI_COMM_WORLD)
      : link_(std::make_shared<detail::mpi_link>(ranks)), device_(device_for(link_->local_rank())) {}
  mpi_world(mpi_world&&) noexcept = default;
  mpi_world& operator=(mpi_world&&) = delete;
  ~mpi_world() {
    if (!link_ || !link_->dead() || !environment_.owns()) return;
    std::fprintf(stderr, "penstock: rank %llu ends all, as a replicated run is dead: %s\n",
                 static_cast<unsigned long long>(link_->rank()), link_->cause().c_str());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  std::uint64_t rank() const noexcept { return link_->rank(); }
  std::uint64_t size() const noexcept { return link_->size(); }
  std::size_t local_size() const noexcept { return 1; }
  /// This rank's number among those of the same machine: for its device.
  int local_rank() const noexcept { return link_->local_rank(); }
  const Device& device() const noexcept { return device_; }

  void begin(const replica_options& options, std::uint32_t) {
    link_->check_alive();
    options_ = options;
    link_->begin(options.timeout);
  }
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    link_->abort(rank, std::move(where), std::move(problem));
  }
  communicator_type join(std::size_t) { return {link_, device_, options_}; }

 private:
  detail::mpi_environment environment_;
  std::shared_ptr<detail::mpi_link> link_;
  Device device_;
  replica_options options_;
};

mpi_world() -> mpi_world<cpu_device>;
mpi_world(MPI_Comm) -> mpi_world<cpu_device>;
template <std::invocable<int> DeviceFor>
mpi_world(DeviceFor&&) -> mpi_world<std::decay_t<std::invoke_result_t<DeviceFor&, int>>>;
template <std::invocable<int> DeviceFor>
mpi_world(DeviceFor&&, MPI_Comm) -> mpi_world<std::decay_t<std::invoke_result_t<DeviceFor&, int>>>;

}  // namespace penstock
