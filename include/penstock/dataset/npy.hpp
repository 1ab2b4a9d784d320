// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <penstock/dataset/npy_source.hpp>
#include <penstock/dataset/npy_write.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

/// How an NPY file is read.
struct npy_options {
  bool convert = false;                    ///< convert elements of another type; if false, that is an error
  npy_access access = npy_access::mapped;  ///< memory map, or reads at positions
  std::string name = {};                   ///< of the field; empty: the file's name without folder and ".npy"
};

namespace detail {

inline std::string npy_field_name(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1 is 0
  if (path.ends_with(".npy")) path.remove_suffix(4);
  return std::string(path);
}

}  // namespace detail

/// The dataset of one NPY file: its first dimension counts the samples, each sample is one field of rank `Rank`, in
/// row-major order whatever the file's order and byte order.
///
/// `T` is the file's element type. With `.convert` any other plain number is converted: to floating point by rounding,
/// to integers and bool only where the value stays the same, else that sample's `read` throws; complex numbers to
/// complex ones only. Files of `f2` are read into float this way with any compiler.
///
/// Opening checks types and sizes and throws `error` with path and byte. Copies share the open file. All members are
/// const, `read` may be called by any number of threads. Fortran order is gathered element by element: cheap from a
/// map, one system call per element with `npy_access::positioned`.
template <npy_element T, std::size_t Rank = 0>
class npy_array {
 public:
  using schema_type = penstock::schema<field<T, Rank>>;

  explicit npy_array(const std::string& path, const npy_options& options = {})
      : source_(std::make_shared<const detail::npy_source<T>>(path, options.access, options.convert)) {
    const npy_header& header = source_->header();
    if (header.shape.size() != Rank + 1) {
      const std::string found = detail::concat("the shape is ", header.shape_text());
      detail::throw_npy_error(path, header.shape_offset,
                              header.shape.empty()
                                  ? detail::concat(found, ", a single element without a dimension of samples, wanted ",
                                                   Rank + 1, " extents")
                                  : detail::concat(found, ", wanted ", Rank + 1, " extents: the samples', then the ",
                                                   Rank, " of a sample"));
    }
    field_.name = options.name.empty() ? detail::npy_field_name(path) : options.name;
    for (std::size_t i = 0; i != Rank; ++i) field_.shape[i] = header.shape[i + 1];
    elements_ = field_.elements();
    gather_ = header.fortran_order && Rank > 0;
    if (gather_) {
      std::size_t stride = source_->item_size();
      for (std::size_t i = 0; i != Rank; ++i) strides_[i] = stride *= header.shape[i];
    }
  }

  std::size_t size() const { return source_->header().shape[0]; }
  schema_type schema() const { return schema_type(field_); }
  const npy_header& header() const { return source_->header(); }

  void read(std::size_t index, sample_view<schema_type> to) const {
    check(index);
    read_rows(index, 1, std::get<0>(to).data());
  }

  /// Row i of `to` gets sample `indices[i]`; neighbours are fetched together, and what is not in memory is asked for
  /// ahead of its turn.
  void read_range(std::span<const std::uint64_t> indices, batch_view<schema_type> to) const {
    T* data = std::get<0>(to).data();
    const std::size_t ahead = detail::prefetch_distance<schema_type>(to);
    const std::size_t block = block_rows();
    std::size_t announced = 0;
    for (std::size_t row = 0; row < indices.size() && row < ahead; ++row) bring_near(indices[row]);
    for (std::size_t row = 0; row < indices.size();) {
      while (announced < indices.size() && announced <= row + block) {
        announce(indices.subspan(announced, block < indices.size() - announced ? block : indices.size() - announced));
        announced += block;
      }
      const std::size_t run = gather_ ? 1 : run_of(indices.subspan(row));
      check(indices[row]);
      check(indices[row + run - 1]);
      for (std::size_t i = row + ahead; i < row + ahead + run && i < indices.size(); ++i) bring_near(indices[i]);
      read_rows(static_cast<std::size_t>(indices[row]), run, data);
      data += run * elements_;
      row += run;
    }
  }

  /// Has the system fetch the sample soon. Does nothing for Fortran order, whose samples lie scattered.
  void prefetch(std::size_t index) const {
    if (gather_ || index >= size()) return;
    source_->prefetch(offset_of(index), elements_ * source_->item_size());
  }

 private:
  void check(std::uint64_t index) const {
    if (index < size()) return;
    throw error(detail::concat("sample ", index, " is wanted, the file has ", size()),
                detail::place_in_file(source_->header().path));
  }

