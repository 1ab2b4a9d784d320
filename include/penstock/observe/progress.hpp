// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <penstock/observe/estimate.hpp>
#include <penstock/observe/fault_text.hpp>
#include <penstock/observe/metric_history.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/observe/sparkline.hpp>
#include <penstock/observe/terminal.hpp>
#include <penstock/observe/text.hpp>

namespace penstock {

struct progress_options {
  std::FILE* stream = stderr;
  std::optional<bool> terminal{};                      ///< redraw one line; asked of the stream if not given
  std::optional<std::chrono::nanoseconds> interval{};  ///< between lines; 100 ms on a terminal, else 10 s
  std::size_t width = 0;                               ///< characters per line; 0: the terminal's, else no limit
  std::optional<std::uint64_t> epochs{};               ///< of the whole run, where the feed cannot know
  std::optional<std::uint64_t> steps_per_epoch{};      ///< likewise
  std::chrono::duration<double> memory{30};            ///< of the speeds, see rate_estimate
  std::optional<curve_style> curve{};                  ///< of metrics; on a terminal what it can show, else none
  std::uint64_t rank = 0;                              ///< the replica that this one is of
  std::uint64_t ranks = 1;                             ///< how many replicas there are
  bool all_ranks = false;                              ///< not rank 0 alone is shown; in plain lines then
  std::size_t most_faults = 5;                         ///< samples named per epoch of those that could not be read
  std::chrono::steady_clock::time_point (*clock)() = &std::chrono::steady_clock::now;
};

/// Shows epoch and step, samples and batches per second, what the user reports and its course over the whole run, the
/// share of time in which compute waited for data, which of the two bounds the run (see `bound_by`), and the time left:
///
///     epoch 3/10  step 123/292  24%  [####------]  12.3k samples/s  48.1 batches/s  loss 0.1234 ^-.._  wait 3%
///     bound by compute  0:45 left
///
/// On a terminal this is one line, redrawn and fitted to the width, what matters least going first: the bar, curves,
/// what bounds the run, batches per second, the wait, samples per second, metrics from the last on, step, epoch.
/// Elsewhere plain lines without control characters, at most one per interval and one at the end. Epochs are counted
/// from 1 here, steps are those completed. Without a known number of epochs (see `progress_options::epochs`), fraction
/// and time left are the epoch's, and a terminal keeps one line per epoch. Samples that an epoch could not read are
/// counted at its end, and the first named, on lines of their own.
///
/// Of several replicas rank 0 is shown. With `all_ranks` each writes plain lines that begin with its rank, on a
/// terminal too. Bad options throw `std::invalid_argument`. Failing to write is ignored.
class progress_bar {
 public:
  explicit progress_bar(progress_options options = {}) : options_(options), estimate_(options.memory) {
    if (options_.stream == nullptr) detail::reject_option("progress_bar", "stream", "null", "an open stream");
    if (options_.clock == nullptr) detail::reject_option("progress_bar", "clock", "null", "a function");
    if (options_.rank >= options_.ranks)
      detail::reject_option("progress_bar", "rank", detail::concat(options_.rank, " of ", options_.ranks),
                            "one below ranks");
    shown_at_all_ = options_.rank == 0 || options_.all_ranks;
    terminal_ = options_.terminal ? *options_.terminal : detail::is_terminal(options_.stream);
    if (options_.all_ranks && options_.ranks > 1) terminal_ = false;
    curve_ = options_.curve ? *options_.curve : terminal_ ? detail::terminals_curve() : curve_style::none;
    interval_ = options_.interval ? *options_.interval
                : terminal_       ? std::chrono::milliseconds{100}
                                  : std::chrono::seconds{10};
    if (interval_.count() < 0) {
      detail::reject_option("progress_bar", "interval", detail::concat(interval_.count(), " ns"), "0 or more");
    }
  }

  void on_begin(const run_begin& event) {
    drawn_at_ = options_.clock();
    estimate_.begin(event, drawn_at_);
    if (options_.epochs) estimate_.expect_epochs(*options_.epochs);
    if (options_.steps_per_epoch) estimate_.expect_steps(*options_.steps_per_epoch);
    running_ = true;
    if (terminal_) draw(drawn_at_);
  }

