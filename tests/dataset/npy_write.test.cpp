// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include "npy_files.hpp"

namespace {

using namespace npy_test;
using penstock::npy_array;
using penstock::write_npy;

class npy_write : public testing::Test {
 protected:
  std::size_t files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory.path())) ++count;
    return count;
  }
  temporary_directory directory;
};

TEST_F(npy_write, writes_the_bytes_that_numpy_writes) {
  if (std::endian::native != std::endian::little) GTEST_SKIP() << "the bytes below are a little-endian machine's";
  write_npy(directory / "a.npy", std::vector<std::int16_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  const std::string wanted = std::string("\x93NUMPY\x01\x00\x76\x00", 10) +
                             "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }" + std::string(58, ' ') +
                             "\n" + bytes_of<std::int16_t>({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(read_file(directory / "a.npy"), wanted);
}

TEST_F(npy_write, every_shape_comes_back_with_aligned_data) {
  for (const std::vector<std::size_t>& shape :
       std::vector<std::vector<std::size_t>>{{}, {0}, {5}, {0, 3}, {2, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                                            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7}}) {
    std::size_t elements = 1;
    for (std::size_t extent : shape) elements *= extent;
    write_npy(directory / "a.npy", std::vector<double>(elements, 0.5), shape);
    const auto header = penstock::npy_info(directory / "a.npy");
    EXPECT_EQ(header.shape, shape);
    EXPECT_EQ(header.data_offset % 64, 0u);
    EXPECT_FALSE(header.fortran_order);
  }
}

TEST_F(npy_write, a_view_is_written_with_its_shape) {
  const std::array<std::complex<float>, 4> values{{{1, 2}, {3, 4}, {5, 6}, {7, 8}}};
  write_npy(directory / "a.npy", penstock::tensor_view<const std::complex<float>, 2>(values.data(), {2, 2}));
  const npy_array<std::complex<float>, 1> array(directory / "a.npy");
  EXPECT_EQ(all_of(array), (std::vector<std::complex<float>>(values.begin(), values.end())));
}

TEST_F(npy_write, replaces_a_file_at_once_and_leaves_nothing_else) {
  write_npy(directory / "a.npy", std::vector<float>{1, 2}, {2});
  const npy_array<float> old(directory / "a.npy");
  write_npy(directory / "a.npy", std::vector<float>{3}, {1});
  EXPECT_EQ(all_of(old), (std::vector<float>{1, 2}));  // who has it open keeps the old one
  EXPECT_EQ(all_of(npy_array<float>(directory / "a.npy")), (std::vector<float>{3}));
  EXPECT_EQ(files(), 1u);
}

TEST_F(npy_write, a_stale_temporary_file_is_not_in_the_way) {
  write_file(directory / ("a.npy.tmp" + std::to_string(::getpid()) + ".0"), "left by another");
  write_npy(directory / "a.npy", std::vector<float>{1}, {1});
  EXPECT_EQ(files(), 2u);
  EXPECT_EQ(penstock::npy_info(directory / "a.npy").elements(), 1u);
}

TEST_F(npy_write, errors_name_the_path_and_leave_nothing_behind) {
  EXPECT_EQ(missing(error_of([&] { write_npy(directory / "no/a.npy", std::vector<float>{1}, {1}); }),
                    {"no/a.npy", "cannot create", "No such file"}),
            "");
  std::filesystem::create_directory(directory / "a.npy");
  EXPECT_EQ(missing(error_of([&] { write_npy(directory / "a.npy", std::vector<float>{1}, {1}); }),
                    {"a.npy", "cannot replace"}),
            "");
  EXPECT_THROW(write_npy(directory / "b.npy", std::vector<float>(5), {2, 3}), std::invalid_argument);
  EXPECT_THROW(write_npy(directory / "b.npy", std::vector<float>(0), {0, std::size_t(1) << 63, 4}),
               std::invalid_argument);
  EXPECT_THROW(write_npy(directory / "b.npy", std::vector<float>(1), std::vector<std::size_t>(65, 1)),
               std::invalid_argument);
  EXPECT_EQ(files(), 1u);
}

}  // namespace
