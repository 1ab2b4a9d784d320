// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/dataset/hdf5_file.hpp>
#include <penstock/dataset/hdf5_type.hpp>
#include <penstock/dataset/npy_convert.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

/// Which dimension of an HDF5 dataset, as h5dump shows it, counts the samples.
enum class hdf5_samples { first, last };

/// How an HDF5 dataset is read. For MATLAB's files see `hdf5_array`.
struct hdf5_options {
  bool convert = false;                        ///< convert numbers of another type; if false, that is an error
  hdf5_samples samples = hdf5_samples::first;  ///< `last`: a sample's numbers lie apart, which reads more slowly
  bool reversed = false;  ///< turn the order of a sample's dimensions: 3 x 480 x 640 is 640 x 480 x 3
  std::string name = {};  ///< of the field; empty: the dataset's, without its groups
  std::size_t cache_bytes = std::size_t{64} << 20;  ///< of chunks that the library keeps decoded; one should fit
};

namespace detail {

#if defined(H5_HAVE_THREADSAFE)
inline constexpr bool hdf5_is_thread_safe = true;
#else
inline constexpr bool hdf5_is_thread_safe = false;
#endif

/// A dataset in an open file and how samples lie in it.
struct hdf5_source {
  std::string path, name;
  hdf5_handle file, dataset, space, memory_type;  // closed in the reverse order
  std::vector<hsize_t> shape{};
  std::size_t axis = 0;  // of the samples

  hdf5_source(const std::string& at, const std::string& which, const hdf5_options& options)
      : path(at),
        name(which),
        file(open_hdf5_file(path)),
        dataset(open_hdf5_dataset(file.get(), path, name, options.cache_bytes)),
        space(H5Dget_space(dataset.get()), H5Sclose) {
    if (H5Sget_simple_extent_type(space.get()) != H5S_SIMPLE)
      fail(H5Sget_simple_extent_type(space.get()) == H5S_NULL
               ? "this has no elements at all, wanted an array"
               : "this is a single element without a dimension of samples, wanted an array");
    shape.resize(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.get())));
    H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr);
    axis = options.samples == hdf5_samples::first ? 0 : shape.size() - 1;
    if (is_empty_in_matlab()) fail("this is an empty array of MATLAB's, which stores its size here, not its elements");
  }

  [[noreturn]] void fail(std::string problem) const {
    throw error(std::move(problem), place_in_file(path, position()));
  }
  [[noreturn]] void fail_sample(std::uint64_t sample, std::string problem) const {
    provenance where = place_in_file(path, position());
    where.sample = sample;
    throw error(std::move(problem), std::move(where));
  }
  std::string position() const { return concat("dataset '", name, "'"); }
  std::string shape_text() const {
    std::string text;
    for (const hsize_t extent : shape) text += concat(text.empty() ? "" : " x ", extent);
    return text;
  }

 private:
  bool is_empty_in_matlab() const {
    if (H5Aexists(dataset.get(), "MATLAB_empty") <= 0) return false;
    const hdf5_handle attribute(H5Aopen(dataset.get(), "MATLAB_empty", H5P_DEFAULT), H5Aclose);
    const hdf5_handle extent(H5Aget_space(attribute.get()), H5Sclose);
    int value = 0;
    return H5Sget_simple_extent_npoints(extent.get()) == 1 && H5Aread(attribute.get(), H5T_NATIVE_INT, &value) >= 0 &&
           value != 0;
  }
};

}  // namespace detail

/// The samples of an HDF5 dataset, `hdf5_array<float, 3>("photos.h5", "/train/x")`: one dimension counts them, each is
/// one field of rank `Rank`, in row-major order. Any layout and filter that the library reads: chunked, deflated,
/// either byte order.
///
/// `T` is the stored type. With `.convert` other numbers are converted: to floating point by rounding, to integers only
/// where the value stays the same, else that `read` throws. Where a dataset has more dimensions than wanted, those of
/// one entry are left out.
///
/// MAT-files of version 7.3 are HDF5. MATLAB's first dimension is HDF5's last: `size(X)` of H x W x C x N is stored as
/// N x C x W x H, and read as samples H x W x C with `.reversed = true`; a table of N rows and F columns is stored as
/// F x N, and read with `.samples = hdf5_samples::last`; a column of N numbers as 1 x N, in the same way with rank 0.
///
/// Opening checks type and shape; errors name file, dataset and sample. Copies share the open file. Members are const
/// and may be called by any number of threads where the library was built thread-safe, though it does one thing at a
/// time; else the dataset is serial, and no two feeds nor other threads may use HDF5 at once. Reading allocates, in the
/// library.
template <hdf5_element T, std::size_t Rank = 0>
class hdf5_array {
 public:
  using schema_type = penstock::schema<field<T, Rank>>;
  static constexpr bool serial = !detail::hdf5_is_thread_safe;

