// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/observe/fault_text.hpp>
#include <penstock/observe/html_chart.hpp>
#include <penstock/observe/html_style.hpp>
#include <penstock/observe/metric_history.hpp>
#include <penstock/observe/text.hpp>
#include <penstock/sample/fault.hpp>

namespace penstock::detail {

/// A number of a run, with what it is.
struct page_figure {
  std::string name;
  std::string value;
  std::string note{};
};

/// What a page tells of a run.
struct page_content {
  std::string title;
  std::string status;      ///< "running", "done", "stopped", "error", ...
  std::string message{};   ///< of an error
  std::string position{};  ///< "epoch 3/10, step 12/292"
  std::string time{};      ///< "0:45 left"
  std::optional<double> fraction{};
  std::vector<page_figure> figures{};
  std::vector<chart> charts{};
  std::span<const metric_history> metrics{};
  std::span<const sample_fault> faults{};  ///< the first
  std::uint64_t all_faults = 0;
  std::string_view description{};
  std::chrono::system_clock::time_point begun{}, updated{};
  std::optional<std::chrono::seconds> reload{};  ///< while the run goes on
};

/// "2026-03-01 12:34:56 UTC"
inline void append_time(std::string& out, std::chrono::system_clock::time_point time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
  const auto two = [&](auto value, char after) {
    if (value < 10) out += '0';
    append_count(out, static_cast<std::uint64_t>(value));
    out += after;
  };
  append_count(out, static_cast<std::uint64_t>(static_cast<int>(date.year())));
  out += '-';
  two(static_cast<unsigned>(date.month()), '-');
  two(static_cast<unsigned>(date.day()), ' ');
  two(clock.hours().count(), ':');
  two(clock.minutes().count(), ':');
  two(clock.seconds().count(), ' ');
  out += "UTC";
}

/// Writes one page that needs nothing else: its style, its curves and its few lines of script are in it.
class page_writer {
 public:
  page_writer(const page_content& page, std::string& out) : page_(page), out_(out) {}

  void write() {
    head();
    put("<main>\n<header><h1>");
    escaped(page_.title);
    put("</h1><span class=\"status ");
    escaped(page_.status);
    put("\">");
    escaped(page_.status);
    put("</span><span class=\"quiet\">began ");
    append_time(out_, page_.begun);
    put(", written ");
    append_time(out_, page_.updated);
    put("</span></header>\n<p class=\"message\" id=\"age\" role=\"status\" hidden></p>\n");
    if (!page_.message.empty()) element("p class=\"message\" role=\"alert\"", page_.message);
    progress();
    figures();
    if (!page_.charts.empty()) put("<div class=\"charts\">\n");
    for (const auto& each : page_.charts) figure(each);
    metrics();
    if (!page_.charts.empty()) put("</div>\n");
    faults();
    if (!page_.description.empty()) {
      put("<section class=\"card\"><h2>Pipeline</h2><pre tabindex=\"0\">");
      escaped(page_.description);
      put("</pre></section>\n");
    }
    put("<footer class=\"quiet\">Curves are over the steps of all epochs. Lines are means, bands reach from least to "
        "greatest; dashed lines are epochs. Written "
        "by penstock; this page needs no network.</footer>\n</main>\n");
    if (page_.reload) put("<script>"), put(page_script), put("</script>\n");
    put("</body></html>\n");
  }

 private:
  void put(std::string_view text) { out_ += text; }
  void escaped(std::string_view text) { append_escaped(out_, text); }
  void element(std::string_view opening, std::string_view text) {
    put("<");
    put(opening);
    put(">");
    escaped(text);
    put("</");
    put(opening.substr(0, opening.find(' ')));
    put(">\n");
  }

  void head() {
    put("<!DOCTYPE html>\n<html lang=\"en\"");
    if (page_.reload) {
      put(" data-reload=\"");
      append_count(out_, static_cast<std::uint64_t>(page_.reload->count()));
      put("\" data-updated=\"");
      const auto since = std::chrono::duration_cast<std::chrono::seconds>(page_.updated.time_since_epoch());
      append_count(out_, static_cast<std::uint64_t>(since.count()));
      put("\"");
    }
    put(">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
        "content=\"width=device-width,initial-scale=1\">\n");
    if (page_.reload) {
      put("<meta http-equiv=\"refresh\" content=\"");
      append_count(out_, static_cast<std::uint64_t>(page_.reload->count()));
      put("\">\n");
    }
    put("<title>");
    if (page_.fraction) {
      percent(*page_.fraction);
      put(" ");
    }
    escaped(page_.title);
    put("</title>\n<style>");
    put(page_style);
    put("</style>\n</head>\n<body>\n");
  }

