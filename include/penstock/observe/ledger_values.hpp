// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <penstock/observe/text.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// What holds the others up.
enum class bound : std::uint8_t {
  nothing,   ///< no step was recorded
  reading,   ///< batches came too late from the readers
  transfer,  ///< copies to the device came too late
  depth,     ///< each stage has time left, but now and then one waits: buffers are too few for how uneven they are
  compute,   ///< the computing is at work nearly all the time
  ranks,     ///< this rank waits in the all-reduce, for the exchange or for others
  loop,      ///< batches were ready, but the loop did something else, or came late to enqueue its work
};

/// How one stage spent the time.
struct stage_account {
  std::chrono::nanoseconds busy{0};              ///< at work; of reading the sum over readers
  std::chrono::nanoseconds waited_for_input{0};  ///< for the stage before it
  std::chrono::nanoseconds waited_for_room{0};   ///< for a free buffer, that the stage after it holds
  std::chrono::nanoseconds covered{0};           ///< the time in which it was going on, however many did it
  std::chrono::nanoseconds hidden{0};            ///< the part of `covered` in which another stage was at work, too
};

/// What a ledger says of a stretch of a run: an epoch's loop, or all of them together. Shares are of `elapsed`.
struct ledger_values {
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  ///< of the batches
  std::uint64_t lost = 0;   ///< steps without times, as a batch was held for too long
  std::uint32_t readers = 1;
  std::chrono::nanoseconds elapsed{
      0};  ///< in the loop: from asking for the first batch to the end of the last one's work
  std::chrono::nanoseconds start_up{0};  ///< the part in which the very first batch was waited for
  stage_account read{}, transfer{}, compute{};
  /// From when all samples of a batch are there until it is complete: gaps are closed, and it is padded. What is
  /// written in place, converted or collated sample by sample is reading.
  stage_account batch{};
  stage_account reduce{};            ///< the host's time in `all_reduce` and `ready`, which is no part of `compute`
  std::chrono::nanoseconds loop{0};  ///< the batch was ready, but nothing computed

  double share(std::chrono::nanoseconds part) const noexcept {
    const auto whole = running();
    return whole.count() > 0 ? static_cast<double>(part.count()) / static_cast<double>(whole.count()) : 0;
  }
  /// Without the very first batch's time on its way.
  std::chrono::nanoseconds running() const noexcept { return elapsed - start_up; }
  double read_share() const noexcept { return share(read.busy) / static_cast<double>(readers); }
  double transfer_share() const noexcept { return share(transfer.busy); }
  double compute_share() const noexcept { return share(compute.busy); }
  /// The busiest stage's share of the time: 1 where it never waited.
  double efficiency() const noexcept {
    return std::min(1.0, std::max({read_share(), transfer_share(), compute_share()}));
  }
  /// Of the batches' bytes, over the whole time.
  double bytes_per_second() const noexcept {
    const auto whole = running().count();
    return whole > 0 ? 1e9 * static_cast<double>(bytes) / static_cast<double>(whole) : 0;
  }

  /// Waiting counts from a twentieth of the time on.
  penstock::bound bound_by() const noexcept {
    constexpr double little = 0.05;
    if (steps == 0 || running().count() <= 0) return bound::nothing;
    const double waited = share(compute.waited_for_input);
    // The greater loss is the one to look at.
    const bool little_waited = waited < little || reduce.busy > compute.waited_for_input;
    if (little_waited && share(reduce.busy) > 3 * little && reduce.busy > loop) return bound::ranks;
    if (waited < little) return share(loop) > 2 * little ? bound::loop : bound::compute;
    const bool by_read = read_share() >= transfer_share();
    if (const double busiest = by_read ? read_share() : transfer_share(); busiest < 0.75) {
      if (share(loop) > waited) return bound::loop;
      if (compute_share() > busiest) return bound::depth;
    }
    return by_read ? bound::reading : bound::transfer;
  }
  /// More readers that would do away with the waiting, if they find CPUs and storage; 0 where it is not that.
  std::uint32_t readers_wanted() const noexcept {
    if (bound_by() != bound::reading) return 0;
    const double rest = static_cast<double>((running() - compute.waited_for_input).count());
    const double needed = rest > 0 ? std::ceil(static_cast<double>(read.busy.count()) / rest) : 256;
    const double more = std::clamp(needed, 1.0, 256.0) - static_cast<double>(readers);
    return more < 1 ? 1 : static_cast<std::uint32_t>(more);
  }

  /// In one sentence: what bounds, by how much, and what would change it.
  std::string verdict() const;
  /// The verdict and a small table.
  std::string text() const;
};

