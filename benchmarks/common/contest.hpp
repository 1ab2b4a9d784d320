// SPDX-License-Identifier: Apache-2.0
// What all questions share. A question is a `contest::question`: contestants are added, run interleaved, at least seven
// times each, and told in a table and one closing line of ratios.
//
//   int main(int argc, char** argv) {
//     contest::question ask("handoff", "ns per item", argc, argv);
//     const int depth = ask.sizes.integer("depth", 64);             // --depth 16 on the command line
//     ask.add("ours", [=] { return contest::figures{measure(depth)}; });
//     ask.add("theirs", [=] { return contest::figures{other(depth), {{"cores", 1.2}}}; });
//     return ask.run([](contest::line& line) { line.ratio("ours_over_theirs", "ours", "theirs"); });
//   }
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <machine.hpp>
#include <sizes.hpp>
#include <table.hpp>

namespace contest {

/// What one run of a contestant gives: the quantity that the question is about, and others beside it.
struct figures {
  double value = 0;
  std::vector<std::pair<std::string, double>> more{};
};

class question {
 public:
  contest::sizes sizes;

  /// `quantity`: what `figures::value` is, with its unit. Ends the program on a command line that makes no sense.
  question(std::string name, std::string quantity, int argc, char** argv)
      : name_(std::move(name)), quantity_(std::move(quantity)) {
    guarded([&] { sizes.parse(argc, argv); });
    out_ = sizes.text("out", "");
  }

  /// Calls `body` (returns `figures`) once for each repetition, and once more where others took the CPUs meanwhile.
  void add(const std::string& contestant, std::function<figures()> body) {
    table_.enter(contestant);
    benchmark::RegisterBenchmark(contestant.c_str(),
                                 [this, contestant, body = std::move(body)](benchmark::State& state) {
                                   for (auto _ : state) measure(contestant, body, state);
                                 })
        ->UseManualTime()
        ->Iterations(1);
  }
  /// A rival's version, for the header; or why it is left out.
  void rival(const std::string& name, const std::string& version) { facts_.emplace_back(name, version); }
  void left_out(const std::string& name, const std::string& why) { facts_.emplace_back(name, "left out: " + why); }
  /// Anything else that belongs above the figures.
  void fact(const std::string& name, const std::string& value) { facts_.emplace_back(name, value); }

  const table& results() const { return table_; }

  /// Runs everything; `close(line&)` writes the closing line. Returns the program's exit status.
  template <class Close>
  int run(Close close) {
    std::string interleaved = "--benchmark_enable_random_interleaving=true";
    std::string repetitions = "--benchmark_repetitions=7";
    const std::filesystem::path json = result_file(".json");
    std::string out = "--benchmark_out=" + json.string();
    std::string format = "--benchmark_out_format=json";
    auto arguments = sizes.rest();
    arguments.insert(arguments.begin() + 1, {interleaved.data(), repetitions.data(), out.data(),
                                             format.data()});  // the user's own come later, and count
    int count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;

    auto facts = machine();
    facts.insert(facts.end(), facts_.begin(), facts_.end());
    for (const std::string& unused : sizes.unused()) facts.emplace_back(unused, "has no meaning here");
    for (const auto& [name, value] : facts) benchmark::AddCustomContext(name, value);

    silent no_lines;
    const watch whole;
    try {
      benchmark::RunSpecifiedBenchmarks(&no_lines);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s: %s\n", name_.c_str(), problem.what());
      return 1;
    }
    if (table_.empty()) return 0;  // --benchmark_list_tests
    facts.emplace_back(
        "others", table::text(100 * whole.foreign_seconds() / whole.seconds() / static_cast<double>(cpus().size())) +
                      " % of the CPUs went to other programs");

    line closing(table_);
    close(closing);
    const auto print = [&](std::FILE* to) {
      std::fprintf(to, "%s\n", name_.c_str());
      for (const auto& [name, value] : facts) std::fprintf(to, "  %-10s %s\n", name.c_str(), value.c_str());
      table_.print(to);
      closing.print(to, name_);
    };
    print(stdout);
    bool written = write(".csv", [&](std::FILE* to) { table_.write(to); });
    if (!out_.empty()) written = write(".txt", print) && written;
    return failed_ || !written ? 1 : 0;
  }

  /// Runs `body`; what it throws ends the program with the message.
  template <class Body>
  void guarded(Body body) {
    try {
      body();
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s: %s\n", name_.c_str(), problem.what());
      std::exit(1);
    }
  }
  /// Where results go: `--out DIR`, or beside the program.
  std::filesystem::path result_file(const std::string& ending) const {
    const auto folder =
        out_.empty() ? std::filesystem::read_symlink("/proc/self/exe").parent_path() : std::filesystem::path(out_);
    std::error_code none;
    std::filesystem::create_directories(folder, none);
    return folder / (name_ + ending);
  }

 private:
  // Google Benchmark runs and writes the file; the table is ours.
  struct silent : benchmark::BenchmarkReporter {
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>&) override {}
  };

  template <class Content>
  bool write(const char* ending, Content content) const {
    const std::string path = result_file(ending).string();
    std::FILE* const file = std::fopen(path.c_str(), "w");
    if (file == nullptr) return std::fprintf(stderr, "%s: %s cannot be written\n", name_.c_str(), path.c_str()), false;
    content(file);
    return std::fclose(file) == 0;
  }

  void measure(const std::string& contestant, const std::function<figures()>& body, benchmark::State& state) {
    figures result;
    bool disturbed = false;
    try {
      for (int attempt = 0; attempt < 2; ++attempt) {
        unpin();
        const watch others;
        result = body();
        disturbed = others.disturbed();
        table_.add(contestant, quantity_, result.value, disturbed);
        for (const auto& [name, value] : result.more) table_.add(contestant, name, value, disturbed);
        if (!disturbed) break;
      }
    } catch (const std::exception& problem) {
      failed_ = true;
      std::fprintf(stderr, "%s: %s: %s\n", name_.c_str(), contestant.c_str(), problem.what());
      state.SkipWithError(problem.what());
      return;
    }
    // Manual time is in seconds; the quantity itself is in the counters, under its name.
    state.SetIterationTime(result.value * 1e-9);
    state.counters[quantity_] = result.value;
    for (const auto& [name, value] : result.more) state.counters[name] = value;
    state.counters["disturbed"] = disturbed ? 1 : 0;
  }

  std::string name_, quantity_, out_;
  std::vector<std::pair<std::string, std::string>> facts_;
  table table_;
  bool failed_ = false;
};

}  // namespace contest
