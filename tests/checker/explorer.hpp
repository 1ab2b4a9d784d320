// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fiber.hpp"
#include "state.hpp"

namespace penstock::checker {

/// Explores all interleavings of a few fibers, depth first, and prunes at states seen before.
///
/// A *step* is one operation on a shared word, or one of the harness's own, and the fiber's local code up to its next
/// one. Memory is sequentially consistent: an operation takes effect at once and for all. Memory orders are not looked
/// at here.
///
/// The state is all words, the harness's data, and for each fiber a key: a label that the harness sets with all locals
/// that still matter (`at`), and what the fiber has observed since. Of states only a 64-bit hash is kept: at ten
/// million states one is overlooked with a probability of some 1e-6.
///
/// Reduction: a fiber's step need not be interleaved with others' where no step that they can take while this fiber
/// stands still touches the same objects (a persistent set of one). That is known after the step has been explored:
/// each state keeps, per fiber, what the others may access from there on while it stands still. States never repeat
/// along a path (that would be a livelock, and is reported), so what is kept of a state left behind is complete. The
/// argument needs that no step disables another fiber's next one, and that all modelled data is reported by `touch`.
class explorer {
 public:
  static constexpr std::uint32_t most_fibers = checker::most_fibers;
  static constexpr std::uint32_t scheduler = most_fibers;
  static constexpr std::uint32_t no_gate = ~std::uint32_t{0};
  static constexpr std::uint32_t most_hints = 2 * 64 + 2;

  struct options {
    bool reduce = true;
    bool exchange = true;           ///< takes states that differ in who is reader 0 for one
    bool shorten = true;            ///< calls `forget`
    std::uint64_t most_states = 0;  ///< gives up there, if not 0
  };
  struct outcome {
    std::string violation;  ///< empty: none found
    std::string trace;
    std::uint64_t states = 0, steps = 0, ends = 0, deepest = 0;
    std::uint64_t ends_hash = 0;  ///< of the set of final states
    double seconds = 0;
    bool complete = false;
  };

  explorer() { instance_ = this; }
  ~explorer() { instance_ = nullptr; }
  explorer(const explorer&) = delete;
  explorer& operator=(const explorer&) = delete;
  static explorer& get() { return *instance_; }

  /// Set to seed a fault: sees every operation before it takes effect.
  std::function<void(operation&)> tamper;
  /// Set to shorten keys: called after each operation, when its result is already in the key.
  std::function<void(const operation&, marks&)> forget;
  /// Set to drop wake-ups: true swallows it.
  std::function<bool(object gate, std::uint32_t by)> swallow;
  /// Set where fibers 0 and 1 do the same: true while exchanging them, and these two words, changes nothing.
  std::function<bool()> exchangeable;
  object twin_words[2] = {0, 0};
  /// Looks at a final state; calls `fail` where it is wrong.
  std::function<void()> at_end;

  // ---- setting up

  object make_word(std::string name, std::uint64_t value) {
    const object made = make_object(std::move(name));
    values_[made] = value;
    words_ = objects_;
    return made;
  }
  object make_object(std::string name) {
    if (objects_ == values_.size()) throw std::length_error("the checker has room for 64 objects");
    names_[objects_] = std::move(name);
    return objects_++;
  }
  void rename(object which, std::string name) { names_[which] = std::move(name); }
  object named(std::string_view name) const {
    for (object i = 0; i < objects_; ++i)
      if (names_[i] == name) return i;
    throw std::invalid_argument("the checker knows nothing of this name: " + std::string(name));
  }
  /// Plain memory that belongs to the state: without padding, pointers, or values that do not matter.
  void add_memory(void* memory, std::size_t bytes) { regions_.push_back({static_cast<std::byte*>(memory), bytes}); }
  std::uint32_t add_fiber(std::string name, std::function<void()> run) {
    bodies_.push_back({std::move(name), std::move(run), std::vector<std::byte>(stack_bytes + 16)});
    return static_cast<std::uint32_t>(bodies_.size() - 1);
  }

  // ---- for fibers; the first ones also outside of fibers, where they act at once

  /// Gives way to all others, then begins a step. `hint` tells kinds of steps apart, for the order of exploration only.
  void yield(std::uint32_t hint = most_hints - 1) {
    if (current_ == scheduler) return;
    auto& self = fibers_[current_];
    self.hint = hint;
    if (self.merge_next)
      self.merge_next = false;
    else
      suspend();
  }
  void touch(object which, bool write) { (write ? step_.writes : step_.reads) |= std::uint64_t{1} << which; }
  void note(std::string_view kind, object which, std::uint64_t value) {
    if (tracing_) trace_ += " " + std::string(kind) + " " + names_[which] + "=" + std::to_string(value);
  }
  void note(std::string_view text) {
    if (tracing_) (trace_ += " [") += std::string(text) + "]";
  }
  std::uint64_t& value(object which) { return values_[which]; }
  std::uint32_t current() const { return current_; }
  object last_object() const { return last_object_; }
  bool done(std::uint32_t which) const { return fibers_[which].done; }

