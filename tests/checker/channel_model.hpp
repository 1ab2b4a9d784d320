// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

#include <penstock/channel/ring.hpp>

#include "buffers_model.hpp"
#include "checked_atomics.hpp"
#include "report.hpp"

namespace penstock::checker {

// The few plain members of ring and its cursor belong to the state, too: an explicit instantiation may name them.
template <auto... Members>
struct open_cursor {
  friend void add_plain_members(explorer& to, copy_cursor<checked_atomics>& of) {
    (to.add_memory(&(of.*Members), sizeof(of.*Members)), ...);
  }
};
void add_plain_members(explorer& to, copy_cursor<checked_atomics>& of);
template struct open_cursor<&copy_cursor<checked_atomics>::next_, &copy_cursor<checked_atomics>::next_twin_>;

template <auto Cursor, auto... Members>
struct open_ring {
  friend void add_plain_members(explorer& to, ring<checked_atomics>& of) {
    add_plain_members(to, of.*Cursor);
    (to.add_memory(&(of.*Members), sizeof(of.*Members)), ...);
  }
};
void add_plain_members(explorer& to, ring<checked_atomics>& of);
template struct open_ring<&ring<checked_atomics>::copies_, &ring<checked_atomics>::consumed_,
                          &ring<checked_atomics>::issued_, &ring<checked_atomics>::taken_back_,
                          &ring<checked_atomics>::known_ready_, &ring<checked_atomics>::upcoming_,
                          &ring<checked_atomics>::given_, &ring<checked_atomics>::in_use_>;

/// Names the words of a ring, in the order of its members. `first`: the number of objects before it was made.
inline void name_words(explorer& x, object first, const ring_shape& shape, const std::string& prefix) {
  const auto each = [&](const char* name, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) x.rename(first++, prefix + name + std::to_string(i));
  };
  for (const auto* name : {"consumer_gate", "control_gate", "readers_gate"}) x.rename(first++, prefix + name);
  const std::uint32_t slots = std::bit_ceil(shape.host);
  each("bound", slots);
  each("full", shape.device == 0 ? 1 : slots);
  each("ready", std::bit_ceil(shape.device == 0 ? shape.host : shape.device));
  each("returns", slots);
  each("turns", slots);
  each("remaining", shape.host);
  for (std::uint32_t i = 0; i < shape.readers; ++i)
    for (const auto* name : {"busy", "sample"}) x.rename(first++, prefix + name + std::to_string(i));
  for (const auto* name : {"limit", "tickets", "free_until", "free", "free_twins", "pending", "returned"})
    x.rename(first++, prefix + name);
}

/// A ring with the threads around it: readers, the consumer, one who asks it to stop, one who holds a lease.
template <class Ring = ring<checked_atomics>>
class channel_model : private buffers_model {
 public:
  explicit channel_model(explorer& explorer, const channel_settings& settings)
      : buffers_model(explorer, settings), ring_(settings.shape) {
    if constexpr (is_ring) name_words(x_, 0, settings.shape, "");
    add_plain_members(x_, ring_);
    make_objects();
    for (std::uint32_t i = 0; i < shape().readers; ++i) add("reader" + std::to_string(i), [this, i] { read(i); });
    add("consumer", [this] { consume(); });
    if (set_.stop) add("stopper", [this] { ask_to_stop(); });
    if (set_.first_lease == keep::for_another_thread) add("holder", [this] { hold(); });
    if (!ring_.hands_over_slots()) {
      x_.add_fiber("copies", [this] { run_copies(); });
      x_.add_fiber("computes", [this] { run_computes(); });
    }
    x_.at_end = [this] { look_at_end(); };
    if constexpr (is_ring) shorten_keys();
  }

  Ring& ring() { return ring_; }
  using buffers_model::shape;
  bool restarting() const { return s_.restarting != 0; }

 private:
  static constexpr bool is_ring = std::is_same_v<Ring, penstock::ring<checked_atomics>>;

  void add(std::string name, std::function<void()> body) {
    ++others_;
    x_.add_fiber(std::move(name), [this, body] {
      body();
      x_.touch(done_, true);
      ++s_.gone;
    });
  }

