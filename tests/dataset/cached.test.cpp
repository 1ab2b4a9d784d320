// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/dataset/any_dataset.hpp>
#include <penstock/dataset/cached.hpp>
#include <penstock/dataset/range.hpp>
#include <penstock/dataset/split.hpp>
#include <penstock/penstock.hpp>

#include "../support/temporary_directory.hpp"

namespace {

using penstock::cached;
using penstock::cached_counts;
using penstock::cached_options;
namespace fs = std::filesystem;

// Fields of several alignments: packed one after the other none but the first lies where it may be read.
using schema_type = penstock::schema<penstock::field<std::uint8_t, 1>, penstock::field<double>,
                                     penstock::field<std::int16_t, 2>, penstock::field<float, 1>>;
constexpr std::size_t sample_bytes = 3 + 8 + 12 + 0;

/// What a dataset's copies, readers and tests know of its reads.
struct book {
  std::mutex mutex;
  std::multiset<std::uint64_t> reads;
  std::set<std::uint64_t> bad;
  std::uint64_t salt = 0;
  std::atomic<int> inside{0};
  std::atomic<int> opened{0};

  template <class To>
  void read(std::uint64_t index, const To& to) {
    {
      const std::lock_guard lock(mutex);
      reads.insert(index);
    }
    const auto& [bytes, number, pairs, none] = to;
    bytes(0) = 99;  // a sample that was begun must not be kept
    if (bad.contains(index)) throw std::runtime_error("bad");
    for (std::size_t i = 0; i < 3; ++i) bytes(i) = static_cast<std::uint8_t>(index + i + salt);
    number() = static_cast<double>(index) / 3 + static_cast<double>(salt);
    for (std::size_t i = 0; i < 6; ++i) pairs(i / 3, i % 3) = static_cast<std::int16_t>(index * i);
    static_cast<void>(none);
  }
  std::size_t count() {
    const std::lock_guard lock(mutex);
    return reads.size();
  }
};

struct described {
  std::uint64_t count = 40;
  std::shared_ptr<book> notes = std::make_shared<book>();

  std::uint64_t size() const { return count; }
  schema_type schema() const {
    return schema_type{penstock::field<std::uint8_t, 1>{"bytes", {3}}, penstock::field<double>{"number"},
                       penstock::field<std::int16_t, 2>{"pairs", {2, 3}}, penstock::field<float, 1>{"none", {0}}};
  }
};
struct plain : described {
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const { notes->read(index, to); }
};
struct in_bulk : described {
  void read_range(std::span<const std::uint64_t> indices, const penstock::batch_view<schema_type>& to) const {
    for (std::size_t row = 0; row < indices.size(); ++row) notes->read(indices[row], penstock::sample_at(to, row));
  }
};
struct opened : described {
  struct reader {
    std::shared_ptr<book> notes;
    void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) { notes->read(index, to); }
  };
  reader open() const {
    ++notes->opened;
    return {notes};
  }
};
struct serial_one : described {
  static constexpr bool serial = true;
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) {
    EXPECT_EQ(notes->inside.fetch_add(1), 0);
    for (int i = 0; i < 5; ++i) std::this_thread::yield();  // come in, if you can
    notes->read(index, to);
    --notes->inside;
  }
};
static_assert(penstock::dataset<penstock::cached_dataset<plain>>);
static_assert(penstock::dataset<penstock::cached_dataset<in_bulk>>);
static_assert(penstock::dataset<penstock::cached_dataset<opened>>);
static_assert(penstock::dataset<penstock::cached_dataset<serial_one>>);

class folder : penstock_test::temporary_directory {
 public:
  std::string path(const std::string& name = "cache") const { return *this / name; }
  /// The folders of single datasets.
  std::vector<fs::path> datasets() const {
    std::vector<fs::path> out;
    for (const auto& each : fs::directory_iterator(path())) out.push_back(each.path());
    return out;
  }
  std::string samples() const { return (datasets().at(0) / "samples").string(); }
};

