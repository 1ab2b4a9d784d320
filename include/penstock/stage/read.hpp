// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <penstock/sample/error.hpp>
#include <penstock/sample/fault_list.hpp>
#include <penstock/stage/cpu_set.hpp>
#include <penstock/stage/stage.hpp>

namespace penstock {

class reader_pool;

/// What is done with a sample whose `read` or transform throws.
enum class bad_samples : std::uint8_t {
  fail,        ///< the batch arrives as an error
  skip,        ///< it is left out: the batch is shorter, and its last sample takes the free row
  substitute,  ///< another one of the epoch is read in its place: a function of seed, epoch and sample
};

/// What is done about a sample whose read takes much longer than reads usually do.
enum class late_reads : std::uint8_t {
  wait,    ///< its batch waits for it
  reread,  ///< another reader reads it, too, and the first result counts
};

struct read_options {
  /// Threads that read; 0 reads inline, on the consumer's thread, when it asks for a batch. 1 to 256 are useful.
  /// `automatic`: as many threads as there are CPUs to run on, 2 at the least, of which the feed lets so many work as
  /// make steps shorter; see `feed::tuning`. Feeds that replicas start share the CPUs that they have in common.
  int readers = 1;
  /// How long the consumer waits for a batch before it gets a `timeout_error`; 10 minutes unless given.
  std::optional<std::chrono::nanoseconds> timeout{};
  /// The same for the first batch after a start, where caches are cold; `timeout` unless given.
  std::optional<std::chrono::nanoseconds> first_timeout{};
  /// How long the consumer waits for a batch before observers get a `late_event`, a line on standard error if none has
  /// `on_late`; again at twice the time, and so on, until `timeout` ends it. 0 is never. 30 seconds unless given.
  std::optional<std::chrono::nanoseconds> warn_after{};
  /// With `reread`, a read that takes more than `late_factor` times the usual (a running estimate of the median; 8
  /// unless given), and more than `late_floor` (10 ms unless given), is issued again by a reader that has nothing else
  /// to do; the first result counts, an error too, and order and contents of batches are as without. For disks and
  /// networks of which some requests hang, and what the watchdog of `warn_after` does where it is allowed to act.
  /// Samples are read one by one, away from their place, and copied there; needs 2 readers, of the feed's own. A read
  /// that never ends costs its reader: the others go on, and only what begins anew (an epoch that was left early, a
  /// resume) and the feed's end wait for it.
  late_reads late = late_reads::wait;
  std::optional<double> late_factor{};
  std::optional<std::chrono::nanoseconds> late_floor{};
  /// Readers go on into the next epoch while the last batches of this one are consumed.
  bool next_epoch = true;
  /// Readers that serve other feeds, too, instead of `readers` of one's own.
  std::shared_ptr<reader_pool> shared{};
  /// CPUs that the readers are kept on, such as those near a device: `{0, 1}`. Empty: all that the thread which starts
  /// the feed may run on. For a shared pool, see `reader_pool_options`.
  cpu_set cpus{};
  /// Samples that cannot be read. `batch.faults()`, `feed.faults()` and observers at an epoch's end tell which, where
  /// and why. Refused of streams, which cannot go on. What a stop makes of a read, and `std::bad_alloc`, are no
  /// faults of a sample.
  bad_samples bad = bad_samples::fail;
  /// How many may be left out or replaced in an epoch, of this replica's samples and since the last resume; one more is
  /// the error of its batch. Each patch of a bad image counts. 100, unless this or `most_bad_share` is given.
  std::optional<std::uint64_t> most_bad{};
  /// The same as a share, 0 to 1, of this replica's samples of a whole epoch, rounded down. Where both are given both
  /// hold.
  std::optional<double> most_bad_share{};
  /// `penstock::quarantine("bad.csv")`, of <penstock/dataset/quarantine.hpp>: a CSV file of the samples that could not
  /// be read, with sample, path, position, problem. Those that it lists when the feed begins are not tried, and are
  /// faults at once, which count as others do: results are the same with the list and without. What is found is added
  /// at an epoch's end and at the feed's, the file being replaced whole. A list of a dataset of another size or of
  /// other fields is refused. Of several ranks each keeps its own, "bad.rank1.csv" for "bad.csv", and takes note of all
  /// of them. Delete a row, or the file, for a sample to be tried again.
  quarantine_list quarantine{};
};

/// Marks the absence of a transform.
struct no_transform {};

/// Who reads, and what is done to each sample once it is in its place. Takes indices, gives samples.
template <class Transform = no_transform>
struct read_stage {
  static constexpr stage_kind kind = stage_kind::read;
  static constexpr std::chrono::nanoseconds default_timeout = std::chrono::minutes(10);
  static constexpr std::chrono::nanoseconds default_warn_after = std::chrono::seconds(30);
  static constexpr double default_late_factor = 8;
  static constexpr std::chrono::nanoseconds default_late_floor = std::chrono::milliseconds(10);
  static constexpr std::uint64_t default_most_bad = 100;

  read_options options;
  Transform transform;

