// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/cache/shared_cache.hpp>
#include <penstock/dataset/atomic_file.hpp>
#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/dataset/range.hpp>
#include <penstock/dataset/sample_file.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/fingerprint.hpp>

namespace penstock {

struct cached_options {
  /// Bytes of memory for decoded samples and what it takes to keep them, some 250 bytes each. 0 keeps none there.
  std::size_t memory = 0;
  /// A folder in which they are kept over runs, too, up to as much as all samples take; made if it is not there. Empty:
  /// none. In it each dataset has a folder of its own, named by size, fields, `version`, and the bytes of three
  /// samples.
  std::string directory{};
  /// Change it when samples change that these three do not tell, such as after an edit of some files.
  std::string version{};
};

/// What a cache has done since it was made, over all readers, epochs and copies.
struct cached_counts {
  std::uint64_t hits = 0;            ///< samples that were in memory, or were just being read by another reader
  std::uint64_t from_directory = 0;  ///< that were read from the directory
  std::uint64_t misses = 0;          ///< that were read from the dataset
  std::uint64_t dropped = 0;         ///< that had to leave the memory for others
  std::uint64_t not_written = 0;     ///< that the directory did not take: its disk is full, say
  std::size_t bytes = 0;             ///< of memory, now
};

namespace detail {

/// What reads a dataset's samples: a reader's own state, or the dataset.
template <class D>
struct access_of {
  using type = std::conditional_t<says_serial<D>, D, const D>;
};
template <opens D>
struct access_of<D> {
  using type = std::remove_cvref_t<decltype(std::declval<const D&>().open())>;
};
template <class Reader, class Schema>
concept reads_alike = requires(Reader& reader, std::uint64_t index, const sample_view<Schema>& to) {
  reader.read(index, to);
} || reads_in_bulk<Reader, Schema>;

/// The bytes of a sample's fields, one after the other.
template <class... Views>
std::vector<std::byte> gather(const std::tuple<Views...>& sample, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  std::size_t at = 0;
  const auto take = [&](const auto& view) {
    if (view.size_bytes() != 0) std::memcpy(out.data() + at, view.data(), view.size_bytes());
    at += view.size_bytes();
  };
  std::apply([&](const auto&... views) { (take(views), ...); }, sample);
  return out;
}
template <class... Views>
void scatter(const std::vector<std::byte>& bytes, const std::tuple<Views...>& sample) {
  std::size_t at = 0;
  const auto give = [&](const auto& view) {
    if (view.size_bytes() != 0) std::memcpy(view.data(), bytes.data() + at, view.size_bytes());
    at += view.size_bytes();
  };
  std::apply([&](const auto&... views) { (give(views), ...); }, sample);
}

inline void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) throw_file_error(path, "create", errno);
}
inline std::string hexadecimal(std::uint64_t number) {
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; number >>= 4) out[i] = "0123456789abcdef"[number & 15];
  return out;
}

/// What copies of a cached dataset share.
template <class D>
class sample_cache {
 public:
  using schema_type = schema_of<D>;
  using access = typename access_of<D>::type;
  using sample = sample_view<schema_type>;

  sample_cache(std::shared_ptr<D> from, const cached_options& options)
      : from_(std::move(from)), memory_(options.memory) {
    if (options.directory.empty() && !options.version.empty())
      reject_option("cached", "version", '"' + options.version + '"', "none, as no directory is given");
    const schema_type schema = from_->schema();
    std::apply([&](const auto&... fields) { ((bytes_ += bytes_of(fields)), ...); }, schema.fields);
    keeps_ = options.memory >= bytes_ + overhead;
    if (options.directory.empty() || bytes_ == 0) return;
    make_folder(options.directory);
    const std::uint64_t name = mix(fingerprint(schema), options.version);
    const std::string folder = concat(options.directory, "/", hexadecimal(name));
    make_folder(folder);
    file_.emplace(folder + "/samples", name, bytes_);
  }

  const D& source() const noexcept { return *from_; }

  /// What `open` gives, or the dataset.
  decltype(auto) open_access() const {
    if constexpr (opens<D>)
      return from_->open();
    else if constexpr (says_serial<D>)
      return static_cast<D&>(*from_);
    else
      return std::as_const(*from_);
  }

