// SPDX-License-Identifier: Apache-2.0
// packages: libtbb-dev
// How much of the time is the longest stage at work? Read, copy and compute of known lengths on a modelled device,
// whose engines run beside the host: efficiency = batches x longest stage / wall, from the first read to the host's
// notice of the last kernel's end. The longest stage is measured alone before each run.
//
//   overlap [--timeline FILE.svg]   draws the run of ours at 100 us, too, with its Chrome trace in FILE.json
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <contest.hpp>
#include <penstock/observe/ledger.hpp>
#include <penstock/observe/timeline.hpp>
#include <penstock/observe/trace.hpp>

#include "contestants.hpp"
#include "stages.hpp"
#include "tbb.hpp"

namespace {

using namespace overlap;

struct named_case {
  std::string name;
  stage_times times;
};

/// Runs of 0.1 s and more: a disturbance shows, and the fill weighs little. `batches` is the same for all contestants.
named_case a_case(double read, double copy, double kernel, std::uint64_t batches) {
  const auto text = [](double time) { return std::to_string(static_cast<int>(time)); };
  const bool equal = read == copy && copy == kernel;
  return {equal ? text(read) : text(read) + "_" + text(copy) + "_" + text(kernel),
          {from_microseconds(read), from_microseconds(copy), from_microseconds(kernel), batches}};
}
std::vector<named_case> cases_of(contest::sizes& given) {
  const bool own = given.given("read-us") || given.given("copy-us") || given.given("kernel-us");
  if (!own)
    return {a_case(20, 20, 20, 5000), a_case(100, 100, 100, 1500), a_case(500, 500, 500, 300),
            a_case(2000, 2000, 2000, 100), a_case(400, 100, 500, 800)};
  const double read = given.number("read-us", 100), copy = given.number("copy-us", 100),
               kernel = given.number("kernel-us", 100);
  const double longest = std::max({read, copy, kernel, 1.0});
  return {a_case(read, copy, kernel, static_cast<std::uint64_t>(std::clamp(2e5 / longest, 50.0, 5000.0)))};
}

}  // namespace

