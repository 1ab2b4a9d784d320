// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/observe/log_file.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/observe/text.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/step_record.hpp>

namespace penstock {

struct chrome_trace_options {
  std::uint64_t most_steps = 20'000;  ///< that are written, the first ones: about 1 kB each, and 0.1 kB a reader
  std::uint64_t rank = 0;             ///< of the replica, which is a process of its own in the trace
};

/// Writes what a feed did, and when, in Chrome's trace format (JSON), for ui.perfetto.dev and chrome://tracing: an
/// observer.
///
/// A row for each reader, for copies, for the computing, and for the loop's waits; arrows follow each batch from the
/// reader that completed it through its copy to its computing. Times are those of `step_record`. The constructor throws
/// `error` if the file cannot be written; later failures do not end the run, see `failure`. The file is whole when the
/// run ends; one that was cut short opens, too.
class chrome_trace {
 public:
  explicit chrome_trace(std::string path, chrome_trace_options options = {})
      : options_(options), file_(std::move(path)) {
    file_.truncate(0);
    text_ = "[";
    name_process();
  }

  void on_step(const step_record& one) {
    if (steps_ == options_.most_steps || ended_) return;
    ++steps_;
    const read_span* last = nullptr;
    for (const read_span& part : one.reads) {
      name_reader(part.reader);
      work("read", one, part.when, first_reader + part.reader);
      number(",\"args\":{\"samples\":", part.samples);
      text_ += "}}";
      if (last == nullptr || part.when.end > last->when.end) last = &part;
    }
    if (one.asked.length().count() > 0) {
      work("wait", one, one.asked, loop_row);
      text_ += '}';
    }
    if (one.copied) {
      work("copy", one, one.copy, copy_row);
      number(",\"args\":{\"bytes\":", one.bytes);
      text_ += "}}";
    }
    work("compute", one, one.compute, compute_row);
    number(",\"args\":{\"samples\":", one.samples);
    text_ += "}}";
    if (last != nullptr) {
      arrow('s', one, last->when, first_reader + last->reader);
      if (one.copied) arrow('t', one, one.copy, copy_row);
      arrow('f', one, one.compute, compute_row);
      ++arrows_;
    }
    file_.append(text_);
    text_.clear();
    if (steps_ % 1000 == 0) file_.flush();
  }
  void on_epoch(const epoch_event&) { file_.flush(); }
  void on_end(const run_end&) {
    if (std::exchange(ended_, true)) return;
    file_.append("\n]\n");
    file_.flush();
  }

  /// Empty, or what could not be written, first of all.
  const std::string& failure() const noexcept { return file_.failure(); }

 private:
  enum row : std::uint32_t { loop_row = 1, compute_row, copy_row, first_reader = 10 };

  void number(std::string_view before, std::uint64_t value) {
    text_ += before;
    detail::append_count(text_, value);
  }
  // Microseconds, exactly.
  void microseconds(std::string_view before, std::chrono::nanoseconds at) {
    text_ += before;
    detail::append_fixed(text_, static_cast<double>(at.count()) / 1000, 3);
  }
  void begin_event(std::string_view name, char phase, std::uint32_t where) {
    text_ += std::exchange(any_, true) ? ",\n{\"name\":\"" : "\n{\"name\":\"";
    text_ += name;
    text_ += "\",\"ph\":\"";
    text_ += phase;
    number("\",\"pid\":", options_.rank);
    number(",\"tid\":", where);
  }
  void work(std::string_view what, const step_record& one, const time_span& when, std::uint32_t where) {
    name_.assign(what);
    name_ += ' ';
    detail::append_count(name_, one.epoch);
    name_ += '.';
    detail::append_count(name_, one.step);
    begin_event(name_, 'X', where);
    text_ += ",\"cat\":\"";
    text_ += what;
    microseconds("\",\"ts\":", when.begin);
    microseconds(",\"dur\":", when.length());
  }
  // From within one piece of work to the next.
  void arrow(char phase, const step_record&, const time_span& at, std::uint32_t where) {
    begin_event("batch", phase, where);
    text_ += ",\"cat\":\"batch\"";
    number(",\"id\":", options_.rank * 1'000'000'000 + arrows_);
    microseconds(",\"ts\":", at.begin + at.length() / 2);
    text_ += phase == 's' ? "}" : ",\"bp\":\"e\"}";
  }
  void name_row(std::uint32_t where, std::string_view name) {
    begin_event("thread_name", 'M', where);
    text_ += ",\"args\":{\"name\":\"";
    text_ += name;
    text_ += "\"}}";
    begin_event("thread_sort_index", 'M', where);
    number(",\"args\":{\"sort_index\":", where == loop_row      ? 100
                                         : where == compute_row ? 99
                                         : where == copy_row    ? 98
                                                                : where);
    text_ += "}}";
  }
  void name_process() {
    begin_event("process_name", 'M', 0);
    number(",\"args\":{\"name\":\"penstock rank ", options_.rank);
    text_ += "\"}}";
    name_row(loop_row, "your loop");
    name_row(compute_row, "compute");
    name_row(copy_row, "copy");
  }
  void name_reader(std::uint32_t reader) {
    for (; readers_ <= reader; ++readers_) name_row(first_reader + readers_, detail::concat("reader ", readers_));
  }

  chrome_trace_options options_;
  detail::log_file file_;
  std::string text_, name_;
  std::uint64_t steps_ = 0;
  std::uint64_t arrows_ = 0;
  std::uint32_t readers_ = 0;
  bool any_ = false;
  bool ended_ = false;
};

}  // namespace penstock
