// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/dataset/stream.hpp>
#include <penstock/schedule/dataset_source.hpp>
#include <penstock/schedule/shuffle_window.hpp>
#include <penstock/schedule/source.hpp>
#include <penstock/schedule/stream_buckets.hpp>
#include <penstock/stage/bucket.hpp>

namespace penstock::detail {

/// In place of `stream_buckets` where there are none.
struct no_buckets {
  no_buckets(const std::vector<bucket_shape>&, world) {}
  std::vector<bucket_shape> shapes() const { return {}; }
  void clear() {}
};

/// A stream drawn in the order of the steps, shuffled within a window, and kept every `world.size`-th sample of.
///
/// A reader takes a step's ticket only when the step is the next to be drawn, so one reader draws at a time, without a
/// lock, and none waits with a ticket in hand. It passes the turn on before it writes the samples to their places.
template <class Stream, class Transform, class Collate>
class stream_source final : public source<stored_schema<Stream, Collate>> {
  using schema_type = stored_schema<Stream, Collate>;
  using range = typename Stream::range_type;
  using sample = typename Stream::sample_type;
  static constexpr bool bucketed = std::same_as<Collate, bucket_by_length>;

 public:
  stream_source(std::shared_ptr<const Stream> stream, std::uint64_t seed, std::uint64_t window, world where,
                Transform transform, Collate collate, std::vector<bucket_shape> buckets)
      : stream_(std::move(stream)),
        seed_(seed),
        window_size_(window),
        world_(where),
        transform_(std::move(transform)),
        collate_(std::move(collate)),
        buckets_(std::move(buckets), where) {
    window_.reserve(static_cast<std::size_t>(window));
    open(here_, 0, 0);
    if (here_.at_end()) throw error("the stream is empty: it has no first sample to take the fields' shapes from");
    first_.emplace(*here_.at());
    schema_ = stream_schema(std::as_const(*first_), collate_);
    fresh_ = true;
  }

  const schema_type& schema() const { return schema_; }
  bool is_stream() const override { return true; }
  std::uint64_t fingerprint() const override {
    std::uint64_t hash = mix(mix(mix_start, seed_), window_size_);
    // What makes a step of buckets is no matter of the batch alone: with others the rest of an epoch would be another.
    if constexpr (bucketed) hash = mix(hash, world_.size);
    for (const bucket_shape& one : buckets_.shapes()) hash = mix(mix(hash, one.bound), one.size);
    return hash;
  }
  bool has_turn(std::uint64_t step) const noexcept override { return turn_.load(std::memory_order_acquire) == step; }

  std::unique_ptr<reader_state> open() override { return std::make_unique<state>(); }
  bool takes_stop() const override { return true; }

  void begin(std::uint64_t base, std::uint64_t epoch, std::uint64_t position, const std::stop_token& stop) override {
    told_.reset();
    if (stop_.stop_requested()) stop_ = {};
    told_.emplace(stop, forward{stop_});
    const bool opened = std::exchange(fresh_, false) && epoch == 0;
    epoch_ = epoch;
    window_.clear();
    buckets_.clear();
    drawn_ = 0;
    ended_ = false;
    random_.emplace(seed_, epoch, 0, random_domain::plan);
    failed_ = false;
    turn_.store(base, std::memory_order_release);
    if (position != 0 && begins_anywhere && !bucketed) {
      go_to(position);
    } else {
      // The range that was opened for its first sample serves the first epoch, if that is begun at its beginning.
      if (!opened) open(here_, epoch, 0);
      if constexpr (bucketed) {
        while (buckets_.given() < position && gather([] { return true; }) == gathered::step)
          buckets_.take([](auto&&) {});
      } else {
        for (; drawn_ < position && pull_next(); ++drawn_) {
        }
      }
    }
    begun_at_ = drawn_;
  }

  fill_result fill(reader_state& own, const fill_request<schema_type>& request) override {
    auto& items = static_cast<state&>(own).items;
    items.clear();
    bool end = failed_;
    std::uint32_t bound = 0;
    try {
      if constexpr (bucketed) {
        const auto found = end ? gathered::nothing : gather([&] { return request.progress.begin(drawn_); });
        if (found == gathered::interrupted) return {0, false, true};
        if (found == gathered::step)
          bound = static_cast<std::uint32_t>(buckets_.take([&](auto&& one) {
            request.indices[items.size()] = one.number;
            items.push_back(std::move(one.value));
          }));
        end = found == gathered::nothing || (ended_ && buckets_.empty());
      }
      while (!bucketed && items.size() < request.indices.size() && !failed_) {
        if (!request.progress.begin(drawn_)) return {0, false, true};
        auto next = draw();
        if (!next) break;
        request.indices[items.size()] = drawn_ - 1;
        items.push_back(std::move(*next));
      }
      if (!bucketed) end = items.size() < request.indices.size();
    } catch (...) {
      // A range that threw is not asked again.
      failed_ = true;
      pass_turn(request);
      throw;
    }
    std::uint64_t drawn = end ? drawn_ : all_drawn();
    if constexpr (bucketed) drawn = buckets_.given();
    pass_turn(request);
    for (std::size_t row = 0; row < items.size(); ++row) {
      request.progress.begin(request.indices[row]);
      const auto to = sample_at(request.to, row);
      if constexpr (is_cast<Collate>)
        assign_sample<sample>(items[row], to);
      else
        collate_(std::as_const(items[row]), to);
      philox random(seed_, epoch_, request.indices[row]);
      apply_transform(transform_, to, random);
    }
    return {items.size(), end, false, drawn, bound};
  }

