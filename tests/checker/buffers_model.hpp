// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/channel/ring.hpp>

#include "checked_atomics.hpp"
#include "explorer.hpp"

namespace penstock::checker {

enum class keep { nothing, for_good, for_another_thread };

/// What is explored: how the threads around a ring behave. Words that begin with `no_` or `any_` seed faults.
struct channel_settings {
  ring_shape shape{.host = 1, .device = 1, .ranges = 2, .readers = 2};
  std::uint32_t steps = 3;
  std::uint32_t restarts = 0;  ///< at most so many, each anywhere
  std::uint32_t steps_after_restart = 2;
  std::uint32_t errors = 0;  ///< at most so many ranges fail, any
  bool stop = false;         ///< another thread asks for it, anywhere
  keep first_lease = keep::nothing;
  bool opened_in_parts = false;  ///< the limit is raised while readers run
  bool widens = false;           ///< a buffer is withheld until the first batch was let go
  bool receives_first = false;   ///< fault: the next batch is received before the old one is released
  bool no_quiet = false;         ///< fault: restarts under running readers
  bool no_slot_fence = false;    ///< fault: the event of a slot's last copy is not waited for
  bool no_twin_fence = false;    ///< fault: a copy does not wait for the twin's release event
  bool any_copy_order = false;   ///< for protocols that do not promise it
};

/// Slots, twins, and the two streams. Buffers hold, instead of bytes, which step they were written for; whoever touches
/// one where the laws forbid it is reported.
class buffers_model {
 protected:
  static constexpr std::uint32_t most = 3, queue = 8;
  buffers_model(explorer& explorer, const channel_settings& settings) : x_(explorer), set_(settings) {
    s_.steps = static_cast<std::uint8_t>(settings.steps);
    s_.restarts = static_cast<std::uint8_t>(settings.restarts);
    s_.errors = static_cast<std::uint8_t>(settings.errors);
  }
  // After the ring's words.
  void make_objects() {
    x_.add_memory(&s_, sizeof(s_));
    for (std::uint32_t i = 0; i < shape().host; ++i) {
      content_[i] = x_.make_object("content" + std::to_string(i));
      copied_[i] = x_.make_object("copied" + std::to_string(i));
    }
    for (std::uint32_t i = 0; i < shape().device; ++i) twin_[i] = x_.make_object("twin" + std::to_string(i));
    for (auto [which, name] :
         {std::pair{&streams_, "streams"}, {&plan_, "plan"}, {&stop_, "stop"}, {&done_, "done"}, {&errors_, "errors"}})
      *which = x_.make_object(name);
  }

  const ring_shape& shape() const { return set_.shape; }
  bool hands_over() const { return set_.shape.device == 0; }
  bool all_left() const { return s_.gone == others_; }
  static std::uint8_t tag(std::uint64_t step) { return static_cast<std::uint8_t>(step + 1); }

  bool fence_passed(std::uint32_t slot) {
    if (hands_over() || set_.no_slot_fence) return true;
    x_.yield();
    x_.touch(copied_[slot], false);
    const bool passed = s_.copying[slot] == 0;
    x_.set_key(mix(x_.key(), passed));
    return passed;
  }
  void begin_range(const ticket& t) {
    x_.touch(content_[t.slot], true);
    x_.touch(copied_[t.slot], false);
    x_.touch(plan_, false);
    x_.expect(t.slot < shape().host && t.range < shape().ranges, "a ticket is out of range");
    x_.expect(t.step < s_.limit, "a ticket is beyond the limit");
    x_.expect(s_.copying[t.slot] == 0, "a slot is overwritten before its copy has completed");
    x_.expect(s_.out[t.slot] == 0 || !hands_over(), "a slot is overwritten while it is leased");
    x_.expect(s_.content[t.slot][t.range] != tag(t.step), "a range is read twice");
    s_.content[t.slot][t.range] = 0;
  }
  void end_range(const ticket& t) {
    x_.touch(errors_, false);
    if (s_.errors != 0 && x_.choose(2) == 1) {
      x_.touch(errors_, true);
      --s_.errors;
      s_.failed[t.slot] = s_.bad[t.step] = tag(t.step);
    }
    x_.touch(content_[t.slot], true);
    s_.content[t.slot][t.range] = tag(t.step);
  }
  void renew(std::uint32_t slot) {
    x_.touch(content_[slot], true);
    x_.expect(slot < shape().host, "a slot bound anew is out of range");
    x_.expect(s_.out[slot] == 0 || !hands_over(), "a leased slot is bound anew");
    s_.failed[slot] = 0;
  }
  bool complete(std::uint32_t slot, std::uint32_t step_tag) const {
    for (std::uint32_t i = 0; i < shape().ranges; ++i)
      if (s_.content[slot][i] != step_tag) return false;
    return true;
  }