int main(int argc, char** argv) {
  contest::question ask("overlap", "efficiency", argc, argv);
  const nanoseconds notice = measured_notice();
  sizes of{};
  std::vector<named_case> cases;
  int depth = 0;
  std::string picture;
  ask.guarded([&] {
    of = {static_cast<std::size_t>(ask.sizes.integer("batch", 16)),
          static_cast<std::size_t>(ask.sizes.integer("row", 8, 8)) / 8 * 8, ask.sizes.integer("readers", 1, 0)};
    depth = ask.sizes.integer("depth", default_depth());
    cases = cases_of(ask.sizes);
    picture = ask.sizes.text("timeline", "");
  });
  ask.fact("notice", contest::table::text(microseconds(notice)) +
                         " us, the median of how late sleeps of 50 us return; modelled on every host wait that blocks");
  ask.fact("events", "3 us from an event to what another stream starts after it");
  ask.fact("sleeps",
           "hand and oneTBB run with timers as fine as the system has (slack of 1 ns), ours as a program begins");
  ask.fact("reading", "takes its CPU, as decoding does: it is 1 of `cores`");
  ask.fact("sizes", std::to_string(of.readers) + (of.readers == 1 ? " reader, depth " : " readers, depth ") +
                        std::to_string(depth) + ", batches of " + std::to_string(of.bytes()) + " bytes");

  using contestant = outcome (*)(const stage_times&, const sizes&, nanoseconds, int);
  const auto add = [&](const std::string& name, contestant run, const named_case& which, int buffers) {
    const bool expert = name.starts_with("hand") || name.starts_with("tbb");
    ask.add(name + "_" + which.name, [=] {
      const nanoseconds longest = longest_alone(which.times, of);
      fine_timers(expert);
      const outcome result = run(which.times, of, notice, buffers);
      const double wall = microseconds(result.wall);
      const double needed = microseconds(longest) * static_cast<double>(which.times.batches);
      return contest::figures{needed / wall,
                              {{"ceiling", needed / microseconds(least_time(which.times, longest, notice, buffers))},
                               {"cores", result.cpu_seconds / (wall * 1e-6)},
                               {"longest_us", microseconds(longest)}}};
    });
  };
  const contestant by_us = [](const stage_times& times, const sizes& all, nanoseconds late, int buffers) {
    return ours(times, all, late, buffers);
  };
  const contestant inline_by_us = [](const stage_times& times, const sizes& all, nanoseconds late, int buffers) {
    return ours(times, {all.batch, all.row, 0}, late, buffers);
  };
  const contestant watched = [](const stage_times& times, const sizes& all, nanoseconds late, int buffers) {
    penstock::ledger ledger;
    return ours(times, all, late, buffers, ledger);
  };
  for (const named_case& each : cases) {
    add("ours", by_us, each, depth);
    add("ours_ledger", watched, each, depth);
    if (of.readers != 0) add("ours_inline", inline_by_us, each, depth);
    if (depth != 2) add("ours_d2", by_us, each, 2);
    if (depth != 3) add("ours_d3", by_us, each, 3);
    add("hand", hand, each, depth);
    add("hand_fused", hand_fused, each, depth);
#if OVERLAP_TBB
    add("tbb_natural", tbb_natural, each, 4);
    for (const int tokens : {3, 4, 6}) add("tbb_ordered_" + std::to_string(tokens), tbb_ordered, each, tokens);
#endif
  }
#if OVERLAP_TBB
  ask.rival("oneTBB", TBB_VERSION_STRING);
#else
  ask.left_out("oneTBB", "no libtbb-dev");
#endif
  const named_case& drawn = cases.size() == 1 ? cases[0] : cases[1];
  add("ours_again", by_us, drawn, depth);
  add("hand_d2", hand, drawn, 2);
  if (cases.size() > 1)
    add(
        "first_program",
        [](const stage_times& times, const sizes& all, nanoseconds late, int) {
          return first_program(times, all, late);
        },
        drawn, default_depth());

  const int status = ask.run([&](contest::line& line) {
    const auto by_hand = [&](const std::string& name) {
      return ask.results().greatest({"hand_" + name, "hand_fused_" + name});
    };
    if (cases.size() == 1) {
      const std::string& name = drawn.name;
      line.value("eff" + name, "ours_" + name);
      line.ratio("over_hand", "ours_" + name, by_hand(name));
    } else {
      line.value("eff20", "ours_20");
      for (const std::string name : {"100", "500", "2000"}) line.ratio("eff" + name, "ours_" + name, by_hand(name));
      line.value("eff400_100_500", "ours_400_100_500");
    }
    line.ratio("ledger", "ours_ledger_" + drawn.name, "ours_" + drawn.name);
    line.value("cores", "ours_" + drawn.name, "cores");
    if (cases.size() > 1) line.value("first_program100", "first_program_100");
    line.again("ours_" + drawn.name, "ours_again_" + drawn.name);
  });
  if (picture.empty()) return status;
  ask.guarded([&] {
    const std::filesystem::path trace = std::filesystem::path(picture).replace_extension(".json");
    const auto text = [](nanoseconds time) { return std::to_string(time.count() / 1000); };
    const stage_times& times = drawn.times;
    const std::string title = "Read " + text(times.read) + " us, copy " + text(times.copy) + " us, compute " +
                              text(times.kernel) + " us a batch, " + std::to_string(depth) + " buffers";
    ours(times, of, notice, depth, penstock::timeline(picture, {.steps = 8, .title = title}),
         penstock::chrome_trace(trace.string()));
    std::printf("the schedule of a further run is drawn in %s, its trace is in %s\n", picture.c_str(), trace.c_str());
  });
  return status;
}