  void on_batch(const batch_event& event) {
    if (!running_) on_begin({.first_epoch = event.epoch, .first_step = event.step});
    const time_point now = options_.clock();
    estimate_.batch(event, now);
    draw_if_due(now);
  }

  void on_metric(const metric_event& event) { metrics_.of(event.name).add(event.step, event.value); }

  void on_epoch(const epoch_event& event) {
    if (!running_) return;
    const time_point now = options_.clock();
    estimate_.epoch(event, now);
    if (terminal_ && !estimate_.epochs()) {
      draw(now);
      end_line();
    } else {
      draw_if_due(now);
    }
    if (!event.faults.empty()) tell(event);
  }

  void on_error(const error_event&) { finish("error"); }
  void on_end(const run_end& event) { finish(event.reason); }

 private:
  using time_point = std::chrono::steady_clock::time_point;
  enum part : std::size_t {
    reason,
    epoch,
    step,
    percent,
    bar,
    samples,
    batches,
    metrics,
    wait,
    bound,
    time,
    part_count
  };
  static constexpr std::size_t curve_cells = 8;

  void finish(std::string_view why) {
    if (!running_) return;
    running_ = false;
    const time_point now = options_.clock();
    compose_position();
    const double seconds = estimate_.elapsed(now).count();
    if (seconds > 0) {
      compose_speeds(static_cast<double>(estimate_.samples()) / seconds,
                     static_cast<double>(estimate_.batches()) / seconds, estimate_.waited().count() / seconds);
    }
    parts_[reason].append(why).append(":");
    parts_[time] = "in ";
    detail::append_duration(parts_[time], estimate_.elapsed(now));
    write_line();
    if (terminal_) end_line();
  }

  void draw_if_due(time_point now) {
    if (now - drawn_at_ >= interval_) draw(now);
  }

  void draw(time_point now) {
    drawn_at_ = now;
    compose_position();
    compose_speeds(estimate_.samples_per_second(), estimate_.batches_per_second(), estimate_.wait_share());
    if (const auto left = estimate_.time_left()) {
      detail::append_duration(parts_[time], *left);
      parts_[time] += " left";
    }
    write_line();
  }

  void compose_position() {
    for (auto& each : parts_) each.clear();  // keeps the memory: after the first lines nothing is allocated
    compose_of(parts_[epoch], "epoch ", estimate_.current_epoch() + 1, estimate_.epochs());
    compose_of(parts_[step], "step ", estimate_.steps_done(), estimate_.steps_per_epoch());
    if (const auto fraction = estimate_.fraction()) {
      auto whole = static_cast<std::uint64_t>(*fraction * 100 + 0.5);
      if (whole == 100 && *fraction < 1) whole = 99;  // 100 is kept for the end
      detail::append_count(parts_[percent], whole);
      parts_[percent] += '%';
      if (terminal_) {
        constexpr std::size_t cells = 20;
        const auto full = static_cast<std::size_t>(*fraction * static_cast<double>(cells));
        parts_[bar].append("[").append(full, '#').append(cells - full, '-').append("]");
      }
    }
    compose_metrics(metrics_.all().size(), curve_);
  }

  void compose_metrics(std::size_t count, curve_style curve) {
    std::string& out = parts_[metrics];
    out.clear();
    for (const auto& each : metrics_.all().first(count)) {
      if (!out.empty()) out += "  ";
      detail::append_printable(out, each.name());
      out += ' ';
      detail::append_number(out, each.last());
      if (curve == curve_style::none || each.buckets().size() < 2) continue;
      out += ' ';
      detail::append_sparkline(out, each.buckets(), curve_cells, curve);
    }
  }

  void compose_speeds(std::optional<double> samples_rate, std::optional<double> batches_rate,
                      std::optional<double> share) {
    if (samples_rate) detail::append_rate(parts_[samples], *samples_rate);
    if (samples_rate) parts_[samples] += " samples/s";
    if (batches_rate) detail::append_rate(parts_[batches], *batches_rate);
    if (batches_rate) parts_[batches] += " batches/s";
    if (!share) return;
    parts_[wait] += "wait ";
    detail::append_fixed(parts_[wait], std::min(*share, 1.0) * 100, 0);
    parts_[wait] += '%';
    parts_[bound] += bound_by(*share);
  }