  void read(access& reader, std::uint64_t index, const sample& to) {
    if (!keeps_ && !file_) return read_source(reader, index, to);
    bool in_place = false;
    const auto value = memory_.get(
        index,
        [&] {
          std::vector<std::byte> bytes;
          if (file_) {
            bytes.resize(bytes_);
            if (file_->read(index, bytes)) {
              from_directory_.fetch_add(1, std::memory_order_relaxed);
              return bytes;
            }
          }
          read_source(reader, index, to);
          in_place = true;
          bytes = gather(to, bytes_);
          if (file_ && !file_->write(index, bytes)) not_written_.fetch_add(1, std::memory_order_relaxed);
          return bytes;
        },
        [](const std::vector<std::byte>& bytes) { return bytes.size() + overhead; });
    if (!in_place) scatter(*value, to);
  }

  cached_counts counts() const {
    const cache_counts memory = memory_.counts();
    cached_counts out;
    out.hits = memory.found;
    out.from_directory = from_directory_.load(std::memory_order_relaxed);
    out.misses = misses_.load(std::memory_order_relaxed);
    out.dropped = memory.dropped;
    out.not_written = not_written_.load(std::memory_order_relaxed);
    out.bytes = memory.bytes;
    return out;
  }

 private:
  static constexpr std::size_t overhead = 256;  // of the cache's, for each sample

  template <class Field>
  static std::size_t bytes_of(const Field& field) {
    return field.elements() * sizeof(typename Field::element_type);
  }

  void read_source(access& reader, std::uint64_t index, const sample& to) {
    std::unique_lock<std::mutex> turn;
    if constexpr (says_serial<D> && !opens<D>) turn = std::unique_lock(serial_);
    if constexpr (requires { reader.read(index, to); }) {
      reader.read(index, to);
    } else {
      const auto row = []<class T, std::size_t Rank>(const tensor_view<T, Rank>& view) {
        std::array<std::size_t, Rank + 1> shape{1};
        for (std::size_t i = 0; i < Rank; ++i) shape[i + 1] = view.extent(i);
        return tensor_view<T, Rank + 1>(view.data(), shape);
      };
      reader.read_range(std::span<const std::uint64_t>(&index, 1),
                        std::apply([&](const auto&... views) { return std::tuple{row(views)...}; }, to));
    }
    misses_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Of size, fields, and the first, the middle and the last sample: other data of the same shape are told apart.
  std::uint64_t fingerprint(const schema_type& schema) {
    const auto n = static_cast<std::uint64_t>(from_->size());
    std::uint64_t hash = fingerprint_of(n, schema);
    if (n == 0) return hash;
    auto&& reader = open_access();
    const auto memory = [](const auto& field) {
      using element = typename std::remove_cvref_t<decltype(field)>::element_type;
      const std::size_t bytes = bytes_of(field);
      auto* const place = static_cast<element*>(::operator new(bytes, std::align_val_t{probe_alignment}));
      std::memset(static_cast<void*>(place), 0, bytes);
      return std::unique_ptr<element, probe_deleter>(place);
    };
    const auto probe = std::apply([&](const auto&... fields) { return std::tuple{memory(fields)...}; }, schema.fields);
    const sample to = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return sample(std::tuple_element_t<I, sample>(std::get<I>(probe).get(), std::get<I>(schema.fields).shape)...);
    }(std::make_index_sequence<schema_type::size>{});
    for (const std::uint64_t index : {std::uint64_t{0}, n / 2, n - 1}) {
      try {
        read_source(reader, index, to);
        hash = mix(hash, crc32c(gather(to, bytes_)));
      } catch (const std::bad_alloc&) {
        throw;
      } catch (...) {
        hash = mix(hash, ~std::uint64_t{0});  // it cannot be read, which tells something, too
      }
    }
    misses_.store(0, std::memory_order_relaxed);
    return hash;
  }
  static constexpr std::size_t probe_alignment = 64;
  struct probe_deleter {
    void operator()(void* place) const noexcept { ::operator delete(place, std::align_val_t{probe_alignment}); }
  };

  std::shared_ptr<D> from_;
  std::size_t bytes_ = 0;  // of a sample
  bool keeps_ = false;     // in memory
  shared_cache<std::vector<std::byte>> memory_;
  std::optional<sample_file> file_;
  std::mutex serial_;
  std::atomic<std::uint64_t> from_directory_{0};
  std::atomic<std::uint64_t> misses_{0};
  std::atomic<std::uint64_t> not_written_{0};
};

}  // namespace detail

/// A dataset whose samples, once they were read, are kept: see `cached`. Copies share what they keep.
template <dataset D>
class cached_dataset {
  using cache = detail::sample_cache<D>;