  /// One operation on a word. `apply(before)` gives {after, returned}.
  template <class Apply>
  std::uint64_t operate(const char* kind, object which, bool write, Apply&& apply) {
    yield(which * 2 + write);
    touch(which, write);
    last_object_ = which;
    operation op{kind, which, current_, values_[which], 0, 0};
    apply(op);
    if (current_ == scheduler) {
      values_[which] = op.after;
      return op.returned;
    }
    if (tamper) tamper(op);
    if (write && values_[which] != op.after) wake(which, false);
    values_[which] = op.after;
    auto& self = fibers_[current_];
    self.marks.key_before = self.marks.key;
    self.marks.key = mix(self.marks.key, op.returned + 1);
    if (forget && options_.shorten) forget(op, self.marks);
    note(kind, which, write ? op.after : op.returned);
    return op.returned;
  }

  /// Here the fiber's further course depends on this label and these locals only, and on what is in the state.
  template <class... Locals>
  void at(std::uint64_t label, Locals... locals) {
    auto& self = fibers_[current_];
    self.marks.key = self.marks.place = mix(0, label);
    ((self.marks.key = mix(self.marks.key, static_cast<std::uint64_t>(locals))), ...);
    self.marks.base = self.marks.round = self.marks.key;
  }
  std::uint64_t key() const { return fibers_[current_].marks.key; }
  void set_key(std::uint64_t key) { fibers_[current_].marks.key = key; }
  void set_base() { fibers_[current_].marks.base = fibers_[current_].marks.round = fibers_[current_].marks.key; }

  /// Takes one of `count` ways; all are explored.
  std::uint32_t choose(std::uint32_t count) {
    auto& self = fibers_[current_];
    self.merge_next = false;
    self.choices = count;
    self.hint = most_hints - 2;
    suspend();
    self.choices = 0;
    self.marks.key = mix(self.marks.key, self.choice + 1);
    note("chooses " + std::to_string(self.choice));
    return self.choice;
  }
  /// Waits until `ready()`, which must stay true once it is, whatever others do. The caller touches what it looks at.
  template <class Ready>
  void await(const Ready& ready) {
    auto& self = fibers_[current_];
    self.merge_next = false;
    self.ready = [](const void* what) { return (*static_cast<const Ready*>(what))(); };
    self.ready_argument = &ready;
    self.hint = most_hints - 1;
    suspend();
    self.ready = nullptr;
    self.marks.key = mix(self.marks.key, 0);
  }
  /// From here on a `wake` of this object is not lost.
  void announce(object gate) {
    touch(gate, true);
    fibers_[current_].gate = gate;
    fibers_[current_].woken = false;
  }
  void withdraw() {
    touch(fibers_[current_].gate, true);
    fibers_[current_].gate = no_gate;
    fibers_[current_].woken = false;
  }
  /// Sleeps until woken since the announcement; the next step begins with the operation after it.
  void sleep() {
    auto& self = fibers_[current_];
    touch(self.gate, false);
    self.merge_next = false;
    self.ready = [](const void* what) { return static_cast<const fiber*>(what)->woken; };
    self.ready_argument = &self;
    self.hint = self.gate * 2;
    suspend();
    self.ready = nullptr;
    touch(self.gate, true);
    self.gate = no_gate;
    self.woken = false;
    self.merge_next = true;
  }
  void wake(object gate, bool touched = true, bool only_one = false) {
    if (touched) {
      if (swallow && swallow(gate, current_)) return;
      touch(gate, true);
    }
    for (auto& each : fibers_)
      if (each.gate == gate && !each.woken) {
        each.woken = true;
        if (only_one) return;
      }
  }
  /// Spinning: goes on when the word that was looked at last has been written. The failed look leaves no mark.
  void pause() {
    auto& self = fibers_[current_];
    self.marks.key = self.marks.key_before;
    announce(last_object_);
    sleep();
  }
  void fail(std::string why) {
    if (violation_.empty()) violation_ = std::move(why);
    if (current_ != scheduler) suspend();
  }
  void expect(bool holds, std::string_view what) {
    if (!holds) fail(std::string(what));
  }

