// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/local_meeting.hpp>
#include <penstock/communicator/local_sum.hpp>
#include <penstock/communicator/rendezvous.hpp>
#include <penstock/device/device.hpp>

namespace penstock {

/// What a `local_device_communicator` has to know of its devices beside the concept. A value that is copied for each
/// rank.
///
/// - `same(a, b)`: a kernel on one may read and write what the other allocates.
/// - `check(devices)` throws `std::invalid_argument` where some cannot work together.
/// - `prepare(device, others)` is called once on the rank's thread, before anything else.
/// - `copy(to, to_device, from, from_device, bytes, on)` enqueues a copy between devices that are not the same.
/// - `sum(device, what, on)` enqueues a kernel.
template <class Kernels, class Device>
concept local_kernels =
    std::copyable<Kernels> &&
    requires(Kernels& own, const Device& device, std::span<const Device> devices, void* to, const void* from,
             std::size_t bytes, typename Device::stream_view on, const local_sum& what) {
      { Kernels::same(device, device) } -> std::same_as<bool>;
      Kernels::check(devices);
      own.prepare(device, devices);
      own.copy(to, device, from, device, bytes, on);
      own.sum(device, what, on);
    };

namespace detail {

/// What a rank leaves for the others.
struct local_device_seat {
  control_words words;
  std::span<const reduce_buffer> buffers;
  bool joins = false;
  bool failed = false;  // at the second meeting of an exchange
  std::string text;
};

/// What all ranks see of each other. Outlives each of them.
template <class Device>
struct local_device_group {
  struct one {
    std::optional<typename Device::event> ready;  // the rank's values are, and all that it enqueued before is done
    std::optional<typename Device::event> done;   // its part is reduced, for all
  };

  local_device_group(std::vector<Device> devices_, std::uint32_t spins)
      : meetings(devices_.size(), spins), devices(std::move(devices_)), ranks(devices.size()) {}

  rendezvous<local_device_seat> meetings;
  std::vector<Device> devices;
  std::vector<one> ranks;
};

}  // namespace detail

/// The threads of one process, each a rank with a device; several may share one. Made by `local_device_world`.
///
/// Each rank has a stream of its own, and reduces a part of every buffer there, for all: it takes what other devices
/// have into memory of its own, adds all up by one kernel, in the order of the ranks, and writes it to all of them. So
/// a repeated run is equal to the bit. Hosts meet twice an exchange, so that events are recorded before others wait for
/// them; no host waits for a device, unless an exchange fails or its step is given up. Nothing is allocated unless
/// buffers are larger than all before.
template <separate_device Device, local_kernels<Device> Kernels>
class local_device_communicator {
  using group = detail::local_device_group<Device>;
  using event = typename Device::event;
  using clock = std::chrono::steady_clock;

 public:
  using device_type = Device;
  using stream_view = typename Device::stream_view;
  static constexpr bool immediate = true;

  /// On the rank's thread, which is bound to the device.
  local_device_communicator(std::shared_ptr<group> of, std::uint64_t rank, Kernels kernels, replica_options options)
      : local_device_communicator(bound(*of, rank), of, rank, std::move(kernels), std::move(options)) {}
  local_device_communicator(local_device_communicator&& other) noexcept = default;
  ~local_device_communicator() {
    if (group_ != nullptr && enqueued_) wait_for_all();
  }

  std::uint64_t rank() const noexcept { return rank_; }
  std::uint64_t size() const noexcept { return group_->meetings.size(); }
  const Device& device() const noexcept { return device_; }
  /// On which this rank's part of all exchanges goes.
  stream_view own_stream() const noexcept { return stream_.view(); }

  void post(const exchange<stream_view>& one) {
    try {
      if (!one.words.ends() && !one.buffers.empty()) announce(one.stream);
      auto& mine = meetings().seat(rank_);
      mine.words = one.words;
      mine.buffers = one.buffers;
      mine.joins = one.joins;
      const auto limit = one.patient ? std::chrono::nanoseconds::max() : options_.timeout;
      const std::uint64_t meeting = meetings().meet(rank_, limit, one.epoch, one.step, late_);
      const auto [words, shape] = detail::fold_seats(meetings(), meeting);
      words_ = words;
      if (!words_.ends()) {
        if (!words_.agree()) detail::throw_disagreement(meetings(), meeting, words_, one.epoch, one.step);
        if (!shape.empty()) combine(one, meeting, shape);
      }
      if (!one.early) settle(one);
    } catch (...) {
      // The values are the caller's, who may free them now.
      finish_all();
      throw;
    }
  }
  control_words words_of(std::uint64_t) const noexcept { return words_; }

