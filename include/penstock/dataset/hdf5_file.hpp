// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// An object of the library's, closed at the end; negative if there is none.
class hdf5_handle {
 public:
  using closer = herr_t (*)(hid_t);

  hdf5_handle() = default;
  hdf5_handle(hid_t number, closer close) : number_(number), close_(close) {}
  hdf5_handle(hdf5_handle&& other) noexcept : number_(std::exchange(other.number_, -1)), close_(other.close_) {}
  hdf5_handle& operator=(hdf5_handle&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~hdf5_handle() {
    if (number_ >= 0) close_(number_);
  }
  explicit operator bool() const noexcept { return number_ >= 0; }
  hid_t get() const noexcept { return number_; }

 private:
  hid_t number_ = -1;
  closer close_ = nullptr;
};

/// Keeps the library from printing its errors, which it does by itself, on this thread and until the end of the scope.
class hdf5_quiet {
 public:
  hdf5_quiet() : known_(H5Eget_auto2(H5E_DEFAULT, &function_, &data_) >= 0) {
    if (known_) H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  hdf5_quiet(const hdf5_quiet&) = delete;
  hdf5_quiet& operator=(const hdf5_quiet&) = delete;
  ~hdf5_quiet() {
    if (known_) H5Eset_auto2(H5E_DEFAULT, function_, data_);
  }

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
  bool known_;  // false where the application has a function of the interface of 1.6
};

/// What the call that failed last has to say: the innermost cause.
inline std::string hdf5_reason() {
  std::string reason;
  const auto note = [](unsigned, const H5E_error2_t* one, void* to) -> herr_t {
    auto& text = *static_cast<std::string*>(to);
    if (text.empty() && one->desc != nullptr) text = one->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note, &reason);
  return reason.empty() ? "no reason given" : reason;
}

/// A MAT-file of version 4 has no mark of its own: five numbers that are plausible and a name that ends with a zero.
inline bool looks_like_mat_4(std::span<const char> start) {
  const auto number = [&](std::size_t i, bool big) {
    std::uint32_t value = 0;
    for (std::size_t k = 0; k < 4; ++k)
      value |= std::uint32_t{static_cast<unsigned char>(start[4 * i + k])} << (big ? 24 - 8 * k : 8 * k);
    return value;
  };
  if (start.size() < 22) return false;
  for (const bool big : {false, true}) {
    const std::uint32_t type = number(0, big), length = number(4, big);
    const bool numbers =
        type / 1000 == (big ? 1u : 0u) && type / 100 % 10 == 0 && type / 10 % 10 <= 5 && type % 10 <= 2;
    if (numbers && number(3, big) <= 1 && length >= 2 && length <= 64 && 20 + length <= start.size() &&
        std::memchr(start.data() + 20, 0, length) == start.data() + 20 + length - 1)
      return true;
  }
  return false;
}

/// Refuses files of other formats by name, where they have one, and tells the system's reason for what cannot be read.
inline void check_hdf5_start(const std::string& path) {
  const file_descriptor file(path);
  std::array<char, 128> bytes{};
  const std::size_t got = file.size() < bytes.size() ? static_cast<std::size_t>(file.size()) : bytes.size();
  file.read_at(0, std::as_writable_bytes(std::span(bytes)).first(got));
  const std::string_view start(bytes.data(), got);
  const auto refuse = [&](std::string problem) { throw error(std::move(problem), place_in_file(path)); };
  constexpr std::string_view save = "wanted version 7.3, which is HDF5: save(..., '-v7.3') in MATLAB writes it";
  if (start.starts_with("MATLAB 5.0 MAT-file")) refuse(concat("this is a MAT-file of version 5 (or 7), ", save));
  if (H5Fis_hdf5(path.c_str()) > 0) return;
  if (start.empty()) refuse("the file is empty, wanted HDF5");
  if (start.starts_with("\x1f\x8b")) refuse("this is gzip, wanted the HDF5 file in it");
  if (start.starts_with("PK")) refuse("this is a zip archive, wanted HDF5");
  if (start.starts_with("\x93NUMPY")) refuse("this is an NPY file, which npy_array reads; wanted HDF5");
  if (start.starts_with("CDF")) refuse("this is NetCDF of version 3, wanted version 4, which is HDF5");
  if (looks_like_mat_4(std::span(bytes).first(got))) refuse(concat("this is a MAT-file of version 4, ", save));
  refuse("this is not HDF5");
}

inline hdf5_handle open_hdf5_file(const std::string& path) {
  check_hdf5_start(path);
  hdf5_handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!file) throw error(concat("cannot open this HDF5 file: ", hdf5_reason()), place_in_file(path));
  return file;
}

/// "'a', 'b', 'c'": what the file's root holds, the first of it if it is much.
inline std::string hdf5_root_names(hid_t file) {
  struct list {
    std::string text;
    std::size_t count = 0;
  } names;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
    constexpr std::size_t most = 12;
    auto& all = *static_cast<list*>(to);
    if (++all.count <= most) all.text += concat(all.text.empty() ? "'" : ", '", name, "'");
    if (all.count == most + 1) all.text += ", ...";
    return 0;
  };
  H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names);
  return names.text.empty() ? "nothing" : names.text;
}

inline hdf5_handle open_hdf5_dataset(hid_t file, const std::string& path, const std::string& name,
                                     std::size_t cache_bytes) {
  const hdf5_handle object(H5Oopen(file, name.c_str(), H5P_DEFAULT), H5Oclose);
  if (!object) {
    const std::string reason = hdf5_reason();
    throw error(concat("cannot open '", name, "': ", reason, "; the file has ", hdf5_root_names(file)),
                place_in_file(path));
  }
  if (H5Iget_type(object.get()) != H5I_DATASET)
    throw error(concat("'", name, "' is ", H5Iget_type(object.get()) == H5I_GROUP ? "a group" : "a type",
                       ", wanted a dataset in it or another one"),
                place_in_file(path));
  const hdf5_handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  constexpr std::size_t slots = 10007;  // for the library's table of chunks: a prime, many times as many as fit
  H5Pset_chunk_cache(access.get(), slots, cache_bytes, H5D_CHUNK_CACHE_W0_DEFAULT);
  hdf5_handle dataset(H5Dopen2(file, name.c_str(), access.get()), H5Dclose);
  if (!dataset) throw error(concat("cannot open '", name, "': ", hdf5_reason()), place_in_file(path));
  return dataset;
}

}  // namespace penstock::detail