  outcome explore(const options& how) {
    options_ = how;
    const auto began = std::chrono::steady_clock::now();
    for (auto& each : fibers_) each = {};
    for (std::uint32_t i = 0; i < bodies_.size(); ++i) {
      auto* stack = bodies_[i].stack.data();
      stack += (16 - reinterpret_cast<std::uintptr_t>(stack) % 16) % 16;
      stack_tops_[i] = stack + stack_bytes;
      make_context(fibers_[i].where, stack, stack_bytes, &enter);
      fibers_[i].merge_next = true;
    }
    visit(0);
    result_.violation = violation_;
    result_.complete = violation_.empty() && !gave_up_;
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return result_;
  }

 private:
  static constexpr std::size_t stack_bytes = 64 * 1024;

  struct fiber {
    context where;
    bool (*ready)(const void*) = nullptr;
    const void* ready_argument = nullptr;
    checker::marks marks;
    std::uint32_t gate = no_gate;
    std::uint32_t choices = 0, choice = 0, hint = 0;
    bool done = false, woken = false, merge_next = false;
  };
  struct body {
    std::string name;
    std::function<void()> run;
    std::vector<std::byte> stack;
  };
  struct region {
    std::byte* memory;
    std::size_t bytes;
  };
  struct choice_taken {
    std::uint32_t fiber, way;
  };

  static void enter() {
    auto& self = get();
    self.bodies_[self.current_].run();
    self.fibers_[self.current_].done = true;
    self.suspend();
  }
  void suspend() { switch_context(fibers_[current_].where, scheduler_); }

  void resume(std::uint32_t which) {
    step_ = {};
    current_ = which;
    if (tracing_) trace_ += which == traced_ ? ";" : "\n  " + bodies_[which].name + ":";
    traced_ = which;
    switch_context(scheduler_, fibers_[which].where);
    current_ = scheduler;
  }

  static std::uint64_t hash_of(const fiber& of) {
    return of.done ? 1 : mix(of.marks.key, of.gate * 2ull + of.woken + 2);
  }
  bool exchanged() const {
    if (!options_.exchange || !exchangeable || !exchangeable()) return false;
    const std::uint64_t first = mix(hash_of(fibers_[0]), values_[twin_words[0]]);
    return mix(hash_of(fibers_[1]), values_[twin_words[1]]) < first;
  }
  std::uint64_t hash(bool exchanged) {
    if (exchanged) std::swap(values_[twin_words[0]], values_[twin_words[1]]);
    // In two lanes, since each mix waits for the one before.
    std::uint64_t lanes[2] = {1, 2};
    for (std::uint32_t i = 0; i < words_; ++i) lanes[i % 2] = mix(lanes[i % 2], values_[i]);
    if (exchanged) std::swap(values_[twin_words[0]], values_[twin_words[1]]);
    for (std::uint32_t i = 0; i < bodies_.size(); ++i)
      lanes[i % 2] = mix(lanes[i % 2], hash_of(fibers_[exchanged && i < 2 ? 1 - i : i]));
    for (const auto& each : regions_) {
      for (std::size_t i = 0; i < each.bytes; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, each.memory + i, std::min<std::size_t>(8, each.bytes - i));
        lanes[i / 8 % 2] = mix(lanes[i / 8 % 2], word);
      }
    }
    return mix(lanes[0], lanes[1]);
  }

  // Only one fiber moves per step, so only its stack needs saving.
  template <class Copy>
  void each_part(std::uint32_t mover, std::byte* lowest, Copy&& copy) {
    copy(lowest, static_cast<std::size_t>(stack_tops_[mover] - lowest));
    copy(reinterpret_cast<std::byte*>(fibers_.data()), bodies_.size() * sizeof(fiber));
    copy(reinterpret_cast<std::byte*>(values_.data()), words_ * sizeof(values_[0]));
    for (const auto& each : regions_) copy(each.memory, each.bytes);
  }
  std::byte* save(std::uint32_t mover, std::vector<std::byte>& into) {
    std::byte* const lowest = fibers_[mover].where.lowest();
    std::size_t bytes = 0;
    each_part(mover, lowest, [&](std::byte*, std::size_t size) { bytes += size; });
    into.resize(bytes);
    std::byte* to = into.data();
    each_part(mover, lowest, [&](std::byte* from, std::size_t size) {
      std::memcpy(to, from, size);
      to += size;
    });
    return lowest;
  }
  void restore(std::uint32_t mover, std::byte* lowest, const std::vector<std::byte>& saved) {
    const std::byte* from = saved.data();
    each_part(mover, lowest, [&](std::byte* to, std::size_t size) {
      std::memcpy(to, from, size);
      from += size;
    });
  }

  bool stopped() const { return !violation_.empty() || gave_up_; }

  void violated(const char* why) {
    if (why != nullptr && violation_.empty()) violation_ = why;
    result_.deepest = std::max<std::uint64_t>(result_.deepest, path_.size());
    found_path_ = path_;
  }