/// All bytes that a feed gives in some epochs.
template <class Data>
std::vector<std::vector<unsigned char>> bytes_of(Data& data, int readers = 2, std::uint64_t epochs = 2) {
  auto feed = (data | penstock::partition({.seed = 3}) | penstock::read({.readers = readers, .next_epoch = false}) |
               penstock::batch(7) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::vector<std::vector<unsigned char>> out;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
    for (auto& batch : feed.epoch(epoch)) {
      std::vector<unsigned char> all;
      const auto add = [&](const auto& view) {
        const auto* const first = reinterpret_cast<const unsigned char*>(view.data());
        all.insert(all.end(), first, first + view.size_bytes());
      };
      std::apply([&](const auto&... views) { (add(views), ...); }, batch.fields());
      out.push_back(std::move(all));
    }
  return out;
}
/// One sample, read without a feed.
template <class Data>
double number_of(Data& data, std::uint64_t index) {
  std::uint8_t bytes[3];
  double number = -1;
  std::int16_t pairs[6];
  float none[1];
  const penstock::sample_view<schema_type> to(
      penstock::tensor_view<std::uint8_t, 1>(bytes, {3}), penstock::tensor_view<double, 0>(&number, {}),
      penstock::tensor_view<std::int16_t, 2>(pairs, {2, 3}), penstock::tensor_view<float, 1>(none, {0}));
  data.read(index, to);
  EXPECT_EQ(bytes[1], static_cast<std::uint8_t>(index + 1));
  EXPECT_EQ(pairs[5], static_cast<std::int16_t>(index * 5));
  return number;
}

template <class Data>
class cached_of : public testing::Test {};
using datasets = testing::Types<plain, in_bulk, opened, serial_one>;
TYPED_TEST_SUITE(cached_of, datasets);

TYPED_TEST(cached_of, results_are_the_same_for_any_budget_and_number_of_readers) {
  TypeParam data;
  const auto wanted = bytes_of(data);
  for (const std::size_t memory :
       {std::size_t{0}, std::size_t{100}, std::size_t{279}, std::size_t{1500}, std::size_t{1} << 20})
    for (const int readers : {0, 1, 4})
      for (const bool on_disk : {false, true}) {
        const folder here;
        const cached_options options{.memory = memory, .directory = on_disk ? here.path() : ""};
        for (int run = 0; run < 2; ++run) {
          TypeParam fresh;
          auto kept = cached(fresh, options);
          const auto at_first = fresh.notes->count();
          EXPECT_EQ(at_first, on_disk ? 3u : 0u);  // to tell other data of the same shape apart
          EXPECT_EQ(bytes_of(kept, readers), wanted) << memory << " bytes, " << readers << " readers";
          const cached_counts counts = kept.counts();
          EXPECT_LE(counts.bytes, memory);
          EXPECT_EQ(counts.hits + counts.from_directory + counts.misses, 80u);
          EXPECT_EQ(counts.misses, fresh.notes->count() - at_first);
          if (on_disk || memory == std::size_t{1} << 20) {
            EXPECT_EQ(counts.misses, on_disk && run == 1 ? 0u : 40u);
          } else if (memory < sample_bytes + 256) {
            EXPECT_EQ(counts.misses, 80u);
          }
        }
      }
}

TEST(cached, copies_feeds_and_readers_share_what_is_kept) {
  plain data;
  auto kept = cached(data, {.memory = 1 << 20});
  const auto copy = kept;
  bytes_of(kept, 3, 1);
  EXPECT_EQ(data.notes->count(), 40u);
  bytes_of(copy, 2, 3);
  EXPECT_EQ(data.notes->count(), 40u);
  EXPECT_EQ(copy.counts().hits, 120u);
}

TEST(cached, a_sample_is_read_once_however_many_ask_at_once) {
  auto kept = cached(plain{}, {.memory = 1 << 20});
  constexpr int threads = 4;
  std::latch together(threads);
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([&] {
        together.arrive_and_wait();
        for (std::uint64_t index = 0; index < 40; ++index)
          EXPECT_EQ(number_of(kept, index), static_cast<double>(index) / 3);
      });
  }
  EXPECT_EQ(kept.counts().misses, 40u);
  EXPECT_EQ(kept.counts().hits, 120u);
}

// The second read of a sample would otherwise wait for the first.
TEST(cached, a_read_that_is_stuck_is_issued_again) {
  struct stuck_once : plain {
    std::shared_ptr<std::latch> entered = std::make_shared<std::latch>(1), go_on = std::make_shared<std::latch>(1);
    void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
      plain::read(index, to);
      if (index != 17) return;
      const std::uint64_t before = [&] {
        const std::lock_guard lock(notes->mutex);
        return notes->reads.count(17);
      }();
      if (before != 1) return;
      entered->count_down();
      go_on->wait();
    }
  };
  const stuck_once data;
  auto feed = (cached(data, {.memory = 1 << 20}) | penstock::partition() |
               penstock::read({.readers = 3,
                               .timeout = std::chrono::minutes(1),
                               .late = penstock::late_reads::reread,
                               .late_factor = 2,
                               .late_floor = std::chrono::milliseconds(1)}) |
               penstock::batch(8) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::size_t samples = 0;
  for (auto& batch : feed.epoch(0)) samples += batch.size();
  EXPECT_EQ(samples, 40u);
  data.entered->wait();
  data.go_on->count_down();
  EXPECT_GE(data.notes->count(), 41u);
}