 public:
  using schema_type = detail::schema_of<D>;

  cached_dataset(std::shared_ptr<D> from, const cached_options& options)
      : cache_(std::make_shared<cache>(std::move(from), options)) {}

  std::uint64_t size() const { return static_cast<std::uint64_t>(cache_->source().size()); }
  schema_type schema() const { return cache_->source().schema(); }
  provenance where(std::uint64_t index) const
    requires detail::says_where<D>
  {
    return cache_->source().where(index);
  }
  bool reads_in_turn() const { return detail::reads_in_turn(cache_->source()); }
  /// Of a dataset that is read by itself; others are read by what `open` gives.
  void read(std::uint64_t index, const sample_view<schema_type>& to) const
    requires(!detail::opens<D>)
  {
    cache_->read(cache_->open_access(), index, to);
  }

  /// One reader's own access.
  class reader {
   public:
    void read(std::uint64_t index, const sample_view<schema_type>& to) { of_->read(own_, index, to); }

   private:
    friend class cached_dataset;
    explicit reader(std::shared_ptr<cache> of) : of_(std::move(of)), own_(of_->open_access()) {}
    std::shared_ptr<cache> of_;
    typename cache::access own_;
  };
  reader open() const
    requires detail::opens<D>
  {
    return reader(cache_);
  }

  cached_counts counts() const { return cache_->counts(); }
  /// The dataset that is cached.
  const D& source() const noexcept { return cache_->source(); }

 private:
  std::shared_ptr<cache> cache_;
};

/// A dataset that keeps its samples as they were read, decoded, within a budget of memory, and in a directory if one is
/// given: `cached(images, {.memory = 8'000'000'000})`. Readers, epochs, feeds and copies share what is kept; results
/// are the same as without, for any budget. An lvalue dataset is referred to, an rvalue is owned.
///
/// Those that were not asked for longest leave the memory first. The directory may be shared by processes; what is
/// damaged there is read anew. `read` that throws is called again the next time; one that takes much longer than it
/// usually does, also by whoever asks for the sample meanwhile. A sample that is kept is handed out without an
/// allocation; one that is read allocates its bytes. A dataset that takes a `read_context` is refused, as its samples
/// differ between epochs: cache what it draws from. So is one that is erased, such as `any_dataset`, as it may hide
/// such a one: erase the cached one.
template <class Source>
  requires detail::describes_samples<Source>
decltype(auto) cached(Source&& source, const cached_options& options) {
  using D = std::remove_cvref_t<Source>;
  using schema_type = detail::schema_of<D>;
  if constexpr (!dataset<D>) {
    static_assert(dataset<D>,
                  "penstock: cached takes a dataset, upstream is a type with size() and schema() but without "
                  "read(index, to) const or open() const");
    return (std::forward<Source>(source));
  } else {
    using access = typename detail::access_of<D>::type;
    constexpr bool alike = !detail::reads_with_context<access, schema_type> && detail::reads_alike<access, schema_type>;
    static_assert(alike,
                  "penstock: cached takes a dataset whose samples are the same in each epoch, upstream's read or "
                  "read_range takes a context, with which it may draw: cache what it draws from");
    if constexpr (!alike) {
      return (std::forward<Source>(source));
    } else {
      if constexpr (std::is_lvalue_reference_v<Source>) {
        static_assert(!(std::is_const_v<std::remove_reference_t<Source>> && detail::says_serial<D>),
                      "penstock: cached takes a dataset that may be read, upstream is a constant one that is serial");
        return cached_dataset<D>(std::shared_ptr<D>(std::shared_ptr<void>{}, const_cast<D*>(&source)), options);
      } else {
        return cached_dataset<D>(std::make_shared<D>(std::move(source)), options);
      }
    }
  }
}

/// The same for a range of samples: an lvalue is referred to, a view or an rvalue is owned.
template <class Range>
  requires(!detail::describes_samples<Range> && detail::sample_range<std::remove_cvref_t<Range>>)
auto cached(Range&& range, const cached_options& options) {
  using R = std::remove_cvref_t<Range>;
  if constexpr (std::ranges::view<R> || !std::is_lvalue_reference_v<Range>)
    return cached(range_dataset<R>(std::forward<Range>(range)), options);
  else
    return cached(range_dataset<detail::range_reference<R>>(detail::range_reference<R>(range)), options);
}

}  // namespace penstock