  /// How many of the first samples are neighbours in this order.
  static std::size_t run_of(std::span<const std::uint64_t> indices) {
    std::size_t run = 1;
    while (run < indices.size() && indices[run] == indices[0] + run) ++run;
    return run;
  }
  /// Samples that are asked for at once.
  std::size_t block_rows() const {
    constexpr std::size_t most = 32, bytes = std::size_t{1} << 20;
    const std::size_t row = elements_ * source_->item_size();
    return row == 0 || bytes / row > most ? most : bytes / row < 1 ? 1 : bytes / row;
  }
  /// Has the system load these samples if it seems that they are not in memory. It is asked about the first one alone:
  /// that is what asking costs as long as everything is in memory.
  void announce(std::span<const std::uint64_t> indices) const {
    if (gather_ || elements_ == 0 || indices[0] >= size() || source_->is_cached(offset_of(indices[0]))) return;
    while (!indices.empty()) {
      const std::size_t run = run_of(indices);
      if (indices[0] + run <= size()) source_->fetch(offset_of(indices[0]), run * elements_ * source_->item_size());
      indices = indices.subspan(run);
    }
  }
  void bring_near(std::uint64_t index) const {
    if (!gather_ && index < size()) source_->bring_near(offset_of(index), elements_ * source_->item_size());
  }

  std::uint64_t offset_of(std::size_t index) const {
    return source_->header().data_offset + index * (gather_ ? 1 : elements_) * source_->item_size();
  }

  void read_rows(std::size_t index, std::size_t rows, T* to) const {
    if (elements_ == 0) return;
    if (!gather_) {
      source_->read(offset_of(index), source_->item_size(), rows * elements_, to);
    } else if constexpr (Rank > 0) {
      gather(offset_of(index), to);
    }
  }

  /// One sample of a Fortran-order array: runs along its last dimension, whose elements lie far apart.
  void gather(std::uint64_t first, T* to) const
    requires(Rank > 0)
  {
    const std::size_t run = field_.shape[Rank - 1];
    for (std::size_t begin = 0; begin < elements_; begin += run) {
      std::uint64_t offset = first;
      std::size_t rest = begin / run;
      for (std::size_t i = Rank - 1; i-- > 0; rest /= field_.shape[i]) {
        offset += rest % field_.shape[i] * strides_[i];
      }
      source_->read(offset, strides_[Rank - 1], run, to + begin);
    }
  }

  std::shared_ptr<const detail::npy_source<T>> source_;
  field<T, Rank> field_;
  std::array<std::size_t, Rank> strides_{};  // bytes between neighbours in each dimension of a sample; if gathered
  std::size_t elements_ = 0;                 // of a sample
  bool gather_ = false;
};

/// Several arrays with the same number of samples as one dataset; its fields are theirs, in order.
///
/// `npy_table(npy_array<float, 1>("x.npy"), npy_array<float>("y.npy"))`. Throws `error` naming files and counts
/// if the numbers of samples differ.
template <class... Arrays>
class npy_table;

template <class... T, std::size_t... Rank>
class npy_table<npy_array<T, Rank>...> {
  static_assert(sizeof...(T) > 0, "penstock: npy_table wants one array or more");

 public:
  using schema_type = penstock::schema<field<T, Rank>...>;

  explicit npy_table(npy_array<T, Rank>... arrays) : arrays_(std::move(arrays)...) {
    const auto& first = std::get<0>(arrays_);
    each([&](const auto& array) {
      if (array.size() == first.size()) return;
      throw error(detail::concat(first.header().path, " has ", first.size(), " samples, ", array.header().path, " has ",
                                 array.size(), "; wanted the same number"));
    });
  }

  std::size_t size() const { return std::get<0>(arrays_).size(); }
  schema_type schema() const {
    return std::apply([](const auto&... arrays) { return schema_type(std::get<0>(arrays.schema().fields)...); },
                      arrays_);
  }

  void read(std::size_t index, sample_view<schema_type> to) const {
    each_with(to, [&](const auto& array, const auto& view) { array.read(index, std::tuple(view)); });
  }
  void read_range(std::span<const std::uint64_t> indices, batch_view<schema_type> to) const {
    each_with(to, [&](const auto& array, const auto& view) { array.read_range(indices, std::tuple(view)); });
  }
  void prefetch(std::size_t index) const {
    each([&](const auto& array) { array.prefetch(index); });
  }

 private:
  template <class Function>
  void each(const Function& function) const {
    std::apply([&](const auto&... arrays) { (function(arrays), ...); }, arrays_);
  }
  template <class Views, class Function>
  void each_with(const Views& views, const Function& function) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (function(std::get<I>(arrays_), std::get<I>(views)), ...);
    }(std::index_sequence_for<T...>{});
  }

  std::tuple<npy_array<T, Rank>...> arrays_;
};

template <class... T, std::size_t... Rank>
npy_table(npy_array<T, Rank>...) -> npy_table<npy_array<T, Rank>...>;

/// Inputs and targets from two files. `options` holds for both; the fields are named after the files.
template <npy_element Tx, std::size_t RankX, npy_element Ty, std::size_t RankY>
npy_table<npy_array<Tx, RankX>, npy_array<Ty, RankY>> npy_pair(const std::string& path_x, const std::string& path_y,
                                                               const npy_options& options = {}) {
  if (!options.name.empty()) {
    detail::reject_option("npy_pair", "name", detail::concat("'", options.name, "'"),
                          "none, as it would name both fields; npy_table takes arrays with names of their own");
  }
  return npy_table(npy_array<Tx, RankX>(path_x, options), npy_array<Ty, RankY>(path_y, options));
}

}  // namespace penstock
