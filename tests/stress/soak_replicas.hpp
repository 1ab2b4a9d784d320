// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/observe/ledger.hpp>
#include <penstock/replicas.hpp>

#include "soak_weather.hpp"

namespace soak {

/// Ranks in lockstep, each with readers and depth of its own: one of them leaves, fails or stops somewhere, and another
/// number of ranks goes on from there. What they update is what the plan says.
class replicated {
 public:
  replicated(std::uint64_t seed, std::uint64_t round, std::shared_ptr<penstock::reader_pool> pool, tally& counts)
      : round_(round), pool_(std::move(pool)), counts_(counts), random_(seed, 0, round, penstock::random_domain::user) {
    n_ = 8 + random_.below(std::uint64_t{60});
    seed_ = random_();
    global_ = 1 + random_.below(std::uint64_t{8});
    last_ = static_cast<penstock::last_batch>(random_.below(3));
    const std::uint64_t block = 1 + random_.below(std::uint64_t{20});
    how_ = random_.below(2) == 0 ? penstock::shuffle::full : penstock::shuffle::blocks(block);
    if (random_.below(2) == 0) slow_every_ = 3 + random_.below(std::uint64_t{60});
    if (random_.below(2) == 0 && n_ > 40) {
      bad_every_ = 7 + random_.below(std::uint64_t{60});
      bad_at_ = random_.below(bad_every_);
      bad_ = static_cast<penstock::bad_samples>(random_.below(3));
    }
  }

  void play() {
    const place end{2 + random_.below(std::uint64_t{2}), 0};
    const auto reached = run({}, end, true);
    if (reached) run(*reached, {reached->epoch + 1, 0}, false);
  }
  std::string describe() const {
    return penstock::detail::concat(
        "round ", round_, ": ", ranks_, " ranks, ", n_, " samples, shuffle ", how_.is_full() ? "full" : "by ",
        how_.block(), ", batch ", global_, ", last ", static_cast<int>(last_), ", bad ", static_cast<int>(bad_),
        " every ", bad_every_, " at ", bad_at_, ", act ", static_cast<int>(act_), " of rank ", who_, " at epoch ",
        when_.epoch, " step ", when_.samples / global_, after_ ? " after" : " before", told_);
  }

 private:
  enum class act { none, leave, fail, stop, stop_feed };
  struct place {
    std::uint64_t epoch = 0, samples = 0;
    bool operator==(const place&) const = default;
  };
  struct step {
    place at;
    std::uint64_t count = 0;
    double sum = 0;
  };
  /// What a rank has seen of a step that counts.
  struct seen {
    std::uint64_t epoch = 0, step = 0;
    double sum = 0;                     // over all ranks
    std::vector<std::uint64_t> rows{};  // samples, bad ones as they are
  };
  struct outcome {
    std::vector<seen> steps;
    penstock::feed_state state;
    std::string wrong;
  };
  using rank = penstock::replica_of<penstock::local_world<>>;

  bool is_bad(std::uint64_t sample) const { return bad_every_ != 0 && sample % bad_every_ == bad_at_; }
  std::vector<std::uint64_t> order(std::uint64_t epoch) const {
    std::vector<std::uint64_t> all(n_);
    penstock::default_plan(n_, how_).order(seed_, epoch, 0, all);
    return all;
  }
  std::uint64_t bad_of(const step& one) const {
    const auto samples = order(one.at.epoch);
    std::uint64_t bad = 0;
    for (std::uint64_t i = 0; i < one.count; ++i) bad += is_bad(samples[one.at.samples + i]) ? 1 : 0;
    return bad;
  }
  bool fails(const step& one) const { return bad_ == penstock::bad_samples::fail && bad_of(one) != 0; }
  // All steps, with nobody's act.
  std::vector<step> steps_between(place from, place to) const {
    std::vector<step> out;
    for (place at = from; at.epoch < to.epoch; at = {at.epoch + 1, 0})
      for (; at.samples < n_; at.samples += global_) {
        const std::uint64_t count = std::min(global_, n_ - at.samples);
        if (count == global_ || last_ != penstock::last_batch::drop) out.push_back({at, count});
      }
    return out;
  }
  // Those whose update is made.
  std::vector<step> expected(const std::vector<step>& all, bool& failed, place& failed_at) const {
    std::vector<step> out;
    std::optional<std::uint64_t> left;
    for (const step& one : all) {
      if (left == one.at.epoch) continue;
      const std::uint64_t bad = bad_of(one);
      const bool here = act_ != act::none && one.at == when_;
      const bool is_empty = bad == one.count && bad_ == penstock::bad_samples::skip;
      if (fails(one) || (here && act_ == act::fail)) {
        failed = true;
        failed_at = one.at;
        if (here && after_ && !fails(one) && !is_empty) out.push_back(one);
        return out;
      }
      const bool counts = !here || after_ || act_ == act::stop_feed;
      if (counts && !is_empty) out.push_back(one);
      if (!here) continue;
      if (act_ != act::leave) return out;
      left = one.at.epoch;
    }
    return out;
  }

