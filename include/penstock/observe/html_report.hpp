// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/observe/estimate.hpp>
#include <penstock/observe/html_page.hpp>
#include <penstock/observe/interval_meter.hpp>
#include <penstock/observe/log_file.hpp>
#include <penstock/observe/metric_history.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/observe/text.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

struct html_report_options {
  std::string title = "Training";
  std::chrono::nanoseconds interval{std::chrono::seconds{2}};  ///< between pages
  std::size_t points = 200;                                    ///< per curve: bounds memory and page
  std::size_t most_metrics = 50;                               ///< metrics with further names are left out
  std::size_t most_faults = 20;                                ///< named of the samples that could not be read
  std::optional<std::uint64_t> epochs{};                       ///< of the whole run, where the feed cannot know
  std::uint64_t rank = 0;                                      ///< the replica that this one is of
  std::uint64_t ranks = 1;                                     ///< how many replicas there are
  std::chrono::steady_clock::time_point (*clock)() = &std::chrono::steady_clock::now;
  std::chrono::system_clock::time_point (*wall_clock)() = &std::chrono::system_clock::now;
};

/// Writes a run as one page of HTML that needs no network and no other file: how far it is, the curves of what is
/// reported over steps counted through all epochs, its speed, the share of time in which compute waited for data, the
/// samples that could not be read and the pipeline. Metrics whose names differ only before the last '/', such as
/// "training/loss" and "validation/loss", share a chart. A browser that shows the page follows the run: it loads the
/// page anew while the run goes on. After a resume the curves begin where the run goes on.
///
/// The page is replaced whole, every `interval`, at a batch, and when the run ends; a curve keeps least, mean and
/// greatest value of up to `points` stretches of the run. The constructor writes a first page, and throws `error` with
/// path and reason if it cannot. Later failures do not end the run: see `failure`.
class html_report {
 public:
  explicit html_report(std::string path, html_report_options options = {})
      : options_(std::move(options)),
        path_(std::move(path)),
        metrics_(options_.points),
        speed_("samples per second", options_.points),
        waiting_("waiting for data", options_.points) {
    if (options_.interval.count() <= 0)
      detail::reject_option("html_report", "interval", detail::concat(options_.interval.count(), " ns"), "more than 0");
    if (options_.rank >= options_.ranks)
      detail::reject_option("html_report", "rank", detail::concat(options_.rank, " of ", options_.ranks),
                            "one below ranks");
    if (options_.clock == nullptr) detail::reject_option("html_report", "clock", "null", "a function");
    if (options_.wall_clock == nullptr) detail::reject_option("html_report", "wall_clock", "null", "a function");
    begun_ = options_.wall_clock();
    compose("waiting for the first batch", true);
    if (const int problem = detail::replace_file(path_, page_)) detail::throw_file_error(path_, "write", problem);
  }

  void on_begin(const run_begin& event) {
    written_at_ = options_.clock();
    begun_ = options_.wall_clock();
    estimate_.begin(event, written_at_);
    if (options_.epochs) estimate_.expect_epochs(*options_.epochs);
    steps_.begin(event);
    first_step_ = step_ = steps_.next();
    description_ = event.description;
    metrics_.clear();
    speed_ = metric_history(speed_.name(), options_.points);
    waiting_ = metric_history(waiting_.name(), options_.points);
    epochs_.clear();
    faults_.clear();
    all_faults_ = 0;
    message_.clear();
    meter_ = {};
    running_ = true;
  }

  void on_batch(const batch_event& event) {
    const auto now = options_.clock();
    if (!running_)
      on_begin({.steps_per_epoch = event.steps_in_epoch, .first_epoch = event.epoch, .first_step = event.step});
    estimate_.batch(event, now);
    meter_.batch(event, now);
    constexpr auto smooth = std::chrono::milliseconds(100);
    if (meter_.so_far().elapsed >= smooth) take_speed();
    steps_.expect_steps(event.steps_in_epoch);
    step_ = steps_.of(event.epoch, event.step);
    if (event.step == 0 && epochs_.size() < most_epochs) epochs_.push_back(step_);
    if (now - written_at_ >= options_.interval) {
      written_at_ = now;
      write("running", true);
    }
  }

  void on_metric(const metric_event& event) {
    const auto known = metrics_.all();
    if (known.size() >= options_.most_metrics &&
        std::none_of(known.begin(), known.end(), [&](const auto& one) { return one.name() == event.name; }))
      return;
    metrics_.of(event.name).add(running_ ? steps_.of(event.epoch, event.step) : 0, event.value);
  }

  void on_epoch(const epoch_event& event) {
    if (!running_) return;
    const auto now = options_.clock();
    estimate_.epoch(event, now);
    meter_.end(now);
    take_speed();
    all_faults_ += event.faults.size();
    for (const auto& each : event.faults)
      if (faults_.size() < options_.most_faults) faults_.push_back(each);
  }

  void on_error(const error_event& event) {
    const std::string place = event.where.text();
    message_ = event.message;
    if (!place.empty() && message_.find(place) == message_.npos) message_.insert(0, place + ": ");
    finish("error");
  }
  void on_end(const run_end& event) { finish(event.reason); }

  const std::string& path() const noexcept { return path_; }
  /// Empty, or what could not be written, first of all; it was told on stderr, too. The next page is written all the
  /// same.
  const std::string& failure() const noexcept { return failure_.text(); }