  // What ring's methods no longer need of what they have observed. Found wrong, should ring change, by the test that
  // compares with keys that are not shortened.
  void shorten_keys() {
    const object tickets = x_.named("tickets"), pending = x_.named("pending");
    std::uint64_t full = 0;
    for (std::uint32_t i = 0; i < (hands_over() ? 1 : std::bit_ceil(shape().host)); ++i)
      full |= std::uint64_t{1} << x_.named("full" + std::to_string(i));
    x_.forget = [=](const operation& op, marks& of) {
      const std::string_view kind = op.kind;
      // try_take goes round with nothing but what the exchange has seen.
      if (op.on == tickets && kind == "cas" && op.after == op.before) of.key = mix(mix(of.base, 71), op.returned);
      // Who pokes needs its arguments no longer; advance needs `seen` alone from one copy to the next.
      if (op.on == pending && kind == "add") of.base = of.round = of.key = mix(mix(of.place, 72), op.returned != 0);
      if (op.on == pending && kind == "load") of.round = of.key = mix(mix(of.base, 73), op.returned);
      if (op.on == pending && kind == "sub") of.key = mix(mix(of.round, 74), op.returned);
      if ((full >> op.on & 1) != 0 && kind == "load") of.key = mix(mix(of.round, 75), op.returned);
    };
    if (shape().readers == 2) {
      x_.twin_words[0] = x_.named("busy0");
      x_.twin_words[1] = x_.named("busy1");
      x_.exchangeable = [this] { return s_.in_quiet == 0; };
    }
  }

  // ---- readers

  void read(std::uint32_t me) {
    for (;;) {
      x_.at(1);
      ticket t;
      take_result got = take_result::none;
      ring_.readers().wait([&] {
        got = ring_.try_take(me, t, [&](std::uint32_t slot) { return fence_passed(slot); });
        x_.touch(plan_, false);
        return got != take_result::none || s_.quit;
      });
      if (got == take_result::none) return;
      if (got == take_result::fenced) {
        // Really looks again from time to time, here at the right one. The look and this are one step.
        x_.at(2, t.slot);
        x_.announce(copied_[t.slot]);
        x_.sleep();
        continue;
      }
      begin_range(t);
      x_.at(3, t.step, t.range, t.slot);
      if (!ring_.interrupted()) {
        end_range(t);
        x_.at(5, t.step, t.range, t.slot);
        const bool last = ring_.arrive(t);
        if (last) x_.at(6, t.step, t.slot);
        if (last) ring_.publish(t, enqueue());
      }
      x_.at(7);
      ring_.leave(me);
    }
  }

  // ---- the consumer, and who else acts for it

