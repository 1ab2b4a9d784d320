// SPDX-License-Identifier: Apache-2.0
// How much of a GPU's time is a training loop's? Batches are read on the host, copied to the device and worked on by a
// kernel: the rate of copies through the pipeline over that of copies alone, the longest stage's time over a step's for
// equal and unequal stages, what a step costs the host, and how late the end of a copy is noticed. Needs a GPU: without
// one it says so and exits with 77.
//
// `efficiency` is the longest stage's time alone over the time of a step, on the device's own clock, once the pipeline
// is full; `whole` is the same with filling and draining. Of `host_*` it is the launch's part of what a step costs the
// host, of `notice_*` the part of the time until the wait's return that had to be waited for.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <contest.hpp>

#include "contestants.hpp"
#include "host_side.hpp"

namespace {

using namespace gpu_overlap;

/// One kind of step, and all that is needed to run it, made when the first contestant wants it and kept.
class testbed {
 public:
  testbed(const penstock::cuda_device& device, const step_kind& kind, double step_us, int depth, int readers)
      : device_(device),
        kind_(kind),
        step_us_(step_us),
        depth_(depth),
        readers_(readers),
        warm_(static_cast<std::uint64_t>(2 * depth + 4)) {}

  gpu_overlap::ours& ours() {
    if (!ours_) ours_ = std::make_unique<gpu_overlap::ours>(device_, kind_, warm_ + steps(100), depth_, readers_);
    return *ours_;
  }
  gpu_overlap::by_hand& by_hand() {
    if (!by_hand_) by_hand_ = std::make_unique<gpu_overlap::by_hand>(device_, kind_, depth_);
    return *by_hand_;
  }
  std::uint64_t warm() const { return warm_; }
  /// As many as take about so long if all goes well.
  std::uint64_t steps(double milliseconds) const {
    return static_cast<std::uint64_t>(std::clamp(1e3 * milliseconds / step_us_, 10.0, 4000.0));
  }
  /// The longest stage's time, each measured alone: now, and whenever this was asked before; of these the median.
  nanoseconds longest_alone() {
    const int rounds = static_cast<int>(std::clamp(5e3 / step_us_, 3.0, 100.0));
    nanoseconds longest = std::max(kind_.read, by_hand().copy_alone(rounds));
    if (kind_.kernel.count() != 0) longest = std::max(longest, by_hand().kernel_alone(rounds));
    alone_.push_back(microseconds(longest));
    return from_microseconds(middle(alone_));
  }
  std::size_t bytes() const { return kind_.bytes; }