 private:
  static constexpr std::size_t most_epochs = 100;  // charts mark no more than these

  void take_speed() {
    const run_interval done = meter_.take();
    if (const auto speed = done.samples_per_second()) speed_.add(step_, *speed);
    if (const auto share = done.wait_share()) waiting_.add(step_, *share);
  }

  void finish(std::string_view reason) {
    if (!std::exchange(running_, false)) return;
    meter_.end(options_.clock());
    take_speed();
    write(reason, false);
  }

  void write(std::string_view status, bool goes_on) {
    compose(status, goes_on);
    if (const int problem = detail::replace_file(path_, page_)) failure_.note(path_, "write", problem);
  }

  void compose(std::string_view status, bool goes_on) {
    detail::page_content page;
    page.title = options_.title;
    page.status = status;
    page.message = message_;
    page.fraction = estimate_.fraction();
    page.begun = begun_;
    page.updated = options_.wall_clock();
    page.metrics = metrics_.all();
    page.faults = faults_;
    page.all_faults = all_faults_;
    page.description = description_;
    if (goes_on)
      page.reload = std::max(std::chrono::seconds(1), std::chrono::ceil<std::chrono::seconds>(options_.interval));
    if (estimate_.batches() > 0) {
      position(page, goes_on);
      figures(page, goes_on);
    }
    charts(page);
    page_.clear();
    detail::page_writer(page, page_).write();
  }

  void position(detail::page_content& page, bool goes_on) const {
    const auto of = [](std::string_view what, std::uint64_t value, std::optional<std::uint64_t> all) {
      return all ? detail::concat(what, value, " of ", *all) : detail::concat(what, value);
    };
    page.position = of("epoch ", estimate_.current_epoch() + 1, estimate_.epochs()) +
                    of(", step ", estimate_.steps_done(), estimate_.steps_per_epoch());
    if (options_.ranks > 1) page.position += detail::concat(", rank ", options_.rank, " of ", options_.ranks);
    if (goes_on) {
      if (const auto left = estimate_.time_left()) {
        detail::append_duration(page.time, *left);
        page.time += estimate_.epochs() ? " left" : " left in this epoch";
      }
    }
  }

  void figures(detail::page_content& page, bool goes_on) const {
    const double seconds = estimate_.elapsed(options_.clock()).count();
    const auto mean = [&](double sum) { return seconds > 0 ? std::optional(sum / seconds) : std::nullopt; };
    const auto samples = goes_on ? estimate_.samples_per_second() : mean(static_cast<double>(estimate_.samples()));
    const auto batches = goes_on ? estimate_.batches_per_second() : mean(static_cast<double>(estimate_.batches()));
    const auto share = goes_on ? estimate_.wait_share() : mean(estimate_.waited().count());
    const auto rate = [](std::optional<double> value) {
      std::string text = value ? "" : "-";
      if (value) detail::append_rate(text, *value);
      return text;
    };
    page.figures.push_back({"samples per second", rate(samples), rate(batches) + " batches per second"});
    if (share) {
      std::string percent;
      detail::append_fixed(percent, std::clamp(*share, 0.0, 1.0) * 100, 0);
      page.figures.push_back({"waiting for data", percent + "%", std::string(bound_by(*share))});
    }
    std::string time;
    detail::append_duration(time, estimate_.elapsed(options_.clock()));
    page.figures.push_back({"time", std::move(time), "since the run began, or went on"});
    const auto count = [&](std::uint64_t value) {
      return value < 10'000 ? detail::concat(value) : rate(static_cast<double>(value));
    };
    page.figures.push_back({"samples", count(estimate_.samples()), "in " + count(estimate_.batches()) + " batches"});
    if (all_faults_ > 0)
      page.figures.push_back(
          {"could not be read", detail::concat(all_faults_), all_faults_ == 1 ? "sample" : "samples"});
  }

  void charts(detail::page_content& page) const {
    const auto last_part = [](std::string_view name) { return name.substr(name.rfind('/') + 1); };
    const auto add = [&](const metric_history& curve, detail::chart_values values) {
      page.charts.push_back({.name = curve.name(),
                             .curves = {&curve},
                             .epochs = epochs_,
                             .values = values,
                             .first_step = first_step_,
                             .last_step = step_});
    };
    for (const auto& each : metrics_.all()) {
      const auto same = std::find_if(page.charts.begin(), page.charts.end(),
                                     [&](const auto& one) { return last_part(one.name) == last_part(each.name()); });
      if (same == page.charts.end()) {
        add(each, detail::chart_values::numbers);
      } else {
        same->curves.push_back(&each);
        same->name = last_part(each.name());
      }
    }
    if (speed_.values() > 0) add(speed_, detail::chart_values::rates);
    if (waiting_.values() > 0) add(waiting_, detail::chart_values::shares);
  }

  html_report_options options_;
  std::string path_;
  bool running_ = false;
  std::chrono::steady_clock::time_point written_at_{};
  std::chrono::system_clock::time_point begun_{};
  progress_estimate estimate_;
  interval_meter meter_;
  step_numbering steps_;
  std::uint64_t first_step_ = 0, step_ = 0;  // of this run, and of the batch given last
  std::vector<std::uint64_t> epochs_;
  metric_histories metrics_;
  metric_history speed_, waiting_;
  std::vector<sample_fault> faults_;
  std::uint64_t all_faults_ = 0;
  std::string description_, message_, page_;
  detail::log_failure failure_;
};

}  // namespace penstock