  void consume() {
    open(0);
    for (;;) {
      consume_epoch();
      if (s_.held != 0) give_back_held();
      if (!s_.again) break;
      x_.at(15);
      s_.again = 0;
      --s_.restarts;
      ring_.park();
      x_.at(16);
      if (!set_.no_quiet)
        ring_.control.wait([&] {
          s_.in_quiet = 1;
          const bool quiet = ring_.quiet();
          s_.in_quiet = 0;
          return quiet;
        });
      x_.at(17);
      s_.restarting = 1;
      const std::uint64_t base = ring_.restart([this](std::uint32_t slot) { renew(slot); });
      s_.restarting = 0;
      s_.steps = static_cast<std::uint8_t>(set_.steps_after_restart);
      s_.received = 0;
      open(base);
    }
    x_.at(20);
    ring_.park();
    x_.at(21);
    x_.yield();
    x_.touch(plan_, true);
    s_.quit = 1;
    ring_.readers().notify();
    x_.at(22);
    x_.await([this] {
      for (std::uint32_t i = 0; i < shape().readers; ++i)
        if (!x_.done(i)) return false;
      return true;
    });
    x_.touch(done_, false);
    x_.at(23);
    if (ring_.abandon()) become_owner();
  }
  void open(std::uint64_t base) {
    s_.base = static_cast<std::uint8_t>(base);
    x_.touch(plan_, true);
    const std::uint32_t steps = set_.opened_in_parts && s_.steps > 1 ? 1 : s_.steps;
    s_.limit = static_cast<std::uint8_t>(base + steps);
    x_.at(10);
    ring_.open(s_.limit);
  }
  void consume_epoch() {
    for (;;) {
      x_.at(11);
      x_.touch(stop_, false);
      if (s_.stop) return;
      if (s_.restarts != 0 && x_.choose(2) == 1) {
        s_.again = 1;
        return;
      }
      if (s_.received == s_.steps) return;
      x_.at(12);
      if (s_.limit < s_.base + s_.steps && s_.received == 1) {
        x_.touch(plan_, true);
        s_.limit = static_cast<std::uint8_t>(s_.base + s_.steps);
        ring_.open(s_.limit);
      }
      x_.at(13);
      if (s_.held != 0 && !set_.receives_first) give_back_held();
      if constexpr (is_ring)
        if (set_.widens && s_.received == 1 && ring_.buffers() != shape().host) {
          x_.at(25);
          ring_.widen(shape().host, enqueue());
        }
      x_.at(14);
      bool ready = false;
      ring_.consumer.wait([&] {
        ready = ring_.is_ready();
        x_.touch(stop_, false);
        return ready || s_.stop;
      });
      if (!ready) return;
      x_.at(18);
      const std::uint64_t step = ring_.next_step();
      const std::uint32_t index = ring_.receive();
      if (s_.held != 0) {
        s_.next_step = static_cast<std::uint8_t>(step), s_.next_index = static_cast<std::uint8_t>(index);
        x_.at(19);
        give_back_held();
      }
      if (!receive(step, index)) return;
    }
  }
  // False: the step has failed.
  bool receive(std::uint64_t step, std::uint32_t index) {
    x_.expect(step == s_.base + s_.received, "batches are not received in step order");
    bool failed = false;
    if (ring_.hands_over_slots()) {
      x_.touch(content_[index], true);
      x_.expect(index < shape().host && complete(index, tag(step)), "the slot received is not complete");
      x_.expect(s_.out[index] == 0, "a slot is received twice");
      failed = s_.failed[index] == tag(step);
    } else {
      x_.touch(twin_[index], true);
      x_.expect(index < shape().device && s_.twin_step[index] == tag(step), "the twin received is of another step");
      x_.expect(s_.out[index] == 0, "a twin is received twice");
      failed = s_.twin_failed[index];
    }
    x_.touch(errors_, false);
    x_.expect(failed == (s_.bad[step] != 0), "a failed range does not arrive with its step");
    s_.out[index] = tag(step);
    ++s_.received;
    if (failed) {
      x_.choose(1);
      give_back(index, true);
      return false;
    }
    if (step == 0 && set_.first_lease != keep::nothing) {
      x_.touch(plan_, true);
      s_.kept = static_cast<std::uint8_t>(index + 1);
      s_.kept_step = tag(step);
    } else {
      s_.held = static_cast<std::uint8_t>(index + 1);
    }
    return true;
  }
  void give_back_held() {
    const std::uint32_t index = s_.held - 1u;
    s_.held = 0;
    give_back(index, false);
  }
  // The user's work on the batch is enqueued here, at the latest point, together with the release event's record.
  void give_back(std::uint32_t index, bool failed) {
    x_.set_key(mix(x_.key(), 30 + 2 * index + failed));
    x_.yield();
    x_.set_key(mix(x_.key(), 40));
    const std::uint8_t step = s_.out[index];
    if (ring_.hands_over_slots()) {
      x_.touch(content_[index], true);
      x_.expect(complete(index, step), "a leased slot was overwritten");
    } else {
      x_.touch(streams_, true), x_.touch(twin_[index], true);
      x_.expect(s_.twin_step[index] == step, "a leased twin was overwritten");
      if (!failed) {
        std::uint8_t waits = 0;
        for (std::uint32_t i = 0; i < s_.copy_count; ++i)
          if (s_.copies[i].step == step) waits = static_cast<std::uint8_t>(i + 1);
        x_.expect(s_.compute_count < queue, "more kernels in flight than there should be");
        s_.computes[s_.compute_count++] = {step, static_cast<std::uint8_t>(index), waits, 0};
        s_.twin_release[index] = s_.compute_count;
      }
    }
    s_.out[index] = 0;
    // The consumer takes back what it has itself; others count who is the last.
    if (x_.current() == shape().readers)
      ring_.take_back(index, enqueue());
    else if (ring_.release(index, enqueue()))
      become_owner();
  }
  void become_owner() {
    x_.touch(plan_, true);
    ++s_.owners;
  }
  void hold() {
    x_.at(1);
    x_.await([this] { return s_.kept != 0 || x_.done(shape().readers); });
    x_.touch(plan_, true);
    x_.touch(done_, false);
    if (s_.kept == 0) return;
    x_.at(2);
    const std::uint32_t index = s_.kept - 1u;
    s_.kept = 0;
    give_back(index, false);
  }
  void ask_to_stop() {
    x_.at(1);
    x_.yield();
    x_.touch(stop_, true);
    s_.stop = 1;
    x_.at(2);
    ring_.park();
    ring_.consumer.notify();
    ring_.control.notify();
  }

  void look_at_end() {
    x_.expect(s_.copy_count == 0 && s_.compute_count == 0, "work is left on a stream");
    x_.expect(s_.owners == (s_.kept == 0 ? 1 : 0), "an abandoned ring has not exactly one owner");
    if (s_.kept != 0)
      x_.expect(ring_.hands_over_slots() ? complete(s_.kept - 1u, s_.kept_step)
                                         : s_.twin_content[s_.kept - 1u] == s_.kept_step,
                "a kept batch was overwritten");
    if (!set_.stop && set_.errors == 0 && s_.restarts == set_.restarts)
      x_.expect(s_.received == set_.steps, "not all batches were received");
  }

  Ring ring_;
};

/// Explores one configuration and tells on standard output how far it went.
template <class Ring = ring<checked_atomics>, class Prepare>
explorer::outcome explore_channel(const std::string& name, const channel_settings& settings,
                                  const explorer::options& how, Prepare&& prepare) {
  explorer explorer;
  channel_model<Ring> model(explorer, settings);
  prepare(explorer, model);
  const auto found = explorer.explore(how);
  tell(std::to_string(settings.shape.host) + "+" + std::to_string(settings.shape.device) + " " + name, found);
  return found;
}

}  // namespace penstock::checker
