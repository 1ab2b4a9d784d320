// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: the library, which is not compiled for it, holds the one lock there is
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/dataset/hdf5.hpp>
#include <penstock/penstock.hpp>

#include "../support/error_of.hpp"
#include "../support/temporary_directory.hpp"

namespace {

using namespace std::string_literals;
using penstock::hdf5_array;
using penstock::hdf5_samples;
using penstock::hdf5_table;
using penstock::detail::hdf5_handle;

/// A file that is being made.
class maker {
 public:
  explicit maker(std::string path, hsize_t user_block = 0) : path_(std::move(path)) {
    const hdf5_handle how(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
    if (user_block != 0) H5Pset_userblock(how.get(), user_block);
    file_ = hdf5_handle(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, how.get(), H5P_DEFAULT), H5Fclose);
  }
  /// `values` have type `from` in memory and `type` in the file; chunks are deflated.
  template <class T>
  maker& add(const char* name, hid_t type, hid_t from, std::vector<hsize_t> shape, const std::vector<T>& values,
             std::vector<hsize_t> chunk = {}) {
    const hdf5_handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose);
    const hdf5_handle how(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    if (!chunk.empty()) {
      H5Pset_chunk(how.get(), static_cast<int>(chunk.size()), chunk.data());
      H5Pset_deflate(how.get(), 4);
    }
    dataset_ =
        hdf5_handle(H5Dcreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT), H5Dclose);
    if (H5Dwrite(dataset_.get(), from, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
      throw std::runtime_error("cannot make a test's file");
    return *this;
  }
  /// Marks the last dataset.
  maker& attribute(const char* name, int value) {
    const hdf5_handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const hdf5_handle one(H5Acreate2(dataset_.get(), name, H5T_STD_I32LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                          H5Aclose);
    H5Awrite(one.get(), H5T_NATIVE_INT, &value);
    return *this;
  }
  hid_t file() const { return file_.get(); }
  std::string close() {
    dataset_ = {};
    file_ = {};
    return path_;
  }

 private:
  std::string path_;
  hdf5_handle file_, dataset_;
};

template <class T>
std::vector<T> counting(std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<T>(i);
  return result;
}

/// Sample `index` in a heap block of exactly its size (for the address sanitizer).
template <class T, std::size_t Rank>
std::vector<T> sample_of(const hdf5_array<T, Rank>& array, std::size_t index) {
  const auto field = std::get<0>(array.schema().fields);
  const std::unique_ptr<T[]> block(new T[field.elements()]());
  array.read(index, {penstock::tensor_view<T, Rank>(block.get(), field.shape)});
  return {block.get(), block.get() + field.elements()};
}

using penstock_test::error_of;

class hdf5 : public testing::Test {
 protected:
  penstock_test::temporary_directory directory;
  std::string path = directory / "a.h5";
  /// The message after the path.
  template <class Action>
  std::string refusal(const Action& action) {
    const std::string message = error_of(action);
    EXPECT_TRUE(message.starts_with(path)) << message;
    return message.substr(std::min(message.size(), path.size() + 2));
  }
};

TEST_F(hdf5, contiguous_chunked_and_deflated_in_either_byte_order) {
  const auto numbers = counting<std::int32_t>(50 * 3 * 4);
  maker(path)
      .add("little", H5T_STD_I32LE, H5T_NATIVE_INT32, {50, 3, 4}, numbers)
      .add("big", H5T_STD_I32BE, H5T_NATIVE_INT32, {50, 3, 4}, numbers)
      .add("deflated", H5T_STD_I32BE, H5T_NATIVE_INT32, {50, 3, 4}, numbers, {7, 2, 4})
      .close();
  for (const char* name : {"little", "/big", "deflated"}) {
    const hdf5_array<std::int32_t, 2> array(path, name);
    ASSERT_EQ(array.size(), 50u);
    EXPECT_EQ(std::get<0>(array.schema().fields).shape, (std::array<std::size_t, 2>{3, 4}));
    EXPECT_EQ(std::get<0>(array.schema().fields).name, name[0] == '/' ? name + 1 : name);
    for (std::size_t i = 0; i < 50; ++i)
      ASSERT_TRUE(std::ranges::equal(sample_of(array, i), std::span(numbers).subspan(i * 12, 12))) << name << i;
    // Runs of neighbours, which go together, and others.
    const std::vector<std::uint64_t> wanted{4, 5, 6, 3, 49, 0, 1};
    std::vector<std::int32_t> block(wanted.size() * 12);
    array.read_range(wanted, {penstock::tensor_view<std::int32_t, 3>(block.data(), {wanted.size(), 3, 4})});
    for (std::size_t i = 0; i < wanted.size(); ++i)
      ASSERT_TRUE(std::ranges::equal(std::span(block).subspan(i * 12, 12), sample_of(array, wanted[i])));
    EXPECT_NE(refusal([&] { sample_of(array, 50); }).find("sample 50 is wanted, the dataset has 50"),
              std::string::npos);
    EXPECT_NE(refusal([&] {
                array.read_range(std::vector<std::uint64_t>{48, 49, 50}, {{block.data(), {3, 3, 4}}});
              }).find("sample 50 is wanted"),
              std::string::npos);
  }
}

TEST_F(hdf5, numbers_are_converted_only_when_asked_and_to_integers_only_where_they_stay_the_same) {
  maker(path)
      .add("double", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, {6}, std::vector<double>{1, -2, 2.5, 300, 1e300, 7})
      .add("int16", H5T_STD_I16LE, H5T_NATIVE_INT16, {3}, std::vector<std::int16_t>{-1, 127, 128})
      .close();
  EXPECT_EQ(refusal([&] { hdf5_array<float>(path, "double"); }),
            "dataset 'double': the elements are float64, wanted float32; the option .convert = true converts");
  EXPECT_EQ(refusal([&] { hdf5_array<std::uint16_t>(path, "int16"); }),
            "dataset 'int16': the elements are int16, wanted uint16; the option .convert = true converts");
  const hdf5_array<float> rounded(path, "double", {.convert = true});
  EXPECT_EQ(sample_of(rounded, 2)[0], 2.5f);
  EXPECT_EQ(sample_of(rounded, 1)[0], -2.0f);
  EXPECT_EQ(sample_of(hdf5_array<double>(path, "int16", {.convert = true}), 0)[0], -1.0);

  const hdf5_array<std::int8_t> small(path, "int16", {.convert = true});
  EXPECT_EQ(sample_of(small, 1)[0], 127);
  EXPECT_EQ(error_of([&] { sample_of(small, 2); }),
            "sample 2, " + path + ", dataset 'int16': a number of int16 has no equal in int8");
  const hdf5_array<std::int8_t> whole(path, "double", {.convert = true});
  EXPECT_EQ(sample_of(whole, 1)[0], -2);
  for (const std::size_t bad : {2u, 3u, 4u}) {
    EXPECT_NE(error_of([&] { sample_of(whole, bad); }), "") << bad;
    // Of a run the one is named that is to blame.
    std::vector<std::int8_t> block(3);
    const std::vector<std::uint64_t> run{bad - 2, bad - 1, bad};
    const std::string message = error_of([&] { whole.read_range(run, {{block.data(), {3}}}); });
    EXPECT_TRUE(message.starts_with("sample " + std::to_string(std::max(bad - 2, std::size_t{2})))) << message;
  }
  // Half precision, and h5py's bool.
  const hdf5_handle half(H5Tcopy(H5T_IEEE_F32LE), H5Tclose), boolean(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  H5Tset_fields(half.get(), 15, 10, 5, 0, 10);
  H5Tset_size(half.get(), 2);
  H5Tset_ebias(half.get(), 15);
  for (const std::int8_t value : {std::int8_t{0}, std::int8_t{1}})
    H5Tenum_insert(boolean.get(), value == 0 ? "FALSE" : "TRUE", &value);
  const std::string other = directory / "b.h5";
  maker(other)
      .add("half", half.get(), H5T_NATIVE_FLOAT, {2}, std::vector<float>{-1.5f, 1024})
      .add("bool", boolean.get(), boolean.get(), {2}, std::vector<std::int8_t>{0, 1})
      .close();
  EXPECT_EQ(sample_of(hdf5_array<float>(other, "half", {.convert = true}), 0)[0], -1.5f);
  EXPECT_EQ(sample_of(hdf5_array<int>(other, "half", {.convert = true}), 1)[0], 1024);
  EXPECT_EQ(sample_of(hdf5_array<std::uint8_t>(other, "bool", {.convert = true}), 1)[0], 1);
  EXPECT_NE(error_of([&] { hdf5_array<std::int8_t>(other, "bool"); }).find("named values"), std::string::npos);

  const hdf5_array<std::uint16_t> sign(path, "int16", {.convert = true});
  EXPECT_EQ(sample_of(sign, 2)[0], 128);
  EXPECT_NE(error_of([&] { sample_of(sign, 0); }), "");
}

TEST_F(hdf5, samples_in_the_last_dimension_and_dimensions_in_the_other_order) {
  // A MATLAB array of 2 x 3 x 4 x 5, whose element (h, w, c, n) has the number h + 2 w + 6 c + 24 n.
  maker(path).add("X", H5T_STD_U8LE, H5T_NATIVE_UINT8, {5, 4, 3, 2}, counting<std::uint8_t>(120)).close();
  const hdf5_array<std::uint8_t, 3> images(path, "X", {.reversed = true});
  ASSERT_EQ(images.size(), 5u);
  ASSERT_EQ(std::get<0>(images.schema().fields).shape, (std::array<std::size_t, 3>{2, 3, 4}));
  const auto image = sample_of(images, 3);
  for (std::size_t h = 0, at = 0; h < 2; ++h)
    for (std::size_t w = 0; w < 3; ++w)
      for (std::size_t c = 0; c < 4; ++c, ++at) EXPECT_EQ(image[at], h + 2 * w + 6 * c + 24 * 3);

  const hdf5_array<std::uint8_t, 3> last(path, "X", {.samples = hdf5_samples::last});
  ASSERT_EQ(last.size(), 2u);
  ASSERT_EQ(std::get<0>(last.schema().fields).shape, (std::array<std::size_t, 3>{5, 4, 3}));
  const auto every_other = sample_of(last, 1);
  for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(every_other[i], 2 * i + 1);
  const hdf5_array<std::uint8_t, 3> both(path, "X", {.samples = hdf5_samples::last, .reversed = true});
  const auto turned = sample_of(both, 1);
  EXPECT_EQ(std::get<0>(both.schema().fields).shape, (std::array<std::size_t, 3>{3, 4, 5}));
  for (std::size_t w = 0, at = 0; w < 3; ++w)
    for (std::size_t c = 0; c < 4; ++c)
      for (std::size_t n = 0; n < 5; ++n, ++at) EXPECT_EQ(turned[at], 1 + 2 * w + 6 * c + 24 * n);
}

/// A MAT-file of version 7.3 is HDF5 after 512 bytes of its own.
TEST_F(hdf5, MAT_files_of_version_7_3) {
  // A table of 4 rows and 2 columns, X(n, f) = 10 n + f, and a column of 4 numbers.
  maker(path, 512)
      .add("X", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {2, 4}, std::vector<double>{0, 10, 20, 30, 1, 11, 21, 31})
      .add("y", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {1, 4}, std::vector<double>{5, 6, 7, 8})
      .add("none", H5T_STD_U64LE, H5T_NATIVE_UINT64, {2}, std::vector<std::uint64_t>{0, 3})
      .attribute("MATLAB_empty", 1)
      .close();
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << "MATLAB 7.3 MAT-file, Platform: GLNXA64";
  const hdf5_table table(hdf5_array<double, 1>(path, "X", {.samples = hdf5_samples::last}),
                         hdf5_array<double>(path, "y", {.samples = hdf5_samples::last}));
  ASSERT_EQ(table.size(), 4u);
  std::array<double, 2> row{};
  double y = 0;
  table.read(3, {penstock::tensor_view<double, 1>(row.data(), {2}), penstock::tensor_view<double, 0>(&y, {})});
  EXPECT_EQ(row, (std::array<double, 2>{30, 31}));
  EXPECT_EQ(y, 8);
  EXPECT_NE(refusal([&] { hdf5_array<std::uint64_t>(path, "none"); }).find("this is an empty array of MATLAB's"),
            std::string::npos);
}

TEST_F(hdf5, MAT_files_of_older_versions_and_files_of_other_formats_are_named) {
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return refusal([&] { hdf5_array<float>(path, "x"); });
  };
  const std::string save = "wanted version 7.3, which is HDF5: save(..., '-v7.3') in MATLAB writes it";
  EXPECT_EQ(refused("MATLAB 5.0 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1"),
            "this is a MAT-file of version 5 (or 7), " + save);
  // Version 4: a 1 x 1 matrix of doubles with the name x, on a little- and on a big-endian machine.
  EXPECT_EQ(refused("\0\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0x\0\0\0\0\0\0\0\xf0\x3f"s),
            "this is a MAT-file of version 4, " + save);
  EXPECT_EQ(refused("\0\0\3\xe8\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\2x\0\x3f\xf0\0\0\0\0\0\0"s),
            "this is a MAT-file of version 4, " + save);
  EXPECT_EQ(refused("\x1f\x8b\x08"), "this is gzip, wanted the HDF5 file in it");
  EXPECT_EQ(refused(""), "the file is empty, wanted HDF5");
  EXPECT_EQ(refused("\0\0\x08\3\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0"s), "this is not HDF5");
  EXPECT_NE(error_of([&] { hdf5_array<float>(directory / "absent.h5", "x"); }).find("cannot open: No such file"),
            std::string::npos);
}

TEST_F(hdf5, what_is_not_there_or_is_something_else_is_named_and_nothing_is_printed) {
  maker file(path);
  file.add("x", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {4, 2}, std::vector<float>(8))
      .add("y", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {5}, std::vector<float>(5));
  H5Gclose(H5Gcreate2(file.file(), "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  {
    const hdf5_handle text(H5Tcopy(H5T_C_S1), H5Tclose), scalar(H5Screate(H5S_SCALAR), H5Sclose);
    const hsize_t three = 3;
    const hdf5_handle list(H5Screate_simple(1, &three, nullptr), H5Sclose);
    const auto make = [&](const char* name, hid_t type, hid_t space) {
      H5Dclose(H5Dcreate2(file.file(), name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    };
    make("text", text.get(), list.get());
    make("scalar", H5T_IEEE_F32LE, scalar.get());
  }
  file.close();

  H5E_auto2_t before = nullptr, after = nullptr;
  void *data_before = nullptr, *data_after = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &before, &data_before);
  ASSERT_NE(before, nullptr);  // the library prints, if one lets it
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal([&] { hdf5_array<float>(path, "z"); }),
            "cannot open 'z': object 'z' doesn't exist; the file has 'group', 'scalar', 'text', 'x', 'y'");
  EXPECT_EQ(refusal([&] { hdf5_array<float>(path, "group"); }),
            "'group' is a group, wanted a dataset in it or another one");
  EXPECT_EQ(refusal([&] { hdf5_array<float>(path, "text", {.convert = true}); }),
            "dataset 'text': the elements are text, wanted float32 or another plain number");
  EXPECT_EQ(refusal([&] { hdf5_array<float>(path, "scalar"); }),
            "dataset 'scalar': this is a single element without a dimension of samples, wanted an array");
  EXPECT_EQ(refusal([&] { hdf5_array<float, 2>(path, "x"); }),
            "dataset 'x': the shape is 4 x 2, wanted 3 extents, the samples' first");
  EXPECT_EQ(refusal([&] { hdf5_array<float>(path, "x"); }),
            "dataset 'x': the shape is 4 x 2, wanted 1 extents, the samples' first, or others that are 1");
  const std::string message =
      error_of([&] { hdf5_table(hdf5_array<float, 1>(path, "x"), hdf5_array<float>(path, "y")); });
  EXPECT_EQ(message, path + ", dataset 'x' has 4 samples, " + path + ", dataset 'y' has 5; wanted the same number");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  H5Eget_auto2(H5E_DEFAULT, &after, &data_after);
  EXPECT_EQ(before, after);
  EXPECT_EQ(data_before, data_after);
}

TEST_F(hdf5, damaged_files_are_errors_with_the_path) {
  maker(path).add("x", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {1000}, counting<float>(1000), {100}).close();
  std::ifstream in(path, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  for (const double part : {0.1, 0.5, 0.9}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, static_cast<std::size_t>(part * double(whole.size())));
    EXPECT_NE(refusal([&] { hdf5_array<float>(path, "x"); }), "") << part;
  }
  // A chunk that cannot be inflated: the bytes of the first one, which begin as zlib's do, are overwritten.
  std::string damaged = whole;
  const std::size_t first = damaged.find("\x78\x5e");
  ASSERT_NE(first, std::string::npos);
  damaged.replace(first, 16, std::string(16, '\xff'));
  std::ofstream(path, std::ios::binary) << damaged;
  const hdf5_array<float> array(path, "x");
  std::size_t bad = 0;
  for (std::size_t i = 0; i < 1000; i += 100) {
    const std::string message = error_of([&] { sample_of(array, i); });
    if (message.empty()) continue;
    ++bad;
    EXPECT_TRUE(message.starts_with("sample " + std::to_string(i) + ", " + path + ", dataset 'x': cannot read: "))
        << message;
  }
  EXPECT_EQ(bad, 1u);
}

TEST_F(hdf5, many_readers_share_a_file) {
  constexpr std::size_t samples = 3000;
  maker(path)
      .add("x", H5T_STD_I32BE, H5T_NATIVE_INT32, {samples, 4}, counting<std::int32_t>(samples * 4), {64, 4})
      .add("y", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {samples}, counting<float>(samples))
      .close();
  auto feed = hdf5_table(hdf5_array<std::int32_t, 1>(path, "x"), hdf5_array<float>(path, "y")) |
              penstock::partition({.seed = 5}) | penstock::read({.readers = 4}) | penstock::batch(32) |
              penstock::transfer(penstock::cpu_device{});
  std::vector<int> seen(samples);
  for (auto& batch : feed.epoch(0)) {
    const auto [x, y] = batch.fields();
    for (std::size_t row = 0; row < batch.size(); ++row) {
      const auto number = static_cast<std::size_t>(y[row]);
      for (std::size_t k = 0; k < 4; ++k) ASSERT_EQ(x(row, k), static_cast<std::int32_t>(number * 4 + k));
      ++seen.at(number);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(samples, 1));
}

// Also where many may call the library it does one thing at a time: a second read would wait for the first.
TEST_F(hdf5, is_not_read_again) {
  maker(path).add("x", H5T_STD_I32LE, H5T_NATIVE_INT32, {8, 4}, counting<std::int32_t>(32)).close();
  const hdf5_array<std::int32_t, 1> array(path, "x");
  const auto refused = [](const auto& data) {
    try {
      (data | penstock::partition() | penstock::read({.readers = 2, .late = penstock::late_reads::reread}) |
       penstock::batch(4) | penstock::transfer(penstock::cpu_device{}))
          .start();
    } catch (const std::invalid_argument& caught) {
      return std::string(caught.what());
    }
    return "accepted"s;
  };
  EXPECT_NE(refused(array).find("a second read waits for the first"), std::string::npos) << refused(array);
  EXPECT_NE(refused(hdf5_table(array)).find("a second read waits for the first"), std::string::npos);
}

/// Files of Debian's package python-tables-data; unpacked by tests/real_inputs.sh.
TEST_F(hdf5, real_files_of_either_byte_order_hold_the_same_numbers) {
  const char* const root = std::getenv("PENSTOCK_REAL_INPUTS");
  const std::string folder = std::string(root == nullptr ? "" : root) + "/usr/share/python-tables/tests/";
  if (root == nullptr || !std::filesystem::exists(folder + "smpl_f64be.h5")) GTEST_SKIP() << "no " << folder;
  const hdf5_array<double, 1> big(folder + "smpl_f64be.h5", "TestArray"), little(folder + "smpl_f64le.h5", "TestArray");
  ASSERT_GT(big.size(), 0u);
  ASSERT_EQ(big.size(), little.size());
  for (std::size_t i = 0; i < big.size(); ++i) {
    EXPECT_EQ(sample_of(big, i), sample_of(little, i));
    EXPECT_EQ(sample_of(hdf5_array<std::int32_t, 1>(folder + "smpl_i32be.h5", "TestArray"), i),
              sample_of(hdf5_array<std::int32_t, 1>(folder + "smpl_i32le.h5", "TestArray"), i));
  }
}

}  // namespace
