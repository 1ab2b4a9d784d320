// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <fcntl.h>
#include <gtest/gtest.h>

#include <numeric>

#include "npy_files.hpp"

namespace {

using namespace npy_test;
using penstock::npy_access;
using penstock::npy_array;

class npy : public testing::TestWithParam<npy_access> {
 protected:
  penstock::npy_options options(bool convert = false) const { return {.convert = convert, .access = GetParam()}; }
  temporary_directory directory;
};

INSTANTIATE_TEST_SUITE_P(access, npy, testing::Values(npy_access::mapped, npy_access::positioned),
                         [](const auto& at) { return at.param == npy_access::mapped ? "mapped" : "positioned"; });

TEST_P(npy, first_dimension_counts_samples_and_the_rest_is_their_shape) {
  std::vector<float> values(5 * 2 * 3);
  std::iota(values.begin(), values.end(), 0.5f);
  penstock::write_npy(directory / "inputs.npy", values, {5, 2, 3});
  const npy_array<float, 2> array(directory / "inputs.npy", options());
  EXPECT_EQ(array.size(), 5u);
  EXPECT_EQ(array.schema(), penstock::schema(penstock::field<float, 2>{"inputs", {2, 3}}));
  EXPECT_EQ(all_of(array), values);
  EXPECT_EQ(sample_of(array, 3), (std::vector<float>(values.begin() + 18, values.begin() + 24)));
}

// NPY-1
TEST_P(npy, NPY_1_fortran_and_c_order_give_the_same_element_i_j) {
  std::vector<double> rows(12), columns(12);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      rows[i * 4 + j] = columns[j * 3 + i] = static_cast<double>(10 * i + j);
    }
  }
  const npy_array<double, 1> c(write_file(directory / "c.npy", npy_file("<f8", "(3, 4)", bytes_of(rows))), options());
  const npy_array<double, 1> f(write_file(directory / "f.npy", npy_file("<f8", "(3, 4)", bytes_of(columns), true)),
                               options());
  EXPECT_EQ(all_of(c), rows);
  EXPECT_EQ(all_of(f), rows);
}

TEST_P(npy, fortran_order_of_rank_4_is_gathered_swapped_and_converted) {
  const std::array<std::size_t, 4> shape{2, 3, 4, 5};
  std::vector<std::int16_t> fortran(120);
  std::vector<float> wanted;
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 4; ++k)
        for (std::size_t l = 0; l < 5; ++l) {
          const std::size_t value = ((i * 10 + j) * 10 + k) * 10 + l;
          fortran[i + shape[0] * (j + shape[1] * (k + shape[2] * l))] = static_cast<std::int16_t>(value);
          wanted.push_back(static_cast<float>(value));
        }
  write_file(directory / "f.npy", npy_file(">i2", "(2, 3, 4, 5)", bytes_of(fortran, '>'), true));
  EXPECT_EQ(all_of(npy_array<float, 3>(directory / "f.npy", options(true))), wanted);
}

TEST_P(npy, one_dimension_is_the_same_in_either_order) {
  const std::vector<std::int64_t> labels{7, -1, 3};
  for (bool fortran : {false, true}) {
    write_file(directory / "y.npy", npy_file("<i8", "(3,)", bytes_of(labels), fortran));
    const npy_array<std::int64_t> array(directory / "y.npy", options());
    EXPECT_EQ(all_of(array), labels);
  }
}

TEST_P(npy, reads_a_range_of_any_indices_in_bulk) {
  for (bool fortran : {false, true}) {
    std::vector<float> values(6 * 2), stored(6 * 2);
    std::iota(values.begin(), values.end(), 0.0f);
    for (std::size_t i = 0; i < 12; ++i) stored[fortran ? i % 2 * 6 + i / 2 : i] = values[i];
    write_file(directory / "x.npy", npy_file("<f4", "(6, 2)", bytes_of(stored), fortran));
    const npy_array<float, 1> array(directory / "x.npy", options());
    const std::vector<std::uint64_t> indices{4, 0, 1, 2, 5, 5, 3};
    std::vector<float> to(indices.size() * 2);
    array.read_range(indices, {penstock::tensor_view<float, 2>(to.data(), {indices.size(), 2})});
    EXPECT_EQ(to, (std::vector<float>{8, 9, 0, 1, 2, 3, 4, 5, 10, 11, 10, 11, 6, 7}));
    const std::vector<std::uint64_t> beyond{4, 5, 6};
    EXPECT_EQ(missing(error_of([&] { array.read_range(beyond, {penstock::tensor_view<float, 2>(to.data(), {3, 2})}); }),
                      {"x.npy", "sample 6 is wanted, the file has 6"}),
              "");
  }
}

