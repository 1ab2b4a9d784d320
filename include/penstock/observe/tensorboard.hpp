// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <penstock/observe/interval_meter.hpp>
#include <penstock/observe/log_file.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/observe/tensorboard_record.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

struct tensorboard_options {
  std::chrono::nanoseconds interval{std::chrono::seconds{1}};  ///< between writes to the file; 0: after each step
  std::chrono::nanoseconds speed{std::chrono::seconds{1}};     ///< between points of speed and waiting, at least
  std::optional<std::uint64_t> steps_before{};  ///< steps before the first epoch, where the feed cannot know
  std::chrono::steady_clock::time_point (*clock)() = &std::chrono::steady_clock::now;
  std::chrono::system_clock::time_point (*wall_clock)() = &std::chrono::system_clock::now;
};

/// Writes a run to a folder for TensorBoard, as an event file of this run's own: `tensorboard --logdir FOLDER` shows
/// the curve of each metric that is reported, over steps counted through all epochs, and beside them
///
///     penstock/samples_per_second, penstock/wait_share     about once a second, and at epochs' ends
///     penstock/faults                                      samples that an epoch could not read, if any
///     penstock/pipeline                                    its description, as text
///
/// Values are written as TensorBoard keeps them, in single precision. A run that goes on after a resume, into the same
/// folder, begins with a mark that makes TensorBoard drop the steps that are now done again; a run from the start drops
/// all earlier. Of streams, whose epochs have unknown lengths, a resumed run counts from `steps_before`.
///
/// The constructor makes the folder and the file, and throws `error` with path and reason if it cannot. Later failures
/// do not end the run: see `failure`. What was reported is in the file after `interval` and when the run ends, however
/// it ends, if the process is not killed.
class tensorboard {
 public:
  explicit tensorboard(const std::string& folder, tensorboard_options options = {})
      : options_(checked(options)), file_(make_file(folder, options_)) {
    append(detail::tensorboard_version(wall()));
  }

  void on_begin(const run_begin& event) {
    steps_.begin(event, options_.steps_before);
    meter_ = {};
    append(detail::tensorboard_restart(wall(), steps_.next()));
    if (!event.description.empty()) {
      std::string text;  // Markdown: indented lines stay as they are
      for (std::size_t at = 0; at < event.description.size();) {
        const std::size_t end = std::min(event.description.find('\n', at), event.description.size());
        text.append("    ").append(event.description.substr(at, end - at)) += '\n';
        at = end + 1;
      }
      append(detail::tensorboard_text(wall(), steps_.next(), "penstock/pipeline", text));
    }
    running_ = true;
    written_at_ = options_.clock();
  }

  void on_batch(const batch_event& event) {
    const auto now = options_.clock();
    if (!running_)
      on_begin({.steps_per_epoch = event.steps_in_epoch, .first_epoch = event.epoch, .first_step = event.step});
    meter_.batch(event, now);
    steps_.expect_steps(event.steps_in_epoch);
    if (meter_.so_far().steps > 0 && meter_.so_far().elapsed >= options_.speed) put_speed();
    step_ = steps_.of(event.epoch, event.step);
    if (now - written_at_ >= options_.interval) {
      written_at_ = now;
      file_.flush();
    }
  }

  void on_metric(const metric_event& event) {
    append(
        detail::tensorboard_scalar(wall(), running_ ? steps_.of(event.epoch, event.step) : 0, event.name, event.value));
  }

  void on_epoch(const epoch_event& event) {
    if (!running_) return;
    meter_.end(options_.clock());
    put_speed();
    if (!event.faults.empty())
      append(detail::tensorboard_scalar(wall(), step_, "penstock/faults", static_cast<double>(event.faults.size())));
    file_.flush();
  }
  void on_error(const error_event&) { finish(); }
  void on_end(const run_end&) { finish(); }

  const std::string& path() const noexcept { return file_.path(); }
  /// Empty, or what could not be written, first of all; it was told on stderr, too.
  const std::string& failure() const noexcept { return file_.failure(); }

 private:
  static tensorboard_options checked(const tensorboard_options& options) {
    const auto not_negative = [](const char* name, std::chrono::nanoseconds value) {
      if (value.count() < 0)
        detail::reject_option("tensorboard", name, detail::concat(value.count(), " ns"), "0 or more");
    };
    not_negative("interval", options.interval);
    not_negative("speed", options.speed);
    if (options.clock == nullptr) detail::reject_option("tensorboard", "clock", "null", "a function");
    if (options.wall_clock == nullptr) detail::reject_option("tensorboard", "wall_clock", "null", "a function");
    return options;
  }

  /// TensorBoard takes a folder's files in the order of their names: the time, then a number for those of one second.
  static detail::log_file make_file(const std::string& folder, const tensorboard_options& options) {
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) detail::throw_file_error(folder, "create", problem.value());
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
    const auto time = std::chrono::duration_cast<std::chrono::seconds>(options.wall_clock().time_since_epoch());
    std::string seconds = std::to_string(time.count());
    seconds.insert(0, 10 - std::min<std::size_t>(seconds.size(), 10), '0');
    for (int number = 0;; ++number) {
      const std::string path = detail::concat(folder, "/events.out.tfevents.", seconds, ".",
                                              std::string_view(host.data()), ".", ::getpid(), ".", number);
      if (!std::filesystem::exists(path, problem)) return detail::log_file(path, O_EXCL);
    }
  }

  double wall() const { return std::chrono::duration<double>(options_.wall_clock().time_since_epoch()).count(); }

  void append(const detail::protobuf_message& event) {
    record_.clear();
    detail::append_record(record_, event.bytes());
    file_.append(record_);
  }

  void put_speed() {
    const run_interval done = meter_.take();
    if (const auto speed = done.samples_per_second())
      append(detail::tensorboard_scalar(wall(), step_, "penstock/samples_per_second", *speed));
    if (const auto share = done.wait_share())
      append(detail::tensorboard_scalar(wall(), step_, "penstock/wait_share", *share));
  }

  void finish() {
    if (!std::exchange(running_, false)) return;
    meter_.end(options_.clock());
    if (meter_.so_far().steps > 0) put_speed();
    file_.flush();
  }

  tensorboard_options options_;
  detail::log_file file_;
  bool running_ = false;
  std::chrono::steady_clock::time_point written_at_{};
  step_numbering steps_;
  std::uint64_t step_ = 0;  // of the batch given last
  interval_meter meter_;
  std::string record_;
};

}  // namespace penstock