 private:
  penstock::cuda_device device_;
  step_kind kind_;
  double step_us_;
  int depth_, readers_;
  std::uint64_t warm_;
  std::vector<double> alone_;
  std::unique_ptr<gpu_overlap::ours> ours_;
  std::unique_ptr<gpu_overlap::by_hand> by_hand_;
};

struct stage_case {
  std::string name;
  double read, copy, kernel;  // microseconds
};

std::vector<stage_case> cases_of(contest::sizes& given) {
  if (given.given("read-us") || given.given("copy-us") || given.given("kernel-us"))
    return {{"own", given.number("read-us", 500), given.number("copy-us", 500, 1), given.number("kernel-us", 500)}};
  return {{"100", 100, 100, 100},
          {"500", 500, 500, 500},
          {"2000", 2000, 2000, 2000},
          {"5000", 5000, 5000, 5000},
          {"400_100_500", 400, 100, 500},
          {"200_1000_500", 200, 1000, 500},
          {"2000_500_1000", 2000, 500, 1000}};
}

/// Gigabytes a second of pinned memory to the device, in large pieces.
double copy_rate(const penstock::cuda_device& device) {
  const step_kind kind{step_kind::round(64e6), {}, {}};
  by_hand own(device, kind, 2);
  own.copy_alone(4);
  return static_cast<double>(kind.bytes) / static_cast<double>(own.copy_alone(16).count());
}

void add_stages(contest::question& ask, const std::string& name, const std::shared_ptr<testbed>& bed) {
  const auto add = [&](const std::string& contestant, std::function<outcome()> run) {
    ask.add(contestant + "_" + name, [bed, run = std::move(run)] {
      const nanoseconds longest = bed->longest_alone();
      const outcome result = run();
      return contest::figures{microseconds(longest) / microseconds(result.period),
                              {{"whole", microseconds(longest) / microseconds(result.wall)},
                               {"cores", result.cores},
                               {"longest_us", microseconds(longest)},
                               {"step_us", microseconds(result.period)}}};
    });
  };
  add("ours", [bed] { return bed->ours().run(bed->warm()); });
  add("hand", [bed] { return bed->by_hand().two_streams(bed->warm(), bed->warm() + bed->steps(100)); });
  add("one_stream", [bed] { return bed->by_hand().one_stream(bed->warm(), bed->warm() + bed->steps(40)); });
  add("no_overlap", [bed] { return bed->by_hand().nothing_overlaps(2, 2 + bed->steps(40)); });
}

void add_rate(contest::question& ask, const std::string& name, const std::shared_ptr<testbed>& bed) {
  const auto add = [&](const std::string& contestant, std::function<outcome()> run) {
    ask.add(contestant + "_" + name, [bed, run = std::move(run)] {
      const nanoseconds alone = bed->longest_alone();
      const outcome result = run();
      return contest::figures{
          microseconds(alone) / microseconds(result.period),
          {{"GB_per_s", static_cast<double>(bed->bytes()) / static_cast<double>(result.period.count())},
           {"cores", result.cores}}};
    });
  };
  add("rate_ours", [bed] { return bed->ours().run(bed->warm()); });
  add("rate_hand", [bed] { return bed->by_hand().two_streams(bed->warm(), bed->warm() + bed->steps(100)); });
  add("rate_copies", [bed] { return bed->by_hand().copies_alone(bed->warm(), bed->warm() + bed->steps(60)); });
}

void add_host_side(contest::question& ask, const penstock::cuda_device& device) {
  // So deep that the host never waits for the device within a burst.
  constexpr int depth = 32;
  constexpr std::uint64_t steps = 2400;
  static_assert(host_watch::burst < depth);
  const step_kind kind{4096, {}, {}};
  const auto figures = [](const host_cost& of) {
    return contest::figures{of.launch_us / (of.launch_us + of.step_us),
                            {{"host_us", of.step_us},
                             {"host_mean_us", of.mean_us},
                             {"host_cpu_us", of.cpu_us},
                             {"launch_us", of.launch_us}}};
  };
  const auto run = [figures](gpu_overlap::ours& those) {
    host_watch watch(steps);
    those.loop([&](auto& batch) { watch.body(batch.stream()); });
    return figures(watch.result());
  };
  for (const int readers : {0, 1}) {
    const auto bed = std::make_shared<std::unique_ptr<gpu_overlap::ours>>();
    ask.add(readers == 0 ? "host_ours_inline" : "host_ours_reader", [=] {
      if (!*bed) *bed = std::make_unique<gpu_overlap::ours>(device, kind, steps, depth, readers);
      return run(**bed);
    });
  }
  const auto bed = std::make_shared<std::unique_ptr<by_hand>>();
  ask.add("host_hand", [=] {
    if (!*bed) *bed = std::make_unique<by_hand>(device, kind, depth);
    host_watch watch(steps);
    (*bed)->in_one_thread(steps, [&](auto enqueue) { enqueue([&](cudaStream_t stream) { watch.body(stream); }); });
    return figures(watch.result());
  });
}

void add_notice(contest::question& ask, const penstock::cuda_device& device) {
  const auto bed = std::make_shared<std::unique_ptr<notice>>();
  for (const int length : {10, 100, 500, 2000}) {
    const auto time = std::chrono::microseconds(length);
    const int rounds = std::clamp(20'000 / length, 15, 200);
    const auto add = [&](const std::string& contestant, double (notice::*measure)(nanoseconds, int)) {
      ask.add("notice_" + contestant + "_" + std::to_string(length), [=] {
        if (!*bed) *bed = std::make_unique<notice>(device);
        const double late = ((**bed).*measure)(time, rounds);
        return contest::figures{length / (length + late), {{"notice_us", late}}};
      });
    };
    add("ours", &notice::by_us);
    add("awake", &notice::awake);
    add("blocking", &notice::blocking);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (!penstock::cuda_device::is_available()) {
    std::puts("gpu_overlap: left out: no GPU that the CUDA driver can use");
    return 77;
  }
  contest::question ask("gpu_overlap", "efficiency", argc, argv);
  std::vector<stage_case> cases;
  bool all = false;
  ask.guarded([&] {
    const penstock::cuda_device device({.device = 0, .find_mistakes = false});
    const int depth = ask.sizes.integer("depth", default_depth());
    const int readers = ask.sizes.integer("readers", 1);
    cases = cases_of(ask.sizes);
    all = cases.size() > 1;
    device.bind_thread();
    const double rate = copy_rate(device);
    ask.fact("device", device.describe());
    ask.fact("copies", contest::table::text(rate) + " GB/s of pinned memory to the device, in pieces of 64 MB");
    ask.fact("sizes", std::to_string(readers) + (readers == 1 ? " reader" : " readers") + " of ours, depth " +
                          std::to_string(depth) + "; the rivals have one, where they have any");
    ask.fact("reading", "takes its CPU, as decoding does: it is 1 of `cores`");

    for (const stage_case& each : cases) {
      const step_kind kind{step_kind::round(each.copy * rate * 1e3), from_microseconds(each.read),
                           from_microseconds(each.kernel)};
      add_stages(
          ask, each.name,
          std::make_shared<testbed>(device, kind, std::max({each.read, each.copy, each.kernel}), depth, readers));
    }
    if (!all) return;
    for (const auto& [name, bytes] :
         {std::pair("256K", 1 << 18), {"1M", 1 << 20}, {"4M", 4 << 20}, {"16M", 16 << 20}}) {
      const step_kind kind{static_cast<std::size_t>(bytes), {}, {}};
      add_rate(ask, name, std::make_shared<testbed>(device, kind, bytes / (rate * 1e3), depth, readers));
    }
    add_host_side(ask, device);
    add_notice(ask, device);
    const stage_case& again = cases[1];
    const step_kind kind{step_kind::round(again.copy * rate * 1e3), from_microseconds(again.read),
                         from_microseconds(again.kernel)};
    const auto bed = std::make_shared<testbed>(device, kind, again.copy, depth, readers);
    ask.add("ours_again", [bed] {
      return contest::figures{microseconds(bed->longest_alone()) / microseconds(bed->ours().run(bed->warm()).period)};
    });
  });

  return ask.run([&](contest::line& line) {
    if (all)
      for (const std::string size : {"256K", "1M", "4M", "16M"})
        line.ratio("rate" + size, "rate_ours_" + size, "rate_copies_" + size, "GB_per_s");
    for (const stage_case& each : cases) {
      line.value("eff" + each.name, "ours_" + each.name);
      line.ratio("over_hand" + each.name, "ours_" + each.name, "hand_" + each.name);
    }
    if (!all) return;
    line.value("host_us", "host_ours_inline", "host_us");
    line.value("host_reader_us", "host_ours_reader", "host_us");
    line.value("notice100_us", "notice_ours_100", "notice_us");
    line.value("notice2000_us", "notice_ours_2000", "notice_us");
    line.again("ours_500", "ours_again");
  });
}
