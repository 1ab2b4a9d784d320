// SPDX-License-Identifier: Apache-2.0
// Replicas with a modelled device each, and an all-reduce of stated time between them, beside what the devices compute.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/channel/atomics.hpp>
#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/local_meeting.hpp>
#include <penstock/communicator/rendezvous.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

namespace replicated {

using clock_type = std::chrono::steady_clock;
using std::chrono::nanoseconds;

/// Of one step on one replica.
struct step_times {
  nanoseconds read, copy, kernel;
  nanoseconds reduce;  // of the gradient, in buckets, the last of which is the first layer's, a fiftieth of it
  int layers;
};
inline constexpr std::size_t row_bytes = 64;

/// Bytes a second of a device's copy engines: a byte is a microsecond, so that times are stated by bytes.
inline constexpr double rate = 1e6;
inline std::size_t bytes_of(nanoseconds time) { return static_cast<std::size_t>(time.count() / 1000); }

struct seat {
  penstock::control_words words;
  std::span<const penstock::reduce_buffer> buffers;
  bool joins = false;
  clock_type::time_point ready;  // the values and the engine are, by the device's own time
  std::string text;
};
using group = penstock::detail::rendezvous<seat>;

/// Hosts meet as those of `local_communicator` do. The values' exchange is an operation of the device's second copy
/// engine, on a stream of its own: it begins when the rank's values are ready and the one before has ended, waits there
/// for the latest rank, as NCCL's kernel does, and then takes its time. A bucket's bytes are its microseconds; nothing
/// is added up.
class modelled_communicator {
 public:
  using device_type = penstock::modelled_device;
  using stream_view = device_type::stream_view;
  static constexpr bool immediate = true;

  modelled_communicator(std::shared_ptr<group> of, std::uint64_t rank, device_type device,
                        penstock::replica_options options)
      : group_(std::move(of)),
        rank_(rank),
        device_(std::move(device)),
        options_(std::move(options)),
        link_(device_.make_stream()),
        ready_(device_.make_event()),
        done_(device_.make_event()),
        from_(device_.allocate(most)),
        to_(device_.allocate_host(most)) {}

  std::uint64_t rank() const noexcept { return rank_; }
  std::uint64_t size() const noexcept { return group_->size(); }
  const device_type& device() const noexcept { return device_; }

  void post(const penstock::exchange<stream_view>& one) {
    seat& mine = group_->seat(rank_);
    mine.words = one.words;
    mine.buffers = one.buffers;
    mine.joins = one.joins;
    if (!one.buffers.empty()) {
      device_.record(ready_, one.stream);
      mine.ready = std::max(device_.completion(ready_), free_);
    }
    const auto own = mine.ready;
    const std::uint64_t meeting = group_->meet(rank_, options_.timeout, one.epoch, one.step);
    const auto [words, shape] = penstock::detail::fold_seats(*group_, meeting);
    words_ = words;
    if (words_.ends()) return;
    if (!words_.agree()) penstock::detail::throw_disagreement(*group_, meeting, words_, one.epoch, one.step);
    if (shape.empty() || size() == 1) return;
    auto latest = own;
    for (std::uint64_t r = 0; r < size(); ++r) latest = std::max(latest, group_->at(meeting, r).ready);
    std::size_t bytes = bytes_of(latest - own);
    for (const auto& bucket : shape) bytes += bucket.bytes();
    device_.wait(link_.view(), ready_);
    device_.copy_to_host(to_.data(), from_.data(), std::min(bytes, most), link_.view());
    device_.record(done_, link_.view());
    free_ = device_.completion(done_);
    if (!one.early) device_.wait(one.stream, done_);
  }
  penstock::control_words words_of(std::uint64_t) const noexcept { return words_; }

  std::vector<std::string> all_gather(std::string text) {
    return penstock::detail::gather_texts(*group_, rank_, options_.timeout, std::move(text));
  }
  void abort(std::uint64_t rank, penstock::provenance where, std::string problem) {
    group_->abort(rank, std::move(where), std::move(problem));
  }

 private:
  static constexpr std::size_t most = 1 << 16;  // microseconds

  std::shared_ptr<group> group_;
  std::uint64_t rank_;
  device_type device_;
  penstock::replica_options options_;
  device_type::stream link_;
  device_type::event ready_, done_;
  clock_type::time_point free_;  // when the engine has done what it has
  device_type::memory from_, to_;
  penstock::control_words words_;
};

class modelled_world {
 public:
  using communicator_type = modelled_communicator;
  static constexpr bool threads = true;