// Whatever hides it, the second read would wait for the first one's lock.
TEST(cached, a_serial_one_is_not_read_again) {
  const auto refused = [](auto data) {
    try {
      auto feed = (std::move(data) | penstock::partition() |
                   penstock::read({.readers = 2, .late = penstock::late_reads::reread}) | penstock::batch(8) |
                   penstock::transfer(penstock::cpu_device{}))
                      .start();
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return std::string("accepted");
  };
  using any = penstock::any_dataset<schema_type>;
  const std::string why =
      "penstock: read: late is late_reads::reread, wanted late_reads::wait, as the dataset is serial, or made of one "
      "that is: a second read waits for the first";
  const auto kept = [](auto data) { return cached(std::move(data), {.memory = 1 << 20}); };
  const auto half = [](auto data) { return penstock::split(std::move(data), {.validation = 0.5}).train; };
  EXPECT_EQ(refused(serial_one{}), why);
  EXPECT_EQ(refused(kept(serial_one{})), why);
  EXPECT_EQ(refused(any(serial_one{})), why);
  EXPECT_EQ(refused(half(kept(serial_one{}))), why);
  EXPECT_EQ(refused(any(half(kept(serial_one{})))), why);
  EXPECT_EQ(refused(kept(half(kept(serial_one{})))), why);
  EXPECT_EQ(refused(any(half(kept(plain{})))), "accepted");
  EXPECT_EQ(refused(kept(half(kept(plain{})))), "accepted");
}

TEST(cached, those_not_asked_for_longest_leave_first) {
  plain data;
  auto kept = cached(data, {.memory = 3 * (sample_bytes + 256)});
  for (const std::uint64_t index : {1u, 2u, 3u, 1u, 4u, 1u, 3u, 2u}) number_of(kept, index);  // 2 leaves for 4, 4 for 2
  EXPECT_EQ(data.notes->reads, (std::multiset<std::uint64_t>{1, 2, 2, 3, 4}));
  EXPECT_EQ(kept.counts().dropped, 2u);
  EXPECT_EQ(kept.counts().bytes, 3 * (sample_bytes + 256));
}

TEST(cached, errors_are_not_kept) {
  const folder here;
  for (const bool on_disk : {false, true}) {
    plain data;
    auto kept = cached(data, {.memory = 1 << 20, .directory = on_disk ? here.path() : ""});
    data.notes->bad = {7};
    EXPECT_THROW(number_of(kept, 7), std::runtime_error);
    EXPECT_THROW(number_of(kept, 7), std::runtime_error);
    data.notes->bad.clear();
    EXPECT_EQ(number_of(kept, 7), 7.0 / 3);
    EXPECT_EQ(number_of(kept, 7), 7.0 / 3);
    EXPECT_EQ(kept.counts().misses, 1u);
    EXPECT_EQ(kept.counts().hits, 1u);
  }
}

TEST(cached, a_dataset_that_is_opened_is_opened_by_each_reader) {
  opened data;
  auto kept = cached(data, {.memory = 1 << 20});
  bytes_of(kept, 3, 1);
  EXPECT_EQ(data.notes->opened, 3);
}

TEST(cached, ranges_and_erased_ones) {
  const std::vector<std::tuple<float, int>> rows{{1.5f, 1}, {2.5f, 2}};
  penstock::any_dataset<penstock::schema<penstock::field<float>, penstock::field<int>>> erased =
      cached(rows, {.memory = 10'000});
  auto feed = (erased | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read() |
               penstock::batch(2) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  EXPECT_EQ(feed.next().get<1>()(1), 2);
}

// ---- the directory

TEST(cached, a_version_of_no_directory_is_refused) {
  try {
    (void)cached(plain{}, {.memory = 1 << 20, .version = "2"});
    FAIL() << "no error";
  } catch (const std::invalid_argument& caught) {
    EXPECT_EQ(std::string(caught.what()), "penstock: cached: version is \"2\", wanted none, as no directory is given");
  }
}

TEST(cached, another_datasets_samples_are_never_taken) {
  const folder here;
  const auto fill = [&](auto data, const std::string& version = "") {
    auto kept = cached(data, {.directory = here.path(), .version = version});
    for (std::uint64_t index = 0; index < 30; ++index)
      EXPECT_EQ(number_of(kept, index), static_cast<double>(index) / 3);
    return kept.counts().misses;
  };
  EXPECT_EQ(fill(plain{}), 30u);
  EXPECT_EQ(fill(plain{}), 0u);
  EXPECT_EQ(fill(in_bulk{}), 0u);              // the same samples, by other means
  EXPECT_EQ(fill(plain{{.count = 39}}), 30u);  // of another size
  EXPECT_EQ(fill(plain{}, "2"), 30u);          // said to be others
  EXPECT_EQ(here.datasets().size(), 3u);

  struct renamed : plain {
    schema_type schema() const {
      auto own = plain::schema();
      std::get<1>(own.fields).name = "other";
      return own;
    }
  };
  EXPECT_EQ(fill(renamed{}), 30u);

  // Of the same shape: their first, middle and last samples tell.
  plain other;
  other.notes->salt = 256;
  auto kept = cached(other, {.directory = here.path()});
  EXPECT_EQ(number_of(kept, 5), 5.0 / 3 + 256);
  EXPECT_EQ(kept.counts().misses, 1u);
}

TEST(cached, what_is_damaged_is_read_anew) {
  const folder here;
  plain data;
  const auto misses = [&] {
    auto kept = cached(data, {.directory = here.path()});
    for (std::uint64_t index = 0; index < 40; ++index)
      EXPECT_EQ(number_of(kept, index), static_cast<double>(index) / 3);
    return kept.counts().misses;
  };
  EXPECT_EQ(misses(), 40u);
  ASSERT_EQ(misses(), 0u);
  const std::string path = here.samples();
  std::string good;
  {
    std::ifstream file(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
  }
  constexpr std::size_t head = 32, place = 8 + sample_bytes;
  ASSERT_EQ(good.size(), head + 40 * place);
  const auto put = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  // Each byte of a sample's place, and of the head.
  for (std::size_t at = 0; at < place; ++at) {
    std::string bad = good;
    bad[head + 5 * place + at] ^= 4;
    put(bad);
    EXPECT_EQ(misses(), 1u) << at;
    EXPECT_EQ(misses(), 0u) << at;
  }
  for (std::size_t at = 0; at < head; ++at) {
    std::string bad = good;
    bad[at] ^= 4;
    put(bad);
    EXPECT_EQ(misses(), 40u) << at;
    EXPECT_EQ(misses(), 0u) << at;
  }
  for (const std::size_t left : {std::size_t{0}, head - 1, head, head + 9 * place + 3, good.size() - 1}) {
    put(good.substr(0, left));
    EXPECT_EQ(misses(), left < head ? 40u : 40u - (left - head) / place) << left;
    EXPECT_EQ(misses(), 0u) << left;
  }
  // A whole sample in another's place.
  std::string bad = good;
  bad.replace(head + 3 * place, place, good.substr(head + 4 * place, place));
  put(bad);
  EXPECT_EQ(misses(), 1u);
  put("not ours");
  EXPECT_EQ(misses(), 40u);
  EXPECT_EQ(misses(), 0u);
}

/// Files are as short as this while it lives: a disk that is full.
class short_files {
 public:
  explicit short_files(std::size_t bytes) : old_action_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    ::rlimit now = old_;
    now.rlim_cur = bytes;
    if (::setrlimit(RLIMIT_FSIZE, &now) != 0) throw std::runtime_error("no limit");
  }
  ~short_files() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_action_);
  }

 private:
  void (*old_action_)(int);
  ::rlimit old_{};
};
TEST(cached, a_full_disk_costs_the_cache_and_not_the_run) {
  const folder here;
  const auto counts = [&] {
    auto kept = cached(plain{}, {.directory = here.path()});
    for (std::uint64_t index = 0; index < 40; ++index)
      EXPECT_EQ(number_of(kept, index), static_cast<double>(index) / 3);
    return kept.counts();
  };
  {
    const short_files full(32 + 10 * (8 + sample_bytes) + 12);
    EXPECT_EQ(counts().not_written, 30u);
    const cached_counts again = counts();
    EXPECT_EQ(again.from_directory, 10u);  // not what was half written
    EXPECT_EQ(again.misses, 30u);
  }
  EXPECT_EQ(counts().misses, 30u);
  EXPECT_EQ(counts().misses, 0u);
}

TEST(cached, a_directory_that_cannot_be_is_told_at_the_start) {
  const folder here;
  std::ofstream(here.path("file")) << "here";
  EXPECT_THROW(cached(plain{}, {.directory = here.path("file")}), penstock::error);
  EXPECT_THROW(cached(plain{}, {.directory = here.path("none/cache")}), penstock::error);
}

}  // namespace