  static void compose_of(std::string& out, std::string_view what, std::uint64_t value,
                         std::optional<std::uint64_t> of) {
    out += what;
    detail::append_count(out, value);
    if (!of) return;
    out += '/';
    detail::append_count(out, *of);
  }

  /// Samples that could not be read, on lines of their own.
  void tell(const epoch_event& event) {
    std::string text;
    const auto begin_line = [&] {
      if (options_.ranks > 1 && options_.all_ranks) append_rank(text);
    };
    begin_line();
    text += detail::concat("epoch ", event.epoch + 1, ": ", event.faults.size(),
                           event.faults.size() == 1 ? " sample" : " samples", " could not be read");
    const std::size_t named = std::min(event.faults.size(), options_.most_faults);
    if (named > 0 && named < event.faults.size()) text += detail::concat("; the first ", named, ":");
    if (named > 0 && named == event.faults.size()) text += ':';
    text += '\n';
    for (const auto& each : event.faults.first(named)) {
      begin_line();
      text += "  ";
      detail::append_printable(text, detail::concat("sample ", each.sample, ", ", detail::fault_text(each)));
      text += '\n';
    }
    if (terminal_ && shown_ > 0) {  // the line that is redrawn makes room
      std::string cover = "\r";
      cover.append(shown_, ' ') += '\r';
      text.insert(0, cover);
      shown_ = 0;
    }
    put(text);
  }

  void append_rank(std::string& out) const { out += detail::concat("rank ", options_.rank, "/", options_.ranks, "  "); }

  void write_line() {
    std::size_t most = options_.width;
    if (most == 0 && terminal_) most = detail::terminal_width(options_.stream, 80);
    if (terminal_ && most > 0) --most;  // a character in the last column makes some terminals break the line
    line_.clear();
    if (terminal_) line_ += '\r';
    text_.clear();
    if (options_.ranks > 1 && options_.all_ranks) append_rank(text_);
    const std::size_t prefix = text_.size();
    if (most > 0) drop_to_fit(most > prefix ? most - prefix : 0);
    for (const auto& each : parts_) {
      if (each.empty()) continue;
      if (text_.size() > prefix) text_ += "  ";
      text_ += each;
    }
    if (most > 0 || terminal_) detail::cut_to(text_, most);
    line_ += text_;
    if (terminal_) {
      const std::size_t characters = detail::count_characters(text_);
      if (characters < shown_) line_.append(shown_ - characters, ' ');
      shown_ = characters;
    } else {
      line_ += '\n';
    }
    put(line_);
  }

  void drop_to_fit(std::size_t most) {
    const auto characters = [&] {
      std::size_t sum = 0;
      for (const auto& each : parts_) sum += each.empty() ? 0 : detail::count_characters(each) + 2;
      return sum;
    };
    const auto fits = [&] { return characters() <= most + 2; };
    if (fits()) return;
    parts_[bar].clear();
    if (!fits() && curve_ != curve_style::none) compose_metrics(metrics_.all().size(), curve_style::none);
    for (const part least : {bound, batches, wait, samples}) {
      if (fits()) return;
      parts_[least].clear();
    }
    for (std::size_t shown = metrics_.all().size(); !fits() && shown > 0;) compose_metrics(--shown, curve_style::none);
    for (const part least : {step, epoch, reason, time}) {
      if (fits()) return;
      parts_[least].clear();
    }
  }

  void end_line() {
    shown_ = 0;
    put("\n");
  }

  void put(std::string_view text) {
    if (!shown_at_all_) return;
    std::fwrite(text.data(), 1, text.size(), options_.stream);
    std::fflush(options_.stream);
  }

  progress_options options_;
  bool terminal_ = false;
  bool shown_at_all_ = true;
  curve_style curve_ = curve_style::none;
  std::chrono::nanoseconds interval_{};
  progress_estimate estimate_;
  bool running_ = false;
  time_point drawn_at_{};
  metric_histories metrics_{2 * curve_cells};
  std::array<std::string, part_count> parts_;
  std::string text_, line_;
  std::size_t shown_ = 0;  // characters of the terminal's line, to be covered by the next
};

}  // namespace penstock