  /// Where the run stands, unless it failed.
  std::optional<place> run(place from, place to, bool acts) {
    ranks_ = 2 + static_cast<int>(random_.below(2));
    const auto all = steps_between(from, to);
    act_ = acts ? static_cast<act>(random_.below(5)) : act::none;
    who_ = random_.below(static_cast<std::uint64_t>(ranks_));
    after_ = random_.below(2) == 0;
    if (all.empty()) act_ = act::none;
    if (act_ != act::none) {
      const auto which = static_cast<std::size_t>(random_.below(all.size()));
      when_ = all[which].at;
      // What takes effect with the next step meets an error there, or does not, as it is of one rank or another.
      const bool at_the_next = after_ || act_ == act::stop_feed;
      if (at_the_next && which + 1 < all.size() && fails(all[which + 1])) act_ = act::none;
    }
    bool failed = false;
    place failed_at;
    const auto wanted = expected(all, failed, failed_at);

    std::vector<outcome> outcomes(static_cast<std::size_t>(ranks_));
    std::vector<std::shared_ptr<weather>> at;
    std::vector<penstock::read_options> reading;
    std::vector<penstock::transfer_options<penstock::cpu_device>> transfers;
    const bool shared = random_.below(6) == 0;
    told_.clear();
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
      at.push_back(std::make_shared<weather>(n_));
      reading.push_back(draw_reading(*at.back(), shared));
      transfers.push_back(
          {.depth = random_.below(4) == 0 ? penstock::automatic : 1 + static_cast<int>(random_.below(4))});
      told_ += penstock::detail::concat(", rank ", r, ": ", reading.back().readers, " readers, late ",
                                        static_cast<int>(reading.back().late), ", depth ", transfers.back().depth);
    }
    const std::uint64_t listening = random_.below(std::uint64_t{4});
    const auto body = [&](rank& mine) {
      outcome& to_tell = outcomes[mine.rank()];
      try {
        penstock::ledger ledger;
        loop(mine, from, to, at[mine.rank()], reading[mine.rank()], transfers[mine.rank()],
             listening == mine.rank() ? &ledger : nullptr, to_tell);
      } catch (const wrong& caught) {
        to_tell.wrong = caught.what;
        throw std::logic_error(caught.what);
      }
    };
    ++counts_.runs;
    std::optional<penstock::replica_error> error;
    penstock::replica_summary summary;
    try {
      summary = penstock::replicas(ranks_, body, {.timeout = std::chrono::seconds(100)});
    } catch (const penstock::replica_error& caught) {
      error.emplace(caught);
    }
    for (const auto& one : at) counts_.stuck += one->stuck.caught();
    for (const outcome& one : outcomes) check(one.wrong.empty(), one.wrong);
    check(failed == error.has_value(), error ? error->what() : "no error", failed ? ", wanted one" : ", wanted none");
    if (failed) {
      ++counts_.ranks_failed;
      check(error->where().epoch == failed_at.epoch && error->where().step == failed_at.samples / global_,
            "an error at another place: ", error->what());
    }
    compare(wanted, outcomes);
    if (failed) return {};
    for (const outcome& one : outcomes)
      check(one.state == summary.state, "a rank stands at ", one.state.text(), ", wanted ", summary.state.text());
    return place{summary.state.epoch, summary.state.samples};
  }

  penstock::read_options draw_reading(weather& of, bool shared) {
    penstock::read_options to;
    of.slow_every = slow_every_;
    of.bad_every = bad_every_;
    of.bad_at = bad_at_;
    of.stuck.every = 3 + random_.below(std::uint64_t{40});
    of.stuck.at = random_.below(of.stuck.every);
    of.stuck.longer = random_.below(std::uint64_t{3});
    to.bad = bad_;
    if (bad_ != penstock::bad_samples::fail) to.most_bad = ~std::uint64_t{0};
    if (shared) {
      to.shared = pool_;
      return to;
    }
    const std::uint64_t readers = random_.below(std::uint64_t{5});
    to.readers = readers < 4 ? static_cast<int>(readers) : penstock::automatic;
    if (to.readers != penstock::automatic && to.readers < 2) return to;
    to.timeout = std::chrono::seconds(100);
    if (random_.below(2) == 0) return to;
    read_again(to, random_);
    of.stuck.allow(to.readers == penstock::automatic ? 1 : to.readers - 1);
    return to;
  }

