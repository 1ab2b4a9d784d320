// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "npy_files.hpp"

namespace {

using namespace npy_test;
using penstock::npy_array;

/// Odd files that Debian's packages python3-numpy and python3-scipy hold; unpacked by tests/real_inputs.sh.
class npy_real : public testing::Test {
 protected:
  void SetUp() override {
    const char* const root = std::getenv("PENSTOCK_REAL_INPUTS");
    if (root == nullptr) GTEST_SKIP() << "PENSTOCK_REAL_INPUTS is not set; tests/real_inputs.sh fetches the files";
    packages = std::string(root) + "/usr/lib/python3/dist-packages/";
  }
  /// Sets the path; false if the file's package was not unpacked.
  bool find(const std::string& file) {
    path = packages + file;
    return std::filesystem::exists(path);
  }
  std::string packages, path;
};

TEST_F(npy_real, shapes_of_python_2_and_3) {
  for (const char* file : {"win64python2.npy", "python3.npy"}) {
    if (!find(std::string("numpy/lib/tests/data/") + file)) GTEST_SKIP() << path << " is not there";
    const auto header = penstock::npy_info(path);
    EXPECT_EQ(header.shape, (std::vector<std::size_t>{2})) << file;
    EXPECT_EQ(all_of(npy_array<double>(path)), (std::vector<double>{1, 1}));
  }
}

TEST_F(npy_real, python_objects_are_refused_by_name) {
  for (const char* file : {"py2-objarr.npy", "py3-objarr.npy"}) {
    if (!find(std::string("numpy/lib/tests/data/") + file)) GTEST_SKIP() << path << " is not there";
    EXPECT_EQ(missing(error_of([&] { npy_array<float>(path, {.convert = true}); }), {file, "'|O", "Python objects"}),
              "");
  }
}

TEST_F(npy_real, an_npz_archive_is_named) {
  if (!find("numpy/lib/tests/data/py2-objarr.npz")) GTEST_SKIP() << path << " is not there";
  EXPECT_EQ(missing(error_of([&] { penstock::npy_info(path); }), {"NPZ"}), "");
}

TEST_F(npy_real, fortran_order_tables_are_gathered_row_by_row) {
  // The second column's number in row 1234 is a probability in one file, a density in the other.
  const std::tuple<const char*, std::size_t, double> files[] = {{"cdf", 4590, 0.75}, {"pdf", 4589, 0.02379001}};
  for (const auto& [kind, rows, second] : files) {
    if (!find(penstock::detail::concat("scipy/stats/tests/data/levy_stable/stable-Z1-", kind, "-sample-data.npy"))) {
      GTEST_SKIP() << path << " is not there";
    }
    const npy_array<double, 1> table(path);
    EXPECT_TRUE(table.header().fortran_order);
    ASSERT_EQ(table.size(), rows);
    ASSERT_EQ(std::get<0>(table.schema().fields).shape[0], 5u);
    const std::vector<double> wanted{4.60804114, second, 0.5, 0.5, 0.75};
    const auto row_1234 = sample_of(table, 1234);
    for (std::size_t column = 0; column < 5; ++column) EXPECT_NEAR(row_1234[column], wanted[column], 1e-8);
    // The third and fourth columns have narrow ranges, the first one goes to 5e19: a transposed reading mixes them.
    for (std::size_t row = 0; row < rows; ++row) {
      const auto values = sample_of(table, row);
      EXPECT_GE(values[2], 0.0) << row;
      EXPECT_LE(values[2], 2.0) << row;
      EXPECT_LE(std::abs(values[3]), 1.0) << row;
    }
  }
}

TEST_F(npy_real, a_structured_type_is_refused_by_name) {
  if (!find("scipy/stats/tests/data/levy_stable/stable-loc-scale-sample-data.npy"))
    GTEST_SKIP() << path << " is not there";
  const auto header = penstock::npy_info(path);
  EXPECT_EQ(header.shape, (std::vector<std::size_t>{126}));
  EXPECT_EQ(missing(error_of([&] { npy_array<double>(path, {.convert = true}); }),
                    {"stable-loc-scale-sample-data.npy", "a structured type", "wanted '<f8'"}),
            "");
}

}  // namespace