  void percent(double fraction) {
    append_fixed(out_, std::clamp(fraction, 0.0, 1.0) * 100, 0);
    put("%");
  }

  void progress() {
    if (page_.fraction) {
      put("<div class=\"progress\" role=\"progressbar\" aria-label=\"of the run\" aria-valuemin=\"0\" "
          "aria-valuemax=\"100\" aria-valuenow=\"");
      append_fixed(out_, std::clamp(*page_.fraction, 0.0, 1.0) * 100, 0);
      put("\"><div style=\"width:");
      append_fixed(out_, std::clamp(*page_.fraction, 0.0, 1.0) * 100, 1);
      put("%\"></div></div>\n");
    }
    put("<div class=\"under\">");
    element("span", page_.position);
    element("span", page_.time);
    put("</div>\n");
  }

  void figures() {
    if (page_.figures.empty()) return;
    put("<dl class=\"figures\">\n");
    for (const auto& each : page_.figures) {
      put("<div>");
      element("dt", each.name);
      element("dd", each.value);
      if (!each.note.empty()) element("dd class=\"quiet\"", each.note);
      put("</div>\n");
    }
    put("</dl>\n");
  }

  void figure(const chart& what) {
    const chart_painter painter(what);
    put("<figure class=\"card\"><figcaption><b>");
    escaped(what.name);
    put("</b>");
    for (std::size_t i = 0; i < what.curves.size(); ++i) {
      put("<span class=\"quiet s");
      append_count(out_, i % 6);
      put("\">");
      if (what.curves.size() > 1) {
        put("<span class=\"key\"></span>");
        escaped(what.curves[i]->name());
        put(" ");
      }
      if (what.curves[i]->values() > 0) append_value(out_, what.curves[i]->last(), what.values, 5);
      put("</span>");
    }
    if (painter.is_logarithmic()) put("<span class=\"quiet\">logarithmic</span>");
    put("</figcaption>\n");
    painter.paint(out_);
    put("</figure>\n");
  }

  /// In the gap that an odd number of charts leaves, else across.
  void metrics() {
    if (page_.metrics.empty()) return;
    put("<section class=\"card");
    if (page_.charts.size() % 2 == 0) put(" all");
    put("\"><h2>Metrics</h2><div class=\"scroll\"><table><thead><tr>");
    for (const char* each : {"name", "last", "least", "at step", "greatest", "at step"}) heading(each);
    const auto has_gaps = [](const metric_history& one) { return one.finite() < one.values(); };
    const bool gaps = std::any_of(page_.metrics.begin(), page_.metrics.end(), has_gaps);
    if (gaps) heading("not finite"), heading("first");
    put("</tr></thead><tbody>\n");
    for (const auto& each : page_.metrics) {
      put("<tr><th scope=\"row\">");
      escaped(each.name());
      put("</th>");
      cell([&] { append_number(out_, each.last(), 5); });
      for (const auto& [value, step] : {std::pair{each.least(), each.least_step()}, {each.most(), each.most_step()}}) {
        cell([&] { each.finite() > 0 ? append_number(out_, value, 5) : put("-"); });
        cell([&] { each.finite() > 0 ? append_count(out_, step) : put("-"); });
      }
      if (gaps) {
        cell([&] { append_count(out_, each.values() - each.finite()); });
        cell([&] { has_gaps(each) ? append_count(out_, *each.first_not_finite()) : put("-"); });
      }
      put("</tr>\n");
    }
    put("</tbody></table></div></section>\n");
  }

  void heading(std::string_view text) { put("<th scope=\"col\">"), put(text), put("</th>"); }
  void cell(auto content) { put("<td>"), content(), put("</td>"); }

  void faults() {
    if (page_.all_faults == 0) return;
    put("<section class=\"card\"><h2>");
    append_count(out_, page_.all_faults);
    put(page_.all_faults == 1 ? " sample" : " samples");
    put(" could not be read");
    if (page_.faults.size() < page_.all_faults) append_count(out_ += "; the first ", page_.faults.size());
    put("</h2><div class=\"scroll\"><table><thead><tr><th scope=\"col\">sample</th><th scope=\"col\">epoch</th><td "
        "class=\"words quiet\">where and why</td></tr></thead><tbody>\n");
    for (const auto& each : page_.faults) {
      put("<tr><th scope=\"row\">");
      append_count(out_, each.sample);
      put("</th><td>");
      if (each.where.epoch) append_count(out_, *each.where.epoch + 1);
      put("</td><td class=\"words\">");
      escaped(fault_text(each));
      put("</td></tr>\n");
    }
    put("</tbody></table></div></section>\n");
  }

  const page_content& page_;
  std::string& out_;
};

}  // namespace penstock::detail
