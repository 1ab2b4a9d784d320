// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/observe/ledger.hpp>
#include <penstock/observe/log_file.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/observe/text.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/step_record.hpp>

namespace penstock {

struct timeline_options {
  std::size_t steps = 8;  ///< in each of the picture's two parts, 1 to 64
  std::string title = "Where the time goes";
};

/// Draws a run's schedule as an SVG picture: an observer. The first steps, as the pipeline fills, and the last ones:
/// a row for each reader, for copies, computing and the loop's waits; a batch has one colour on all rows. Under the
/// title stands the ledger's verdict. Drawn anew at the end of each epoch and of the run.
///
/// The constructor throws `error` if the file cannot be written; later failures do not end the run, see `failure`.
class timeline {
 public:
  explicit timeline(std::string path, timeline_options options = {})
      : path_(std::move(path)), options_(std::move(options)) {
    if (options_.steps < 1 || options_.steps > 64)
      detail::reject_option("timeline", "steps", std::to_string(options_.steps), "1 to 64");
    if (const int problem = detail::replace_file(path_, "")) detail::throw_file_error(path_, "write", problem);
    last_.resize(3 * options_.steps);
  }

  void on_step(const step_record& one) {
    ledger_.on_step(one);
    if (first_.size() < options_.steps) {
      first_.emplace_back();
      first_.back() = one;
    }
    last_[seen_++ % last_.size()] = one;
  }
  void on_epoch(const epoch_event&) { draw(); }
  void on_end(const run_end&) { draw(); }

  /// Empty, or what could not be written, first of all.
  const std::string& failure() const noexcept { return failure_.text(); }

 private:
  using time = std::chrono::nanoseconds;
  static constexpr double left = 96, panel = 516, gap = 30, top = 84, pitch = 32, bar = 24;

  struct kept_step {
    step_record at;
    std::vector<read_span> reads;

    void operator=(const step_record& from) {
      at = from;
      reads.assign(from.reads.begin(), from.reads.end());
    }
  };

  void draw() {
    if (seen_ == 0) return;
    std::vector<const kept_step*> late;
    const std::uint64_t from = seen_ > options_.steps ? seen_ - options_.steps : 0;
    // With those before them, whose last work lies in the same time.
    const std::uint64_t kept = seen_ > last_.size() ? seen_ - last_.size() : 0;
    for (std::uint64_t i = kept; i < seen_; ++i) late.push_back(&last_[i % last_.size()]);
    std::vector<const kept_step*> early;
    for (const kept_step& one : first_) early.push_back(&one);
    copies_ = false;
    for (const auto* steps : {&early, &late})
      for (const kept_step* one : *steps) {
        copies_ |= one->at.copied;
        for (const read_span& part : one->reads) readers_ = std::max(readers_, part.reader + 1);
      }
    rows_ = readers_ + (copies_ ? 3 : 2);

    text_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1180 ";
    const double height = top + pitch * static_cast<double>(rows_) + 46;
    real("", height);
    real("\" width=\"1180\" height=\"", height);
    text_ +=
        "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        "<text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"bold\">";
    detail::append_escaped(text_, options_.title);
    text_ += "</text>\n<text x=\"16\" y=\"46\">";
    detail::append_escaped(text_, ledger_.total().verdict());
    text_ += "</text>\n";
    for (std::uint32_t i = 0; i < rows_; ++i) {
      real("<text x=\"86\" text-anchor=\"end\" y=\"", y_of(i) + 16);
      text_ += "\">";
      text_ += i < readers_ ? detail::concat("reader ", i) : std::string(name_of(i));
      text_ += "</text>\n";
    }
    draw_panel(early, early.size(), left, "the first steps");
    if (from > 0) draw_panel(late, options_.steps, left + panel + gap, "the last steps");
    real("<text fill=\"#555\" x=\"96\" y=\"", height - 8);
    text_ +=
        "\">one colour a batch, on all rows; grey: the loop waits for a batch; times in ms since the feed "
        "began</text>\n</svg>\n";
    if (const int problem = detail::replace_file(path_, text_)) failure_.note(path_, "write", problem);
  }

  std::string_view name_of(std::uint32_t row) const {
    if (copies_ && row == readers_) return "copies";
    return row + 1 == rows_ ? "your loop" : "compute";
  }
  static double y_of(std::uint32_t row) { return top + pitch * row; }

  // The time of the last `shown` of the steps.
  void draw_panel(const std::vector<const kept_step*>& steps, std::size_t shown, double x, std::string_view name) {
    time begin = time::max(), end{0};
    for (const kept_step* one : std::span(steps).last(shown)) {
      for (const read_span& part : one->reads) begin = std::min(begin, part.when.begin);
      begin = std::min(begin, one->at.compute.begin);
      end = std::max(end, one->at.compute.end);
    }
    if (end <= begin) return;
    const auto at = [&](time when) {
      return x + panel * std::clamp(
                             static_cast<double>((when - begin).count()) / static_cast<double>((end - begin).count()),
                             0.0, 1.0);
    };
    real("<text fill=\"#555\" x=\"", x);
    text_ += "\" y=\"72\">";
    text_ += name;
    milliseconds(": ", begin);
    milliseconds(" to ", end);
    text_ += " ms</text>\n";
    for (std::uint32_t i = 0; i < rows_; ++i) {
      real("<rect fill=\"#f4f4f4\" x=\"", x);
      real("\" y=\"", y_of(i));
      real("\" width=\"", panel);
      real("\" height=\"", bar);
      text_ += "\"/>\n";
    }
    for (const kept_step* one : steps) {
      const auto rect = [&](const time_span& when, std::uint32_t row, bool wait) {
        if (when.end <= begin) return;
        const double from = at(when.begin), to = std::max(at(when.end), from + (wait ? 0.0 : 0.8));
        static constexpr const char* colours[] = {"#3b75af", "#ef8636", "#519e3e", "#8d69b8"};
        text_ += "<rect fill=\"";
        text_ += wait ? "#c9c9c9" : colours[one->at.step % 4];
        real("\" x=\"", from);
        real("\" y=\"", y_of(row));
        real("\" width=\"", to - from);
        real("\" height=\"", bar);
        text_ += "\"/>";
        if (!wait && to - from > 26) {
          real("<text fill=\"#fff\" text-anchor=\"middle\" x=\"", (from + to) / 2);
          real("\" y=\"", y_of(row) + 16);
          text_ += "\">";
          detail::append_count(text_, one->at.step);
          text_ += "</text>";
        }
        text_ += '\n';
      };
      for (const read_span& part : one->reads) rect(part.when, part.reader, false);
      if (one->at.copied) rect(one->at.copy, readers_, false);
      rect(one->at.compute, rows_ - 2, false);
      rect(one->at.asked, rows_ - 1, true);
    }
  }
  void real(std::string_view before, double value) {
    text_ += before;
    detail::append_fixed(text_, value, 2);
  }
  void milliseconds(std::string_view before, time value) {
    text_ += before;
    detail::append_fixed(text_, static_cast<double>(value.count()) / 1e6, 3);
  }

  std::string path_;
  timeline_options options_;
  ledger ledger_;
  std::vector<kept_step> first_, last_;
  std::uint64_t seen_ = 0;
  std::uint32_t readers_ = 0, rows_ = 0;
  bool copies_ = false;
  std::string text_;
  detail::log_failure failure_;
};

}  // namespace penstock
