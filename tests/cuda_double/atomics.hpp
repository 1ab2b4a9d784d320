// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <concepts>
#include <memory>
#include <mutex>

#include <penstock/channel/atomics.hpp>

#include "order.hpp"

namespace cuda_double {

/// What the releases of an atomic have told. All of them are under one lock, which is no edge itself.
struct sync_point {
  vector_clock known;
};
std::recursive_mutex& order_lock();
void note_acquire(const sync_point& from);
/// `keeps`: of a read-modify-write, which goes on with what was told before.
void note_release(sync_point& to, bool keeps);

/// The channel's atomics, which tell the double what they order.
struct atomics : penstock::std_atomics {
  using pool_atomics = penstock::std_atomics;

  template <class T>
  class atomic : public std::atomic<T> {
    using base = std::atomic<T>;

   public:
    atomic(T initial = {}) noexcept : base(initial) {}

    T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
      const std::scoped_lock lock(order_lock());
      const T value = base::load(order);
      if (acquires(order)) note_acquire(point_);
      return value;
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      const std::scoped_lock lock(order_lock());
      base::store(value, order);
      if (releases(order))
        note_release(point_, false);
      else
        point_.known.clear();
    }
    T exchange(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return modify(order, [&] { return base::exchange(value, order); });
    }
    T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return modify(order, [&] { return base::fetch_add(value, order); });
    }
    T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return modify(order, [&] { return base::fetch_sub(value, order); });
    }
    T fetch_or(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return modify(order, [&] { return base::fetch_or(value, order); });
    }
    T fetch_and(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return modify(order, [&] { return base::fetch_and(value, order); });
    }
    bool compare_exchange_weak(T& expected, T wanted, std::memory_order success, std::memory_order failure) noexcept {
      const std::scoped_lock lock(order_lock());
      const bool done = base::compare_exchange_strong(expected, wanted, success, failure);
      const std::memory_order order = done ? success : failure;
      if (acquires(order)) note_acquire(point_);
      if (done && releases(order)) note_release(point_, true);
      return done;
    }

   private:
    static bool acquires(std::memory_order order) {
      return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
             order == std::memory_order_seq_cst;
    }
    static bool releases(std::memory_order order) {
      return order == std::memory_order_release || order == std::memory_order_acq_rel ||
             order == std::memory_order_seq_cst;
    }
    template <class Operation>
    T modify(std::memory_order order, Operation&& operation) noexcept {
      const std::scoped_lock lock(order_lock());
      const T before = operation();
      if (acquires(order)) note_acquire(point_);
      if (releases(order)) note_release(point_, true);
      return before;
    }

    sync_point point_;
  };
};

}  // namespace cuda_double
