// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <stop_token>
#include <utility>
#include <vector>

#include <penstock/dataset/stream.hpp>
#include <penstock/schedule/dataset_source.hpp>
#include <penstock/schedule/source.hpp>

namespace penstock::detail {

/// A stream drawn in the order of the steps, shuffled within a window, and kept every `world.size`-th sample of.
///
/// A reader takes a step's ticket only when the step is the next to be drawn, so one reader draws at a time, without a
/// lock, and none waits with a ticket in hand. It passes the turn on before it writes the samples to their places.
template <class Stream, class Transform>
class stream_source final : public source<typename Stream::schema_type> {
  using schema_type = typename Stream::schema_type;
  using range = typename Stream::range_type;
  using sample = typename Stream::sample_type;

 public:
  stream_source(std::shared_ptr<const Stream> stream, std::uint64_t seed, std::uint64_t window, world where,
                Transform transform)
      : stream_(std::move(stream)), seed_(seed), window_size_(window), world_(where), transform_(std::move(transform)) {
    window_.reserve(static_cast<std::size_t>(window));
    open_range(0);
    if (*at_ == std::ranges::end(*range_))
      throw error("the stream is empty: it has no first sample to take the fields' shapes from");
    first_.emplace(**at_);
    schema_ = schema_for(std::as_const(*first_));
    fresh_ = true;
  }

  const schema_type& schema() const { return schema_; }
  bool is_stream() const override { return true; }
  std::uint64_t fingerprint() const override { return mix(mix(mix_start, seed_), window_size_); }
  bool has_turn(std::uint64_t step) const noexcept override { return turn_.load(std::memory_order_acquire) == step; }

  std::unique_ptr<reader_state> open() override { return std::make_unique<state>(); }
  bool takes_stop() const override { return true; }

  void begin(std::uint64_t base, std::uint64_t epoch, std::uint64_t position, const std::stop_token& stop) override {
    told_.reset();
    if (stop_.stop_requested()) stop_ = {};
    told_.emplace(stop, forward{stop_});
    // The range that was opened for its first sample serves the first epoch, if that is begun at its beginning.
    if (!(std::exchange(fresh_, false) && epoch == 0)) open_range(epoch);
    epoch_ = epoch;
    window_.clear();
    drawn_ = 0;
    random_.emplace(seed_, epoch, 0, random_domain::plan);
    failed_ = false;
    turn_.store(base, std::memory_order_release);
    for (; drawn_ < position && draw_next(); ++drawn_) {
    }
    begun_at_ = drawn_;
  }

  fill_result fill(reader_state& own, const fill_request<schema_type>& request) override {
    auto& items = static_cast<state&>(own).items;
    items.clear();
    try {
      while (items.size() < request.indices.size() && !failed_) {
        if (!request.progress.begin(drawn_)) return {0, false, true};
        auto next = draw();
        if (!next) break;
        request.indices[items.size()] = drawn_ - 1;
        items.push_back(std::move(*next));
      }
    } catch (...) {
      // A range that threw is not asked again.
      failed_ = true;
      pass_turn(request);
      throw;
    }
    const bool end = items.size() < request.indices.size();
    const std::uint64_t drawn = end ? drawn_ : all_drawn();
    pass_turn(request);
    for (std::size_t row = 0; row < items.size(); ++row) {
      request.progress.begin(request.indices[row]);
      const auto to = sample_at(request.to, row);
      assign_sample<sample>(items[row], to);
      philox random(seed_, epoch_, request.indices[row]);
      apply_transform(transform_, to, random);
    }
    return {items.size(), end, false, drawn};
  }

 private:
  struct forward {
    std::stop_source to;
    void operator()() noexcept { to.request_stop(); }
  };
  struct state final : reader_state {
    std::vector<sample> items;
  };

  void open_range(std::uint64_t epoch) {
    first_.reset();
    at_.reset();
    range_.emplace(stream_->make(epoch, stop_.get_token()));
    at_.emplace(std::ranges::begin(*range_));
  }
  void pass_turn(const fill_request<schema_type>& request) noexcept {
    turn_.store(request.step + 1, std::memory_order_release);
    request.readers->notify();
  }

  // The next sample of this replica.
  std::optional<sample> draw() {
    for (;;) {
      std::optional<sample> next = draw_next();
      if (!next || drawn_++ % world_.size == world_.rank) {
        return next;
      }
    }
  }
  // Replicas take turns from where the feed was begun: when this one has had its sample, the round is everyone's.
  std::uint64_t all_drawn() const noexcept {
    const std::uint64_t rounds = (drawn_ - begun_at_ + world_.size - 1) / world_.size;
    return begun_at_ + rounds * world_.size;
  }
  std::optional<sample> draw_next() { return window_size_ == 0 ? pull() : pull_shuffled(); }
  std::optional<sample> pull() {
    if (*at_ == std::ranges::end(*range_)) return {};
    // The one that told the shapes is not made again.
    std::optional<sample> result = first_ ? std::exchange(first_, std::nullopt) : std::optional<sample>(**at_);
    ++*at_;
    return result;
  }
  std::optional<sample> pull_shuffled() {
    while (window_.size() < window_size_) {
      auto next = pull();
      if (!next) break;
      window_.push_back(std::move(*next));
    }
    if (window_.empty()) return {};
    std::swap(window_[static_cast<std::size_t>(random_->below(window_.size()))], window_.back());
    std::optional<sample> result(std::move(window_.back()));
    window_.pop_back();
    return result;
  }

  std::shared_ptr<const Stream> stream_;
  std::uint64_t seed_;
  std::uint64_t window_size_;
  world world_;
  Transform transform_;
  schema_type schema_;
  std::stop_source stop_;  // the ranges', the first of which is made before anybody could be told
  std::optional<std::stop_callback<forward>> told_;
  bool fresh_ = false;

  std::atomic<std::uint64_t> turn_{0};  // the step that is drawn next; what is below belongs to its reader
  bool failed_ = false;

  std::uint64_t epoch_ = 0;
  std::optional<range> range_;
  std::optional<std::ranges::iterator_t<range>> at_;
  std::optional<sample> first_;  // what `at_` points to, while that is the first one
  std::vector<sample> window_;
  std::optional<philox> random_;
  std::uint64_t drawn_ = 0;  // by all replicas: a sample's number is the same for every world
  std::uint64_t begun_at_ = 0;
};

}  // namespace penstock::detail
