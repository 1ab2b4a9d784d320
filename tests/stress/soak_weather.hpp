// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <penstock/penstock.hpp>

/// What feeds of the soak read, how reading goes, and what is counted.
namespace soak {

/// What is not as it has to be; no std::exception, so that nobody takes it for an error of a feed.
struct wrong {
  std::string what;
};
template <class... Parts>
void check(bool fine, const Parts&... parts) {
  if (!fine) throw wrong{penstock::detail::concat(parts...)};
}

/// Reads that are stuck: who comes to one of some samples stays there until the sample's batch has come, read by
/// another reader, and some more batches; or until the loop ends. One reader is always left. Passed by readers; all
/// else is the loop's.
class snare {
 public:
  explicit snare(std::uint64_t samples) : come_(samples) {}

  std::uint64_t every = 0, at = 0, longer = 0;  // which samples, and for how many more batches; 0: none

  /// While there are no readers: so many may be stuck at once.
  void allow(int readers) { free_ = readers; }
  void set() { ++loop_; }
  void let_go() {
    if (loop_ % 2 == 1) ++loop_;
    ring();
  }
  void comes(std::uint64_t sample) { ++come_[sample]; }
  void batch_has_come() {
    ++batches_;
    ring();
  }
  std::uint64_t caught() const { return caught_; }

  void pass(std::uint64_t sample) {
    const std::uint64_t loop = loop_.load(std::memory_order_relaxed);  // orders nothing for who is not stuck
    if (every == 0 || loop % 2 == 0 || sample % every != at) return;
    if (free_.fetch_sub(1) > 0) {
      ++caught_;
      const std::uint64_t come = come_[sample];
      wait(loop, [&] { return come_[sample] != come; });
      const std::uint64_t until = batches_ + longer;
      wait(loop, [&] { return batches_ >= until; });
    }
    ++free_;
  }

 private:
  template <class Done>
  void wait(std::uint64_t loop, const Done& done) {
    for (;;) {
      const std::uint32_t heard = bell_;
      if (loop_ != loop || done()) return;
      bell_.wait(heard);
    }
  }
  void ring() {
    ++bell_;
    bell_.notify_all();
  }

  std::vector<std::atomic<std::uint64_t>> come_;  // batches with each sample
  std::atomic<std::uint64_t> batches_{0}, caught_{0};
  std::atomic<std::uint64_t> loop_{0};  // odd: within one
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<int> free_{0};
};

/// How reading goes; looked at by readers.
struct weather {
  explicit weather(std::uint64_t samples) : stuck(samples) {}

  std::uint64_t bad_every = 0, bad_at = 0;  // samples that throw, until they are healed
  std::uint64_t slow_every = 0;
  std::atomic<bool> healed{false};
  snare stuck;

  bool is_bad(std::uint64_t index) const { return bad_every != 0 && index % bad_every == bad_at; }
  std::uint64_t read(std::uint64_t index) {
    stuck.pass(index);
    if (slow_every != 0 && index % slow_every == 0) {
      for (int i = 0; i < 2000; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      if (index % (2 * slow_every) == 0) std::this_thread::yield();
    }
    if (is_bad(index) && !healed.load(std::memory_order_relaxed))
      throw std::runtime_error("sample " + std::to_string(index) + " is bad");
    return index;
  }
};

using number_schema = penstock::schema<penstock::field<std::uint64_t>>;
struct table {
  std::uint64_t n;
  std::shared_ptr<weather> at;
  std::uint64_t size() const { return n; }
  number_schema schema() const { return number_schema{penstock::field<std::uint64_t>{"number"}}; }
  void read(std::uint64_t index, const penstock::sample_view<number_schema>& to) const {
    *std::get<0>(to).data() = at->read(index);
  }
};
/// What a reader makes of sample i: i, and a random number of its own.
inline void draw_for(const auto& sample, penstock::philox& random) {
  auto& number = *std::get<0>(sample).data();
  number = number << 32 | random();
}

/// Late reads are issued again, at once or a little later.
inline void read_again(penstock::read_options& options, penstock::philox& random) {
  options.late = penstock::late_reads::reread;
  options.late_factor = 1.5 + static_cast<double>(random.below(3U));
  options.late_floor = std::chrono::microseconds(500 * random.below(3U));
}

struct tally {
  std::uint64_t batches = 0, feeds = 0, errors = 0, stops = 0, left = 0, resumed = 0, held = 0, faults = 0,
                observers = 0, stuck = 0, rereads = 0, tuned = 0, ledgers = 0, cached = 0, lists = 0, runs = 0,
                ranks_failed = 0, buckets = 0;
};

}  // namespace soak
