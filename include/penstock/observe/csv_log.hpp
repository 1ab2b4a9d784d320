// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/observe/interval_meter.hpp>
#include <penstock/observe/log_file.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/observe/text.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// What a row of a log is of.
enum class log_rows { steps, epochs };

struct csv_log_options {
  log_rows rows = log_rows::steps;
  std::uint64_t every = 1;                                     ///< steps, or epochs, per row
  std::chrono::nanoseconds interval{std::chrono::seconds{1}};  ///< between writes to the file; 0: after each row
  std::size_t most_metrics = 1000;                             ///< columns; metrics with further names are left out
  std::chrono::steady_clock::time_point (*clock)() = &std::chrono::steady_clock::now;
};

/// Writes a run as a table of comma-separated values (RFC 4180), for spreadsheets, R and pandas:
///
///     epoch,step,samples,seconds,samples_per_second,wait,loss
///     0,0,256,0.0213,12034.9,0.61,2.31
///
/// A row is of one step, or of `every` steps or epochs: epoch and step of its last one, both from 0; samples; seconds
/// of the run until its end, those before a resume included; speed and share of waiting in the row; then metrics, each
/// the mean of what was reported for the row, empty if nothing was. What is reported between two epochs (a validation)
/// belongs to the last row before. A metric with a new name adds a column at the end: the file is then replaced by one
/// with the longer header, so the table is rectangular at all times. Numbers are written exactly, whatever the locale.
///
/// A run that begins with epoch 0 and step 0 starts the file anew; one that goes on after a resume keeps the rows of
/// earlier steps, replaces later ones and goes on in the same columns. Rows of several steps end at multiples of
/// `every`, and at epochs' ends.
///
/// The constructor throws `error` with path and reason if the file cannot be written, or is none of this kind: nobody's
/// table is overwritten. Later failures do not end the run: see `failure`. Complete rows are in the file after
/// `interval`, when an epoch ends, and however the run ends, if the process is not killed.
class csv_log {
 public:
  explicit csv_log(std::string path, csv_log_options options = {}) : options_(options), file_(std::move(path)) {
    if (options_.every == 0) detail::reject_option("csv_log", "every", "0", "1 or more");
    if (options_.interval.count() < 0)
      detail::reject_option("csv_log", "interval", detail::concat(options_.interval.count(), " ns"), "0 or more");
    if (options_.clock == nullptr) detail::reject_option("csv_log", "clock", "null", "a function");
    std::string text;
    if (file_.is_empty()) return;
    if (!file_.read(text)) throw error("cannot be read", detail::place_in_file(file_.path()));
    const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
    if (!line.starts_with(fixed_columns))
      throw error(
          detail::concat("the file is no log of this kind, wanted one that begins with ", fixed_columns, ", or none"),
          detail::place_in_file(file_.path(), "line 1"));
  }

  void on_begin(const run_begin& event) {
    columns_.clear();
    seconds_ = {};
    meter_ = {};
    const bool resumed = event.first_epoch > 0 || event.first_step > 0;
    file_.truncate(resumed ? rows_before(event.first_epoch, event.first_step) : 0);
    if (file_.is_empty()) file_.append(detail::concat(fixed_columns, '\n'));
    running_ = true;
    written_at_ = options_.clock();
  }

  void on_batch(const batch_event& event) {
    const auto now = options_.clock();
    if (!running_) on_begin({.first_epoch = event.epoch, .first_step = event.step});
    // Between epochs the row stayed open for what is reported there.
    if (!meter_.is_in_hand()) close_row_if_full(event.epoch);
    meter_.batch(event, now);
    close_row_if_full(event.epoch);
    flush_if_due(now);
  }

  void on_metric(const metric_event& event) {
    for (auto& one : columns_) {
      if (one.name != event.name) continue;
      one.sum += event.value;
      ++one.values;
      return;
    }
    if (columns_.size() < options_.most_metrics) columns_.push_back({std::string(event.name), event.value, 1});
  }

  void on_epoch(const epoch_event&) {
    if (!running_) return;
    meter_.end(options_.clock());
    file_.flush();
  }
  void on_error(const error_event&) { finish(); }
  void on_end(const run_end&) { finish(); }

  /// Empty, or what could not be written, first of all; it was told on stderr, too. Rows that could not be written are
  /// tried again with later ones.
  const std::string& failure() const noexcept { return file_.failure(); }

 private:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::string_view fixed_columns = "epoch,step,samples,seconds,samples_per_second,wait";
  struct column {
    std::string name;
    double sum = 0;
    std::uint64_t values = 0;
    bool is_in_file = false;
  };