  void loop(rank& mine, place from, place to, const std::shared_ptr<weather>& at, const penstock::read_options& reading,
            const penstock::transfer_options<penstock::cpu_device>& depth, penstock::ledger* ledger, outcome& out) {
    auto feed = mine.start(
        table{n_, at} | penstock::partition({.seed = seed_, .shuffle = how_, .world = mine}) |
        penstock::read(reading, [](const auto& sample, penstock::philox& random) { draw_for(sample, random); }) |
        penstock::batch({.global = static_cast<std::int64_t>(global_), .last = last_}) |
        penstock::transfer(mine.device(), depth));
    if (ledger != nullptr) feed.observe(*ledger);
    if (from.epoch != 0 || from.samples != 0) {
      penstock::feed_state state = feed.state();
      state.epoch = from.epoch;
      state.samples = from.samples;
      feed.resume(state);
    }
    snare& stuck = at->stuck;
    struct let_go {
      snare& whom;
      ~let_go() { whom.let_go(); }
    };
    for (std::uint64_t epoch = from.epoch; epoch < to.epoch && !mine.stopped(); ++epoch) {
      auto range = feed.epoch(epoch);
      stuck.set();
      const let_go at_the_end{stuck};
      for (auto& batch : range) {
        for (const std::uint64_t index : batch.indices()) stuck.comes(index);
        for (const auto& fault : batch.faults()) stuck.comes(fault.sample);
        stuck.batch_has_come();
        double sum[1] = {0};
        seen one{epoch, batch.step(), 0, look_at(batch, epoch, sum[0])};
        const bool here =
            act_ != act::none && mine.rank() == who_ && epoch == when_.epoch && batch.step() == when_.samples / global_;
        const auto acted = [&] {
          if (act_ == act::fail) throw std::domain_error("as was drawn");
          if (act_ == act::stop) mine.stop();
          if (act_ == act::stop_feed) feed.stop();
          return act_ == act::leave;
        };
        if (here && !after_ && acted()) break;
        if (mine.all_reduce(batch, penstock::buffer(std::span(sum), penstock::reduction::sum))) {
          one.sum = sum[0];
          out.steps.push_back(std::move(one));
        }
        if (here && after_ && acted()) break;
      }
    }
    double ones[1] = {1};
    mine.sum(ones);  // all are at the same place
    check(ones[0] == ranks_, "a sum of ones is ", ones[0], ", wanted ", ranks_);
    check(feed.state() == mine.state(), "the feed stands at ", feed.state().text(), ", the rank at ",
          mine.state().text());
    out.state = mine.state();
  }
  // The batch's samples, those that were replaced as they would be; `sum` is of those that are there.
  template <class Batch>
  std::vector<std::uint64_t> look_at(const Batch& batch, std::uint64_t epoch, double& sum) const {
    const auto numbers = batch.template host<0>();
    std::vector<std::uint64_t> rows(batch.indices().begin(), batch.indices().end());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      penstock::philox random(seed_, epoch, rows[i]);
      check(numbers[i] == (rows[i] << 32 | random()), "row ", i, " holds something else than sample ", rows[i]);
      sum += static_cast<double>(rows[i]);
    }
    for (const auto& fault : batch.faults()) {
      check(is_bad(fault.sample), "sample ", fault.sample, " is good");
      if (fault.substitute)
        rows.at(fault.row) = fault.sample;
      else
        rows.push_back(fault.sample);
    }
    std::ranges::sort(rows);
    return rows;
  }
  void compare(const std::vector<step>& wanted, const std::vector<outcome>& outcomes) {
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
      const auto& steps = outcomes[r].steps;
      check(steps.size() == wanted.size(), "rank ", r, " made ", steps.size(), " updates, wanted ", wanted.size());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const auto& [at, count, unused] = wanted[i];
        check(steps[i].epoch == at.epoch && steps[i].step == at.samples / global_, "rank ", r, "'s update ", i,
              " is of epoch ", steps[i].epoch, " step ", steps[i].step, ", wanted epoch ", at.epoch, " step ",
              at.samples / global_);
        const auto samples = order(at.epoch);
        const auto share = penstock::rank_share(at.samples, count, {r, outcomes.size()});
        std::vector<std::uint64_t> rows(samples.begin() + static_cast<std::ptrdiff_t>(share.first),
                                        samples.begin() + static_cast<std::ptrdiff_t>(share.first + share.count));
        std::ranges::sort(rows);
        check(steps[i].rows == rows, "rank ", r, "'s update ", i, " is of other samples");
        check(steps[i].sum == outcomes[0].steps[i].sum, "rank ", r, "'s update ", i, " has another sum than rank 0's");
        double sum = 0;
        for (std::uint64_t k = 0; k < count; ++k) sum += static_cast<double>(samples[at.samples + k]);
        check(bad_every_ != 0 || steps[i].sum == sum, "update ", i, " has the sum ", steps[i].sum, ", wanted ", sum);
        ++counts_.batches;
      }
    }
  }

  std::uint64_t round_;
  std::shared_ptr<penstock::reader_pool> pool_;
  tally& counts_;
  penstock::philox random_;
  std::uint64_t n_ = 0, seed_ = 0, global_ = 1, slow_every_ = 0, bad_every_ = 0, bad_at_ = 0;
  penstock::last_batch last_ = penstock::last_batch::keep;
  penstock::shuffle how_ = penstock::shuffle::full;
  penstock::bad_samples bad_ = penstock::bad_samples::fail;
  int ranks_ = 2;
  act act_ = act::none;
  std::uint64_t who_ = 0;
  place when_;
  bool after_ = false;
  std::string told_;
};

}  // namespace soak