  /// The most that `automatic` is on `cpus`: one for each, and two where there is one, as reading also waits.
  static std::uint32_t most_readers(const cpu_set& cpus) {
    const auto count = static_cast<std::uint32_t>(cpus.size());
    return count < 2 ? 2 : count > 256 ? 256 : count;
  }
  /// The fewest that `automatic` is: where late reads are issued again, another one is there for that.
  static std::uint32_t least_readers(const read_options& options) { return options.late == late_reads::reread ? 2 : 1; }
  std::chrono::nanoseconds timeout() const { return options.timeout.value_or(default_timeout); }
  std::chrono::nanoseconds first_timeout() const { return options.first_timeout.value_or(timeout()); }

  std::chrono::nanoseconds warn_after() const { return options.warn_after.value_or(default_warn_after); }
  double late_factor() const { return options.late_factor.value_or(default_late_factor); }
  std::chrono::nanoseconds late_floor() const { return options.late_floor.value_or(default_late_floor); }

  void validate() const {
    if (options.readers != automatic && (options.readers < 0 || options.readers > 256))
      detail::reject_option("read", "readers", std::to_string(options.readers), "0 to 256, or automatic");
    if (options.readers == automatic && options.shared)
      detail::reject_option("read", "readers", "automatic",
                            "none, as the readers are a shared pool's, whose number serves other feeds, too");
    check("timeout", options.timeout);
    check("first_timeout", options.first_timeout);
    if (options.warn_after && options.warn_after->count() != 0) check("warn_after", options.warn_after);
    if (options.warn_after && *options.warn_after >= timeout())
      detail::reject_option("read", "warn_after", detail::concat(options.warn_after->count(), " ns"),
                            detail::concat("less than timeout, ", timeout().count(), " ns"));
    if (options.late == late_reads::reread)
      check_rereads();
    else
      check_no_rereads();
    if (options.bad == bad_samples::fail && (options.most_bad || options.most_bad_share))
      detail::reject_option(
          "read", options.most_bad ? "most_bad" : "most_bad_share",
          options.most_bad ? std::to_string(*options.most_bad) : std::to_string(*options.most_bad_share),
          "none, as bad is fail: the first sample that cannot be read ends the run");
    if (options.most_bad_share && !(*options.most_bad_share >= 0 && *options.most_bad_share <= 1))
      detail::reject_option("read", "most_bad_share", std::to_string(*options.most_bad_share), "0 to 1");
    if (!options.quarantine.empty() && options.bad == bad_samples::fail)
      detail::reject_option("read", "quarantine", '"' + options.quarantine.path() + '"',
                            "none, as bad is fail: the first sample that cannot be read ends the run");
    if (!options.cpus.empty() && options.shared)
      detail::reject_option("read", "cpus", options.cpus.text(),
                            "none, as the readers are a shared pool's: reader_pool::make(readers, {.cpus = ...})");
    if (!options.cpus.empty() && options.readers == 0)
      detail::reject_option("read", "cpus", options.cpus.text(),
                            "none, as readers is 0: the consumer's own thread stays where it is");
  }

 private:
  void check_rereads() const {
    constexpr const char* found = "late_reads::reread";
    if (options.shared)
      detail::reject_option("read", "late", found,
                            "late_reads::wait, as the readers are a shared pool's, which serve other feeds meanwhile");
    if (options.readers != automatic && options.readers < 2)
      detail::reject_option("read", "late", found,
                            detail::concat("late_reads::wait, as readers is ", options.readers,
                                           ": another one is to read the sample, too"));
    if (!(late_factor() > 1))
      detail::reject_option("read", "late_factor", std::to_string(late_factor()), "more than 1");
    if (late_floor().count() < 0)
      detail::reject_option("read", "late_floor", detail::concat(late_floor().count(), " ns"), "0 or more");
  }
  void check_no_rereads() const {
    constexpr const char* wanted = "none, as late is late_reads::wait: no read is issued again";
    if (options.late_factor) detail::reject_option("read", "late_factor", std::to_string(*options.late_factor), wanted);
    if (options.late_floor)
      detail::reject_option("read", "late_floor", detail::concat(options.late_floor->count(), " ns"), wanted);
  }
  void check(const char* name, const std::optional<std::chrono::nanoseconds>& value) const {
    if (!value) return;
    const auto found = detail::concat(value->count(), " ns");
    if (value->count() <= 0) detail::reject_option("read", name, found, "more than 0");
    if (options.readers == 0 && !options.shared)
      detail::reject_option("read", name, found,
                            "none, as readers is 0: what is read on the consumer's own thread cannot be timed out");
  }
};

inline read_stage<> read(read_options options = {}) { return {std::move(options), {}}; }

/// `transform(sample)` or `transform(sample, random)` is called by a reader for each sample after it was read, with its
/// views (a tuple, `auto [x, y] = sample;`), to change it in place, and with the sample's own random stream: the draws
/// are the same for any number of readers. It is called by several readers at once.
template <class Transform>
read_stage<Transform> read(read_options options, Transform transform) {
  return {std::move(options), std::move(transform)};
}

}  // namespace penstock