  auto enqueue() {
    return [this](std::uint64_t step, std::uint32_t slot, std::uint32_t twin) {
      x_.yield();
      x_.set_key(mix(x_.key(), 11));
      x_.touch(streams_, true), x_.touch(twin_[twin], true), x_.touch(content_[slot], true);
      x_.touch(copied_[slot], true);
      x_.note("enqueues a copy into", twin_[twin], step);
      x_.expect(complete(slot, tag(step)), "a copy is enqueued from a slot that is not complete");
      x_.expect(twin < shape().device && s_.out[twin] == 0, "a copy is enqueued into a leased twin");
      x_.expect(set_.any_copy_order || s_.expected_copy <= step, "copies are not enqueued in step order");
      s_.expected_copy = tag(step);
      s_.twin_step[twin] = tag(step);
      s_.twin_failed[twin] = s_.failed[slot] == tag(step);
      if (s_.twin_failed[twin]) return;
      x_.expect(s_.copy_count < queue, "more copies in flight than there should be");
      s_.copies[s_.copy_count++] = {tag(step), static_cast<std::uint8_t>(slot), static_cast<std::uint8_t>(twin),
                                    set_.no_twin_fence ? std::uint8_t{0} : s_.twin_release[twin]};
      ++s_.copying[slot];
    };
  }
  void run_copies() {
    for (;;) {
      x_.at(1);
      x_.await([this] { return s_.copy_count != 0 ? s_.copies[0].waits == 0 : all_left(); });
      x_.touch(done_, false), x_.touch(streams_, true);
      if (s_.copy_count == 0) return;
      const auto entry = s_.copies[0];
      x_.touch(content_[entry.slot], false), x_.touch(copied_[entry.slot], true), x_.touch(twin_[entry.twin], true);
      x_.note("completes", twin_[entry.twin], entry.step - 1u);
      x_.expect(complete(entry.slot, entry.step), "a slot was overwritten before its copy has completed");
      // The copy of a leased step itself may still be under way, behind that of an earlier one.
      x_.expect(s_.out[entry.twin] == 0 || entry.step <= s_.out[entry.twin], "a copy goes into a leased twin");
      for (std::uint32_t i = 0; i < s_.compute_count; ++i) {
        auto& waiting = s_.computes[i];
        x_.expect(waiting.twin != entry.twin || waiting.step >= entry.step, "a twin is overwritten before its use");
        if (waiting.waits != 0) --waiting.waits;
      }
      s_.twin_content[entry.twin] = entry.step;
      --s_.copying[entry.slot];
      for (std::uint32_t i = 1; i < s_.copy_count; ++i) s_.copies[i - 1] = s_.copies[i];
      s_.copies[--s_.copy_count] = {};
      x_.wake(copied_[entry.slot]);
    }
  }
  void run_computes() {
    for (;;) {
      x_.at(1);
      x_.await([this] { return s_.compute_count != 0 ? s_.computes[0].waits == 0 : all_left(); });
      x_.touch(done_, false), x_.touch(streams_, true);
      if (s_.compute_count == 0) return;
      const auto entry = s_.computes[0];
      x_.touch(twin_[entry.twin], true);
      x_.note("completes", twin_[entry.twin], entry.step - 1u);
      x_.expect(s_.twin_content[entry.twin] == entry.step, "a kernel finds another step in its twin");
      for (std::uint32_t i = 1; i < s_.compute_count; ++i) s_.computes[i - 1] = s_.computes[i];
      s_.computes[--s_.compute_count] = {};
      for (std::uint32_t i = 0; i < s_.copy_count; ++i)
        if (s_.copies[i].waits != 0) --s_.copies[i].waits;
      for (std::uint32_t i = 0; i < shape().device; ++i) {
        x_.touch(twin_[i], true);
        if (s_.twin_release[i] != 0) --s_.twin_release[i];
      }
    }
  }

  struct copy_entry {
    std::uint8_t step, slot, twin, waits;  // waits: for so many entries of the other stream
  };
  struct compute_entry {
    std::uint8_t step, twin, waits, unused;
  };
  // Bytes only, so without padding. Steps are held as step + 1; 0 is none.
  struct state {
    std::uint8_t content[most][2], failed[most], copying[most], out[most];
    std::uint8_t twin_step[most], twin_content[most], twin_failed[most], twin_release[most];
    copy_entry copies[queue];
    compute_entry computes[queue];
    std::uint8_t copy_count, compute_count;
    std::uint8_t bad[32];  // of the step: a range of it has failed
    std::uint8_t errors, stop, quit, gone, owners;
    std::uint8_t base, limit, steps, restarts, received, held, kept, kept_step, again, restarting, expected_copy,
        next_step, next_index, in_quiet;
  };

  explorer& x_;
  channel_settings set_;
  state s_{};
  std::uint8_t others_ = 0;  // fibers that are no streams
  object content_[most]{}, copied_[most]{}, twin_[most]{};
  object streams_ = 0, plan_ = 0, stop_ = 0, done_ = 0, errors_ = 0;
};

}  // namespace penstock::checker