// Rows of a page and more, so that they are asked for ahead, in several blocks, with neighbours across their borders.
TEST_P(npy, reads_long_ranges_from_memory_and_from_disk) {
  constexpr std::size_t rows = 300, columns = 1500;
  std::vector<float> values(rows * columns);
  std::iota(values.begin(), values.end(), 0.0f);
  penstock::write_npy(directory / "x.npy", values, {rows, columns});
  std::vector<std::uint64_t> indices(rows);
  for (std::size_t i = 0; i < rows; ++i) indices[i] = i < 100 ? i : (i * 77) % rows;
  for (bool dropped : {false, true}) {
    // Only a hint to the system; the test holds either way.
    if (dropped) {
      const penstock::file_descriptor file(directory / "x.npy");
      static_cast<void>(::posix_fadvise(file.native_handle(), 0, 0, POSIX_FADV_DONTNEED));
    }
    const npy_array<float, 1> array(directory / "x.npy", options());
    std::vector<float> to(rows * columns);
    array.read_range(indices, {penstock::tensor_view<float, 2>(to.data(), {rows, columns})});
    for (std::size_t i = 0; i < rows; ++i) {
      ASSERT_EQ(to[i * columns], values[indices[i] * columns]) << i;
      ASSERT_EQ(to[(i + 1) * columns - 1], values[(indices[i] + 1) * columns - 1]) << i;
    }
  }
}

TEST_P(npy, an_index_beyond_the_end_is_an_error_and_prefetch_ignores_it) {
  penstock::write_npy(directory / "x.npy", std::vector<float>(10000), {2, 5000});
  const npy_array<float, 1> array(directory / "x.npy", options());
  for (std::size_t index : {0u, 1u, 2u, 100u}) array.prefetch(index);
  EXPECT_EQ(missing(error_of([&] { sample_of(array, 2); }), {"x.npy", "sample 2 is wanted, the file has 2"}), "");
}

TEST_P(npy, another_rank_is_an_error_that_names_the_shape) {
  penstock::write_npy(directory / "x.npy", std::vector<float>(12), {3, 4});
  EXPECT_EQ(missing(error_of([&] { npy_array<float>(directory / "x.npy", options()); }),
                    {"x.npy, byte ", "the shape is (3, 4), wanted 1 extents"}),
            "");
  EXPECT_EQ(missing(error_of([&] { npy_array<float, 2>(directory / "x.npy", options()); }),
                    {"the shape is (3, 4), wanted 3 extents"}),
            "");
}

TEST_P(npy, two_files_become_one_dataset_of_two_fields) {
  penstock::write_npy(directory / "x.npy", std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  penstock::write_npy(directory / "y.npy", std::vector<std::int32_t>{10, 20, 30}, {3});
  const auto table = penstock::npy_pair<float, 1, std::int32_t, 0>(directory / "x.npy", directory / "y.npy", options());
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(table.schema(), penstock::schema(penstock::field<float, 1>{"x", {2}}, penstock::field<std::int32_t>{"y"}));
  table.prefetch(1);
  std::array<float, 4> x{};
  std::array<std::int32_t, 2> y{};
  table.read(1, {penstock::tensor_view<float, 1>(x.data(), {2}), penstock::tensor_view<std::int32_t, 0>(y.data(), {})});
  EXPECT_EQ(x[0], 3);
  EXPECT_EQ(x[1], 4);
  EXPECT_EQ(y[0], 20);
  const std::array<std::uint64_t, 2> indices{2, 0};
  table.read_range(indices, {penstock::tensor_view<float, 2>(x.data(), {2, 2}),
                             penstock::tensor_view<std::int32_t, 1>(y.data(), {2})});
  EXPECT_EQ(x, (std::array<float, 4>{5, 6, 1, 2}));
  EXPECT_EQ(y, (std::array<std::int32_t, 2>{30, 10}));
}

TEST_P(npy, a_table_of_files_with_other_counts_names_both) {
  penstock::write_npy(directory / "x.npy", std::vector<float>(6), {3, 2});
  penstock::write_npy(directory / "y.npy", std::vector<float>(4), {4});
  const std::string message = error_of([&] {
    penstock::npy_table(npy_array<float, 1>(directory / "x.npy", options()),
                        npy_array<float>(directory / "y.npy", options()));
  });
  EXPECT_EQ(missing(message, {"x.npy has 3 samples", "y.npy has 4"}), "");
}

TEST_P(npy, fields_are_named_after_the_file_or_as_told) {
  penstock::write_npy(directory / "y.npy", std::vector<float>(4), {4});
  const npy_array<float> named(directory / "y.npy", {.access = GetParam(), .name = "price"});
  EXPECT_EQ(std::get<0>(named.schema().fields).name, "price");
  EXPECT_THROW((penstock::npy_pair<float, 0, float, 0>(directory / "y.npy", directory / "y.npy", {.name = "price"})),
               std::invalid_argument);
}

TEST_P(npy, a_copy_outlives_its_original) {
  penstock::write_npy(directory / "y.npy", std::vector<float>{1, 2}, {2});
  auto original = std::make_unique<npy_array<float>>(directory / "y.npy", options());
  const npy_array<float> copy = *original;
  original.reset();
  EXPECT_EQ(all_of(copy), (std::vector<float>{1, 2}));
}

TEST_P(npy, a_file_that_is_not_there_is_an_error_with_the_reason) {
  EXPECT_EQ(missing(error_of([&] { npy_array<float>(directory / "none.npy", options()); }),
                    {"none.npy", "cannot open", "No such file"}),
            "");
}

}  // namespace
