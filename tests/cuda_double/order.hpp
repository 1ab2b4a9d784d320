// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// Which accesses to memory are ordered with each other: vector clocks over host threads and streams.
namespace cuda_double {

/// How much of each actor's past somebody knows of.
class vector_clock {
 public:
  std::uint64_t of(std::size_t actor) const { return actor < times_.size() ? times_[actor] : 0; }
  void set(std::size_t actor, std::uint64_t time) {
    if (actor >= times_.size()) times_.resize(actor + 1);
    times_[actor] = time;
  }
  void advance(std::size_t actor) { set(actor, of(actor) + 1); }
  void join(const vector_clock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
    for (std::size_t i = 0; i < other.times_.size(); ++i)
      if (other.times_[i] > times_[i]) times_[i] = other.times_[i];
  }
  void clear() { times_.clear(); }

 private:
  std::vector<std::uint64_t> times_;
};

/// One access, as it is told of: by whom, at which time of its own.
struct access {
  std::size_t actor = 0;
  std::uint64_t time = 0;  // 0: none
  const char* what = "";
  std::uint64_t number = 0;
};

/// The last accesses to each four bytes of the regions that are watched.
class order {
 public:
  /// A thread or a stream, which knows of nothing but itself. Its number is used again when it has gone, with times
  /// that are later than all before.
  std::size_t add_actor(std::string name, vector_clock& known) {
    std::size_t actor = 0;
    while (actor < actors_.size() && !actors_[actor].empty()) ++actor;
    if (actor == actors_.size()) actors_.emplace_back();
    actors_[actor] = std::move(name);
    known.clear();
    known.set(actor, first_time_ += std::uint64_t{1} << 32);
    return actor;
  }
  void remove_actor(std::size_t actor) { actors_[actor].clear(); }

  void watch(const void* data, std::size_t bytes, std::string name) {
    unwatch(data);
    regions_[address(data)] = {bytes, std::move(name), std::vector<cell>((bytes + 3) / 4)};
  }
  void unwatch(const void* data) { regions_.erase(address(data)); }

  /// Takes note of an access by `now.actor`, which knows of `known`. Returns what it is not ordered with, or nothing.
  std::string add(const void* data, std::size_t bytes, bool writes, const access& now, const vector_clock& known) {
    std::string conflict;
    auto at = regions_.upper_bound(address(data));
    if (at == regions_.begin() || bytes == 0) return conflict;
    --at;
    region& in = at->second;
    const std::size_t begin = address(data) - at->first;
    if (begin >= in.bytes) return conflict;
    const auto check = [&](const access& before, bool before_writes, std::size_t offset) {
      if (before.time == 0 || before.time <= known.of(before.actor) || !conflict.empty()) return;
      conflict = text(now, writes) + " at byte " + std::to_string(offset) + " of " + in.name +
                 ", with nothing that orders it after: " + text(before, before_writes);
    };
    for (std::size_t i = begin / 4; i < (begin + bytes + 3) / 4 && i < in.cells.size(); ++i) {
      cell& one = in.cells[i];
      check(one.write, true, 4 * i);
      if (!writes) {
        one.add_read(now);
        continue;
      }
      for (const access& read : one.reads) check(read, false, 4 * i);
      one.reads.clear();
      one.write = now;
    }
    return conflict;
  }

 private:
  struct cell {
    access write;
    std::vector<access> reads;  // since; the last one of each actor
    void add_read(const access& now) {
      for (access& known : reads)
        if (known.actor == now.actor) return void(known = now);
      reads.push_back(now);
    }
  };
  struct region {
    std::size_t bytes = 0;
    std::string name;
    std::vector<cell> cells;
  };

  static std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }
  std::string text(const access& of, bool writes) const {
    return std::string(of.what) + (of.number != 0 ? " #" + std::to_string(of.number) : "") + " on " +
           actors_[of.actor] + (writes ? " writes" : " reads");
  }

  std::uint64_t first_time_ = 0;
  std::vector<std::string> actors_;
  std::map<std::uintptr_t, region> regions_;
};

}  // namespace cuda_double
