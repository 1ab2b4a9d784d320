// SPDX-License-Identifier: Apache-2.0
// The schedule of one recorded run, as a picture (SVG) and as a trace (Chrome's format, for Perfetto).
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "contestants.hpp"

namespace overlap {

/// Something on one row: work on a batch, or a wait.
struct bar {
  double begin, end;  // us since the run began
  std::int64_t step;  // -1: a wait
};
struct row {
  std::string name;
  std::vector<bar> bars;
};

namespace detail {

inline void add_gaps(std::vector<bar>& bars) {
  std::vector<bar> gaps;
  double before = 0;
  for (const bar& each : bars) {
    if (each.begin - before > 0.2) gaps.push_back({before, each.begin, -1});
    before = std::max(before, each.end);
  }
  bars.insert(bars.end(), gaps.begin(), gaps.end());
  std::sort(bars.begin(), bars.end(), [](const bar& a, const bar& b) { return a.begin < b.begin; });
}

inline std::string number(double value, int digits = 1) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

inline std::ofstream open_for_writing(const std::string& file) {
  std::ofstream out(file);
  if (!out) throw std::runtime_error(file + " cannot be written");
  return out;
}

}  // namespace detail

/// The rows of a run: readers, engines, the consumer's thread; with what is between pieces of work as waits.
inline std::vector<row> rows_of(const recording& run) {
  const auto since = [&](clock_type::time_point at) { return microseconds(at - run.begin); };
  std::vector<row> rows;

  // Readers take ranges in order: by the order of their beginnings reads belong to batch 0, 1, ...
  struct one {
    std::size_t reader;
    interval when;
  };
  std::vector<one> reads;
  const std::size_t readers = run.reads.of.size();
  for (std::size_t i = 0; i < readers; ++i)
    for (const interval& when : run.reads.of[i]) reads.push_back({i, when});
  std::sort(reads.begin(), reads.end(), [](const one& a, const one& b) { return a.when.begin < b.when.begin; });
  rows.resize(readers);
  for (std::size_t i = 0; i < readers; ++i) rows[i].name = "reader " + std::to_string(i);
  const std::size_t ranges = std::bit_ceil(readers);
  for (std::size_t i = 0; i < reads.size(); ++i)
    rows[reads[i].reader].bars.push_back(
        {since(reads[i].when.begin), since(reads[i].when.end), static_cast<std::int64_t>(i / ranges)});

  row copies{"copy engine", {}}, kernels{"compute engine", {}}, consumer{"your loop", {}};
  for (const auto& operation : run.operations) {
    row& to = operation.engine == penstock::modelled_engine::compute ? kernels : copies;
    to.bars.push_back({since(operation.start), since(operation.end), static_cast<std::int64_t>(to.bars.size())});
  }
  for (std::size_t i = 0; i < run.steps.size(); ++i)
    consumer.bars.push_back({since(run.steps[i].begin), since(run.steps[i].end), static_cast<std::int64_t>(i)});
  for (row* each : {&copies, &kernels, &consumer}) rows.push_back(std::move(*each));
  for (row& each : rows) detail::add_gaps(each.bars);
  return rows;
}

/// Opens in Perfetto and chrome://tracing: a row is a thread, times are in microseconds.
inline void write_trace(const std::vector<row>& rows, const std::string& file) {
  auto out = detail::open_for_writing(file);
  out << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
         "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"penstock\"}}";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string where = ",\"pid\":1,\"tid\":" + std::to_string(i + 1);
    out << ",\n{\"ph\":\"M\",\"name\":\"thread_name\"" << where << ",\"args\":{\"name\":\"" << rows[i].name << "\"}}"
        << ",\n{\"ph\":\"M\",\"name\":\"thread_sort_index\"" << where << ",\"args\":{\"sort_index\":" << i << "}}";
    for (const bar& each : rows[i].bars)
      out << ",\n{\"ph\":\"X\",\"cat\":\"" << (each.step < 0 ? "wait" : "work") << "\",\"name\":\""
          << (each.step < 0 ? "wait" : "batch " + std::to_string(each.step)) << '"' << where
          << ",\"ts\":" << detail::number(each.begin, 3) << ",\"dur\":" << detail::number(each.end - each.begin, 3)
          << '}';
  }
  out << "\n]}\n";
  if (!out.flush()) throw std::runtime_error(file + " cannot be written");
}

/// Two pieces of the same length: how the pipeline fills, and how it runs in the middle.
class timeline_picture {
 public:
  timeline_picture(const std::vector<row>& rows, std::string title, std::string facts, double longest)
      : rows_(rows),
        title_(std::move(title)),
        facts_(std::move(facts)),
        longest_(longest),
        span_(longest * stages_shown) {}

  void write(const std::string& file) const {
    auto out = detail::open_for_writing(file);
    const double height = top + static_cast<double>(rows_.size()) * pitch + 74;
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << detail::number(height, 0)
        << "\" width=\"" << width << "\" height=\"" << detail::number(height, 0)
        << "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n"
           "<defs><pattern id=\"wait\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
           "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f1f1f1\"/>"
           "<rect width=\"1.6\" height=\"6\" fill=\"#b9b9b9\"/></pattern></defs>\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        << "<text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"bold\">" << title_ << "</text>\n"
        << "<text x=\"16\" y=\"46\">" << facts_ << "</text>\n";
    for (std::size_t i = 0; i < rows_.size(); ++i)
      out << "<text x=\"" << left - 10 << "\" y=\"" << y_of(i) + 18 << "\" text-anchor=\"end\">" << rows_[i].name
          << "</text>\n";
    panel(out, left, 0, "the pipeline fills");
    panel(out, left + panel_width + gap, middle(), "in the middle of the run");
    legend(out, height - 24);
    out << "</svg>\n";
    if (!out.flush()) throw std::runtime_error(file + " cannot be written");
  }