  std::vector<std::string> all_gather(std::string text) {
    return detail::gather_texts(meetings(), rank_, options_.timeout, std::move(text), late_);
  }
  void warn_by(late_hook hook) noexcept { late_.warn_by(hook); }
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    meetings().abort(rank, std::move(where), std::move(problem));
  }

 private:
  static const Device& bound(const group& of, std::uint64_t rank) {
    of.devices[rank].bind_thread();
    return of.devices[rank];
  }
  local_device_communicator(const Device& device, std::shared_ptr<group> of, std::uint64_t rank, Kernels kernels,
                            replica_options options)
      : group_(std::move(of)),
        rank_(rank),
        device_(device),
        kernels_(std::move(kernels)),
        options_(std::move(options)),
        stream_(device_.make_stream()),
        values_(device_.make_event()),
        behind_(device_.make_event()) {
    kernels_.prepare(device_, std::span<const Device>(group_->devices));
    group_->ranks[rank_].ready.emplace(device_.make_event());
    group_->ranks[rank_].done.emplace(device_.make_event());
    for (std::uint64_t r = 0; r < size(); ++r) away_.push_back(!Kernels::same(device_, group_->devices[r]));
    for (const bool away : away_) others_ += away;
    retired_.reserve(64);
  }

  detail::rendezvous<detail::local_device_seat>& meetings() const noexcept { return group_->meetings; }
  stream_view own() const noexcept { return stream_.view(); }

  // By this rank's stream, so that others who wait for it wait for what it has done before, too.
  void announce(stream_view on) {
    device_.record(values_, on);
    device_.wait(own(), values_);
    device_.record(*group_->ranks[rank_].ready, own());
  }
  // What is enqueued on the step's stream from here on comes after all that this rank has exchanged.
  void settle(const exchange<stream_view>& one) {
    if (!open_) return;
    open_ = false;
    // Whose step was given up does not say on which stream it will go on.
    if (one.joins) return wait_for_all();
    device_.record(behind_, own());
    device_.wait(one.stream, behind_);
  }

  void combine(const exchange<stream_view>& one, std::uint64_t meeting, std::span<const reduce_buffer> shape) {
    open_ = enqueued_ = true;
    std::exception_ptr failure;
    try {
      for (std::uint64_t r = 0; r < size(); ++r)
        if (r != rank_ && !meetings().at(meeting, r).buffers.empty()) device_.wait(own(), *group_->ranks[r].ready);
      reserve(shape);
      for (std::size_t b = 0; b < shape.size(); ++b) reduce(meeting, b, shape[b]);
      device_.record(*group_->ranks[rank_].done, own());
    } catch (...) {
      failure = std::current_exception();
      tell(one, failure);
      wait_for_all();
    }
    meetings().seat(rank_).failed = failure != nullptr;
    // Whatever happens: others are at this rank's memory.
    meetings().meet_again(rank_);
    std::uint64_t failed = size();
    for (std::uint64_t r = size(); r-- > 0;)
      if (meetings().at(meeting + 1, r).failed) failed = r;
    if (failed == size()) return wait_for_others();
    if (failure) std::rethrow_exception(failure);
    meetings().throw_if_aborted();
    throw replica_error(failed, detail::concat("rank ", failed, " failed"), where(one));
  }
  void wait_for_others() {
    for (std::uint64_t r = 0; r < size(); ++r)
      if (r != rank_) device_.wait(own(), *group_->ranks[r].done);
  }
  static provenance where(const exchange<stream_view>& one) {
    return {.stage = "all_reduce", .epoch = one.epoch, .step = one.step};
  }
  void tell(const exchange<stream_view>& one, const std::exception_ptr& failure) noexcept {
    try {
      abort(rank_, where(one), detail::concat("rank ", rank_, " failed: ", detail::message_of(failure)));
    } catch (...) {
    }
  }

