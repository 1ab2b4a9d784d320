// SPDX-License-Identifier: Apache-2.0
// How fast would a training be on hardware that one does not have? `planner --help`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

#include "check.hpp"
#include "predict.hpp"

namespace {

using planner::nanoseconds, planner::plan;

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// Times may be given as such, or as sizes and rates.
struct input {
  plan to;
  double read_us = 0, copy_us = 0, compute_us = 0, reduce_us = 0, event_latency_us = 3, notice_us = 30;
  double sample_bytes = 0, flops_per_sample = 0, reduce_bytes = 0;
  double read_gbps = unlimited, copy_gbps = unlimited, tflops = unlimited, reduce_gbps = unlimited;
  bool check = false;

  void complete() {
    const auto time = [](double us, double amount, double giga) {
      return planner::time_of(us, 1e6) + planner::time_of(amount, giga * 1e9);
    };
    to.read = time(read_us, to.batch * sample_bytes, read_gbps);
    to.copy = time(copy_us, to.batch * sample_bytes, copy_gbps);
    to.compute = time(compute_us, to.batch * flops_per_sample, tflops * 1e3);
    to.reduce = time(reduce_us, planner::ring_traffic(reduce_bytes, to.replicas), reduce_gbps);
    to.event_latency = planner::time_of(event_latency_us, 1e6);
    to.notice = planner::time_of(notice_us, 1e6);
    if (to.replicas == 1 && (reduce_us > 0 || reduce_bytes > 0))
      throw std::invalid_argument("1 replica has nothing to reduce with: wanted --replicas 2 or more, or no reduce");
    if (to.longest() == nanoseconds(0))
      throw std::invalid_argument("all stages take no time, wanted at least one of --read-us, --copy-us, --compute-us");
  }
};

void parse(int argc, char** argv, input& in) {
  CLI::App app{
      "Predicts how well reading, copying, computing and reducing overlap, by running penstock's channel on modelled\n"
      "devices in simulated time. A stage takes a time for each batch, or follows from sizes and rates (1 GB: 1e9 "
      "bytes)"};
  const auto number = [&](const char* name, double& value, const char* meaning) {
    const auto check = [](const std::string& text) {
      double found = -1;
      return CLI::detail::lexical_cast(text, found) && found >= 0 ? std::string()
                                                                  : text + ", wanted a number from 0 on";
    };
    return app.add_option(name, value, meaning)->check(check)->capture_default_str();
  };
  const auto count = [&](const char* name, int& value, const char* meaning, int least, int most) {
    app.add_option(name, value, meaning)->check(CLI::Range(least, most))->capture_default_str();
  };
  const auto either = [](CLI::Option* time, CLI::Option* amount, CLI::Option* rate) {
    rate->needs(amount);
    time->excludes(rate);
  };
  auto* bytes = number("--sample-bytes", in.sample_bytes, "bytes of a sample");
  auto* work = number("--flops-per-sample", in.flops_per_sample, "operations of a sample's training step");
  auto* gradients = number("--reduce-bytes", in.reduce_bytes, "bytes of the gradients");
  either(number("--read-us", in.read_us, "reading of a batch by one reader"), bytes,
         number("--read-gbps", in.read_gbps, "GB/s of one reader"));
  either(number("--copy-us", in.copy_us, "its copy to the device"), bytes,
         number("--copy-gbps", in.copy_gbps, "GB/s of copies to the device"));
  either(number("--compute-us", in.compute_us, "its computation on the device"), work,
         number("--tflops", in.tflops, "1e12 operations a second of the device"));
  either(number("--reduce-us", in.reduce_us, "all-reduce of its gradients, behind the computation"), gradients,
         number("--reduce-gbps", in.reduce_gbps, "GB/s between replicas, which reduce in a ring"));
  number("--event-latency-us", in.event_latency_us, "from one stream to another");
  number("--notice-us", in.notice_us, "until a waiting thread notices the end of a copy");
  count("--batch", in.to.batch, "samples in a batch of one replica", 1, 1 << 30);
  count("--readers", in.to.readers, "threads that read for one replica; 0: the consumer's", 0, 256);
  count("--depth", in.to.depth, "buffers on the device, and on the host", 1, 64);
  count("--host-depth", in.to.host_depth, "buffers on the host; 0: as depth", 0, 64);
  count("--replicas", in.to.replicas, "devices that train together", 1, 256);
  count("--steps", in.to.steps, "batches of each replica", 1, 1'000'000);
  app.add_option("--spread", in.to.spread, "share by which reads and computations vary")->check(CLI::Range(0.0, 1.0));
  app.add_flag("--check", in.check, "compare predictions with closed forms and measured runs instead");
  app.get_formatter()->column_width(32);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {  // --help, too
    std::exit(app.exit(end));
  }
}

double us(nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

/// The changes that would make a step shorter.
void print_hints(const plan& of, double step_ns) {
  bool any = false;
  const auto hint = [&](const char* option, int plan::* what, int value, int most, double than_ns) {
    plan changed = of;
    changed.*what = value;
    changed.steps = 500;
    const double changed_ns = value > most ? step_ns : planner::predict(changed).steady_ns;
    if (changed_ns > 0.99 * than_ns) return step_ns;
    std::printf("would help   %s %d: one in %.1f us\n", option, value, changed_ns / 1e3);
    any = true;
    return changed_ns;
  };
  const double one_more_ns = hint("--readers", &plan::readers, of.readers + 1, 256, step_ns);
  if (const auto device = of.longest_on_device(); device > nanoseconds(0)) {
    const auto enough = static_cast<int>(std::min<std::int64_t>((of.read + device - nanoseconds(1)) / device, 257));
    if (enough > of.readers + 1) hint("--readers", &plan::readers, enough, 256, one_more_ns);
  }
  hint("--depth", &plan::depth, of.depth + 1, 64, step_ns);
  hint("--host-depth", &plan::host_depth, of.slots() + 1, 64, step_ns);
  if (!any) std::puts("would help   nothing but a shorter stage: neither another reader nor another buffer");
}

void print(const plan& of) {
  const planner::prediction found = planner::predict(of);
  std::printf("stages       read %.1f us (readers: %d), copy %.1f us, compute %.1f us", us(of.read), of.readers,
              us(of.copy), us(of.compute));
  if (of.replicas > 1) std::printf(", reduce %.1f us over %d replicas", us(of.reduce), of.replicas);
  std::printf("\npredicted    %d steps in %.3f ms, %.1f us a step; the first after %.1f us, then one in %.1f us\n",
              of.steps, us(found.wall) / 1e3, us(found.wall) / of.steps, us(found.first), found.steady_ns / 1e3);
  if (const auto pencil = planner::closed_form(of))
    std::printf("closed form  %.3f ms, %.2f %% off\n", us(*pencil) / 1e3, 100 * (us(found.wall) / us(*pencil) - 1));
  else
    std::printf("closed form  none for this plan\n");
  std::printf("efficiency   %.3f\nbounded by   %s\n", found.efficiency, found.bounded_by);
  print_hints(of, found.steady_ns);
}

}  // namespace

int main(int argc, char** argv) try {
  input in;
  parse(argc, argv, in);
  if (in.check) return planner::check() ? 0 : 1;
  in.complete();
  print(in.to);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "error: %s\n", problem.what());
  return 1;
}
