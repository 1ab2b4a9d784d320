// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "explorer.hpp"

namespace penstock::checker {

/// The store buffers of a machine with total store order (x86): a plain store waits there, seen by its own fiber alone,
/// until a fiber of the machine's own writes it to memory, at any time and in order. To be explored without reduction.
class store_buffers {
 public:
  explicit store_buffers(explorer& explorer) : x_(explorer) {
    instance_ = this;
    x_.add_memory(buffers_.data(), sizeof(buffers_));
  }
  ~store_buffers() { instance_ = nullptr; }
  store_buffers(const store_buffers&) = delete;
  store_buffers& operator=(const store_buffers&) = delete;
  static store_buffers& get() { return *instance_; }

  /// After all other fibers. Those before `first` have no plain stores, so no buffer of theirs is ever drained.
  void add_drains(std::uint32_t first, std::uint32_t fibers) {
    first_ = first;
    fibers_ = fibers;
    for (std::uint32_t of = first; of < fibers; ++of)
      x_.add_fiber("drain" + std::to_string(of), [this, of] {
        for (;;) {
          x_.at(1);
          x_.await([this, of] { return buffers_[of].count != 0 || x_.done(of); });
          if (buffers_[of].count == 0) return;
          write_oldest(of);
        }
      });
  }
  void push(object where, std::uint64_t value) {
    auto& own = buffers_[x_.current()];
    x_.expect(has_buffer(x_.current()), "a plain store where none was expected");
    x_.expect(own.count < most, "the modelled store buffer is too small");
    own.stores[own.count++] = {where, value};
  }
  const std::uint64_t* own(object where) const {
    const auto& own = buffers_[x_.current()];
    for (std::uint64_t i = own.count; i-- > 0;)
      if (own.stores[i].where == where) return &own.stores[i].value;
    return nullptr;
  }
  void drain(std::uint32_t of) {
    while (buffers_[of].count != 0) write_oldest(of);
  }
  bool has_buffer(std::uint32_t which) const { return which >= first_ && which < fibers_; }
  std::uint32_t fibers() const { return fibers_; }

  // Seeded faults of gate's surroundings.
  bool no_heavy_fence = false, no_comparison = false, wakes_one = false, both_full = false;
  std::uint32_t sleeps_before_both_pay = 1000;

 private:
  static constexpr std::uint32_t most = 4;
  struct store {
    std::uint64_t where, value;
  };
  struct buffer {
    std::uint64_t count;
    store stores[most];
  };

  void write_oldest(std::uint32_t of) {
    auto& from = buffers_[of];
    x_.value(static_cast<object>(from.stores[0].where)) = from.stores[0].value;
    for (std::uint64_t i = 1; i < from.count; ++i) from.stores[i - 1] = from.stores[i];
    from.stores[--from.count] = {};
  }

  static inline store_buffers* instance_ = nullptr;
  explorer& x_;
  std::uint32_t first_ = 0, fibers_ = 0;
  std::array<buffer, 4> buffers_{};
};

/// std_atomics on such a machine, with the sleeping of a futex.
struct buffered_atomics {
  template <class T>
  class atomic {
   public:
    atomic(T value = T{}) : which_(explorer::get().make_word("word", value)) {}
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;

    T load(std::memory_order = std::memory_order_seq_cst) const {
      return static_cast<T>(explorer::get().operate("load", which_, false, [&](operation& op) {
        const auto* own = store_buffers::get().own(which_);
        op.after = op.before;
        op.returned = own != nullptr ? *own : op.before;
      }));
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) {
      explorer::get().operate("store", which_, false, [&](operation& op) {
        const bool at_once = order == std::memory_order_seq_cst && !store_buffers::get().has_buffer(op.by);
        if (at_once || op.by >= store_buffers::get().fibers()) {  // or before the fibers begin
          op.after = value;
          return;
        }
        store_buffers::get().push(which_, value);
        if (order == std::memory_order_seq_cst) store_buffers::get().drain(op.by);
        op.after = explorer::get().value(which_);
        op.returned = 0;
      });
    }
    T fetch_add(T by, std::memory_order = std::memory_order_seq_cst) { return add("add", by); }
    T fetch_sub(T by, std::memory_order = std::memory_order_seq_cst) { return add("sub", static_cast<T>(0 - by)); }
    object which() const { return which_; }

   private:
    T add(const char* kind, T by) {
      return static_cast<T>(explorer::get().operate(kind, which_, true, [&](operation& op) {
        store_buffers::get().drain(op.by);
        op.before = op.returned = explorer::get().value(which_);
        op.after = static_cast<T>(op.before + by);
      }));
    }
    object which_;
  };

  struct asymmetric_fence {
    bool is_free() const { return !store_buffers::get().both_full; }
    void light() const {
      if (store_buffers::get().both_full) full();
    }
    // Every other processor passes a fence at some time during the call, not all at the same.
    void heavy() const {
      auto& buffers = store_buffers::get();
      auto& x = explorer::get();
      full();
      if (buffers.no_heavy_fence || buffers.both_full) return;
      for (std::uint32_t i = 0; i < buffers.fibers(); ++i) {
        if (i == x.current() || !buffers.has_buffer(i)) continue;
        x.yield();
        buffers.drain(i);
        x.set_key(mix(x.key(), 51));
      }
    }
    static void full() {
      auto& x = explorer::get();
      if (!store_buffers::get().has_buffer(x.current())) return;
      x.yield();
      store_buffers::get().drain(x.current());
      x.set_key(mix(x.key(), 52));
    }
  };

  static std::uint32_t sleeps_before_both_pay() { return store_buffers::get().sleeps_before_both_pay; }
  static void pause() {}
  // Not the word itself: writing that wakes nobody here.
  static object queue_of(const atomic<std::uint32_t>& word) { return word.which() + 32; }

  static void sleep(atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::steady_clock::time_point) {
    auto& x = explorer::get();
    x.yield();
    store_buffers::get().drain(x.current());
    x.set_key(mix(x.key(), 53));
    if (x.value(word.which()) != expected && !store_buffers::get().no_comparison) return;
    x.note("sleeps");
    x.announce(queue_of(word));
    x.set_key(mix(x.key(), 54));
    x.sleep();
  }
  static void wake_all(atomic<std::uint32_t>& word) {
    auto& x = explorer::get();
    x.yield();
    store_buffers::get().drain(x.current());
    x.set_key(mix(x.key(), 55));
    x.note("wakes");
    x.wake(queue_of(word), true, store_buffers::get().wakes_one);
  }
};

}  // namespace penstock::checker