  // This rank's part of one buffer, for all.
  void reduce(std::uint64_t meeting, std::size_t b, const reduce_buffer& shape) {
    const auto [first, last] = detail::part_of(shape.count, rank_, size());
    if (first == last) return;
    const std::size_t element = size_of(shape.type), bytes = (last - first) * element;
    const double total = words_.sums[control_words::weight];
    std::byte* scratch = scratch_.data();
    local_sum what;
    what.count = last - first;
    what.type = shape.type;
    what.maximum = shape.how == reduction::maximum;
    for (std::uint64_t r = 0; r < size(); ++r) {
      std::byte* const at = at_of(meeting, r, b, first * element);
      if (at == nullptr) continue;
      if (!away_[r]) what.to[what.targets++] = at;
      const auto& seat = meetings().at(meeting, r);
      const double weight = seat.joins ? 0 : seat.words.sums[control_words::weight];
      if (weight == 0) continue;
      const std::byte* from = at;
      if (away_[r]) {
        kernels_.copy(scratch, device_, at, group_->devices[r], bytes, own());
        from = std::exchange(scratch, scratch + room_);
      }
      what.from[what.ranks] = from;
      what.factors[what.ranks++] = detail::factor_of(shape.how, weight, total);
    }
    if (what.targets == 0) what.to[what.targets++] = scratch;
    kernels_.sum(device_, what, own());
    for (std::uint64_t r = 0; r < size(); ++r)
      if (std::byte* const at = away_[r] ? at_of(meeting, r, b, first * element) : nullptr; at != nullptr)
        kernels_.copy(at, group_->devices[r], what.to[0], device_, bytes, own());
  }
  std::byte* at_of(std::uint64_t meeting, std::uint64_t r, std::size_t b, std::size_t offset) const noexcept {
    const auto buffers = meetings().at(meeting, r).buffers;
    return b < buffers.size() && buffers[b].data != nullptr ? static_cast<std::byte*>(buffers[b].data) + offset
                                                            : nullptr;
  }
  // For what other devices have of the largest part, and a result. What was too small may be in use, and stays.
  void reserve(std::span<const reduce_buffer> shape) {
    if (others_ == 0) return;
    std::size_t most = 0;
    for (const reduce_buffer& one : shape) {
      const auto [first, last] = detail::part_of(one.count, rank_, size());
      const std::size_t bytes = (last - first) * size_of(one.type);
      if (bytes > most) most = bytes;
    }
    if (most <= room_) return;
    std::size_t room = 2 * room_ < most ? most : 2 * room_;
    room = (room + 255) / 256 * 256;
    auto larger = device_.allocate((others_ + 1) * room);
    retired_.push_back(std::exchange(scratch_, std::move(larger)));
    room_ = room;
  }
  // What others do at this rank's memory, too.
  void finish_all() noexcept {
    open_ = false;
    if (!enqueued_) return;
    try {
      wait_for_others();
    } catch (...) {
    }
    wait_for_all();
  }
  // On the host, for the ends: what this rank has enqueued, and what that waits for.
  void wait_for_all() noexcept {
    for (int attempt = 0; attempt < 2; ++attempt) try {
        device_.record(behind_, own());
        const auto now = clock::now();
        const auto left = clock::time_point::max() - now;
        device_.wait(behind_, [] { return false; }, options_.timeout < left ? now + options_.timeout : now + left);
        return;
      } catch (...) {
        // A single failure is told where it matters; a lost device does nothing any more.
      }
  }

  std::shared_ptr<group> group_;
  std::uint64_t rank_;
  Device device_;
  Kernels kernels_;
  replica_options options_;
  detail::late_watch late_{rank_, options_.warns_after()};
  control_words words_;
  typename Device::memory scratch_;
  std::vector<typename Device::memory> retired_;
  typename Device::stream stream_;
  event values_, behind_;
  std::vector<bool> away_;  // by rank: its memory is another device's
  std::size_t others_ = 0;  // of them
  std::size_t room_ = 0;    // in the scratch for each
  bool open_ = false;       // the step's stream does not come after this rank's yet
  bool enqueued_ = false;
};

/// Ranks that are threads of this process, one for each device named, in their order; see `local_world`. One device may
/// be named several times.
template <separate_device Device, local_kernels<Device> Kernels>
class local_device_world {
 public:
  using communicator_type = local_device_communicator<Device, Kernels>;
  static constexpr bool threads = true;

  /// Throws `std::invalid_argument` unless there are 1 to 64, which can work together.
  explicit local_device_world(std::vector<Device> devices, Kernels kernels = {})
      : devices_(std::move(devices)), kernels_(std::move(kernels)) {
    if (devices_.empty() || devices_.size() > local_sum::most)
      detail::reject_option("replicas", "number of devices", std::to_string(devices_.size()),
                            detail::concat("1 to ", local_sum::most));
    Kernels::check(std::span<const Device>(devices_));
  }

  std::uint64_t size() const noexcept { return devices_.size(); }
  std::size_t local_size() const noexcept { return devices_.size(); }
  void begin(const replica_options& options, std::uint32_t spins) {
    options_ = options;
    group_ = std::make_shared<detail::local_device_group<Device>>(devices_, spins);
  }
  void abort(std::uint64_t rank, provenance where, std::string problem) {
    group_->meetings.abort(rank, std::move(where), std::move(problem));
  }
  communicator_type join(std::size_t n) { return {group_, n, kernels_, options_}; }

 private:
  std::vector<Device> devices_;
  Kernels kernels_;
  replica_options options_;
  std::shared_ptr<detail::local_device_group<Device>> group_;
};

}  // namespace penstock