  hdf5_array(const std::string& path, const std::string& name, const hdf5_options& options = {})
      : reversed_(options.reversed) {
    const detail::hdf5_quiet quiet;
    const auto source = std::make_shared<detail::hdf5_source>(path, name, options);
    source_ = source;
    choose_type(*source, options.convert);
    field_.name = options.name.empty() ? name.substr(name.rfind('/') + 1) : options.name;  // npos + 1 is 0
    stored_ = sample_shape();
    for (std::size_t i = 0; i < Rank; ++i) field_.shape[i] = stored_[reversed_ ? Rank - 1 - i : i];
    elements_ = field_.elements();
  }

  std::size_t size() const { return static_cast<std::size_t>(source_->shape[source_->axis]); }
  schema_type schema() const { return schema_type(field_); }
  const std::string& path() const { return source_->path; }
  /// Of the dataset in the file.
  const std::string& name() const { return source_->name; }
  /// The library does one thing at a time.
  static constexpr bool reads_in_turn() { return true; }

  void read(std::size_t index, sample_view<schema_type> to) const { read_rows(index, 1, std::get<0>(to).data()); }

  /// Row i of `to` gets sample `indices[i]`; neighbours are read together.
  void read_range(std::span<const std::uint64_t> indices, batch_view<schema_type> to) const {
    const bool together = source_->axis == 0 && !is_turned();
    T* data = std::get<0>(to).data();
    for (std::size_t row = 0, run; row < indices.size(); row += run, data += run * elements_) {
      for (run = 1; together && row + run < indices.size() && indices[row + run] == indices[row] + run;) ++run;
      read_rows(indices[row], run, data);
    }
  }

 private:
  void choose_type(detail::hdf5_source& source, bool convert) {
    const detail::hdf5_handle type(H5Dget_type(source.dataset.get()), H5Tclose);
    if (detail::is_hdf5_type<T>(type.get())) return;
    found_ = detail::describe_hdf5_type(type.get());
    const std::string found = "the elements are " + found_ + ", wanted " + wanted();
    if (detail::is_hdf5_number(type.get())) {
      if (!convert) source.fail(found + "; the option .convert = true converts");
      source.memory_type = detail::native_hdf5_type(type.get());
      const detail::npy_type native = detail::npy_type_of_hdf5(source.memory_type.get());
      converter_ = detail::find_npy_converter<T>(native);
      item_size_ = native.size;
    }
    if (converter_ == nullptr) source.fail(found + " or another plain number");
  }
  static std::string wanted() { return detail::npy_type_name(npy_kind<T>, sizeof(T)); }

  /// The stored extents beside the samples'.
  std::array<std::size_t, Rank> sample_shape() const {
    std::vector<std::size_t> extents;
    for (std::size_t i = 0; i < source_->shape.size(); ++i)
      if (i != source_->axis) extents.push_back(static_cast<std::size_t>(source_->shape[i]));
    const bool more = extents.size() > Rank;
    if (more) std::erase(extents, std::size_t{1});
    if (extents.size() != Rank)
      source_->fail(detail::concat("the shape is ", source_->shape_text(), ", wanted ", Rank + 1,
                                   " extents, the samples' ", source_->axis == 0 ? "first" : "last",
                                   more ? ", or others that are 1" : ""));
    if (!detail::count_npy_elements(extents))
      source_->fail(detail::concat("a sample of the shape ", source_->shape_text(), " is more than memory can hold"));
    std::array<std::size_t, Rank> result{};
    for (std::size_t i = 0; i < Rank; ++i) result[i] = extents[i];
    return result;
  }

  bool is_turned() const { return reversed_ && Rank > 1; }

  void read_rows(std::uint64_t index, std::size_t rows, T* to) const {
    if (index >= size() || rows > size() - index)
      throw error(detail::concat("sample ", index + rows - 1, " is wanted, the dataset has ", size()),
                  detail::place_in_file(source_->path, source_->position()));
    if (elements_ == 0) return;
    const detail::hdf5_quiet quiet;
    if (!is_turned()) return fetch(index, rows, to);
    std::vector<T> stored(elements_);
    fetch(index, 1, stored.data());
    turn(stored, to);
  }

