// SPDX-License-Identifier: Apache-2.0
// packages: libtbb-dev librange-v3-dev
// What does a program pay in compile time for the library, and how long is the compiler's answer to a mistake? Each
// contestant runs the compiler ($CXX, or g++) once: CPU seconds, user and system, of that process and its children.
// Seconds differ from machine to machine; threshold.txt keeps what does not, and the question fails a tenth above it.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <contest.hpp>

#include "compiler.hpp"
#include "includes.hpp"

namespace {

namespace fs = std::filesystem;
using compile_time::compiler;
using compile_time::outcome;

const std::string three_stages = R"(#include <penstock/penstock.hpp>
#include <vector>

double total(const std::vector<std::pair<float, float>>& rows) {
  penstock::cpu_device device;
  auto feed = rows | penstock::partition({.seed = 7}) | penstock::read({.readers = 1}) | penstock::batch(64) |
              penstock::transfer(device);
  double sum = 0;
  for (auto& batch : feed.epoch(0)) {
    auto [x, y] = batch.fields();
    for (std::size_t i = 0; i < batch.size(); ++i) sum += x(i) * y(i);
  }
  return sum;
}
)";
// The same work by oneTBB: as many stages, the order left out.
const std::string three_stages_tbb = R"(#include <oneapi/tbb/parallel_pipeline.h>
#include <utility>
#include <vector>

double total(const std::vector<std::pair<float, float>>& rows) {
  std::size_t next = 0;
  double sum = 0;
  using batch = std::vector<std::pair<float, float>>;
  tbb::parallel_pipeline(3, tbb::make_filter<void, std::size_t>(tbb::filter_mode::serial_in_order,
                                                                [&](tbb::flow_control& control) {
                                                                  if (next >= rows.size()) control.stop();
                                                                  return std::exchange(next, next + 64);
                                                                }) &
                                tbb::make_filter<std::size_t, batch>(
                                    tbb::filter_mode::parallel,
                                    [&](std::size_t begin) {
                                      batch result;
                                      for (std::size_t i = begin; i < begin + 64 && i < rows.size(); ++i)
                                        result.push_back(rows[i]);
                                      return result;
                                    }) &
                                tbb::make_filter<batch, void>(tbb::filter_mode::serial_in_order,
                                                              [&](const batch& from) {
                                                                for (auto [x, y] : from) sum += x * y;
                                                              }));
  return sum;
}
)";

const std::string bundle = R"(#include <atomic>
#include <concepts>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <tuple>
#include <vector>
)";

// One stage that does not fit, each.
const std::string mismatched = R"(#include <penstock/penstock.hpp>
#include <vector>
const std::vector<float> samples(10);
auto work = samples | penstock::partition() | penstock::batch(2);
)";
const std::string mismatched_tbb = R"(#include <oneapi/tbb/parallel_pipeline.h>
#include <vector>
void work() {
  tbb::parallel_pipeline(3, tbb::make_filter<void, int>(tbb::filter_mode::serial_in_order,
                                                        [](tbb::flow_control& control) {
                                                          control.stop();
                                                          return 0;
                                                        }) &
                                tbb::make_filter<std::vector<float>, void>(tbb::filter_mode::serial_in_order,
                                                                           [](std::vector<float>) {}));
}
)";
const std::string mismatched_range_v3 = R"(#include <range/v3/all.hpp>
#include <vector>
const std::vector<float> samples(10);
auto work = samples | ranges::views::chunk("two");
)";

// The stored figures, by name; a line that starts with # is a remark.
double stored(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ' ')) return std::stod(line.substr(name.size()));
  throw std::runtime_error(file.string() + " has no line `" + name + " VALUE`");
}

}  // namespace

int main(int argc, char** argv) {
  contest::question ask("compile_time", "CPU seconds", argc, argv);
  const fs::path here = fs::absolute(__FILE__).parent_path(), include = here.parent_path().parent_path() / "include";
  const fs::path limits = here / "threshold.txt";
  int status = 0;
  ask.guarded([&] {
    const compile_time::reachable from(include, "penstock/penstock.hpp");
    const compiler compile(include);
    ask.fact("measured", compile.version());

    const auto add = [&](const char* name, std::string source, std::vector<std::string> how, bool accepted = true) {
      ask.add(name, [&compile, name, source = std::move(source), how = std::move(how), accepted] {
        const outcome result = compile(name, source, how);
        if (result.accepted != accepted)
          throw std::runtime_error(std::string(accepted ? "does not compile" : "compiles") + ", " +
                                   compile.command(how) + " says:\n" + result.output);
        contest::figures figures{result.cpu_seconds};
        if (!accepted) figures.more.emplace_back("lines of errors", result.lines());
        return figures;
      });
    };
    const std::vector<std::string> check{"-fsyntax-only"}, object{"-O0", "-c"};
    add("nothing", "", check);
    add("umbrella", "#include <penstock/penstock.hpp>\n", check);
    add("umbrella_again", "#include <penstock/penstock.hpp>\n", check);
    add("std_includes", from.system_includes(), check);
    // How fast the machine is: what any program with threads includes.
    add("bundle", bundle, check);
    add("program", three_stages, object);
    add("mismatched", mismatched, check, false);
    if (const auto tbb = compile.macro("oneapi/tbb/version.h", "TBB_VERSION_MAJOR.TBB_VERSION_MINOR"); !tbb.empty()) {
      ask.rival("oneTBB", tbb);
      add("tbb_pipeline", "#include <oneapi/tbb/parallel_pipeline.h>\n", check);
      add("tbb_program", three_stages_tbb, object);
      add("tbb_mismatched", mismatched_tbb, check, false);
    } else {
      ask.left_out("oneTBB", "no libtbb-dev");
    }
    if (const auto v3 = compile.macro("range/v3/version.hpp", "RANGE_V3_MAJOR.RANGE_V3_MINOR.RANGE_V3_PATCHLEVEL");
        !v3.empty()) {
      ask.rival("range-v3", v3);
      add("range_v3_all", "#include <range/v3/all.hpp>\n", check);
      add("range_v3_mismatched", mismatched_range_v3, check, false);
    } else {
      ask.left_out("range-v3", "no librange-v3-dev");
    }

    std::string complaints;
    const auto watched = [&](const std::string& name, double found) {
      const double kept = stored(limits, name);
      if (found > 1.1 * kept)
        complaints += "compile_time: " + name + " is " + contest::table::text(found) + ", more than a tenth over the " +
                      contest::table::text(kept) + " of " + limits.string() + "\n";
    };
    status = ask.run([&](contest::line& line) {
      line.value("umbrella_s", "umbrella");
      line.ratio("umbrella_over_std", "umbrella", "std_includes");
      line.value("program_s", "program");
      line.value("error_lines", "mismatched", "lines of errors");
      line.number("own_lines", from.own_lines());
      line.again("umbrella", "umbrella_again");

      watched("own_lines", from.own_lines());
      const auto ours = ask.results().median("umbrella"), theirs = ask.results().median("std_includes");
      if (ours && theirs) watched("umbrella_over_std", *ours / *theirs);
    });
    if (!complaints.empty()) {
      std::fputs(complaints.c_str(), stderr);
      status = 1;
    }
  });
  return status;
}