  /// A row ends with a step whose number, counted from 1, is a multiple of `every`, and with its epoch.
  void close_row_if_full(std::uint64_t next_epoch) {
    const run_interval& row = meter_.so_far();
    if (row.steps == 0) return;
    const bool epoch_over = row.epoch != next_epoch;
    const bool full = options_.rows == log_rows::steps ? epoch_over || (row.step + 1) % options_.every == 0
                                                       : epoch_over && (row.epoch + 1) % options_.every == 0;
    if (full) close_row();
  }

  void close_row() {
    if (meter_.so_far().steps == 0) return;
    const run_interval row = meter_.take();
    seconds_ += row.elapsed;
    name_new_columns();
    row_.clear();
    detail::append_count(row_, row.epoch);
    detail::append_count(row_ += ',', row.step);
    detail::append_count(row_ += ',', row.samples);
    detail::append_exact(row_ += ',', seconds_.count());
    row_ += ',';
    if (const auto speed = row.samples_per_second()) detail::append_exact(row_, *speed);
    row_ += ',';
    if (const auto share = row.wait_share()) detail::append_exact(row_, *share);
    for (column& one : columns_) {
      row_ += ',';
      if (one.values > 0) detail::append_exact(row_, one.sum / static_cast<double>(one.values));
      one.sum = 0;
      one.values = 0;
    }
    row_ += '\n';
    file_.append(row_);
  }

  /// Names that have come up since the last row: the file gets their columns before the row does.
  void name_new_columns() {
    const auto first =
        std::find_if(columns_.begin(), columns_.end(), [](const column& one) { return !one.is_in_file; });
    if (first == columns_.end()) return;
    file_.flush();
    std::string text, header;
    if (!file_.is_flushed() || !file_.read(text)) {
      columns_.erase(first, columns_.end());  // they come up again with their next value
      return;
    }
    for (auto one = first; one != columns_.end(); ++one) {
      detail::append_csv_field(header += ',', one->name);
      one->is_in_file = true;
    }
    const std::string empty_cells(static_cast<std::size_t>(columns_.end() - first), ',');
    std::string wider;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      wider.append(text, at, end - at).append(at == 0 ? header : empty_cells) += '\n';
      at = end + 1;
    }
    if (!file_.replace(wider)) columns_.erase(first, columns_.end());
  }

  /// The bytes of header and rows of steps before the given one; takes note of the columns and seconds that go on.
  std::size_t rows_before(std::uint64_t epoch, std::uint64_t step) {
    std::string text;
    if (!file_.read(text)) return 0;
    std::size_t end = text.find('\n');
    if (end == text.npos) return 0;
    read_names(std::string_view(text).substr(0, end));
    ++end;
    for (std::size_t next; (next = text.find('\n', end)) != text.npos; end = next + 1) {
      const std::string_view row = std::string_view(text).substr(end, next - end);
      std::uint64_t row_epoch = 0, row_step = 0, samples = 0;
      double seconds = 0;
      const char* at = row.data();
      const char* const last = row.data() + row.size();
      const auto field = [&](auto& value) {
        const auto [stop, problem] = std::from_chars(at, last, value);
        if (problem != std::errc{} || stop == last || *stop != ',') return false;
        at = stop + 1;
        return true;
      };
      // Rows are in order: from the first that is later, or that a crash has cut off, all are replaced.
      if (!field(row_epoch) || !field(row_step) || !field(samples) || !field(seconds)) break;
      if (std::pair(row_epoch, row_step) >= std::pair(epoch, step)) break;
      seconds_ = run_interval::seconds(seconds);
    }
    return end;
  }

  void read_names(std::string_view header) {
    header.remove_prefix(std::min(fixed_columns.size() + 1, header.size()));
    while (!header.empty()) {
      std::string name;
      std::size_t at = 0;
      bool quoted = header[0] == '"';
      for (at = quoted ? 1 : 0; at < header.size(); ++at) {
        if (!quoted && header[at] == ',') break;
        if (quoted && header[at] == '"') {
          if (at + 1 == header.size() || header[at + 1] != '"') {
            quoted = false;
            continue;
          }
          ++at;
        }
        name += header[at];
      }
      columns_.push_back({.name = std::move(name), .is_in_file = true});
      header.remove_prefix(std::min(at + 1, header.size()));
    }
  }

  void flush_if_due(time_point now) {
    if (now - written_at_ < options_.interval) return;
    written_at_ = now;
    file_.flush();
  }

  void finish() {
    if (!std::exchange(running_, false)) return;
    meter_.end(options_.clock());
    close_row();
    file_.flush();
  }

  csv_log_options options_;
  detail::log_file file_;
  bool running_ = false;
  time_point written_at_{};
  run_interval::seconds seconds_{0};
  interval_meter meter_;
  std::vector<column> columns_;
  std::string row_;
};

}  // namespace penstock