 private:
  static constexpr int width = 1180, left = 116, panel_width = 508, gap = 32, top = 88, pitch = 34, bar_height = 26;
  static constexpr double stages_shown = 7.5;
  // One colour a batch, so that the eye finds it again on the other rows.
  static constexpr const char* colours[] = {"#3b75af", "#ef8636", "#519e3e", "#8d69b8"};

  static double y_of(std::size_t i) { return top + static_cast<double>(i) * pitch; }
  // Begins with a batch's read.
  double middle() const {
    const auto& reads = rows_[0].bars;
    return std::find_if(reads.begin() + static_cast<std::ptrdiff_t>(reads.size() / 2), reads.end() - 1,
                        [](const bar& each) { return each.step >= 0; })
        ->begin;
  }

  void panel(std::ofstream& out, double x, double from, const char* name) const {
    const auto at = [&](double time) { return x + std::clamp((time - from) / span_, 0.0, 1.0) * panel_width; };
    const double bottom = y_of(rows_.size()) - pitch + bar_height;
    out << "<text x=\"" << detail::number(x) << "\" y=\"" << top - 14 << "\" fill=\"#555\">" << name << "</text>\n";
    for (int tick = 0; tick <= static_cast<int>(stages_shown); ++tick) {
      const double time = from + tick * longest_;
      out << "<line x1=\"" << detail::number(at(time)) << "\" x2=\"" << detail::number(at(time)) << "\" y1=\""
          << top - 6 << "\" y2=\"" << detail::number(bottom + 6) << "\" stroke=\"#ddd\"/>"
          << "<text x=\"" << detail::number(at(time)) << "\" y=\"" << detail::number(bottom + 20)
          << "\" font-size=\"10\" fill=\"#555\" text-anchor=\"middle\">"
          << (tick == 0 || from == 0 ? detail::number(time, 0) : "+" + detail::number(time - from, 0))
          << (tick == 0 ? " us" : "") << "</text>\n";
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (const bar& each : rows_[i].bars) {
        if (each.end <= from || each.begin >= from + span_) continue;
        const double begin = at(each.begin), end = std::max(at(each.end), begin + (each.step < 0 ? 0.0 : 2.0));
        out << "<rect x=\"" << detail::number(begin, 2) << "\" y=\"" << y_of(i) << "\" width=\""
            << detail::number(end - begin, 2) << "\" height=\"" << bar_height << "\" fill=\""
            << (each.step < 0 ? "url(#wait)" : colours[each.step % 4]) << "\"/>";
        if (each.step >= 0 && end - begin > 24)
          out << "<text x=\"" << detail::number((begin + end) / 2) << "\" y=\"" << y_of(i) + 18
              << "\" text-anchor=\"middle\" fill=\"#fff\">" << each.step << "</text>";
        out << '\n';
      }
    }
  }

  static void legend(std::ofstream& out, double y) {
    double x = left;
    const auto entry = [&](const char* fill, const char* text, double advance) {
      out << "<rect x=\"" << x << "\" y=\"" << y - 11 << "\" width=\"22\" height=\"14\" fill=\"" << fill
          << "\"/><text x=\"" << x + 30 << "\" y=\"" << y << "\">" << text << "</text>\n";
      x += advance;
    };
    entry(colours[0], "work on a batch (its number; one colour on all rows)", 360);
    entry("url(#wait)", "waits", 90);
    out << "<text x=\"" << x << "\" y=\"" << y
        << "\" fill=\"#555\">times in us since the first batch was asked for; your loop only enqueues kernels</text>\n";
  }

  const std::vector<row>& rows_;
  std::string title_, facts_;
  double longest_, span_;
};

/// Writes `file` and, beside it, the trace with the ending `.json`.
inline void draw(const recording& run, const stage_times& times, const sizes& of, int depth, nanoseconds longest,
                 const std::string& file) {
  const auto rows = rows_of(run);
  const double efficiency =
      microseconds(longest) * static_cast<double>(times.batches) / std::max(microseconds(run.result.wall), 1e-3);
  const auto text = [](nanoseconds time) { return detail::number(microseconds(time), 0); };
  const std::string title =
      "Measured: the longest stage is at work " + detail::number(100 * efficiency) + " % of the time";
  const std::string facts =
      std::to_string(times.batches) + " batches; read " + text(times.read) + " us, copy " + text(times.copy) +
      " us, compute " + text(times.kernel) + " us each on a modelled device; " + std::to_string(of.readers) +
      (of.readers == 1 ? " reader" : " readers") + ", " + std::to_string(depth) + " buffers on either side";
  timeline_picture(rows, title, facts, microseconds(std::max({times.read, times.copy, times.kernel}))).write(file);
  write_trace(rows, std::filesystem::path(file).replace_extension(".json").string());
  std::printf("the schedule of a further run, the middle one of five, is drawn in %s\n", file.c_str());
}

}  // namespace overlap