 private:
  struct forward {
    std::stop_source to;
    void operator()() noexcept { to.request_stop(); }
  };
  struct state final : reader_state {
    std::vector<sample> items;
  };

  /// A range, and where in it one is.
  class cursor {
   public:
    void begin(range&& items) {
      at_.reset();
      items_.emplace(std::move(items));
      at_.emplace(std::ranges::begin(*items_));
    }
    bool at_end() { return *at_ == std::ranges::end(*items_); }
    auto& at() { return *at_; }
    void skip(std::uint64_t count) {
      std::ranges::advance(*at_, static_cast<std::ranges::range_difference_t<range>>(count), std::ranges::end(*items_));
    }

   private:
    std::optional<range> items_;
    std::optional<std::ranges::iterator_t<range>> at_;
  };
  static constexpr bool begins_anywhere = Stream::begins_anywhere || std::ranges::random_access_range<range>;

  void open(cursor& which, std::uint64_t epoch, std::uint64_t first) {
    if (&which == &here_) first_.reset();
    if constexpr (Stream::begins_anywhere) {
      which.begin(stream_->make(epoch, stop_.get_token(), first));
    } else {
      which.begin(stream_->make(epoch, stop_.get_token()));
      if (first != 0) which.skip(first);
    }
  }

  // To where `drawn` samples have been drawn, by all replicas, without making them again.
  void go_to(std::uint64_t drawn) {
    drawn_ = drawn;
    open(here_, epoch_, drawn);
    if (window_size_ == 0) return;
    shuffle_window known(seed_, epoch_, window_size_);
    known.draw(drawn);
    // Those that came in after this place are passed on the way to where the stream goes on, which is also how a stream
    // that ends before that is noticed. All others are to be found before it.
    std::vector<std::pair<std::uint64_t, std::optional<sample>>> held;
    for (const std::uint64_t place : known.places()) held.emplace_back(place, std::nullopt);
    const auto place_of = [](const auto& one) { return one.first; };
    std::ranges::sort(held, {}, place_of);
    std::uint64_t place = drawn;
    for (; place < known.pulled() && !here_.at_end(); ++place, ++here_.at()) {
      const auto found = std::ranges::lower_bound(held, place, {}, place_of);
      if (found != held.end() && found->first == place) found->second.emplace(*here_.at());
    }
    if (place < known.pulled()) {
      known = shuffle_window(seed_, epoch_, window_size_);
      known.draw(drawn, place);
    }
    std::vector<std::uint64_t> wanted = known.places();
    std::ranges::sort(wanted);
    cursor before;
    std::uint64_t next = shuffle_window::endless;  // where `before` is
    for (const std::uint64_t one : wanted) {
      auto found = std::ranges::lower_bound(held, one, {}, place_of);
      if (found == held.end() || found->first != one) found = held.emplace(found, one, std::nullopt);
      if (found->second) continue;
      if (one != next) open(before, epoch_, one);
      if (before.at_end())
        throw error(concat("the stream has no element ", one, " any more: it gave it before the feed was resumed"));
      found->second.emplace(*before.at());
      ++before.at();
      next = one + 1;
    }
    for (const std::uint64_t one : known.places())
      window_.push_back(std::move(*std::ranges::lower_bound(held, one, {}, place_of)->second));
    random_ = known.random();
  }
  void pass_turn(const fill_request<schema_type>& request) noexcept {
    turn_.store(request.step + 1, std::memory_order_release);
    request.readers->notify();
  }

  enum class gathered { step, nothing, interrupted };
  // Draws until a bucket has a step for all replicas, or the stream ends and what is left is one.
  template <class GoOn>
  gathered gather(GoOn go_on) {
    while (!ended_) {
      if (!go_on()) return gathered::interrupted;
      auto next = pull_next();
      if (!next) {
        ended_ = true;
        break;
      }
      const std::uint64_t length = Collate::length(std::as_const(*next));
      if (buckets_.add({drawn_++, length, std::move(*next)})) return gathered::step;
    }
    return buckets_.flush() ? gathered::step : gathered::nothing;
  }

  // The next sample of this replica.
  std::optional<sample> draw() {
    for (;;) {
      std::optional<sample> next = pull_next();
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
  std::optional<sample> pull_next() { return window_size_ == 0 ? pull() : pull_shuffled(); }
  std::optional<sample> pull() {
    if (here_.at_end()) return {};
    // The one that told the shapes is not made again.
    std::optional<sample> result = first_ ? std::exchange(first_, std::nullopt) : std::optional<sample>(*here_.at());
    ++here_.at();
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
  Collate collate_;
  schema_type schema_;
  std::stop_source stop_;  // the ranges', the first of which is made before anybody could be told
  std::optional<std::stop_callback<forward>> told_;
  bool fresh_ = false;

  std::atomic<std::uint64_t> turn_{0};  // the step that is drawn next; what is below belongs to its reader
  bool failed_ = false;
  bool ended_ = false;  // while buckets still hold samples

  std::uint64_t epoch_ = 0;
  cursor here_;
  std::optional<sample> first_;  // what `here_` points to, while that is the first one
  std::vector<sample> window_;
  std::optional<philox> random_;
  [[no_unique_address]] std::conditional_t<bucketed, stream_buckets<sample>, no_buckets> buckets_;
  std::uint64_t drawn_ = 0;  // by all replicas: a sample's number is the same for every world
  std::uint64_t begun_at_ = 0;
};

}  // namespace penstock::detail