  summary visit(std::size_t depth) {
    const bool exchanged = this->exchanged();
    const std::uint64_t hash = this->hash(exchanged) | 1;
    if (const auto* known = states_.find_or_add(hash)) {
      if (known == states_.in_progress()) violated("livelock: the state repeats");
      return exchanged ? exchange(*known) : *known;
    }
    ++result_.states;
    result_.deepest = std::max<std::uint64_t>(result_.deepest, depth);
    if (options_.most_states != 0 && result_.states > options_.most_states) gave_up_ = true;

    std::array<std::uint32_t, most_fibers> movable{};
    std::uint32_t count = 0;
    bool all_done = true;
    for (std::uint32_t i = 0; i < bodies_.size(); ++i) {
      const auto& each = fibers_[i];
      all_done = all_done && each.done;
      if (!each.done && (each.ready == nullptr || each.ready(each.ready_argument))) movable[count++] = i;
    }
    if (count == 0) {
      if (!all_done) {
        std::string who;
        for (std::uint32_t i = 0; i < bodies_.size(); ++i)
          if (!fibers_[i].done) who += " " + bodies_[i].name;
        violated(("deadlock: waiting for ever:" + who).c_str());
      } else {
        ++result_.ends;
        result_.ends_hash += mix(hash, 7);
        if (at_end) at_end();
        if (!violation_.empty()) violated(nullptr);
      }
    }

    if (options_.reduce) sort_by_promise(movable.data(), count);
    summary all;
    for (std::uint32_t m = 0; m < count && !stopped(); ++m) {
      const std::uint32_t mover = movable[m];
      accesses step;
      summary then;
      auto& record = records_[mover][fibers_[mover].hint];
      const std::uint32_t ways = std::max(fibers_[mover].choices, 1u);
      for (std::uint32_t way = 0; way < ways && !stopped(); ++way) {
        if (undo_.size() <= depth) undo_.resize(depth + 64);
        std::byte* const lowest = save(mover, undo_[depth]);
        fibers_[mover].choice = way;
        path_.push_back({mover, way});
        resume(mover);
        ++result_.steps;
        if (!violation_.empty()) {
          violated(nullptr);
        } else {
          step |= step_;
          then.add(visit(depth + 1));
        }
        path_.pop_back();
        restore(mover, lowest, undo_[depth]);
      }
      const bool alone = options_.reduce && !step.conflicts(then.others[mover]);
      record = record * 0.99f + (alone ? 0.01f : 0.0f);
      if (alone) {
        all = then;
        for (std::uint32_t i = 0; i < most_fibers; ++i)
          if (i != mover) all.others[i] |= step;
        break;
      }
      for (std::uint32_t i = 0; i < most_fibers; ++i)
        if (i != mover) (all.others[i] |= step) |= then.others[i];
    }
    if (depth == 0 && !found_path_.empty()) retrace();
    if (stopped()) return {};
    states_.complete(hash, exchanged ? exchange(all) : all);
    return all;
  }

  float promise(std::uint32_t mover) const { return records_[mover][fibers_[mover].hint]; }
  summary exchange(const summary& of) const { return of.exchanged(twin_words[0], twin_words[1]); }
  // First the steps that have most often turned out to need no interleaving.
  void sort_by_promise(std::uint32_t* movers, std::uint32_t count) const {
    for (std::uint32_t i = 1; i < count; ++i)
      for (std::uint32_t j = i; j > 0 && promise(movers[j]) > promise(movers[j - 1]); --j)
        std::swap(movers[j], movers[j - 1]);
  }

  // Once more along the path found, telling what happens.
  void retrace() {
    const auto violation = violation_;
    violation_.clear();
    tracing_ = true;
    traced_ = scheduler;
    for (const auto& each : found_path_) {
      fibers_[each.fiber].choice = each.way;
      resume(each.fiber);
    }
    tracing_ = false;
    violation_ = violation;
    result_.trace = std::move(trace_);
  }

  static inline explorer* instance_ = nullptr;

  options options_;
  outcome result_;
  std::string violation_;
  bool gave_up_ = false;
  bool tracing_ = false;
  std::string trace_;
  std::uint32_t current_ = scheduler, traced_ = scheduler;
  accesses step_;
  object last_object_ = 0;
  context scheduler_;
  std::array<fiber, most_fibers> fibers_{};
  std::array<std::byte*, most_fibers> stack_tops_{};
  std::vector<body> bodies_;
  std::uint32_t objects_ = 0, words_ = 0;
  std::array<std::uint64_t, 64> values_{};
  std::array<std::string, 64> names_;
  std::vector<region> regions_;
  std::vector<choice_taken> path_, found_path_;
  std::vector<std::vector<std::byte>> undo_;
  state_store states_;
  std::array<std::array<float, most_hints>, most_fibers> records_{};
};

}  // namespace penstock::checker