  modelled_world(std::size_t ranks, nanoseconds notice) {
    for (std::size_t r = 0; r < ranks; ++r)
      devices_.emplace_back(penstock::modelled_options{
          .bandwidth = rate, .event_latency = std::chrono::microseconds(3), .notice = notice, .poison = false});
  }
  std::uint64_t size() const noexcept { return devices_.size(); }
  std::size_t local_size() const noexcept { return devices_.size(); }
  void begin(const penstock::replica_options& options, std::uint32_t spins) {
    options_ = options;
    group_ = std::make_shared<group>(devices_.size(), spins);
  }
  void abort(std::uint64_t rank, penstock::provenance where, std::string problem) {
    group_->abort(rank, std::move(where), std::move(problem));
  }
  communicator_type join(std::size_t n) { return {group_, n, devices_[n], options_}; }

 private:
  std::vector<penstock::modelled_device> devices_;
  penstock::replica_options options_;
  std::shared_ptr<group> group_;
};

/// How late a sleep of 50 us returns.
inline nanoseconds measured_notice() {
  std::vector<nanoseconds> late(300);
  for (auto& one : late) {
    const auto end = clock_type::now() + std::chrono::microseconds(50);
    penstock::std_atomics::nap(end);
    one = clock_type::now() - end;
  }
  std::nth_element(late.begin(), late.begin() + 150, late.end());
  return late[150];
}

/// Samples whose reading waits, as for a store that is not here, and takes no CPU.
class dataset {
 public:
  using schema_type = penstock::schema<penstock::field<std::uint64_t, 1>>;

  dataset(std::uint64_t samples, nanoseconds a_sample) : samples_(samples), a_sample_(a_sample) {}
  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    const auto begin = clock_type::now();
    const auto& rows = std::get<0>(to);
    for (std::size_t row = 0; row < indices.size(); ++row) rows(row, 0) = indices[row];
    penstock::std_atomics::nap(begin + a_sample_ * static_cast<nanoseconds::rep>(indices.size()));
  }
  std::uint64_t size() const { return samples_; }
  schema_type schema() const { return schema_type{{"x", {row_bytes / 8}}}; }

 private:
  std::uint64_t samples_;
  nanoseconds a_sample_;
};

/// Seconds for `steps` steps on each of `ranks` replicas, from when all have a feed to when the last kernel of the last
/// one has ended.
inline double time_of(std::size_t ranks, const step_times& times, int readers, std::uint64_t steps,
                      nanoseconds notice) {
  const auto batch = static_cast<std::int64_t>(bytes_of(times.copy) / row_bytes);
  const dataset data(steps * static_cast<std::uint64_t>(batch) * ranks, times.read / batch * std::max(readers, 1));
  std::vector<clock_type::time_point> begins(ranks), ends(ranks);
  std::vector<std::uint64_t> samples(ranks);
  const auto summary = penstock::replicas(modelled_world(ranks, notice), [&](auto& replica) {
    const std::size_t last = bytes_of(times.reduce) / 50 / 4;
    const std::size_t each = (bytes_of(times.reduce) / 4 - last) / static_cast<std::size_t>(times.layers - 1);
    std::vector<float> gradient(each);
    auto feed =
        replica.start(data | penstock::partition({.seed = 7, .world = replica}) | penstock::read({.readers = readers}) |
                      penstock::batch({.global = batch * static_cast<std::int64_t>(ranks)}) |
                      penstock::transfer(replica.device(), {.depth = 3}));
    replica.barrier();
    begins[replica.rank()] = clock_type::now();
    penstock::modelled_stream_view stream;
    for (auto& one : feed.epoch(0)) {
      stream = one.stream();
      for (int layer = times.layers; layer-- > 0;) {
        stream.launch(times.kernel / times.layers);
        if (layer > 0) replica.ready(one, gradient);
      }
      // The update of the first layer's waits for the whole.
      if (replica.all_reduce(one, std::span(gradient).first(last))) stream.launch(nanoseconds(0));
      samples[replica.rank()] += one.size();
    }
    stream.synchronize();
    ends[replica.rank()] = clock_type::now();
  });
  if (summary.steps != steps) throw std::runtime_error("the replicas made other steps than asked for");
  for (const auto count : samples)
    if (count != steps * static_cast<std::uint64_t>(batch)) throw std::runtime_error("a replica missed samples");
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) -
                                       *std::min_element(begins.begin(), begins.end()))
      .count();
}

}  // namespace replicated