  void fetch(std::uint64_t index, std::size_t rows, T* to) const {
    if (converter_ == nullptr) return load(index, rows, detail::hdf5_memory_type<T>(), sizeof(T), to);
    std::vector<std::byte> numbers(rows * elements_ * item_size_);
    load(index, rows, source_->memory_type.get(), item_size_, numbers.data());
    const std::size_t done = converter_(numbers.data(), item_size_, rows * elements_, to);
    if (done < rows * elements_)
      source_->fail_sample(index + done / elements_, "a number of " + found_ + " has no equal in " + wanted());
  }

  void load(std::uint64_t index, std::size_t rows, hid_t type, std::size_t item_size, void* to) const {
    std::vector<hsize_t> start(source_->shape.size(), 0), count = source_->shape;
    start[source_->axis] = index;
    count[source_->axis] = rows;
    const hsize_t elements = rows * elements_;
    const detail::hdf5_handle from(H5Scopy(source_->space.get()), H5Sclose);
    const detail::hdf5_handle flat(H5Screate_simple(1, &elements, nullptr), H5Sclose);
    if (H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) >= 0 &&
        H5Dread(source_->dataset.get(), type, flat.get(), from.get(), H5P_DEFAULT, to) >= 0)
      return;
    if (rows == 1) source_->fail_sample(index, "cannot read: " + detail::hdf5_reason());
    for (std::size_t i = 0; i < rows; ++i)  // finds the one to blame
      load(index + i, 1, type, item_size, static_cast<std::byte*>(to) + i * elements_ * item_size);
  }

  /// The last of the stored dimensions becomes the first one.
  void turn(const std::vector<T>& from, T* to) const {
    std::array<std::size_t, Rank> at{};
    for (const T& value : from) {
      std::size_t place = 0;
      for (std::size_t i = Rank; i-- > 0;) place = place * stored_[i] + at[i];
      to[place] = value;
      for (std::size_t i = Rank; i-- > 0 && ++at[i] == stored_[i];) at[i] = 0;
    }
  }

  std::shared_ptr<const detail::hdf5_source> source_;
  field<T, Rank> field_;
  std::array<std::size_t, Rank> stored_{};  // a sample's shape in the file
  std::size_t elements_ = 0;                // of a sample
  bool reversed_ = false;
  detail::npy_converter<T> converter_ = nullptr;  // or null where the file has this type
  std::size_t item_size_ = 0;                     // of what is converted
  std::string found_;                             // its type
};

/// Several HDF5 datasets with the same number of samples, of one file or of several, as one; its fields are theirs, in
/// order.
///
/// `hdf5_table(hdf5_array<float, 3>("a.h5", "x"), hdf5_array<float>("a.h5", "y"))`. Throws `error` naming datasets and
/// counts if the numbers of samples differ.
template <class... Arrays>
class hdf5_table;

template <class... T, std::size_t... Rank>
class hdf5_table<hdf5_array<T, Rank>...> {
  static_assert(sizeof...(T) > 0, "penstock: hdf5_table wants one array or more");

 public:
  using schema_type = penstock::schema<field<T, Rank>...>;
  static constexpr bool serial = !detail::hdf5_is_thread_safe;

  explicit hdf5_table(hdf5_array<T, Rank>... arrays) : arrays_(std::move(arrays)...) {
    const auto& first = std::get<0>(arrays_);
    const auto check = [&](const auto& array) {
      if (array.size() == first.size()) return;
      throw error(detail::concat(first.path(), ", dataset '", first.name(), "' has ", first.size(), " samples, ",
                                 array.path(), ", dataset '", array.name(), "' has ", array.size(),
                                 "; wanted the same number"));
    };
    std::apply([&](const auto&... all) { (check(all), ...); }, arrays_);
  }

  std::size_t size() const { return std::get<0>(arrays_).size(); }
  schema_type schema() const {
    return std::apply([](const auto&... arrays) { return schema_type(std::get<0>(arrays.schema().fields)...); },
                      arrays_);
  }
  static constexpr bool reads_in_turn() { return true; }
  void read(std::size_t index, sample_view<schema_type> to) const {
    each_with(to, [&](const auto& array, const auto& view) { array.read(index, std::tuple(view)); });
  }
  void read_range(std::span<const std::uint64_t> indices, batch_view<schema_type> to) const {
    each_with(to, [&](const auto& array, const auto& view) { array.read_range(indices, std::tuple(view)); });
  }

 private:
  template <class Views, class Function>
  void each_with(const Views& views, const Function& function) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (function(std::get<I>(arrays_), std::get<I>(views)), ...);
    }(std::index_sequence_for<T...>{});
  }

  std::tuple<hdf5_array<T, Rank>...> arrays_;
};

template <class... T, std::size_t... Rank>
hdf5_table(hdf5_array<T, Rank>...) -> hdf5_table<hdf5_array<T, Rank>...>;

}  // namespace penstock
