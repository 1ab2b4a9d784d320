// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <penstock/channel/atomics.hpp>
#include <penstock/channel/gate.hpp>

#include "explorer.hpp"

namespace penstock::checker {

/// A word of the explorer's. Every operation is a step; orders are accepted and not looked at.
template <class T>
class checked_atomic {
 public:
  checked_atomic(T value = T{}) : which_(explorer::get().make_word("word", value)) {}
  checked_atomic(const checked_atomic&) = delete;
  checked_atomic& operator=(const checked_atomic&) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const {
    return static_cast<T>(
        explorer::get().operate("load", which_, false, [](operation& op) { op.after = op.returned = op.before; }));
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    explorer::get().operate("store", which_, true, [&](operation& op) {
      op.after = value;
      op.returned = 0;
    });
  }
  T fetch_add(T by, std::memory_order = std::memory_order_seq_cst) {
    return change("add", [by](T value) { return static_cast<T>(value + by); });
  }
  T fetch_sub(T by, std::memory_order = std::memory_order_seq_cst) {
    return change("sub", [by](T value) { return static_cast<T>(value - by); });
  }
  T fetch_or(T by, std::memory_order = std::memory_order_seq_cst) {
    return change("or", [by](T value) { return static_cast<T>(value | by); });
  }
  T fetch_and(T by, std::memory_order = std::memory_order_seq_cst) {
    return change("and", [by](T value) { return static_cast<T>(value & by); });
  }
  bool compare_exchange_weak(T& expected, T wanted, std::memory_order, std::memory_order) {
    const auto seen = static_cast<T>(explorer::get().operate("cas", which_, true, [&](operation& op) {
      op.after = op.before == expected ? wanted : op.before;
      op.returned = op.before;
    }));
    if (seen == expected) return true;
    expected = seen;
    return false;
  }

 private:
  template <class Change>
  T change(const char* kind, Change&& to) {
    return static_cast<T>(explorer::get().operate(kind, which_, true, [&](operation& op) {
      op.after = to(static_cast<T>(op.before));
      op.returned = op.before;
    }));
  }

  object which_;
};

/// For the protocol: its gates are ideal ones (below), so sleeping is not needed, nor fences: a step's store is seen by
/// all at once.
struct checked_atomics {
  template <class T>
  using atomic = checked_atomic<T>;
  struct asymmetric_fence {
    void light() const {}
    void heavy() const {}
  };
  static void pause() { explorer::get().pause(); }
};

}  // namespace penstock::checker

namespace penstock {

/// An ideal event count in place of the real gate, which is explored by itself: announcing oneself is one with the step
/// before, waking with the store before. Both make a sleeper look again at most once more than it must, and that is one
/// of the ways that it could have gone anyway; a notification that is missing is still found missing.
template <>
class gate<checker::checked_atomics> {
 public:
  explicit gate(std::uint32_t = 0) : which_(checker::explorer::get().make_object("gate")) {}
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  template <class Ready>
  bool wait(Ready&& ready, std::chrono::steady_clock::time_point = no_deadline) {
    auto& explorer = checker::explorer::get();
    // A look that failed leaves no mark: all looks begin with the same key.
    const std::uint64_t entered = explorer.key();
    for (;;) {
      explorer.announce(which_);
      explorer.set_key(checker::mix(entered, 1));
      explorer.set_base();
      if (ready()) {
        explorer.withdraw();
        return true;
      }
      explorer.set_key(checker::mix(entered, 2));
      explorer.sleep();
    }
  }
  void notify() { checker::explorer::get().wake(which_); }
  checker::object which() const { return which_; }

 private:
  checker::object which_;
};

}  // namespace penstock
