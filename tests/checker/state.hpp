// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace penstock::checker {

inline constexpr std::uint32_t most_fibers = 8;

/// Something that fibers share: an atomic word, a gate, a piece of modelled data. At most 64 of them.
using object = std::uint32_t;

/// What a step has read and written, one bit per object.
struct accesses {
  std::uint64_t reads = 0, writes = 0;
  bool conflicts(const accesses& other) const {
    return (writes & (other.reads | other.writes)) != 0 || (reads & other.writes) != 0;
  }
  accesses& operator|=(const accesses& other) {
    reads |= other.reads;
    writes |= other.writes;
    return *this;
  }
  bool operator==(const accesses&) const = default;
};

inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93u;
  return hash ^ (hash >> 29);
}

/// An operation on a word, before it takes effect. A seeded fault changes it.
struct operation {
  const char* kind;
  object on;
  std::uint32_t by;
  std::uint64_t before;    ///< what the word holds
  std::uint64_t after;     ///< what it will hold
  std::uint64_t returned;  ///< what the caller gets
};

/// What a fiber's local state depends on, as hashes.
struct marks {
  std::uint64_t key = 0;         ///< all of it
  std::uint64_t key_before = 0;  ///< as it was before the last operation
  std::uint64_t place = 0;       ///< the last label alone
  std::uint64_t base = 0;        ///< the last label with its locals, or the look of a wait
  std::uint64_t round = 0;       ///< for `forget`
};

/// Of a state, per fiber: what the others may access from there on while this one stands still.
struct summary {
  std::array<accesses, most_fibers> others{};
  bool operator==(const summary&) const = default;

  void add(const summary& more) {
    for (std::uint32_t i = 0; i < most_fibers; ++i) others[i] |= more.others[i];
  }
  /// With fibers 0 and 1, and these two objects, in each other's place.
  summary exchanged(object one, object two) const {
    const auto exchange = [&](std::uint64_t bits) {
      const std::uint64_t differ = (bits >> one ^ bits >> two) & 1;
      return bits ^ (differ << one | differ << two);
    };
    summary made = *this;
    std::swap(made.others[0], made.others[1]);
    for (auto& each : made.others) each = {exchange(each.reads), exchange(each.writes)};
    return made;
  }
};

/// The states seen, by hash, and their summaries, which are few. An open hash table: it holds millions.
class state_store {
 public:
  /// The summary if the state was there, else null, and the state is in progress from here on.
  const summary* find_or_add(std::uint64_t hash) {
    if ((count_ + 1) * 3 > states_.size() * 2) grow();
    auto& place = states_[find(hash)];
    if (place.hash == hash) return &summaries_[place.known];
    place = {hash, 0};
    ++count_;
    return nullptr;
  }
  void complete(std::uint64_t hash, const summary& made) {
    const auto [found, added] = numbers_.try_emplace(made, static_cast<std::uint32_t>(summaries_.size()));
    if (added) summaries_.push_back(made);
    states_[find(hash)].known = found->second;
  }
  const summary* in_progress() const { return summaries_.data(); }

 private:
  struct state {
    std::uint64_t hash = 0;  // 0: none
    std::uint32_t known = 0;
  };
  struct summary_hash {
    std::size_t operator()(const summary& of) const {
      std::uint64_t hash = 0, factor = 0x9E3779B97F4A7C15u;
      for (const auto& each : of.others) {
        hash += (each.reads ^ (each.writes << 31 | each.writes >> 33)) * factor;
        factor += 0xD6E8FEB86659FD92u;
      }
      return hash ^ (hash >> 29);
    }
  };

  std::size_t find(std::uint64_t hash) const {
    std::size_t at = hash & (states_.size() - 1);
    while (states_[at].hash != 0 && states_[at].hash != hash) at = (at + 1) & (states_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<state> old(states_.size() * 2);
    old.swap(states_);
    for (const auto& each : old)
      if (each.hash != 0) states_[find(each.hash)] = each;
  }

  std::size_t count_ = 0;
  std::vector<state> states_ = std::vector<state>(1 << 16);
  std::unordered_map<summary, std::uint32_t, summary_hash> numbers_;
  std::vector<summary> summaries_ = std::vector<summary>(1);  // the first one stands for "in progress"
};

}  // namespace penstock::checker