namespace detail {

inline void append_percent(std::string& out, double share) {
  append_fixed(out, 100 * share, share < 0.0995 ? 1 : 0);
  out += " %";
}
inline void append_time(std::string& out, std::chrono::nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  const bool small = std::abs(seconds) < 0.9995;
  append_number(out, small ? 1e3 * seconds : seconds, 3);
  out += small ? " ms" : " s";
}

}  // namespace detail

inline std::string ledger_values::verdict() const {
  using namespace detail;
  std::string out;
  const auto waits = [&](std::chrono::nanoseconds part) {
    out += "compute waited ";
    append_percent(out, share(part));
    out += " of the time";
  };
  switch (bound_by()) {
    case bound::nothing: return "nothing was recorded";
    case bound::reading: {
      out = "reading bounds: ";
      waits(compute.waited_for_input);
      const std::uint32_t more = readers_wanted();
      out += "; ";
      append_count(out, more);
      out += more == 1 ? " more reader" : " more readers";
      out += " would remove it; ";
      append_count(out, readers);
      out += readers == 1 ? " reader gives " : " readers give ";
      append_rate(out, bytes_per_second());
      out += "B/s";
      break;
    }
    case bound::transfer:
      out = "copying bounds: ";
      waits(compute.waited_for_input);
      out += " for copies, which move ";
      append_rate(out, transfer.busy.count() > 0
                           ? 1e9 * static_cast<double>(bytes) / static_cast<double>(transfer.busy.count())
                           : 0.0);
      out += "B/s; a smaller type that the device converts would copy less";
      break;
    case bound::depth:
      out = "depth bounds: ";
      waits(compute.waited_for_input);
      out += ", though no stage is at work all the time; more buffers would level it out";
      break;
    case bound::compute:
      out = "compute bounds: it was at work ";
      append_percent(out, std::min(1.0, compute_share()));
      out += " of the time, and waited ";
      append_percent(out, share(compute.waited_for_input));
      break;
    case bound::ranks:
      out = "the all-reduce bounds: it took ";
      append_percent(out, share(reduce.busy));
      out += " of the time; compare_ranks tells whether a rank made the others wait";
      break;
    case bound::loop:
      out = "the loop bounds: for ";
      append_percent(out, share(loop));
      out += " of the time a batch was ready and nothing computed on it";
      break;
  }
  return out;
}

inline std::string ledger_values::text() const {
  using namespace detail;
  std::string out = verdict();
  out += "\n  ";
  append_count(out, steps);
  out += " steps, ";
  append_count(out, samples);
  out += " samples in ";
  append_time(out, elapsed);
  out += "; efficiency ";
  append_fixed(out, efficiency(), 3);
  out += "\n             busy   waits for input   for room    hidden\n";
  const auto row = [&](std::string_view name, const stage_account& of, double busy, double parallel) {
    const auto column = [&](double share, std::size_t width) {
      std::string one;
      append_percent(one, share);
      if (one.size() < width) out.append(width - one.size(), ' ');
      out += one;
    };
    out += "  ";
    out += name;
    out.append(9 - name.size(), ' ');
    column(busy, 8);
    column(share(of.waited_for_input) / parallel, 16);
    column(share(of.waited_for_room) / parallel, 11);
    const auto covered = static_cast<double>(of.covered.count());
    column(covered > 0 ? static_cast<double>(of.hidden.count()) / covered : 0, 10);
    out += '\n';
  };
  row("read", read, read_share(), static_cast<double>(readers));
  if (share(batch.busy) >= 0.001) row("batch", batch, share(batch.busy), 1);
  if (transfer.busy.count() != 0) row("transfer", transfer, transfer_share(), 1);
  row("compute", compute, compute_share(), 1);
  if (reduce.busy.count() != 0) row("reduce", reduce, share(reduce.busy), 1);
  return out;
}

/// Which rank made the others wait, of all ranks' ledgers in the order of ranks: the one that itself waited least in
/// the all-reduce; and what bounds it. In one sentence; for ranks that are threads of one process, or whose values were
/// gathered.
inline std::string compare_ranks(std::span<const ledger_values> ranks) {
  if (ranks.size() < 2) return "there is one rank";
  const auto waited = [](const ledger_values& of) { return of.share(of.reduce.busy); };
  std::size_t slowest = 0;
  double most = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (waited(ranks[i]) < waited(ranks[slowest])) slowest = i;
    most = std::max(most, waited(ranks[i]));
  }
  const double others = most - waited(ranks[slowest]);
  if (others < 0.05) return "no rank made the others wait";
  std::string out = detail::concat("rank ", slowest, " made others wait, for up to ");
  detail::append_percent(out, others);
  return out + " of the time; there " + ranks[slowest].verdict();
}

}  // namespace penstock
