// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <penstock/stage/plan.hpp>

namespace penstock::detail {

/// Which samples the steps of a feed's life are: a pure function of the step, of where the count began, and of the
/// shape of an epoch. So readers need nothing but a step's number to know what to read, in this epoch and in the next
/// ones.
class epoch_map {
 public:
  struct place {
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;    // of the epoch
    position_range mine{};     // this replica's positions
    std::uint64_t next = 0;    // position after the step
    std::uint64_t global = 0;  // samples of the step over all replicas
  };

  epoch_map() = default;
  epoch_map(step_shape whole, world where) : whole_(whole), world_(where), steps_(whole.steps()) {}

  /// From `base` on the feed is in `epoch`, at `position`.
  void begin(std::uint64_t base, std::uint64_t epoch, std::uint64_t position) {
    base_ = base;
    epoch_ = epoch;
    first_ = whole_;
    first_.start = position;
    first_steps_ = first_.steps();
  }

  /// Of an epoch begun at its beginning.
  std::uint64_t steps_per_epoch() const { return steps_; }
  /// Steps of the epoch that the feed began in.
  std::uint64_t first_steps() const { return first_steps_; }
  std::uint64_t base() const { return base_; }
  std::uint64_t first_epoch() const { return epoch_; }
  world where() const { return world_; }
  /// Of an epoch begun at its beginning.
  const step_shape& whole() const { return whole_; }

  place operator()(std::uint64_t step) const {
    std::uint64_t k = step - base_;
    if (k < first_steps_) {
      // Steps keep the numbers that they would have had in an unbroken epoch. Begun within a step of this shape, by a
      // feed of another batch, they count from that step on, and are never more than a whole epoch's.
      return at(first_, epoch_, k, k + first_.start / whole_.batch);
    }
    k -= first_steps_;
    return at(whole_, epoch_ + 1 + k / steps_, k % steps_, k % steps_);
  }
  /// How many steps of its epoch come after `step`.
  std::uint64_t left_in_epoch(std::uint64_t step) const {
    const std::uint64_t k = step - base_;
    return k < first_steps_ ? first_steps_ - 1 - k : steps_ - 1 - (k - first_steps_) % steps_;
  }
  /// The step that `epoch` ends before, counted as `base` is. Needs an epoch not before the one begun.
  std::uint64_t end_of(std::uint64_t epoch) const { return base_ + first_steps_ + (epoch - epoch_) * steps_; }
  /// Positions from here on make no step of this epoch.
  bool at_end(std::uint64_t position) const {
    step_shape rest = whole_;
    rest.start = position;
    return rest.steps() == 0;
  }

 private:
  place at(const step_shape& shape, std::uint64_t epoch, std::uint64_t k, std::uint64_t number) const {
    const position_range all = shape.step(k);
    return {epoch, number, rank_share(all.first, all.count, world_), all.first + all.count, all.count};
  }

  step_shape whole_{};
  step_shape first_{};
  world world_{};
  std::uint64_t steps_ = 0;
  std::uint64_t first_steps_ = 0;
  std::uint64_t base_ = 0;
  std::uint64_t epoch_ = 0;
};

/// Follows the steps of a map in order, without dividing; what one reader has of it. Begins anew after `reset`.
class epoch_cursor {
 public:
  void reset() noexcept { *this = {}; }
  const epoch_map::place& at(const epoch_map& map, std::uint64_t step) {
    if (step == step_ + 1 && whole_ != 0) {
      // As many samples as the step before, and as many of them this replica's.
      here_.step += 1;
      here_.mine.first += here_.global;
      here_.next += here_.global;
      --whole_;
    } else if (step != step_) {
      here_ = map(step);
      // The epoch's last step may have fewer.
      const std::uint64_t left = map.left_in_epoch(step);
      whole_ = left == 0 ? 0 : left - 1;
    }
    step_ = step;
    return here_;
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0} - 1;

  epoch_map::place here_{};
  std::uint64_t step_ = none;
  std::uint64_t whole_ = 0;  // steps after this one that are like it
};

}  // namespace penstock::detail
